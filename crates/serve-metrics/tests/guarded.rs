//! Scrapers before a guarded door, with a real TLS client and an API that reviews tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use mco_apiserver::{ApiServer, ApiServerOptions, Identity};
use mco_serve_metrics::{Door, serve};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const READER: &str = "reader";
const MOST_TRIES: usize = 20;
/// Longer than anything is remembered, and than files are not looked at.
const LONG: Duration = Duration::from_mins(6);

/// A process that tells its metrics, the API it asks about scrapers, and the files with its certificate.
struct World {
    server: ApiServer,
    /// How often the API was asked anything by the process.
    asked: Arc<AtomicUsize>,
    address: SocketAddr,
    files: TempDir,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _data: TempDir,
}

#[expect(clippy::unnecessary_wraps, reason = "what an encoder looks like")]
fn encode() -> Result<String, fmt::Error> {
    Ok("some_metric 1\n# EOF\n".to_owned())
}

impl World {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = ApiServer::open(data.path(), ApiServerOptions::default())
            .await
            .unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = server.service().map_request(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            request
        });
        let files = tempfile::tempdir().unwrap();
        let client = kube::Client::new(service, "default");
        let (certificate, key) = pair_of(&files);
        let door = Door::with_files(&certificate, &key, client).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, door, encode, stop.clone()));
        Self {
            server,
            asked,
            address,
            files,
            stop,
            serving,
            _data: data,
        }
    }

    /// Puts another certificate into the files, and returns it.
    fn certify(&self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = pair_of(&self.files);
        fs::write(certificate, made.cert.pem()).unwrap();
        fs::write(key, made.signing_key.serialize_pem()).unwrap();
        CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()
    }

    fn token_of(&self, user: &str) -> String {
        self.server.issue_token(&Identity::new(user, &[])).unwrap()
    }

    fn api<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(kube::Client::new(self.server.service(), "default"))
    }

    async fn allow(&self, user: &str) {
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": READER},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }))
        .unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": READER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &role).await.unwrap();
        self.api().create(&PostParams::default(), &binding).await.unwrap();
    }

    /// Asks as a client that trusts nothing but this certificate.
    async fn get(&self, trusted: &CertificateDer<'static>, path: &str, token: Option<&str>) -> (u16, String) {
        let stream = self.handshake(trusted).await.unwrap();
        ask(stream, path, token).await
    }

    async fn handshake(
        &self,
        trusted: &CertificateDer<'static>,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn get_plain(&self, path: &str, token: Option<&str>) -> (u16, String) {
        ask(TcpStream::connect(self.address).await.unwrap(), path, token).await
    }

    fn times_asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
        self.server.shutdown().await;
    }
}

fn pair_of(files: &TempDir) -> (PathBuf, PathBuf) {
    (files.path().join("tls.crt"), files.path().join("tls.key"))
}

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Lets time pass without waiting for it.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_cluster_lets_and_signs_of_life_for_all() {
    let world = World::start().await;
    let trusted = world.certify();
    world.allow("prometheus").await;
    let (allowed, known) = (world.token_of("prometheus"), world.token_of("somebody"));
    for (name, path, token, expected) in [
        ("no token", "/metrics", None, 401),
        ("nobody's token", "/metrics", Some("nonsense"), 401),
        ("somebody who may not", "/metrics", Some(known.as_str()), 403),
        ("somebody who may", "/metrics", Some(allowed.as_str()), 200),
        ("a probe", "/healthz", None, 200),
        ("something else", "/", None, 404),
    ] {
        let (status, body) = world.get(&trusted, path, token).await;
        assert_eq!(status, expected, "{name}: {body}");
        assert_eq!(
            body.contains("some_metric 1"),
            name == "somebody who may",
            "{name}: {body}"
        );
    }
    for (name, path, token, expected) in [
        ("a probe", "/healthz", None, 200),
        ("no token", "/metrics", None, 403),
        ("a good token", "/metrics", Some(allowed.as_str()), 403),
    ] {
        let (status, body) = world.get_plain(path, token).await;
        assert_eq!(status, expected, "over plain HTTP, {name}: {body}");
        assert!(!body.contains("some_metric"), "over plain HTTP, {name}: {body}");
    }
    world.end().await;
}

#[tokio::test]
async fn the_cluster_is_not_asked_about_every_scrape_and_is_asked_again_after_a_while() {
    let world = World::start().await;
    let trusted = world.certify();
    world.allow("prometheus").await;
    let token = world.token_of("prometheus");
    for (name, token, expected, questions) in [
        ("whose token it is, and whether they may", token.as_str(), 200, 2),
        ("whose token it is", "nonsense", 401, 1),
    ] {
        let mut costs = Vec::new();
        // On a machine that stands still for minutes even the second answer comes too late to be remembered.
        while !costs.contains(&0) && costs.len() < MOST_TRIES {
            let before = world.times_asked();
            let (status, body) = world.get(&trusted, "/metrics", Some(token)).await;
            assert_eq!(status, expected, "{name}: {body}");
            costs.push(world.times_asked() - before);
        }
        assert_eq!(costs.first(), Some(&questions), "{name}");
        assert_eq!(costs.last(), Some(&0), "{name}");
    }
    world
        .api::<ClusterRoleBinding>()
        .delete(READER, &DeleteParams::default())
        .await
        .unwrap();
    pass(LONG).await;
    let (status, _) = world.get(&trusted, "/metrics", Some(&token)).await;
    assert_eq!(status, 403, "the right was taken away");
    world.server.revoke_tokens("prometheus").unwrap();
    pass(LONG).await;
    let (status, _) = world.get(&trusted, "/metrics", Some(&token)).await;
    assert_eq!(status, 401, "the token was taken away");
    world.end().await;
}

#[tokio::test]
async fn many_scrapes_at_once_with_one_token_are_one_question() {
    let world = World::start().await;
    let trusted = world.certify();
    world.allow("prometheus").await;
    let token = world.token_of("prometheus");
    let scrape = || world.get(&trusted, "/metrics", Some(&token));
    let answers = tokio::join!(scrape(), scrape(), scrape(), scrape());
    for (status, _) in <[(u16, String); 4]>::from(answers) {
        assert_eq!(status, 200);
    }
    assert_eq!(world.times_asked(), 2);
    world.end().await;
}

#[tokio::test]
async fn a_certificate_may_come_late_and_be_replaced() {
    let world = World::start().await;
    let unrelated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let unrelated = CertificateDer::from_pem_slice(unrelated.cert.pem().as_bytes()).unwrap();
    assert!(world.handshake(&unrelated).await.is_err(), "there is none yet");
    let (status, _) = world.get_plain("/healthz", None).await;
    assert_eq!(status, 200, "but the process lives");

    let first = world.certify();
    pass(LONG).await;
    assert_eq!(world.get(&first, "/healthz", None).await.0, 200);

    let second = world.certify();
    pass(LONG).await;
    assert_eq!(world.get(&second, "/healthz", None).await.0, 200);
    assert!(
        world.handshake(&first).await.is_err(),
        "the first is no longer shown"
    );

    fs::write(pair_of(&world.files).0, "nonsense").unwrap();
    pass(LONG).await;
    assert_eq!(
        world.get(&second, "/healthz", None).await.0,
        200,
        "a broken one is not taken"
    );
    world.end().await;
}

#[tokio::test]
async fn a_cluster_that_cannot_be_asked_lets_nobody_in_and_is_asked_again() {
    let world = World::start().await;
    let trusted = world.certify();
    world.allow("prometheus").await;
    let token = world.token_of("prometheus");
    let refusing = Identity::new("without-rights", &[]);
    let client = kube::Client::new(world.server.service_as(refusing), "default");
    let (certificate, key) = pair_of(&world.files);
    let door = Door::with_files(&certificate, &key, client).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener, door, encode, world.stop.clone()));
    let powerless = World { address, ..world };
    for _ in 0..2 {
        let (status, body) = powerless.get(&trusted, "/metrics", Some(&token)).await;
        assert_eq!(status, 503, "{body}");
    }
    powerless.end().await;
    serving.await.unwrap();
}
