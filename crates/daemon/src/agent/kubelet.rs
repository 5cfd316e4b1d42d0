//! Polls the kubelet's health endpoint and counts consecutive failures.
//!
//! The metrics use the result; an unhealthy kubelet makes its Node NotReady by itself. Changes are proven with a check of
//! their own, see [`crate::guard`]. One connection is kept alive, so that a poll costs an idle daemon next to nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::health::Health;

/// The poll interval. Alerts fire after three failures, that is after 90 seconds without a healthy kubelet.
const INTERVAL: Duration = Duration::from_secs(30);
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Response limit: an unhealthy kubelet lists its checks.
const MAX_RESPONSE_SIZE: usize = 64 << 10;
const WELL: &[u8] = b"ok";
const HTTP: u16 = 80;

/// The endpoint to poll, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletCheck {
    pub endpoint: HealthEndpoint,
    pub every: Duration,
}

impl KubeletCheck {
    pub fn new(endpoint: HealthEndpoint) -> Self {
        Self {
            endpoint,
            every: INTERVAL,
        }
    }
}

/// The kubelet's health endpoint: an IP address of this machine, so that polling needs no DNS lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEndpoint {
    addresses: Vec<SocketAddr>,
    host: String,
    path: String,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is not a kubelet health endpoint; expected a URL like http://localhost:10248/healthz, with localhost or \
     an IP address"
)]
pub struct EndpointError(String);

impl FromStr for HealthEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| EndpointError(text.to_owned()))
    }
}

impl HealthEndpoint {
    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        if uri.scheme_str() != Some("http") {
            return None;
        }
        let (host, authority) = (uri.host()?, uri.authority()?.as_str());
        let addresses: Vec<IpAddr> = match host {
            "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            literal => vec![literal.trim_matches(['[', ']']).parse().ok()?],
        };
        let port = match uri.port_u16() {
            Some(port) => port,
            None if authority == host => HTTP,
            // An invalid port, or a URL with credentials.
            None => return None,
        };
        Some(Self {
            addresses: addresses
                .into_iter()
                .map(|address| SocketAddr::new(address, port))
                .collect(),
            host: authority.to_owned(),
            path: uri.path_and_query()?.to_string(),
        })
    }
}

impl fmt::Display for HealthEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// Why a health check failed.
#[derive(Debug, Error)]
enum Unwell {
    #[error("cannot connect: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("invalid response: {0}")]
    Answer(#[from] hyper::Error),
    #[error("invalid response body: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot build the request: {0}")]
    Question(#[from] http::Error),
    #[error("no response within {} s", PROBE_TIMEOUT.as_secs())]
    Silent,
    #[error("the response is {0} instead of ok")]
    Complains(StatusCode),
}

/// Polls until cancelled.
pub(super) async fn watch(check: KubeletCheck, health: Arc<Health>, stop: CancellationToken) {
    let mut kubelet = Kubelet {
        endpoint: check.endpoint,
        connection: None,
    };
    let mut failures = 0;
    loop {
        let answer = tokio::select! {
            () = stop.cancelled() => return,
            answer = async {
                tokio::time::sleep(check.every).await;
                kubelet.probe().await
            } => answer,
        };
        match answer {
            Ok(()) if failures == 0 => continue,
            Ok(()) => {
                info!("the kubelet is healthy again");
                failures = 0;
            }
            Err(why) => {
                if failures == 0 {
                    warn!("the kubelet is unhealthy: {why}");
                }
                failures += 1;
            }
        }
        health.metrics.kubelet_failures(failures);
    }
}

/// Polls once, with a time limit; returns why the kubelet is not healthy.
pub(crate) async fn probe_kubelet(endpoint: HealthEndpoint, limit: Duration) -> Result<(), String> {
    let mut kubelet = Kubelet {
        endpoint,
        connection: None,
    };
    match tokio::time::timeout(limit, kubelet.probe()).await {
        Ok(probed) => probed.map_err(|why| why.to_string()),
        Err(_) => Err(format!("no response within {} s", limit.as_secs())),
    }
}

struct Kubelet {
    endpoint: HealthEndpoint,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl Kubelet {
    async fn probe(&mut self) -> Result<(), Unwell> {
        // After any failure the next poll opens a new connection.
        let kept = self
            .connection
            .take()
            .filter(|connection| !connection.is_closed());
        let asked = async {
            let connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            self.probe_over(connection).await
        };
        let connection = tokio::time::timeout(PROBE_TIMEOUT, asked)
            .await
            .unwrap_or(Err(Unwell::Silent))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, Unwell> {
        let stream = TcpStream::connect(self.endpoint.addresses.as_slice()).await?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        // The driver ends with the connection; its error is returned to the request that uses the connection.
        tokio::spawn(driver);
        Ok(sender)
    }

    async fn probe_over(
        &self,
        mut connection: SendRequest<Empty<Bytes>>,
    ) -> Result<SendRequest<Empty<Bytes>>, Unwell> {
        let question = Request::get(&self.endpoint.path)
            .header(HOST, &self.endpoint.host)
            .body(Empty::new())?;
        let answer = connection.send_request(question).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_RESPONSE_SIZE)
            .collect()
            .await;
        let body = body.map_err(Unwell::Body)?.to_bytes();
        if status != StatusCode::OK || body.trim_ascii() != WELL {
            return Err(Unwell::Complains(status));
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_of_machines_and_not_names() {
        let endpoint: HealthEndpoint = "http://localhost:10248/healthz".parse().unwrap();
        let expected = ["127.0.0.1:10248", "[::1]:10248"].map(|address| address.parse().unwrap());
        assert_eq!(endpoint.addresses, expected);
        assert_eq!(endpoint.host, "localhost:10248");
        assert_eq!(endpoint.path, "/healthz");
        let endpoint: HealthEndpoint = "http://[fd00::1]?verbose".parse().unwrap();
        assert_eq!(endpoint.addresses, ["[fd00::1]:80".parse().unwrap()]);
        assert_eq!(endpoint.host, "[fd00::1]");
        assert_eq!(endpoint.path, "/?verbose");
        assert_eq!(endpoint.to_string(), "http://[fd00::1]/?verbose");
        for wrong in [
            "",
            "localhost:10248",
            "/healthz",
            "https://localhost:10248/healthz",
            "http://kubelet.example.com:10248/healthz",
            "http://localhost:100248/healthz",
        ] {
            let refused = wrong.parse::<HealthEndpoint>().unwrap_err().to_string();
            assert!(refused.contains(&format!("{wrong:?}")), "{refused}");
        }
    }
}
