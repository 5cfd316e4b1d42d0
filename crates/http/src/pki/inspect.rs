//! Reading certificates and bundles of certificates.

use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::PublicKeyData as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{CertificateError, CertificatePair, keys};

/// The facts about a certificate that administrators look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The common name of the issuer.
    pub issuer: String,
    /// In the order of the certificate.
    pub hosts: Vec<String>,
}

/// Returns the facts about the first certificate of a PEM text.
pub fn summary(pem: &str) -> Result<CertificateSummary, CertificateError> {
    let certificate = first_certificate(pem)?;
    let parsed = parse(&certificate)?;
    let validity = parsed.validity();
    let names = parsed.subject_alternative_name().ok().flatten();
    let hosts = names.iter().flat_map(|names| &names.value.general_names);
    Ok(CertificateSummary {
        not_before: Timestamp::from_second(validity.not_before.timestamp())?,
        not_after: Timestamp::from_second(validity.not_after.timestamp())?,
        issuer: common_name(parsed.issuer()),
        hosts: hosts.filter_map(host).collect(),
    })
}

/// Returns all certificates of a PEM text.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    parsed.map_err(|error| CertificateError::Read(error.to_string()))
}

/// Returns the first certificate of a PEM text.
pub fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, CertificateError> {
    let mut found = certificates(pem)?.into_iter();
    found
        .next()
        .ok_or_else(|| CertificateError::Read("no certificate found".to_owned()))
}

/// Whether the key of a pair is that of its first certificate.
pub fn key_matches(pair: &CertificatePair) -> Result<bool, CertificateError> {
    let key = keys::read(&pair.key)?;
    let certificate = first_certificate(&pair.certificate)?;
    Ok(parse(&certificate)?.public_key().raw == key.subject_public_key_info())
}

/// Whether a certificate names this CA's key as its issuer's. Signatures are not verified: what has to be noticed is a
/// mix-up, not a forgery.
pub fn is_signed_by(pem: &str, ca: &str) -> bool {
    let (Ok(certificate), Ok(ca)) = (first_certificate(pem), first_certificate(ca)) else {
        return false;
    };
    let (Ok(certificate), Ok(ca)) = (parse(&certificate), parse(&ca)) else {
        return false;
    };
    let issuer_key = certificate
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(key) => {
                key.key_identifier.as_ref().map(|key| key.0.to_vec())
            }
            _ => None,
        });
    let ca_key = ca
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0.to_vec()),
            _ => None,
        });
    match ca_key {
        Some(key) => issuer_key == Some(key),
        // The key identifier of a CA is optional.
        None => certificate.issuer() == ca.subject(),
    }
}

/// Returns the CA followed by every other certificate of `bundle` that has not expired, each once. Unreadable ones are
/// dropped.
pub fn trust_bundle(ca: &str, bundle: &str, now: Timestamp) -> Result<String, CertificateError> {
    let mut seen = vec![first_certificate(ca)?];
    let mut text = format!("{}\n", ca.trim());
    for block in bundle.split_inclusive("-----END CERTIFICATE-----") {
        let (Ok(certificate), Ok(facts)) = (first_certificate(block), summary(block)) else {
            continue;
        };
        if seen.contains(&certificate) || facts.not_after <= now {
            continue;
        }
        text.push_str(block.trim());
        text.push('\n');
        seen.push(certificate);
    }
    Ok(text)
}

fn parse<'c>(certificate: &'c CertificateDer<'_>) -> Result<X509Certificate<'c>, CertificateError> {
    let parsed = X509Certificate::from_der(certificate);
    let (_, certificate) = parsed.map_err(|error| CertificateError::Read(error.to_string()))?;
    Ok(certificate)
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let mut names = name.iter_common_name();
    let first = names.next().and_then(|name| name.as_str().ok());
    first.unwrap_or_default().to_owned()
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    let address = match name {
        GeneralName::DNSName(name) => return Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
            _ => return None,
        },
        _ => return None,
    };
    Some(address.to_string())
}
