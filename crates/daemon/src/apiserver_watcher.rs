//! Reports to the routing scripts of a control-plane machine whether its own API server is healthy.
//!
//! Some clouds deliver connections to the load balancer's address that come from one of its backends to that backend
//! itself. While the machine's API server is down, its routing scripts must therefore send them to another machine. They
//! are the clients of the files here: `/run/cloud-routes/<address>.up` and `.down`.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mco_host::{Attributes, FsError, Root, RootedPath};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The routing scripts read this directory.
const ROUTES: &str = "/run/cloud-routes";
const FILE: Attributes = Attributes::root(0o644);
const DIRECTORY: Attributes = Attributes::root(0o755);
const INTERVAL: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// A restart of the API server takes less than these failures, 16 seconds.
const FAILURES_UNTIL_DOWN: u32 = 8;

/// The health endpoint at the load balancer, such as `https://api-int.example.com:6443/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthUrl {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not an absolute URL; expected one like https://api-int.example.com:6443/readyz")]
pub struct HealthUrlError(String);

impl FromStr for HealthUrl {
    type Err = HealthUrlError;

    fn from_str(text: &str) -> Result<Self, HealthUrlError> {
        Self::parse(text).ok_or_else(|| HealthUrlError(text.to_owned()))
    }
}

impl HealthUrl {
    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (host, authority) = (uri.host()?, uri.authority()?.as_str());
        let port = match uri.port_u16() {
            Some(port) => port,
            None if authority == host => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            None => return None,
        };
        Some(Self {
            is_tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            path: uri.path_and_query()?.to_string(),
        })
    }
}

#[derive(Debug, Error)]
pub enum WatcherError {
    #[error("could not resolve {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error(
        "{host} has no address\n  hint: the host of --health-check-url is the load balancer of the API servers"
    )]
    NoAddress { host: String },
    #[error("could not set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("could not report the state of the API server: {0}")]
    Files(#[from] FsError),
}

/// What the routing scripts are informed about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiServerState {
    Up,
    Down,
}

/// Counts results of probes. One success is enough to be up; being down takes several failures in a row.
#[derive(Debug, Default)]
pub struct ProbeHistory {
    state: Option<ApiServerState>,
    failures: u32,
}

impl ProbeHistory {
    /// Records a result and returns the new state if it has changed. The first state is a change.
    pub fn observe(&mut self, healthy: bool) -> Option<ApiServerState> {
        let state = if healthy {
            self.failures = 0;
            ApiServerState::Up
        } else {
            self.failures = self.failures.saturating_add(1);
            if self.failures < FAILURES_UNTIL_DOWN {
                return None;
            }
            ApiServerState::Down
        };
        (self.state.replace(state) != Some(state)).then_some(state)
    }
}

/// Watches the API server of this machine until `stop`, and then reports it as down.
pub async fn watch(url: &HealthUrl, root: &Root, stop: CancellationToken) -> Result<(), WatcherError> {
    watch_every(INTERVAL, url, root, stop).await
}

async fn watch_every(
    interval: Duration,
    url: &HealthUrl,
    root: &Root,
    stop: CancellationToken,
) -> Result<(), WatcherError> {
    let addresses = load_balancer(url).await?;
    let connector = TlsConnector::from(Arc::new(tls()?));
    info!(
        "watching the API server at localhost:{} for {addresses:?}",
        url.port
    );
    let mut history = ProbeHistory::default();
    let mut polls = tokio::time::interval(interval);
    loop {
        let healthy = tokio::select! {
            () = stop.cancelled() => break,
            healthy = async {
                polls.tick().await;
                is_healthy(url, &connector).await
            } => healthy,
        };
        if let Some(state) = history.observe(healthy) {
            info!("the API server is {state:?}");
            report(root, &addresses, state)?;
        }
    }
    info!("stopping: the API server is reported as down");
    Ok(report(root, &addresses, ApiServerState::Down)?)
}

/// Returns the addresses of the load balancer. They are resolved once: without the API server, name resolution may fail.
async fn load_balancer(url: &HealthUrl) -> Result<BTreeSet<IpAddr>, WatcherError> {
    let found = lookup_host((url.host.as_str(), url.port)).await;
    let found = found.map_err(|source| WatcherError::Resolve {
        host: url.host.clone(),
        source,
    })?;
    let addresses: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
    if addresses.is_empty() {
        return Err(WatcherError::NoAddress {
            host: url.host.clone(),
        });
    }
    Ok(addresses)
}

/// Writes the files. A `.down` wins in the routing scripts, so it is written first and removed first.
fn report(root: &Root, addresses: &BTreeSet<IpAddr>, state: ApiServerState) -> Result<(), FsError> {
    let directory = RootedPath::new(ROUTES)?;
    root.create_directories(&directory, DIRECTORY)?;
    for address in addresses {
        let up = directory.join(&format!("{address}.up"))?;
        let down = directory.join(&format!("{address}.down"))?;
        match state {
            ApiServerState::Up => {
                root.remove_file(&down)?;
                root.write_atomically(&up, FILE, b"")?;
            }
            ApiServerState::Down => {
                root.write_atomically(&down, FILE, b"")?;
                root.remove_file(&up)?;
            }
        }
    }
    Ok(())
}

async fn is_healthy(url: &HealthUrl, connector: &TlsConnector) -> bool {
    match tokio::time::timeout(PROBE_TIMEOUT, probe(url, connector)).await {
        Ok(Ok(StatusCode::OK)) => true,
        Ok(Ok(status)) => {
            warn!("the API server responds with {status}");
            false
        }
        Ok(Err(error)) => {
            warn!("the API server cannot be reached: {error}");
            false
        }
        Err(_) => {
            warn!(
                "no response of the API server within {} s",
                PROBE_TIMEOUT.as_secs()
            );
            false
        }
    }
}

type ProbeError = Box<dyn std::error::Error + Send + Sync>;

async fn probe(url: &HealthUrl, connector: &TlsConnector) -> Result<StatusCode, ProbeError> {
    let local: Vec<SocketAddr> = lookup_host(("localhost", url.port)).await?.collect();
    let stream = TcpStream::connect(local.as_slice()).await?;
    if url.is_tls {
        let name = ServerName::try_from("localhost")?;
        request(connector.connect(name, stream).await?, url).await
    } else {
        request(stream, url).await
    }
}

async fn request<S>(stream: S, url: &HealthUrl) -> Result<StatusCode, ProbeError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get(&url.path)
        .header(HOST, format!("localhost:{}", url.port))
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await;
    driver.abort();
    Ok(response?.status())
}

/// Returns a TLS configuration that accepts every certificate: the connection is to this machine, transfers nothing
/// secret, and the API server's certificate is for other names.
fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(config)
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use mco_host::Ownership;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_absolute_urls_are_accepted() {
        let url: HealthUrl = "https://api-int.example.com:6443/readyz".parse().unwrap();
        assert_eq!(
            (url.is_tls, url.host.as_str(), url.port),
            (true, "api-int.example.com", 6443)
        );
        assert_eq!(url.path, "/readyz");
        let url: HealthUrl = "https://[fd00::1]/readyz?verbose".parse().unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path.as_str()),
            ("fd00::1", 443, "/readyz?verbose")
        );
        for wrong in [
            "",
            "/readyz",
            "api-int:6443/readyz",
            "ftp://host/x",
            "https://host:x/",
        ] {
            assert!(wrong.parse::<HealthUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_restart_of_the_api_server_is_no_outage() {
        let mut history = ProbeHistory::default();
        for _ in 1..FAILURES_UNTIL_DOWN {
            assert_eq!(history.observe(false), None);
        }
        assert_eq!(
            history.observe(false),
            Some(ApiServerState::Down),
            "the first state is a change"
        );
        assert_eq!(history.observe(false), None);
        assert_eq!(
            history.observe(true),
            Some(ApiServerState::Up),
            "one success is enough"
        );
        for _ in 1..FAILURES_UNTIL_DOWN {
            assert_eq!(history.observe(false), None);
        }
        assert_eq!(history.observe(true), None, "the failures were not in a row");
        assert_eq!(history.observe(false), None);
    }

    /// Serves 200 or 500 until it is dropped.
    async fn server() -> (u16, Arc<AtomicBool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let healthy = Arc::new(AtomicBool::new(true));
        let is_healthy = Arc::clone(&healthy);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let status = if is_healthy.load(Ordering::Relaxed) {
                    "200 OK"
                } else {
                    "500 Bad"
                };
                let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        (port, healthy)
    }

    fn files(directory: &std::path::Path) -> Vec<String> {
        let Ok(listed) = std::fs::read_dir(directory.join("run/cloud-routes")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = listed
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names
    }

    async fn eventually(directory: &std::path::Path, expected: &[&str]) {
        let reached = async {
            while files(directory) != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_mins(1), reached).await;
        assert!(reached.is_ok(), "{:?} instead of {expected:?}", files(directory));
    }

    #[tokio::test]
    async fn the_files_follow_the_api_server_and_a_stopped_watcher_reports_down() {
        let (port, healthy) = server().await;
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let url: HealthUrl = format!("http://127.0.0.1:{port}/readyz").parse().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let watcher =
            tokio::spawn(async move { watch_every(Duration::from_millis(10), &url, &root, stopped).await });
        eventually(directory.path(), &["127.0.0.1.up"]).await;
        healthy.store(false, Ordering::Relaxed);
        eventually(directory.path(), &["127.0.0.1.down"]).await;
        healthy.store(true, Ordering::Relaxed);
        eventually(directory.path(), &["127.0.0.1.up"]).await;
        stop.cancel();
        watcher.await.unwrap().unwrap();
        assert_eq!(files(directory.path()), ["127.0.0.1.down"]);
    }
}
