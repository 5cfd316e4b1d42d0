//! A certificate authority (CA) on rcgen: creating one, signing with it, and reading certificates.
//!
//! Where certificates are stored and when they are renewed is decided by the callers.

mod inspect;
mod keys;

use std::net::IpAddr;

use jiff::{Span, Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;

pub use inspect::{
    CertificateSummary, certificates, first_certificate, is_signed_by, key_matches, summary, trust_bundle,
};

#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("creating a certificate: {0}")]
    Create(#[from] rcgen::Error),
    #[error("reading a certificate: {0}")]
    Read(String),
    #[error("the clock of this machine is not usable: {0}")]
    Clock(#[from] jiff::Error),
}

/// A certificate chain and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificatePair").finish_non_exhaustive()
    }
}

/// What a signed certificate is for.
#[derive(Clone, Copy, Debug)]
pub enum CertificateUsage<'a> {
    /// The DNS names and IP addresses of a server.
    Server {
        hosts: &'a [String],
    },
    Client,
}

/// A certificate to be signed.
#[derive(Clone, Copy, Debug)]
pub struct CertificateRequest<'a> {
    pub common_name: Option<&'a str>,
    pub organization: Option<&'a str>,
    pub usage: CertificateUsage<'a>,
    pub lifetime: Span,
}

/// A CA that can sign.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    not_after: Timestamp,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates a self-signed CA certificate.
    pub fn create(
        common_name: &str,
        now: Timestamp,
        lifetime: Span,
    ) -> Result<CertificatePair, CertificateError> {
        let mut params = valid_for(now, lifetime)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate()?;
        Ok(CertificatePair {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Reads the first certificate of a CA and its key. Fails if they do not belong together.
    pub fn load(pair: &CertificatePair) -> Result<Self, CertificateError> {
        if !key_matches(pair)? {
            return Err(CertificateError::Read(
                "the key belongs to another certificate".to_owned(),
            ));
        }
        let certificate = first_certificate(&pair.certificate)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&certificate, keys::read(&pair.key)?)?,
            not_after: summary(&pair.certificate)?.not_after,
        })
    }

    /// Signs a certificate with a new key. It does not outlive the CA.
    pub fn sign(
        &self,
        request: &CertificateRequest<'_>,
        now: Timestamp,
    ) -> Result<CertificatePair, CertificateError> {
        let mut params = valid_for(now, request.lifetime)?;
        params.not_after = params.not_after.min(date(self.not_after)?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        if let Some(name) = request.common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        if let Some(name) = request.organization {
            params.distinguished_name.push(DnType::OrganizationName, name);
        }
        match request.usage {
            CertificateUsage::Client => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]
            }
            CertificateUsage::Server { hosts } => {
                params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                for host in hosts {
                    params.subject_alt_names.push(match host.parse::<IpAddr>() {
                        Ok(address) => SanType::IpAddress(address),
                        Err(_) => SanType::DnsName(host.as_str().try_into()?),
                    });
                }
            }
        }
        let key = KeyPair::generate()?;
        Ok(CertificatePair {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn valid_for(now: Timestamp, lifetime: Span) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let now = now.to_zoned(TimeZone::UTC);
    // One day of tolerance for machines whose clocks are behind.
    params.not_before = date(now.checked_sub(1.day())?.timestamp())?;
    params.not_after = date(now.checked_add(lifetime)?.timestamp())?;
    Ok(params)
}

fn date(time: Timestamp) -> Result<time::OffsetDateTime, CertificateError> {
    time::OffsetDateTime::from_unix_timestamp(time.as_second())
        .map_err(|error| CertificateError::Read(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ca(now: Timestamp) -> CertificatePair {
        CertificateAuthority::create("test-ca", now, 10.years()).unwrap()
    }

    #[test]
    fn a_signed_certificate_names_its_hosts_and_does_not_outlive_the_ca() {
        let now = at("2026-01-01T00:00:00Z");
        let ca_pair = ca(now);
        let ca = CertificateAuthority::load(&ca_pair).unwrap();
        let hosts = [
            "a.example.com".to_owned(),
            "192.0.2.1".to_owned(),
            "fd00::1".to_owned(),
        ];
        let request = CertificateRequest {
            common_name: Some("a.example.com"),
            organization: None,
            usage: CertificateUsage::Server { hosts: &hosts },
            lifetime: 20.years(),
        };
        let signed = ca.sign(&request, now).unwrap();
        let facts = summary(&signed.certificate).unwrap();
        assert_eq!(facts.hosts, hosts);
        assert_eq!(facts.issuer, "test-ca");
        assert_eq!(facts.not_before, at("2025-12-31T00:00:00Z"));
        assert_eq!(facts.not_after, at("2036-01-01T00:00:00Z"));
        assert!(is_signed_by(&signed.certificate, &ca_pair.certificate));
        assert!(key_matches(&signed).unwrap());
    }

    #[test]
    fn a_ca_needs_its_own_key() {
        let now = at("2026-01-01T00:00:00Z");
        let (first, second) = (ca(now), ca(now));
        assert!(!is_signed_by(&first.certificate, &second.certificate));
        for key in ["", "garbage", &second.key] {
            let mixed = CertificatePair {
                key: key.to_owned(),
                ..first.clone()
            };
            let error = CertificateAuthority::load(&mixed).unwrap_err().to_string();
            assert!(!error.contains("BEGIN"), "{error}");
        }
    }

    #[test]
    fn a_trust_bundle_holds_each_valid_ca_once_and_the_newest_first() {
        let (early, late) = (at("2026-01-01T00:00:00Z"), at("2034-01-01T00:00:00Z"));
        let (old, new) = (ca(early), ca(late));
        let damaged = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let bundle = format!(
            "{}{damaged}{}{}",
            new.certificate, old.certificate, old.certificate
        );
        let trusted = trust_bundle(&new.certificate, &bundle, late).unwrap();
        assert_eq!(
            certificates(&trusted).unwrap(),
            [
                first_certificate(&new.certificate).unwrap(),
                first_certificate(&old.certificate).unwrap()
            ]
        );
        let trusted = trust_bundle(&new.certificate, &bundle, at("2037-01-01T00:00:00Z")).unwrap();
        assert_eq!(
            certificates(&trusted).unwrap().len(),
            1,
            "the old one has expired"
        );
    }
}
