//! The metrics certificates: one for each kind of process, all of one CA.

use jiff::Timestamp;
use mco_api::vocabulary::names::component;
use mco_http::tls::{CertificatePairError, CertificateStore};
use thiserror::Error;

use crate::cluster::OperatorClient;
use crate::manifests::{METRICS_AUTHORITY, SCRAPED, Scraped};
use crate::steps::serving::{self, Names, ServingError};

#[derive(Debug, Error)]
pub enum MonitoringError {
    #[error(transparent)]
    Serving(#[from] ServingError),
    #[error("the certificate for the operator's own metrics cannot be used: {0}")]
    Pair(#[from] CertificatePairError),
}

/// Renews the certificates where due, independent of each other; returns the first error.
pub async fn certificates(
    cluster: &OperatorClient,
    own: &CertificateStore,
    now: Timestamp,
) -> Result<(), MonitoringError> {
    let mut result = Ok(());
    for scraped in SCRAPED {
        result = result.and(certificate(cluster, scraped, own, now).await);
    }
    result
}

/// Returns the operator's own certificate, which is not mounted as a file.
async fn certificate(
    cluster: &OperatorClient,
    scraped: Scraped,
    own: &CertificateStore,
    now: Timestamp,
) -> Result<(), MonitoringError> {
    let names = Names {
        ca: METRICS_AUTHORITY,
        serving: scraped.certificate,
    };
    let renewed = serving::renew(cluster, names, "", &[scraped.host()], now).await?;
    if scraped.component == component::OPERATOR {
        let pair = renewed.serving;
        own.set(pair.certificate.as_bytes(), pair.key.as_bytes())?;
    }
    Ok(())
}
