//! Remote contents of MachineConfigs, fetched from an https server on the loopback interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::{ControllerConfig, MachineConfig};
use mco_controllers::Options;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::remote;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::cluster::{Cluster, eventually, file_config, holds, message, target};

const BODY: &str = "from afar\n";

struct ContentServer {
    url: String,
    certificate: String,
    requests: Arc<AtomicUsize>,
    /// Answers 503 to everything.
    down: Arc<AtomicBool>,
}

async fn serve() -> ContentServer {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::IpAddress("127.0.0.1".parse().unwrap())];
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ContentServer {
        url: format!("https://{}", listener.local_addr().unwrap()),
        certificate: certificate.pem(),
        requests: Arc::default(),
        down: Arc::default(),
    };
    let (requests, down) = (Arc::clone(&server.requests), Arc::clone(&server.down));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else {
                    break;
                };
                request.push(byte);
            }
            let found = request.starts_with(b"GET /motd ") && !down.load(Ordering::SeqCst);
            if found {
                requests.fetch_add(1, Ordering::SeqCst);
            }
            let (status, body) = if found { ("200 OK", BODY) } else { ("503 Down", "") };
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    server
}

fn remote_config(name: &str, role: &str, url: &str) -> Value {
    let mut config = file_config(name, role, "/etc/remote", "");
    config["spec"]["config"]["storage"]["files"][0]["contents"] = json!({
        "source": url,
        "verification": {"hash": remote::hash_of(BODY.as_bytes(), "").unwrap()},
    });
    config
}

fn options(cluster: &Cluster) -> Options {
    Options {
        contents_networks: vec!["127.0.0.1/32".parse().unwrap()],
        ..cluster.options()
    }
}

async fn target_config(cluster: &Cluster, pool: &str) -> ParsedConfig {
    let name = target(&cluster.pool(pool).await);
    ParsedConfig::applicable(cluster.api::<MachineConfig>().get(&name).await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_fetched_once_and_a_bad_url_degrades_only_its_own_pool() {
    let server = serve().await;
    let mut cluster = Cluster::prepare().await;
    let ca = ByteString(server.certificate.clone().into_bytes());
    cluster
        .patch::<ControllerConfig>(
            mco_api::controller_config::CONTROLLER_CONFIG_NAME,
            json!({"spec": {"rootCAData": ca}}),
        )
        .await;
    cluster.start_controllers_with(options(&cluster));
    for pool in ["master", "worker"] {
        cluster
            .pool_where(pool, "is rendered", |pool| !target(pool).is_empty())
            .await;
    }
    let before = target(&cluster.pool("worker").await);
    let first = target(&cluster.pool("master").await);

    // The worker's URL does not work, and the hash of its contents is another, so that it is fetched for itself.
    let mut bad = remote_config("50-bad", "worker", &format!("{}/missing", server.url));
    bad["spec"]["config"]["storage"]["files"][0]["contents"]["verification"]["hash"] =
        json!(remote::hash_of(b"other", "").unwrap());
    cluster.create_config(bad).await;
    cluster
        .create_config(remote_config(
            "50-good",
            "master",
            &format!("{}/motd", server.url),
        ))
        .await;
    cluster.retargeted("master", &first).await;
    let rendered = target_config(&cluster, "master").await;
    assert_eq!(rendered.text_of("/etc/remote").as_deref(), Some(BODY));
    assert!(
        !serde_json::to_string(&rendered.object.spec)
            .unwrap()
            .contains(&server.url)
    );

    let degraded = cluster
        .pool_where("worker", "cannot be rendered", |pool| {
            holds(pool, condition::RENDER_DEGRADED)
        })
        .await;
    let text = message(&degraded, condition::RENDER_DEGRADED);
    assert!(
        text.contains("50-bad") && text.contains("/missing cannot be fetched: 127.0.0.1 answered 503"),
        "{text}"
    );
    assert_eq!(target(&degraded), before, "it keeps its config");
    assert!(!holds(&cluster.pool("master").await, condition::RENDER_DEGRADED));

    // A restarted controller needs neither the server nor the network.
    server.down.store(true, Ordering::SeqCst);
    cluster.stop_controllers().await;
    cluster.start_controllers_with(options(&cluster));
    let now = target(&cluster.pool("master").await);
    cluster
        .create_config(file_config("51-local", "master", "/etc/local", "here"))
        .await;
    cluster.retargeted("master", &now).await;
    let rendered = target_config(&cluster, "master").await;
    assert_eq!(rendered.text_of("/etc/remote").as_deref(), Some(BODY));
    assert_eq!(rendered.text_of("/etc/local").as_deref(), Some("here"));
    assert_eq!(server.requests.load(Ordering::SeqCst), 1, "fetched once");

    // Without the references everything is as before.
    cluster.delete_config("50-bad").await;
    cluster.delete_config("50-good").await;
    cluster.delete_config("51-local").await;
    cluster
        .pool_where("worker", "is rendered again", |pool| {
            !holds(pool, condition::RENDER_DEGRADED)
        })
        .await;
    cluster
        .pool_where("master", "has its first config", |pool| target(pool) == first)
        .await;
    let stored: Api<ConfigMap> =
        Api::namespaced(cluster.client.clone(), mco_api::vocabulary::names::NAMESPACE);
    let label = ListParams::default().labels(mco_api::vocabulary::labels::REMOTE_CONTENTS);
    eventually("unused contents are deleted", || async {
        let left = stored.list(&label).await.unwrap().items;
        left.is_empty().then_some(())
    })
    .await;
    cluster.stop_controllers().await;
}
