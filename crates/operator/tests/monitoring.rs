//! Authenticated metrics of an installation: authorization, certificates, and their rotation at runtime.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{Running, eventually, refusing};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use mco_api::machine_configuration::LogLevel;
use mco_apiserver::Identity;
use mco_operator::manifests::{self, ManifestSettings};
use mco_operator::profile::ClusterProfile;
use mco_operator::{IgnitionTokens, MetricsAccess, OperatorOptions, certificates};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const NAMESPACE: &str = "openshift-machine-config-operator";
const GUARDED: [&str; 4] = [
    "machine-config-operator",
    "machine-config-controller",
    "machine-config-daemon",
    "machine-config-server",
];

fn host(component: &str) -> String {
    format!("{component}.{NAMESPACE}.svc")
}

fn secret_of(component: &str) -> String {
    format!("{component}-metrics-tls")
}

/// Returns the response to a scraper with the bundle, and the server's certificate.
async fn scrape(address: SocketAddr, bundle: &str, token: Option<&str>) -> Option<(String, Vec<u8>)> {
    scrape_with(rustls::DEFAULT_VERSIONS, address, bundle, token).await
}

async fn scrape_with(
    versions: &[&'static SupportedProtocolVersion],
    address: SocketAddr,
    bundle: &str,
    token: Option<&str>,
) -> Option<(String, Vec<u8>)> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host("machine-config-operator")).unwrap();
    let stream = TcpStream::connect(address).await.ok()?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .ok()?;
    let peer = stream.get_ref().1.peer_certificates()?.first()?.to_vec();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some((text, peer))
}

#[tokio::test]
async fn a_certificate_that_cannot_be_written_keeps_no_other_from_being_made() {
    let options = OperatorOptions {
        metrics_access: MetricsAccess::Guarded,
        ..OperatorOptions::new("0.1.0")
    };
    let running = Running::behind(options, async |client| {
        refusing(client, "/machine-config-operator-metrics-tls")
    })
    .await;
    let secrets: Api<Secret> = Api::namespaced(running.client(), NAMESPACE);
    for component in ["machine-config-controller", "machine-config-daemon"] {
        let name = secret_of(component);
        eventually(&name, || async { secrets.get_opt(&name).await.ok().flatten() }).await;
    }
    let refused = secrets.get_opt(&secret_of("machine-config-operator")).await;
    assert!(refused.unwrap().is_none());
    running.stop().await;
}

#[tokio::test]
async fn the_operator_guards_its_metrics_with_certificates_that_it_renews() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let running = Running::with(OperatorOptions {
        metrics_address: Some(address),
        metrics_access: MetricsAccess::Guarded,
        ..OperatorOptions::new("0.1.0")
    })
    .await;
    let secrets: Api<Secret> = Api::namespaced(running.client(), NAMESPACE);
    for component in GUARDED {
        let name = secret_of(component);
        let secret = eventually(&name, || async { secrets.get_opt(&name).await.ok().flatten() }).await;
        let certificate = String::from_utf8(secret.data.unwrap()["tls.crt"].0.clone()).unwrap();
        let facts = certificates::summary(&certificate).unwrap();
        assert_eq!(facts.hosts, [host(component)]);
        assert!(
            facts.issuer.starts_with("machine-config-metrics-ca@"),
            "{}",
            facts.issuer
        );
    }
    let authorities: Api<ConfigMap> = Api::namespaced(running.client(), NAMESPACE);
    let authority = authorities.get("machine-config-metrics-ca").await.unwrap();
    let bundle = authority.data.unwrap()["ca-bundle.crt"].clone();

    let allowed = running.server.issue_token(&Identity::admin()).unwrap();
    let known = running
        .server
        .issue_token(&Identity::new("somebody", &[]))
        .unwrap();
    let expected = "mco_operator_step{step=\"Monitoring\",outcome=\"done\"} 1";
    let shown = eventually("metrics for an authorized client", || async {
        let (text, shown) = scrape(address, &bundle, Some(&allowed)).await?;
        (text.starts_with("HTTP/1.1 200 ") && text.contains(expected)).then_some(shown)
    })
    .await;
    for (name, token, status) in [
        ("no token", None, "401"),
        ("an unauthorized client", Some(known.as_str()), "403"),
    ] {
        let (text, _) = scrape(address, &bundle, token).await.unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {text}");
        assert!(!text.contains("mco_operator"), "{name}: {text}");
    }

    let own = secret_of("machine-config-operator");
    secrets.delete(&own, &DeleteParams::default()).await.unwrap();
    eventually("another certificate", || async {
        let (text, now_shown) = scrape(address, &bundle, Some(&allowed)).await?;
        (text.starts_with("HTTP/1.1 200 ") && now_shown != shown).then_some(())
    })
    .await;
    running.stop().await;
}

/// All other endpoints had the profile of the API server.
#[tokio::test]
async fn the_operators_own_metrics_offered_older_versions_of_tls_than_the_api_server() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let options = OperatorOptions {
        metrics_address: Some(address),
        metrics_access: MetricsAccess::Guarded,
        ..OperatorOptions::new("0.1.0")
    };
    let modern = json!({"spec": {"tlsSecurityProfile": {"type": "Modern", "modern": {}}}});
    let kind = common::kind("APIServer", "apiservers");
    let running = Running::behind(options, async |client| {
        common::create(&client, &common::kind("APIServer", "apiservers"), &modern).await;
        client
    })
    .await;
    let authorities: Api<ConfigMap> = Api::namespaced(running.client(), NAMESPACE);
    let bundle = eventually("the CA of metrics", || async {
        let found = authorities.get_opt("machine-config-metrics-ca").await.ok()??;
        found.data?.remove("ca-bundle.crt")
    })
    .await;
    let old = &[&rustls::version::TLS12];
    eventually("only TLS 1.3", || async {
        scrape(address, &bundle, None).await?;
        scrape_with(old, address, &bundle, None)
            .await
            .is_none()
            .then_some(())
    })
    .await;
    let servers: Api<DynamicObject> = Api::all_with(running.client(), &kind);
    let default = Patch::Merge(json!({"spec": {"tlsSecurityProfile": null}}));
    servers
        .patch("cluster", &PatchParams::default(), &default)
        .await
        .unwrap();
    eventually("TLS 1.2 as well", || async {
        scrape_with(old, address, &bundle, None).await.map(drop)
    })
    .await;
    running.stop().await;
}

fn settings() -> ManifestSettings {
    ManifestSettings {
        image: "localhost/mco:test".to_owned(),
        api_server_url: String::new(),
        templates_image: "registry.example.com/release:4".to_owned(),
        builder_image: "registry.example.com/mco-builder:1".to_owned(),
        keep_builds: None,
        ignition_tokens: IgnitionTokens::Required,
        log_level: LogLevel::default(),
        profile: ClusterProfile::default(),
        chosen_base: None,
        tls: None,
    }
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("{kind} {name}"))
}

#[test]
fn pods_find_their_certificates_and_start_without_them() {
    let objects = manifests::installation(&settings());
    for (kind, name) in [
        ("Deployment", "machine-config-controller"),
        ("DaemonSet", "machine-config-daemon"),
        ("DaemonSet", "machine-config-server"),
    ] {
        let pod = &named(&objects, kind, name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes
            .iter()
            .find(|volume| volume["secret"]["secretName"] == secret_of(name).as_str())
            .unwrap();
        assert_eq!(volume["secret"]["optional"], true, "{name}");
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts
            .iter()
            .find(|mount| mount["name"] == volume["name"])
            .unwrap();
        let path = mount["mountPath"].as_str().unwrap();
        let arguments = container["args"].as_array().unwrap();
        for argument in [
            format!("--metrics-cert={path}/tls.crt"),
            format!("--metrics-key={path}/tls.key"),
        ] {
            assert!(arguments.contains(&json!(argument)), "{name}: {arguments:?}");
        }
        for probe in ["livenessProbe", "readinessProbe"] {
            let scheme = &container[probe]["httpGet"]["scheme"];
            assert_eq!(*scheme, Value::Null, "health is served without TLS");
        }
    }
    let operator = named(&objects, "Deployment", "machine-config-operator");
    let arguments = &operator["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&json!("--guard-metrics")));
}

#[test]
fn each_process_may_ask_about_tokens_and_nothing_more_than_ask() {
    let objects = manifests::installation(&settings());
    for component in GUARDED {
        let rules = named(&objects, "ClusterRole", component)["rules"]
            .as_array()
            .unwrap();
        for (group, resource) in [
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        ] {
            let of_group: Vec<&Value> = rules
                .iter()
                .filter(|rule| rule["apiGroups"] == json!([group]))
                .collect();
            let only = json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
            assert_eq!(of_group, [&only], "{component}");
        }
    }
    let reader = named(&objects, "ClusterRole", "machine-config-metrics-reader");
    assert_eq!(
        reader["rules"],
        json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    );
}

#[test]
fn scrapers_get_the_server_name_and_the_ca() {
    let objects = manifests::alerts();
    let role = objects.iter().find(|object| object["kind"] == "Role").unwrap();
    let binding = (objects.iter())
        .find(|object| object["kind"] == "RoleBinding")
        .unwrap();
    assert_eq!(
        role["rules"][0]["resources"],
        json!(["services", "endpoints", "pods"])
    );
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    assert_eq!(
        binding["subjects"][0],
        json!({"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring"})
    );
    for component in GUARDED {
        let endpoint = &named(&objects, "ServiceMonitor", component)["spec"]["endpoints"][0];
        assert_eq!(endpoint["scheme"], "https", "{component}");
        assert_eq!(endpoint["tlsConfig"]["serverName"], host(component).as_str());
        let authority = &endpoint["tlsConfig"]["ca"]["configMap"];
        assert_eq!(
            *authority,
            json!({"name": "machine-config-metrics-ca", "key": "ca-bundle.crt"})
        );
        assert!(endpoint["bearerTokenFile"].is_string(), "{component}");
    }
}
