//! The certificate authority (CA) of the API server and what it signs.
//!
//! The CA is stored in the data directory; server and administrator certificates are created at every start and again
//! before they expire. When the CA itself nears its end a new one signs, and the old one stays trusted until it has
//! expired, so that no client is locked out.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use mco_http::pki::{
    self, CertificateAuthority, CertificateRequest, CertificateUsage, certificates, first_certificate,
    key_matches, summary, trust_bundle,
};
use mco_http::tls::{ALPN_HTTP1_AND_HTTP2, CertificatePairError, CertificateStore};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Identity;
use crate::files;

pub use mco_http::pki::CertificatePair as Credentials;

const CA_DAYS: i64 = 3650;
/// A new CA takes over this long before the old one ends: longer than anything the old one signed lives.
const CA_OVERLAP_DAYS: i64 = 730;
const LEAF_DAYS: i64 = 365;
const CERTIFICATE_END: &str = "-----END CERTIFICATE-----";

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{attempt} {path}: {source}")]
    File {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Certificate(#[from] pki::CertificateError),
    #[error("{0:?} is in several groups; a certificate can name one, use a token")]
    SeveralGroups(String),
    #[error("the server certificate cannot be used: {0}")]
    Pair(#[from] CertificatePairError),
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("trusting our own CA: {0}")]
    Trust(#[from] rustls::client::VerifierBuilderError),
}

/// The CA.
#[derive(Debug)]
pub struct Pki {
    ca: CertificateAuthority,
    /// Every CA that is still trusted, newest first.
    bundle: String,
}

impl Pki {
    /// Opens the CA in a directory, creating or replacing it when needed.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        std::fs::create_dir_all(directory).map_err(failed("creating", directory))?;
        let (key_path, bundle_path) = (directory.join("ca.key"), directory.join("ca.crt"));
        let existing = match (
            std::fs::read_to_string(&key_path),
            std::fs::read_to_string(&bundle_path),
        ) {
            (Ok(key), Ok(certificate)) => Some(Credentials { certificate, key }),
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            (Err(source), _) => return Err(failed("reading", &key_path)(source)),
            (_, Err(source)) => return Err(failed("reading", &bundle_path)(source)),
        };
        let pair = match existing {
            Some(pair) if key_matches(&pair)? && !ends_soon(&pair.certificate, now)? => pair,
            older => {
                let older = older.map(|pair| pair.certificate).unwrap_or_default();
                let new = create(now)?;
                let bundle = trust_bundle(&new.certificate, &older, now)?;
                // The bundle comes first: a key without its certificate would sign what no client trusts. A crash
                // between the two leaves a bundle without its key, which the next start replaces.
                files::write_private(&bundle_path, bundle.as_bytes())
                    .map_err(failed("writing", &bundle_path))?;
                files::write_private(&key_path, new.key.as_bytes()).map_err(failed("writing", &key_path))?;
                Credentials {
                    certificate: bundle,
                    key: new.key,
                }
            }
        };
        Ok(Self {
            ca: CertificateAuthority::load(&pair)?,
            bundle: pair.certificate,
        })
    }

    /// Returns the certificates that clients must trust.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// Returns the hash of the CA's public key, by which a joining machine recognizes it.
    pub fn fingerprint(&self) -> Result<[u8; 32], PkiError> {
        let newest = first_certificate(&self.bundle)?;
        let (_, newest) = X509Certificate::from_der(&newest)
            .map_err(|error| pki::CertificateError::Read(error.to_string()))?;
        Ok(Sha256::digest(newest.public_key().raw).into())
    }

    /// Creates a client certificate for an identity.
    pub fn client(&self, identity: &Identity, now: Timestamp) -> Result<Credentials, PkiError> {
        let groups: Vec<&str> = identity
            .groups
            .iter()
            .map(String::as_str)
            .filter(|group| *group != super::AUTHENTICATED)
            .collect();
        // rcgen keeps one value per attribute of a name.
        if groups.len() > 1 {
            return Err(PkiError::SeveralGroups(identity.user.clone()));
        }
        let request = CertificateRequest {
            common_name: Some(&identity.user),
            organization: groups.first().copied(),
            usage: CertificateUsage::Client,
            lifetime: LEAF_DAYS.days(),
        };
        Ok(self.ca.sign(&request, now)?)
    }

    /// Replaces the server certificate in `store` with a new one. Certificates are cheap: creating them is simpler and
    /// safer than tracking their age.
    pub fn renew_server(
        &self,
        hosts: &[String],
        now: Timestamp,
        store: &CertificateStore,
    ) -> Result<(), PkiError> {
        let request = CertificateRequest {
            common_name: Some("kube-apiserver"),
            organization: None,
            usage: CertificateUsage::Server { hosts },
            lifetime: LEAF_DAYS.days(),
        };
        let Credentials { certificate, key } = self.ca.sign(&request, now)?;
        // The CA is part of the chain, for joining machines that have only its fingerprint.
        let chain = certificate + newest(&self.bundle);
        store.set(chain.as_bytes(), key.as_bytes())?;
        Ok(())
    }

    /// Returns the TLS configuration of the listening socket. Client certificates are optional: requests may carry a
    /// token.
    pub fn server_config(&self, certificate: Arc<CertificateStore>) -> Result<ServerConfig, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for ca in certificates(&self.bundle)? {
            roots.add(ca)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(certificate);
        config.alpn_protocols = ALPN_HTTP1_AND_HTTP2.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

/// Returns the identity of a verified client certificate: the common name is the user, organizations are groups.
pub(crate) fn identity_of(certificate: &CertificateDer<'static>) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    Some(Identity::new(user, &groups))
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::File {
        attempt,
        path,
        source,
    }
}

/// Returns the newest CA of a bundle, as PEM.
fn newest(bundle: &str) -> &str {
    bundle.split_inclusive(CERTIFICATE_END).next().unwrap_or_default()
}

fn ends_soon(bundle: &str, now: Timestamp) -> Result<bool, PkiError> {
    let overlap = now.to_zoned(TimeZone::UTC).checked_add(CA_OVERLAP_DAYS.days());
    let overlap = overlap.map_err(pki::CertificateError::from)?;
    Ok(summary(bundle)?.not_after < overlap.timestamp())
}

fn create(now: Timestamp) -> Result<Credentials, PkiError> {
    // The year distinguishes the CAs of a bundle.
    let year = now.to_zoned(TimeZone::UTC).year();
    Ok(CertificateAuthority::create(
        &format!("mco-ca-{year}"),
        now,
        CA_DAYS.days(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_ca_survives_a_restart_and_is_replaced_before_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let first = Pki::open(directory.path(), at("2026-01-01T00:00:00Z")).unwrap();
        let again = Pki::open(directory.path(), at("2027-01-01T00:00:00Z")).unwrap();
        assert_eq!(first.bundle(), again.bundle());

        let later = Pki::open(directory.path(), at("2034-06-01T00:00:00Z")).unwrap();
        assert_eq!(certificates(later.bundle()).unwrap().len(), 2);
        assert!(
            later.bundle().trim_end().ends_with(first.bundle().trim_end()),
            "the old one stays trusted"
        );

        let last = Pki::open(directory.path(), at("2043-01-01T00:00:00Z")).unwrap();
        assert_eq!(
            certificates(last.bundle()).unwrap().len(),
            2,
            "the first has expired by now"
        );
    }

    #[test]
    fn a_crash_while_the_ca_is_replaced_leaves_one_that_can_sign() {
        let directory = tempfile::tempdir().unwrap();
        let early = Pki::open(directory.path(), at("2026-01-01T00:00:00Z")).unwrap();
        let old_key = std::fs::read(directory.path().join("ca.key")).unwrap();
        Pki::open(directory.path(), at("2034-06-01T00:00:00Z")).unwrap();
        std::fs::write(directory.path().join("ca.key"), old_key).unwrap();

        let after = Pki::open(directory.path(), at("2034-06-02T00:00:00Z")).unwrap();
        let key = std::fs::read_to_string(directory.path().join("ca.key")).unwrap();
        let pair = Credentials {
            certificate: after.bundle().to_owned(),
            key,
        };
        assert!(key_matches(&pair).unwrap());
        assert!(after.bundle().trim_end().ends_with(early.bundle().trim_end()));
    }

    #[test]
    fn a_client_certificate_names_its_user_and_groups() {
        let directory = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let pki = Pki::open(directory.path(), now).unwrap();
        let credentials = pki.client(&Identity::admin(), now).unwrap();
        let certificate = first_certificate(&credentials.certificate).unwrap();
        assert_eq!(identity_of(&certificate), Some(Identity::admin()));
    }
}
