//! The metrics endpoint with access control: a real TLS client, and an API server that reviews tokens.
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
use mco_http::metrics::{ScrapeAccess, serve_metrics};
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
/// Longer than any verdict is cached and than the interval in which files are checked.
const LONG: Duration = Duration::from_mins(6);

/// A process that serves metrics, the API server that reviews its scrapers, and the files of its certificate.
struct TestEndpoint {
    server: ApiServer,
    /// The number of requests to the API server.
    reviews: Arc<AtomicUsize>,
    address: SocketAddr,
    files: TempDir,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _data: TempDir,
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of an encoder")]
fn encode() -> Result<String, fmt::Error> {
    Ok("some_metric 1\n# EOF\n".to_owned())
}

impl TestEndpoint {
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = ApiServer::open(data.path(), ApiServerOptions::default())
            .await
            .unwrap();
        let reviews = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reviews);
        let service = server.service().map_request(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            request
        });
        let files = tempfile::tempdir().unwrap();
        let client = kube::Client::new(service, "default");
        let (certificate, key) = pair_of(&files);
        let access = ScrapeAccess::with_files(&certificate, &key, client).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve_metrics(listener, access, encode, stop.clone()));
        Self {
            server,
            reviews,
            address,
            files,
            stop,
            serving,
            _data: data,
        }
    }

    /// Writes a new certificate into the files and returns it.
    fn write_certificate(&self) -> CertificateDer<'static> {
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

    /// Sends a request as a client that trusts only this certificate.
    async fn get(&self, trusted: &CertificateDer<'static>, path: &str, token: Option<&str>) -> (u16, String) {
        let stream = self.handshake(trusted).await.unwrap();
        get(stream, path, token).await
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
        get(TcpStream::connect(self.address).await.unwrap(), path, token).await
    }

    fn review_requests(&self) -> usize {
        self.reviews.load(Ordering::Relaxed)
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

async fn get(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Advances the clock without waiting.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn metrics_need_authorization_and_health_endpoints_do_not() {
    let endpoint = TestEndpoint::start().await;
    let trusted = endpoint.write_certificate();
    endpoint.allow("prometheus").await;
    let (allowed, known) = (endpoint.token_of("prometheus"), endpoint.token_of("other"));
    for (name, path, token, expected) in [
        ("no token", "/metrics", None, 401),
        ("an unknown token", "/metrics", Some("nonsense"), 401),
        ("an unauthorized user", "/metrics", Some(known.as_str()), 403),
        ("an authorized user", "/metrics", Some(allowed.as_str()), 200),
        ("a probe", "/healthz", None, 200),
        ("another path", "/", None, 404),
    ] {
        let (status, body) = endpoint.get(&trusted, path, token).await;
        assert_eq!(status, expected, "{name}: {body}");
        assert_eq!(
            body.contains("some_metric 1"),
            name == "an authorized user",
            "{name}: {body}"
        );
    }
    for (name, path, token, expected) in [
        ("a probe", "/healthz", None, 200),
        ("no token", "/metrics", None, 403),
        ("a good token", "/metrics", Some(allowed.as_str()), 403),
    ] {
        let (status, body) = endpoint.get_plain(path, token).await;
        assert_eq!(status, expected, "over plain HTTP, {name}: {body}");
        assert!(!body.contains("some_metric"), "over plain HTTP, {name}: {body}");
    }
    endpoint.end().await;
}

#[tokio::test]
async fn reviews_are_cached_for_a_while() {
    let endpoint = TestEndpoint::start().await;
    let trusted = endpoint.write_certificate();
    endpoint.allow("prometheus").await;
    let token = endpoint.token_of("prometheus");
    for (name, token, expected, requests) in [
        ("token and access review", token.as_str(), 200, 2),
        ("token review", "nonsense", 401, 1),
    ] {
        let mut costs = Vec::new();
        // On a host that stands still for minutes the first verdict has expired before the second scrape.
        while !costs.contains(&0) && costs.len() < MOST_TRIES {
            let before = endpoint.review_requests();
            let (status, body) = endpoint.get(&trusted, "/metrics", Some(token)).await;
            assert_eq!(status, expected, "{name}: {body}");
            costs.push(endpoint.review_requests() - before);
        }
        assert_eq!(costs.first(), Some(&requests), "{name}");
        assert_eq!(costs.last(), Some(&0), "{name}");
    }
    endpoint
        .api::<ClusterRoleBinding>()
        .delete(READER, &DeleteParams::default())
        .await
        .unwrap();
    pass(LONG).await;
    let (status, _) = endpoint.get(&trusted, "/metrics", Some(&token)).await;
    assert_eq!(status, 403, "the role was revoked");
    endpoint.server.revoke_tokens("prometheus").unwrap();
    pass(LONG).await;
    let (status, _) = endpoint.get(&trusted, "/metrics", Some(&token)).await;
    assert_eq!(status, 401, "the token was revoked");
    endpoint.end().await;
}

#[tokio::test]
async fn concurrent_scrapes_with_one_token_cause_one_review() {
    let endpoint = TestEndpoint::start().await;
    let trusted = endpoint.write_certificate();
    endpoint.allow("prometheus").await;
    let token = endpoint.token_of("prometheus");
    let scrape = || endpoint.get(&trusted, "/metrics", Some(&token));
    let answers = tokio::join!(scrape(), scrape(), scrape(), scrape());
    for (status, _) in <[(u16, String); 4]>::from(answers) {
        assert_eq!(status, 200);
    }
    assert_eq!(endpoint.review_requests(), 2);
    endpoint.end().await;
}

#[tokio::test]
async fn a_certificate_may_appear_late_and_be_replaced() {
    let endpoint = TestEndpoint::start().await;
    let unrelated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let unrelated = CertificateDer::from_pem_slice(unrelated.cert.pem().as_bytes()).unwrap();
    assert!(
        endpoint.handshake(&unrelated).await.is_err(),
        "no certificate yet"
    );
    let (status, _) = endpoint.get_plain("/healthz", None).await;
    assert_eq!(status, 200, "health needs no certificate");

    let first = endpoint.write_certificate();
    pass(LONG).await;
    assert_eq!(endpoint.get(&first, "/healthz", None).await.0, 200);

    let second = endpoint.write_certificate();
    pass(LONG).await;
    assert_eq!(endpoint.get(&second, "/healthz", None).await.0, 200);
    assert!(
        endpoint.handshake(&first).await.is_err(),
        "the first is no longer served"
    );

    fs::write(pair_of(&endpoint.files).0, "nonsense").unwrap();
    pass(LONG).await;
    assert_eq!(
        endpoint.get(&second, "/healthz", None).await.0,
        200,
        "an unusable one is ignored"
    );
    endpoint.end().await;
}

#[tokio::test]
async fn without_reviews_no_client_is_authorized() {
    let endpoint = TestEndpoint::start().await;
    let trusted = endpoint.write_certificate();
    endpoint.allow("prometheus").await;
    let token = endpoint.token_of("prometheus");
    let unprivileged = Identity::new("without-rights", &[]);
    let client = kube::Client::new(endpoint.server.service_as(unprivileged), "default");
    let (certificate, key) = pair_of(&endpoint.files);
    let access = ScrapeAccess::with_files(&certificate, &key, client).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve_metrics(listener, access, encode, endpoint.stop.clone()));
    let unprivileged = TestEndpoint { address, ..endpoint };
    for _ in 0..2 {
        let (status, body) = unprivileged.get(&trusted, "/metrics", Some(&token)).await;
        assert_eq!(status, 503, "{body}");
    }
    unprivileged.end().await;
    serving.await.unwrap();
}
