//! The server's own certificate authority and what it signs.
//!
//! The authority lives in the data directory; server and administrator certificates are made at every start and again
//! before they expire. When the authority itself nears its end a new one signs, and the old one stays trusted until
//! it has expired, so no client is ever locked out.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Identity;
use crate::files;

const AUTHORITY_DAYS: i32 = 3650;
/// A new authority takes over this long before the old one ends: longer than anything the old one signed lives.
const AUTHORITY_OVERLAP_DAYS: i32 = 730;
const LEAF_DAYS: i32 = 365;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{attempt} {path}: {source}")]
    File {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("{0:?} is in several groups; a certificate can name one, use a token")]
    SeveralGroups(String),
    #[error("reading a certificate: {0}")]
    Read(String),
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("trusting our own authority: {0}")]
    Trust(#[from] rustls::client::VerifierBuilderError),
    #[error("the clock cannot be right: {0}")]
    Clock(#[from] jiff::Error),
}

/// A key and a certificate chain, as PEM.
#[derive(Clone)]
pub struct Credentials {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The authority.
pub struct Pki {
    issuer: Issuer<'static, KeyPair>,
    /// Every authority whose signatures are still honoured, newest first.
    bundle: String,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pki").finish_non_exhaustive()
    }
}

impl Pki {
    /// Opens the authority in a directory, making or replacing it when needed.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        std::fs::create_dir_all(directory).map_err(failed("creating", directory))?;
        let (key_path, bundle_path) = (directory.join("ca.key"), directory.join("ca.crt"));
        let existing = match (
            std::fs::read_to_string(&key_path),
            std::fs::read_to_string(&bundle_path),
        ) {
            (Ok(key), Ok(bundle)) => Some((key, bundle)),
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            (Err(source), _) => return Err(failed("reading", &key_path)(source)),
            (_, Err(source)) => return Err(failed("reading", &bundle_path)(source)),
        };
        let (key, bundle) = match existing {
            Some((key, bundle))
                if belongs_to(&key, &bundle)? && !ends_within(&bundle, now, AUTHORITY_OVERLAP_DAYS)? =>
            {
                (key, bundle)
            }
            older => {
                let older = older.map(|(_, bundle)| bundle);
                let (key, certificate) = make_authority(now)?;
                let bundle = certificate + &still_valid(older.as_deref().unwrap_or_default(), now)?;
                // The bundle goes first: a key without its certificate would sign what nobody trusts. A crash between
                // the two leaves a bundle without its key, which the next start replaces.
                files::write_private(&bundle_path, bundle.as_bytes())
                    .map_err(failed("writing", &bundle_path))?;
                files::write_private(&key_path, key.as_bytes()).map_err(failed("writing", &key_path))?;
                (key, bundle)
            }
        };
        let newest = first_certificate(&bundle)?;
        let issuer = Issuer::from_ca_cert_der(&newest, KeyPair::from_pem(&key)?)?;
        Ok(Self { issuer, bundle })
    }

    /// What clients must trust.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The hash of the authority's public key, by which a new machine recognises us.
    pub fn fingerprint(&self) -> Result<[u8; 32], PkiError> {
        let newest = first_certificate(&self.bundle)?;
        let (_, newest) =
            X509Certificate::from_der(&newest).map_err(|error| PkiError::Read(error.to_string()))?;
        Ok(Sha256::digest(newest.public_key().raw).into())
    }

    /// A certificate by which a client is this identity.
    pub fn client(&self, identity: &Identity, now: Timestamp) -> Result<Credentials, PkiError> {
        let mut params = leaf(now, ExtendedKeyUsagePurpose::ClientAuth)?;
        params
            .distinguished_name
            .push(DnType::CommonName, identity.user.as_str());
        let groups: Vec<&String> = identity
            .groups
            .iter()
            .filter(|group| *group != super::AUTHENTICATED)
            .collect();
        match groups.as_slice() {
            [] => {}
            [group] => params
                .distinguished_name
                .push(DnType::OrganizationName, group.as_str()),
            // The library that builds certificates keeps one value per attribute.
            _ => return Err(PkiError::SeveralGroups(identity.user.clone())),
        }
        self.sign(&params)
    }

    /// The server's own certificate.
    fn server(&self, hosts: &[String], now: Timestamp) -> Result<Credentials, PkiError> {
        let mut params = leaf(now, ExtendedKeyUsagePurpose::ServerAuth)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        let mut credentials = self.sign(&params)?;
        // The authority goes along, for machines that know no more of it than its fingerprint.
        credentials.certificate += newest(&self.bundle);
        Ok(credentials)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Credentials, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credentials {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// TLS for the listening socket: our certificate, and clients by certificate or (checked later) by token.
    pub fn server_config(&self, hosts: &[String], now: Timestamp) -> Result<ServerConfig, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.bundle)? {
            roots.add(authority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
        let credentials = self.server(hosts, now)?;
        let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())
            .map_err(|error| PkiError::Read(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&credentials.certificate)?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Who a verified client certificate names: the common name is the user, organisations are groups.
pub(crate) fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
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

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    parsed.map_err(|error| PkiError::Read(error.to_string()))
}

/// The first authority of a bundle, as PEM.
fn newest(bundle: &str) -> &str {
    bundle
        .split_inclusive("-----END CERTIFICATE-----")
        .next()
        .unwrap_or_default()
}

fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    let mut found = certificates(pem)?.into_iter();
    found
        .next()
        .ok_or_else(|| PkiError::Read("the authority's file holds no certificate".to_owned()))
}

/// Whether a key is that of a bundle's newest authority.
fn belongs_to(key: &str, bundle: &str) -> Result<bool, PkiError> {
    let newest = first_certificate(bundle)?;
    let (_, newest) =
        X509Certificate::from_der(&newest).map_err(|error| PkiError::Read(error.to_string()))?;
    Ok(KeyPair::from_pem(key)?.subject_public_key_info() == newest.public_key().raw)
}

fn end_of(certificate: &CertificateDer<'_>) -> Result<Timestamp, PkiError> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| PkiError::Read(error.to_string()))?;
    Ok(Timestamp::from_second(parsed.validity().not_after.timestamp())?)
}

fn in_days(now: Timestamp, days: i32) -> Result<Timestamp, PkiError> {
    let day = now.to_zoned(TimeZone::UTC).checked_add(Span::new().days(days))?;
    Ok(day.timestamp())
}

fn ends_within(bundle: &str, now: Timestamp, days: i32) -> Result<bool, PkiError> {
    Ok(end_of(&first_certificate(bundle)?)? < in_days(now, days)?)
}

/// The authorities of an old bundle that have not expired yet.
fn still_valid(bundle: &str, now: Timestamp) -> Result<String, PkiError> {
    let mut kept = String::new();
    for block in bundle.split_inclusive("-----END CERTIFICATE-----") {
        let Some(certificate) = certificates(block)?.into_iter().next() else {
            continue;
        };
        if end_of(&certificate)? > now {
            kept.push_str(block.trim());
            kept.push('\n');
        }
    }
    Ok(kept)
}

fn make_authority(now: Timestamp) -> Result<(String, String), PkiError> {
    let mut params = valid_for(now, AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    // The year tells one authority from the next in a bundle of several.
    let year = now.to_zoned(TimeZone::UTC).year();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("mco-ca-{year}"));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

fn leaf(now: Timestamp, purpose: ExtendedKeyUsagePurpose) -> Result<CertificateParams, PkiError> {
    let mut params = valid_for(now, LEAF_DAYS)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn valid_for(now: Timestamp, days: i32) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // A day's grace for clients whose clocks are behind.
    params.not_before = date(in_days(now, -1)?)?;
    params.not_after = date(in_days(now, days)?)?;
    Ok(params)
}

fn date(time: Timestamp) -> Result<time::OffsetDateTime, PkiError> {
    time::OffsetDateTime::from_unix_timestamp(time.as_second())
        .map_err(|error| PkiError::Read(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_authority_survives_a_restart_and_is_replaced_before_it_ends() {
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
    fn a_crash_while_the_authority_is_replaced_leaves_one_that_can_sign() {
        let directory = tempfile::tempdir().unwrap();
        let early = Pki::open(directory.path(), at("2026-01-01T00:00:00Z")).unwrap();
        let old_key = std::fs::read(directory.path().join("ca.key")).unwrap();
        Pki::open(directory.path(), at("2034-06-01T00:00:00Z")).unwrap();
        std::fs::write(directory.path().join("ca.key"), old_key).unwrap();

        let after = Pki::open(directory.path(), at("2034-06-02T00:00:00Z")).unwrap();
        let key = std::fs::read_to_string(directory.path().join("ca.key")).unwrap();
        assert!(belongs_to(&key, after.bundle()).unwrap());
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
