//! TLS of the operator's own metrics, which follows the profile of the API server as that of all other endpoints does.

use std::sync::Arc;

use mco_core::generators::tls_profile::TlsSettings;
use mco_http::metrics::ScrapeAccess;
use mco_http::tls::{CertificateStore, TlsError, TlsPolicy};
use tracing::warn;

/// The endpoint of the operator's own metrics.
#[derive(Debug)]
pub struct OwnMetrics {
    access: ScrapeAccess,
    certificate: Arc<CertificateStore>,
    /// The profile in force; `None` for the default.
    profile: Option<TlsSettings>,
}

impl OwnMetrics {
    pub fn new(certificate: Arc<CertificateStore>, client: kube::Client) -> Result<Self, TlsError> {
        Ok(Self {
            access: ScrapeAccess::with_certificate(Arc::clone(&certificate), client)?,
            certificate,
            profile: None,
        })
    }

    pub fn access(&self) -> ScrapeAccess {
        self.access.clone()
    }

    /// Offers the versions and cipher suites of the profile to new connections. One that cannot be offered is reported,
    /// and the one before stays.
    pub fn follow(&mut self, profile: Option<TlsSettings>) {
        if self.profile == profile {
            return;
        }
        let (minimum, suites) = profile.as_ref().map_or(("", &[][..]), |profile| {
            (profile.min_version.as_str(), &profile.cipher_suites[..])
        });
        let replaced = TlsPolicy::new(minimum, suites)
            .and_then(|policy| self.access.set_policy(Arc::clone(&self.certificate), &policy));
        if let Err(error) = replaced {
            warn!("the TLS profile of the API server cannot be used for metrics: {error}");
        }
        self.profile = profile;
    }
}
