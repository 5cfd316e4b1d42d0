//! Who may scrape: every client that can connect, or those whom the cluster authorizes, over TLS.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use rustls::ServerConfig;
use tracing::warn;

use super::review::TokenReviewer;
use super::review_cache::ReviewVerdict;
use crate::tls::{ALPN_HTTP1, CertificateStore, ReloadOnHandshake, SharedAcceptor, TlsError, TlsPolicy};
use crate::{ListenerTransport, bearer_token};

/// Access to `/metrics`; open to every client by default.
#[derive(Clone, Default)]
pub struct ScrapeAccess {
    restriction: Option<Arc<Restriction>>,
}

/// Why a client does not get metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    PlainText,
    Unauthenticated,
    Forbidden,
    /// The API server did not answer.
    NoReview,
}

struct Restriction {
    acceptor: SharedAcceptor,
    reviewer: TokenReviewer,
    /// A failing API server is logged once, not for every scrape.
    has_warned: AtomicBool,
}

impl ScrapeAccess {
    /// Serves metrics over TLS only, to clients that the cluster authorizes to get `/metrics`. The files of the
    /// certificate may appear later and may be replaced at any time.
    pub fn with_files(certificate: &Path, key: &Path, client: kube::Client) -> Result<Self, TlsError> {
        Self::with_policy(certificate, key, client, &TlsPolicy::new("", &[])?)
    }

    /// Like [`ScrapeAccess::with_files`], with these versions and cipher suites.
    pub fn with_policy(
        certificate: &Path,
        key: &Path,
        client: kube::Client,
        policy: &TlsPolicy,
    ) -> Result<Self, TlsError> {
        let certificates = Arc::new(ReloadOnHandshake::new(certificate, key));
        let config = policy.server_config(certificates, ALPN_HTTP1)?;
        Ok(Self::restricted(config, client))
    }

    /// Like [`ScrapeAccess::with_files`], with a certificate that this process maintains.
    pub fn with_certificate(
        certificate: Arc<CertificateStore>,
        client: kube::Client,
    ) -> Result<Self, TlsError> {
        let config = TlsPolicy::new("", &[])?.server_config(certificate, ALPN_HTTP1)?;
        Ok(Self::restricted(config, client))
    }

    /// Offers these versions and cipher suites to new connections.
    pub fn set_policy(&self, certificate: Arc<CertificateStore>, policy: &TlsPolicy) -> Result<(), TlsError> {
        if let Some(restriction) = &self.restriction {
            let config = policy.server_config(certificate, ALPN_HTTP1)?;
            restriction.acceptor.set(config);
        }
        Ok(())
    }

    fn restricted(config: ServerConfig, client: kube::Client) -> Self {
        let restriction = Restriction {
            acceptor: SharedAcceptor::new(config),
            reviewer: TokenReviewer::new(client),
            has_warned: AtomicBool::new(false),
        };
        Self {
            restriction: Some(Arc::new(restriction)),
        }
    }

    /// Health probes stay possible over plain HTTP: they have no token, and a missing certificate must not fail them.
    pub(super) fn transport(&self) -> ListenerTransport {
        match &self.restriction {
            None => ListenerTransport::Plain,
            Some(restriction) => ListenerTransport::PlainOrTls(restriction.acceptor.clone()),
        }
    }

    pub(super) async fn authorize(&self, is_encrypted: bool, headers: &HeaderMap) -> Result<(), Denial> {
        match &self.restriction {
            None => Ok(()),
            Some(_) if !is_encrypted => Err(Denial::PlainText),
            Some(restriction) => restriction.authorize(headers).await,
        }
    }
}

impl fmt::Debug for ScrapeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.restriction.is_some() {
            "Restricted"
        } else {
            "Open"
        })
    }
}

impl Restriction {
    async fn authorize(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let token = bearer_token(headers).ok_or(Denial::Unauthenticated)?;
        let verdict = self.reviewer.verdict(token).await;
        if verdict.is_ok() {
            self.has_warned.store(false, Ordering::Relaxed);
        }
        match verdict {
            Ok(ReviewVerdict::Allowed) => Ok(()),
            Ok(ReviewVerdict::Unauthenticated) => Err(Denial::Unauthenticated),
            Ok(ReviewVerdict::Forbidden) => Err(Denial::Forbidden),
            Err(problem) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    warn!("the API server does not review the tokens of scrapers: {problem}");
                }
                Err(Denial::NoReview)
            }
        }
    }
}
