//! The certificate authorities (CAs) of the API server and what they sign.
//!
//! One CA signs the server certificate, which nodes pin. Another one signs client certificates, so that all of them can
//! be revoked by replacing it, without effect on nodes. Both are stored in the data directory; server and administrator
//! certificates are created at every start and again before they expire. When a CA nears its end a new one signs, and
//! the old one stays trusted until it has expired, so that no client is locked out.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{Span, Timestamp, ToSpan as _, tz::TimeZone};
use mco_http::pki::{
    self, CertificateAuthority, CertificateRequest, CertificateUsage, certificates, first_certificate,
    key_matches, summary, trust_bundle,
};
use mco_http::tls::{ALPN_HTTP1_AND_HTTP2, CertificatePairError, CertificateStore};
use mco_http::tokens::{RandomError, random};
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{AuthenticatedCaller, Credential, Identity};
use crate::files;

pub use mco_http::pki::CertificatePair as Credentials;

const CA_DAYS: i64 = 3650;
/// A new CA takes over this long before the old one ends: longer than anything the old one signed lives.
const CA_OVERLAP_DAYS: i64 = 730;
/// Lifetime of server and client certificates.
pub(crate) const LIFETIME: Duration = Duration::from_hours(365 * 24);
const SERVER_CA: &str = "ca";
const CLIENT_CA: &str = "client-ca";
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
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("trusting our own CA: {0}")]
    Trust(#[from] rustls::client::VerifierBuilderError),
}

/// The CAs.
#[derive(Debug)]
pub struct Pki {
    directory: PathBuf,
    ca: CertificateAuthority,
    /// Every server CA that is still trusted, newest first.
    bundle: String,
    clients: Arc<RwLock<ClientAuthority>>,
    /// Of what the CAs sign.
    lifetime: Duration,
}

/// The CA of client certificates, which [`Pki::rotate_clients`] replaces.
#[derive(Debug)]
struct ClientAuthority {
    ca: CertificateAuthority,
    /// The names of the CAs whose certificates are accepted.
    issuers: Vec<String>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Pki {
    /// Opens the CAs in a directory, creating or replacing them when needed.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        std::fs::create_dir_all(directory).map_err(failed("creating", directory))?;
        let server = open_authority(directory, SERVER_CA, now)?;
        let clients = ClientAuthority::load(&open_authority(directory, CLIENT_CA, now)?)?;
        Ok(Self {
            directory: directory.to_owned(),
            ca: CertificateAuthority::load(&server)?,
            bundle: server.certificate,
            clients: Arc::new(RwLock::new(clients)),
            lifetime: LIFETIME,
        })
    }

    /// Sets the lifetime of the certificates that are signed from now on.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Returns the lifetime of server and client certificates.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    fn span(&self) -> Span {
        // Nothing lives longer than its CA.
        let limit = CA_DAYS * 24 * 60 * 60;
        let seconds = i64::try_from(self.lifetime.as_secs()).unwrap_or(limit);
        seconds.min(limit).seconds()
    }

    /// Replaces the CA of client certificates. Certificates of the earlier one are no longer accepted.
    pub fn rotate_clients(&self, now: Timestamp) -> Result<(), PkiError> {
        let new = create(CLIENT_CA, now)?;
        write_authority(&self.directory, CLIENT_CA, &new)?;
        *self.clients.write() = ClientAuthority::load(&new)?;
        Ok(())
    }

    /// Returns whether certificates of the client CA with this name are accepted.
    pub(crate) fn accepts_issuer(&self, issuer: &str) -> bool {
        self.clients
            .read()
            .issuers
            .iter()
            .any(|accepted| accepted == issuer)
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
            lifetime: self.span(),
        };
        Ok(self.clients.read().ca.sign(&request, now)?)
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
            lifetime: self.span(),
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
        let verifier = Arc::new(CurrentClientVerifier(Arc::clone(&self.clients)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(certificate);
        config.alpn_protocols = ALPN_HTTP1_AND_HTTP2.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

impl ClientAuthority {
    fn load(pair: &Credentials) -> Result<Self, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let mut issuers = Vec::new();
        for ca in certificates(&pair.certificate)? {
            let (_, parsed) = X509Certificate::from_der(&ca)
                .map_err(|error| pki::CertificateError::Read(error.to_string()))?;
            issuers.push(parsed.subject().to_string());
            roots.add(ca)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()?;
        Ok(Self {
            ca: CertificateAuthority::load(pair)?,
            issuers,
            verifier,
        })
    }
}

/// Verifies client certificates with the CA that is current at the time of the handshake.
#[derive(Debug)]
struct CurrentClientVerifier(Arc<RwLock<ClientAuthority>>);

impl CurrentClientVerifier {
    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.read().verifier)
    }
}

impl ClientCertVerifier for CurrentClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Hints are optional; without them a client sends the certificate that it has.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// Returns the caller of a verified client certificate: the common name is the user, organizations are groups.
pub(crate) fn caller_of(certificate: &CertificateDer<'static>) -> Option<AuthenticatedCaller> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    Some(AuthenticatedCaller {
        identity: Identity::new(user, &groups),
        credential: Credential::Certificate {
            issuer: certificate.issuer().to_string(),
        },
    })
}

/// Returns the key and the certificates of a CA, creating or replacing them when needed.
fn open_authority(directory: &Path, name: &str, now: Timestamp) -> Result<Credentials, PkiError> {
    let (key_path, bundle_path) = authority_paths(directory, name);
    let existing = match (
        std::fs::read_to_string(&key_path),
        std::fs::read_to_string(&bundle_path),
    ) {
        (Ok(key), Ok(certificate)) => Some(Credentials { certificate, key }),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
        (Err(source), _) => return Err(failed("reading", &key_path)(source)),
        (_, Err(source)) => return Err(failed("reading", &bundle_path)(source)),
    };
    match existing {
        Some(pair) if key_matches(&pair)? && !ends_soon(&pair.certificate, now)? => Ok(pair),
        older => {
            let older = older.map(|pair| pair.certificate).unwrap_or_default();
            let mut new = create(name, now)?;
            new.certificate = trust_bundle(&new.certificate, &older, now)?;
            write_authority(directory, name, &new)?;
            Ok(new)
        }
    }
}

fn write_authority(directory: &Path, name: &str, pair: &Credentials) -> Result<(), PkiError> {
    let (key_path, bundle_path) = authority_paths(directory, name);
    // The bundle comes first: a key without its certificate would sign what no client trusts. A crash between the two
    // leaves a bundle without its key, which the next start replaces.
    files::write_private(&bundle_path, pair.certificate.as_bytes())
        .map_err(failed("writing", &bundle_path))?;
    files::write_private(&key_path, pair.key.as_bytes()).map_err(failed("writing", &key_path))
}

fn authority_paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (
        directory.join(format!("{name}.key")),
        directory.join(format!("{name}.crt")),
    )
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

fn create(name: &str, now: Timestamp) -> Result<Credentials, PkiError> {
    // The year distinguishes the server CAs of a bundle. Client CAs can be replaced at any time, and a certificate is
    // accepted by the name of its CA, so that theirs are unique.
    let year = now.to_zoned(TimeZone::UTC).year();
    let suffix = match name {
        CLIENT_CA => format!("-{:016x}", u64::from_ne_bytes(random()?)),
        _ => String::new(),
    };
    let common_name = format!("mco-{name}-{year}{suffix}");
    Ok(CertificateAuthority::create(&common_name, now, CA_DAYS.days())?)
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
        let caller = caller_of(&certificate).unwrap();
        assert_eq!(caller.identity, Identity::admin());
        let Credential::Certificate { issuer } = caller.credential else {
            panic!("not a certificate");
        };
        assert!(pki.accepts_issuer(&issuer));
    }

    #[test]
    fn administrator_certificates_could_not_be_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let pki = Pki::open(directory.path(), now).unwrap();
        let issuer_of_new = |pki: &Pki| {
            let credentials = pki.client(&Identity::admin(), now).unwrap();
            let certificate = first_certificate(&credentials.certificate).unwrap();
            let verifier = CurrentClientVerifier(Arc::clone(&pki.clients));
            let is_verified = verifier
                .verify_client_cert(&certificate, &[], UnixTime::since_unix_epoch(at_epoch(now)))
                .is_ok();
            assert!(is_verified);
            (certificate.clone(), caller_of(&certificate).unwrap().credential)
        };
        let (old, Credential::Certificate { issuer }) = issuer_of_new(&pki) else {
            panic!("not a certificate");
        };
        let (bundle, fingerprint) = (pki.bundle().to_owned(), pki.fingerprint().unwrap());
        pki.rotate_clients(now).unwrap();
        issuer_of_new(&pki);
        for pki in [pki, Pki::open(directory.path(), now).unwrap()] {
            assert!(!pki.accepts_issuer(&issuer));
            let verifier = CurrentClientVerifier(Arc::clone(&pki.clients));
            let time = UnixTime::since_unix_epoch(at_epoch(now));
            assert!(verifier.verify_client_cert(&old, &[], time).is_err());
            assert_eq!(pki.bundle(), bundle, "nodes trust the same server CA");
            assert_eq!(pki.fingerprint().unwrap(), fingerprint);
        }
    }

    fn at_epoch(time: Timestamp) -> std::time::Duration {
        std::time::Duration::from_secs(time.as_second().unsigned_abs() + 60)
    }
}
