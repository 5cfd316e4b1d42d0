//! Fetches documents over https from servers that are not trusted.
//!
//! A name is resolved, every address is checked, and the connection is made to the checked address: neither a name nor a
//! redirect leads to a private network that is not explicitly allowed. Size and time are limited. Nothing is retried.

mod address;
mod proxy;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use address::Network;
pub use proxy::ProxySettings;

/// Redirects that are followed for one document.
const MAX_REDIRECTS: usize = 5;
/// One address of several may not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;

/// How documents are fetched.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Certificates to trust, in DER.
    pub certificates: Vec<Vec<u8>>,
    pub proxy: ProxySettings,
    /// Networks that are not part of the Internet and may be connected to.
    pub allowed_networks: Vec<Network>,
    /// The largest body that is read.
    pub limit: usize,
    /// For everything, redirects included.
    pub timeout: Duration,
}

/// Why a document was not fetched. URLs are not included, because they may contain credentials.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("the URL is not valid")]
    Url,
    #[error("{0} is not fetched, only https is")]
    Scheme(String),
    #[error("{host} is at {address}, which is a private address; allow its network with --contents-network")]
    PrivateAddress { host: String, address: IpAddr },
    #[error("the name {host} cannot be resolved: {why}")]
    Resolve { host: String, why: String },
    #[error("{host} cannot be reached: {why}")]
    Connect { host: String, why: String },
    #[error("{host} answered {status}")]
    Status { host: String, status: u16 },
    #[error("{host} redirects more than {MAX_REDIRECTS} times")]
    Redirects { host: String },
    #[error("the contents are larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("there was no complete answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the request is not valid: {0}")]
    Request(String),
}

impl FetchError {
    /// Whether another attempt can succeed only after a change of configuration.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Url | Self::Scheme(_) | Self::PrivateAddress { .. } | Self::Request(_)
        )
    }
}

/// Returns the certificate authorities that the machine trusts, in DER.
pub fn system_certificates() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().map(|certificate| certificate.to_vec()).collect()
}

/// Fetches one document.
pub async fn fetch(
    settings: &FetchSettings,
    url: &str,
    headers: &[(String, String)],
) -> Result<Bytes, FetchError> {
    let fetched = tokio::time::timeout(settings.timeout, follow(settings, url, headers)).await;
    fetched.unwrap_or(Err(FetchError::Timeout(settings.timeout)))
}

async fn follow(
    settings: &FetchSettings,
    url: &str,
    headers: &[(String, String)],
) -> Result<Bytes, FetchError> {
    let tls = client_config(settings)?;
    let mut target = Target::parse(url)?;
    let first = target.clone();
    for _ in 0..=MAX_REDIRECTS {
        // Headers may be credentials of the first server.
        let headers = if target.origin() == first.origin() {
            headers
        } else {
            &[]
        };
        let response = exchange(settings, &tls, &target, headers).await?;
        let status = response.status();
        if status.is_redirection() {
            let location = response
                .headers()
                .get(LOCATION)
                .and_then(|value| value.to_str().ok());
            target = target.redirected(location.ok_or(FetchError::Url)?)?;
            continue;
        }
        if !status.is_success() {
            return Err(FetchError::Status {
                host: target.host,
                status: status.as_u16(),
            });
        }
        return body(response, settings.limit, &target.host).await;
    }
    Err(FetchError::Redirects { host: first.host })
}

async fn body(response: Response<Incoming>, limit: usize, host: &str) -> Result<Bytes, FetchError> {
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            FetchError::TooLarge { limit }
        } else {
            FetchError::Connect {
                host: host.to_owned(),
                why: error.to_string(),
            }
        }
    })?;
    Ok(body.to_bytes())
}

/// The parts of a URL that a request needs.
#[derive(Debug, Clone)]
struct Target {
    /// Without brackets.
    host: String,
    port: u16,
    path: String,
}

impl Target {
    fn parse(url: &str) -> Result<Self, FetchError> {
        let plain = url.split('#').next().unwrap_or_default();
        let uri: Uri = plain.parse().map_err(|_| FetchError::Url)?;
        let scheme = uri.scheme_str().ok_or(FetchError::Url)?;
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(FetchError::Scheme(scheme.to_owned()));
        }
        let authority = uri.authority().ok_or(FetchError::Url)?;
        if authority.as_str().contains('@') {
            return Err(FetchError::Url);
        }
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(443),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    fn origin(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Returns the host and port as in a URL.
    fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == 443 {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    fn redirected(&self, location: &str) -> Result<Self, FetchError> {
        if location.contains("://") {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("https://{rest}"));
        }
        let path = if location.starts_with('/') {
            location.to_owned()
        } else {
            let plain = self.path.split('?').next().unwrap_or_default();
            let directory = plain.rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{directory}/{location}")
        };
        Self::parse(&format!("https://{}{path}", self.authority()))
    }
}

async fn exchange(
    settings: &FetchSettings,
    tls: &Arc<ClientConfig>,
    target: &Target,
    headers: &[(String, String)],
) -> Result<Response<Incoming>, FetchError> {
    let failed = |why: String| FetchError::Connect {
        host: target.host.clone(),
        why,
    };
    let stream = connect(settings, target).await?;
    let server = ServerName::try_from(target.host.clone()).map_err(|_| FetchError::Url)?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(server, stream)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(error.to_string()))?;
    let request = request(target, headers)?;
    // Ends with the response: dropping the body closes the connection.
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    response.map_err(|error| failed(error.to_string()))
}

fn request(target: &Target, headers: &[(String, String)]) -> Result<Request<Empty<Bytes>>, FetchError> {
    let invalid = |error: &dyn std::fmt::Display| FetchError::Request(error.to_string());
    let mut request = Request::get(&target.path)
        .header(HOST, target.authority())
        .header(USER_AGENT, concat!("mco/", env!("CARGO_PKG_VERSION")))
        // The hash is that of the contents as they are stored.
        .header(ACCEPT_ENCODING, "identity")
        .body(Empty::new())
        .map_err(|error| invalid(&error))?;
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|error| invalid(&error))?;
        let value = HeaderValue::try_from(value).map_err(|error| invalid(&error))?;
        if name != HOST {
            request.headers_mut().insert(name, value);
        }
    }
    Ok(request)
}

/// Connects to an address of the target that may be connected to, or to the proxy.
async fn connect(settings: &FetchSettings, target: &Target) -> Result<TcpStream, FetchError> {
    let proxy = settings.proxy.for_host(&target.host);
    let addresses = match (resolve(target).await, proxy) {
        (Ok(addresses), _) => addresses,
        // Where everything goes through a proxy, names of the Internet often cannot be resolved.
        (Err(FetchError::Resolve { .. }), Some(_)) => Vec::new(),
        (Err(error), _) => return Err(error),
    };
    let mut allowed = Vec::new();
    for address in &addresses {
        let is_allowed = address::is_public(address.ip())
            || settings
                .allowed_networks
                .iter()
                .any(|network| network.contains(address.ip()));
        if !is_allowed {
            // One private address among public ones is no accident.
            return Err(FetchError::PrivateAddress {
                host: target.host.clone(),
                address: address.ip(),
            });
        }
        allowed.push(*address);
    }
    let failed = |why: String| FetchError::Connect {
        host: target.host.clone(),
        why,
    };
    if let Some(proxy) = proxy {
        let host = if target.host.contains(':') {
            format!("[{}]", target.host)
        } else {
            target.host.clone()
        };
        return proxy::tunnel(proxy, &host, target.port).await.map_err(failed);
    }
    let mut last = "it has no address".to_owned();
    for address in allowed.into_iter().take(MAX_ADDRESSES) {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => "it does not answer".clone_into(&mut last),
        }
    }
    Err(failed(last))
}

async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, FetchError> {
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let found = found.map_err(|error| FetchError::Resolve {
        host: target.host.clone(),
        why: error.to_string(),
    })?;
    Ok(found.collect())
}

fn client_config(settings: &FetchSettings) -> Result<Arc<ClientConfig>, FetchError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(settings.certificates.iter().cloned().map(CertificateDer::from));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchError::Request(error.to_string()))?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}
