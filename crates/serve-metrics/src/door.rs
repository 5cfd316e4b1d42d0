//! Who gets to see metrics: everybody who can connect, or those whom the cluster lets, over TLS.
//!
//! Signs of life are told to everybody, also over plain HTTP on the same port: a probe has no token, and whether a process
//! lives must not depend on whether its certificate has come yet.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use mco_tls::{Certificate, Certificates, Offer, TlsError};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tracing::warn;

use crate::memory::Verdict;
use crate::review::Reviewer;

/// What a TLS client says first is a record of this type; no HTTP method begins with it.
const HANDSHAKE: u8 = 0x16;
/// Certificates are replaced rarely; strangers who connect again and again do not make us read files as often.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Open unless something else is asked for.
#[derive(Clone, Default)]
pub struct Door {
    guard: Option<Arc<Guard>>,
}

/// Why somebody is told no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    PlainText,
    Unknown,
    Forbidden,
    /// The cluster could not be asked.
    NoAnswer,
}

/// How somebody speaks with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

/// Somebody who has connected.
pub(crate) enum Visitor {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

struct Guard {
    acceptor: TlsAcceptor,
    files: Option<Files>,
    reviewer: Reviewer,
    /// That the cluster does not answer is said once, not for every scrape.
    has_complained: AtomicBool,
}

struct Files {
    certificates: Arc<Certificates>,
    looked: Mutex<Option<Instant>>,
}

impl Door {
    /// Metrics only over TLS and only for those whom the cluster of the client lets get `/metrics`. The certificate is that of
    /// the files, which may come later and may be replaced at any time.
    pub fn with_files(certificate: &Path, key: &Path, client: kube::Client) -> Result<Self, TlsError> {
        let certificates = Arc::new(Certificates::awaited(certificate, key));
        let config = Offer::new("", &[])?.server_config(Arc::clone(&certificates))?;
        let files = Files {
            certificates,
            looked: Mutex::default(),
        };
        Ok(Self::guarded(config, Some(files), client))
    }

    /// The same with a certificate that somebody in this process looks after.
    pub fn with_certificate(certificate: Arc<Certificate>, client: kube::Client) -> Result<Self, TlsError> {
        let config = Offer::new("", &[])?.server_config(certificate)?;
        Ok(Self::guarded(config, None, client))
    }

    fn guarded(config: ServerConfig, files: Option<Files>, client: kube::Client) -> Self {
        let guard = Guard {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            files,
            reviewer: Reviewer::new(client),
            has_complained: AtomicBool::new(false),
        };
        Self {
            guard: Some(Arc::new(guard)),
        }
    }

    /// Finds out how somebody wants to speak, and does so.
    pub(crate) async fn greet(&self, stream: TcpStream) -> io::Result<Visitor> {
        let Some(guard) = &self.guard else {
            return Ok(Visitor::Plain(stream));
        };
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first != [HANDSHAKE] {
            return Ok(Visitor::Plain(stream));
        }
        if let Some(files) = &guard.files {
            files.look();
        }
        let stream = guard.acceptor.accept(stream).await?;
        Ok(Visitor::Tls(Box::new(stream)))
    }

    pub(crate) async fn admit(&self, transport: Transport, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.guard {
            None => Ok(()),
            Some(_) if transport == Transport::Plain => Err(Refusal::PlainText),
            Some(guard) => guard.admit(headers).await,
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.guard.is_some() { "Guarded" } else { "Open" })
    }
}

impl Guard {
    async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer_token(headers).ok_or(Refusal::Unknown)?;
        let verdict = self.reviewer.verdict(token).await;
        if verdict.is_ok() {
            self.has_complained.store(false, Ordering::Relaxed);
        }
        match verdict {
            Ok(Verdict::Allowed) => Ok(()),
            Ok(Verdict::Unknown) => Err(Refusal::Unknown),
            Ok(Verdict::Forbidden) => Err(Refusal::Forbidden),
            Err(problem) => {
                if !self.has_complained.swap(true, Ordering::Relaxed) {
                    warn!("the cluster does not say who may see metrics: {problem}");
                }
                Err(Refusal::NoAnswer)
            }
        }
    }
}

impl Files {
    fn look(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_INTERVAL) {
            return;
        }
        if let Err(problem) = self.certificates.reload() {
            warn!("the certificate for metrics is not renewed: {problem}");
        }
        *looked = Some(Instant::now());
    }
}

/// The token of whoever asks. The name of the scheme may be spelled in any case.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_bearer_token_is_one() {
        for (name, header, expected) in [
            ("as everybody writes it", Some("Bearer abc"), Some("abc")),
            ("in small letters", Some("bearer abc"), Some("abc")),
            ("with more space", Some("Bearer   abc "), Some("abc")),
            ("nothing", None, None),
            ("an empty token", Some("Bearer "), None),
            ("no token", Some("Bearer"), None),
            ("a password", Some("Basic abc"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, HeaderValue::from_static(header));
            }
            assert_eq!(bearer_token(&headers), expected, "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap());
        assert_eq!(bearer_token(&headers), None, "no text at all");
    }
}
