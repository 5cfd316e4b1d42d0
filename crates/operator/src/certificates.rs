//! Certificates: an authority, what it signs, and when each of them is made again.
//!
//! Pure but for the randomness of new keys: what exists and the time come in, what should exist goes out. An authority is
//! made only when something has to be signed, so a cluster whose certificates somebody else made keeps them as long as
//! they are good. A replaced authority stays trusted until it expires, so nobody is locked out.

mod keys;

use std::net::IpAddr;

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Machines that were created long ago still carry the authority of their time.
const VALID_YEARS: i16 = 10;
/// A certificate is replaced when this part of its life is over.
const REFRESH_PERCENT: i64 = 80;

#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("reading a certificate: {0}")]
    Read(String),
    #[error("the clock cannot be right: {0}")]
    Clock(#[from] jiff::Error),
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyedCertificate {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for KeyedCertificate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeyedCertificate").finish_non_exhaustive()
    }
}

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    pub authority: Option<KeyedCertificate>,
    /// The certificates that clients trust.
    pub bundle: String,
    pub serving: Option<KeyedCertificate>,
}

/// What there should be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// None while all that exists was signed by somebody else.
    pub authority: Option<KeyedCertificate>,
    pub bundle: String,
    pub serving: KeyedCertificate,
}

/// The facts about a certificate that people look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub issuer: String,
    /// In the order of the certificate.
    pub hosts: Vec<String>,
}

/// Keeps what is good and makes what is missing, worn out, or valid for other hosts.
pub fn renew(
    existing: Existing,
    name: &str,
    hosts: &[String],
    now: Timestamp,
) -> Result<Wanted, CertificateError> {
    let Existing {
        authority,
        bundle,
        serving,
    } = existing;
    let ours = authority.as_ref();
    let good = serving.filter(|serving| {
        is_pair(serving)
            && !is_worn_out(&serving.certificate, now)
            && match ours {
                Some(authority) => is_for(serving, authority, hosts),
                // What somebody else signed may name hosts of their choosing, but has to be trusted by somebody.
                None => first(&bundle).is_ok(),
            }
    });
    let worn_out = ours.is_some_and(|authority| is_worn_out(&authority.certificate, now));
    if let Some(serving) = good
        && !worn_out
    {
        let bundle = match ours {
            Some(authority) => trusted(&authority.certificate, &bundle, now)?,
            None => bundle,
        };
        return Ok(Wanted {
            authority,
            bundle,
            serving,
        });
    }
    let mut bundle = bundle;
    let authority = match authority {
        // One whose key we cannot use can sign nothing more, so it is replaced as if it were worn out.
        Some(authority) if !worn_out && issuer(&authority).is_ok() => authority,
        replaced => {
            let old = replaced.map(|old| old.certificate).unwrap_or_default();
            if first(&old).is_ok() {
                bundle = format!("{bundle}\n{old}");
            }
            make_authority(name, now)?
        }
    };
    let serving = make_serving(&authority, hosts, now)?;
    Ok(Wanted {
        bundle: trusted(&authority.certificate, &bundle, now)?,
        serving,
        authority: Some(authority),
    })
}

/// The facts about the first certificate of a PEM text.
pub fn summary(pem: &str) -> Result<Summary, CertificateError> {
    let certificate = first(pem)?;
    let (_, parsed) =
        X509Certificate::from_der(&certificate).map_err(|error| CertificateError::Read(error.to_string()))?;
    let validity = parsed.validity();
    let names = parsed.subject_alternative_name().ok().flatten();
    let hosts = names.iter().flat_map(|names| &names.value.general_names);
    Ok(Summary {
        not_before: Timestamp::from_second(validity.not_before.timestamp())?,
        not_after: Timestamp::from_second(validity.not_after.timestamp())?,
        issuer: common_name(parsed.issuer()),
        hosts: hosts.filter_map(host).collect(),
    })
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let mut names = name.iter_common_name();
    let first = names.next().and_then(|name| name.as_str().ok());
    first.unwrap_or_default().to_owned()
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|octets| IpAddr::from(octets).to_string()),
            16 => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|octets| IpAddr::from(octets).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether somebody could be shown it.
fn is_pair(serving: &KeyedCertificate) -> bool {
    let KeyedCertificate { certificate, key } = serving;
    let set = mco_tls::Certificate::default().set(certificate.as_bytes(), key.as_bytes());
    set.is_ok()
}

/// Whether this authority signed it, for these hosts and no others.
fn is_for(serving: &KeyedCertificate, authority: &KeyedCertificate, hosts: &[String]) -> bool {
    let Ok(facts) = summary(&serving.certificate) else {
        return false;
    };
    let mut named = facts.hosts;
    let mut wanted = hosts.to_vec();
    named.sort_unstable();
    wanted.sort_unstable();
    wanted.dedup();
    named == wanted && is_signed_by(&serving.certificate, &authority.certificate)
}

fn is_worn_out(pem: &str, now: Timestamp) -> bool {
    let Ok(facts) = summary(pem) else {
        return true;
    };
    let life = facts.not_after.as_second() - facts.not_before.as_second();
    let lived = now.as_second() - facts.not_before.as_second();
    lived.saturating_mul(100) >= life.saturating_mul(REFRESH_PERCENT)
}

fn is_signed_by(pem: &str, authority: &str) -> bool {
    let (Ok(certificate), Ok(authority)) = (first(pem), first(authority)) else {
        return false;
    };
    let (Ok((_, certificate)), Ok((_, authority))) = (
        X509Certificate::from_der(&certificate),
        X509Certificate::from_der(&authority),
    ) else {
        return false;
    };
    // Whose key it names is enough: nobody but us writes these objects, and a mix-up is what has to be noticed.
    let named = certificate
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(key) => {
                key.key_identifier.as_ref().map(|key| key.0.to_vec())
            }
            _ => None,
        });
    let own = authority
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0.to_vec()),
            _ => None,
        });
    match own {
        Some(own) => named == Some(own),
        // An authority need not name its key; then its own name has to do.
        None => certificate.issuer() == authority.subject(),
    }
}

/// The authority and every older one that has not expired yet, each once, the newest first. What nobody can read nobody trusts.
fn trusted(authority: &str, bundle: &str, now: Timestamp) -> Result<String, CertificateError> {
    let mut seen = vec![first(authority)?];
    let mut text = format!("{}\n", authority.trim());
    for block in bundle.split_inclusive("-----END CERTIFICATE-----") {
        let (Ok(certificate), Ok(facts)) = (first(block), summary(block)) else {
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

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    parsed.map_err(|error| CertificateError::Read(error.to_string()))
}

fn first(pem: &str) -> Result<CertificateDer<'static>, CertificateError> {
    let mut found = certificates(pem)?.into_iter();
    found
        .next()
        .ok_or_else(|| CertificateError::Read("there is no certificate in it".to_owned()))
}

fn make_authority(name: &str, now: Timestamp) -> Result<KeyedCertificate, CertificateError> {
    let mut params = valid(now)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    // The time tells one authority from the next in a bundle of several.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{name}@{}", now.as_second()));
    let key = KeyPair::generate()?;
    Ok(KeyedCertificate {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

fn issuer(authority: &KeyedCertificate) -> Result<Issuer<'static, KeyPair>, CertificateError> {
    let key = keys::read(&authority.key)?;
    let certificate = first(&authority.certificate)?;
    let (_, parsed) =
        X509Certificate::from_der(&certificate).map_err(|error| CertificateError::Read(error.to_string()))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        let why = "its key is another certificate's";
        return Err(CertificateError::Read(why.to_owned()));
    }
    Ok(Issuer::from_ca_cert_der(&certificate, key)?)
}

fn make_serving(
    authority: &KeyedCertificate,
    hosts: &[String],
    now: Timestamp,
) -> Result<KeyedCertificate, CertificateError> {
    let issuer = issuer(authority)?;
    let mut params = valid(now)?;
    // Nothing outlives what it was signed with.
    let end = summary(&authority.certificate)?.not_after;
    params.not_after = params.not_after.min(date(end)?);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    if let Some(host) = hosts.first() {
        params.distinguished_name.push(DnType::CommonName, host.as_str());
    }
    for host in &hosts {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into()?),
        });
    }
    let key = KeyPair::generate()?;
    Ok(KeyedCertificate {
        certificate: params.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

fn valid(now: Timestamp) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let now = now.to_zoned(TimeZone::UTC);
    // A day's grace for machines whose clocks are behind.
    params.not_before = date(now.checked_sub(1.day())?.timestamp())?;
    params.not_after = date(now.checked_add(VALID_YEARS.years())?.timestamp())?;
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

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn existing(wanted: &Wanted) -> Existing {
        Existing {
            authority: wanted.authority.clone(),
            bundle: wanted.bundle.clone(),
            serving: Some(wanted.serving.clone()),
        }
    }

    fn renewed(existing: Existing, names: &[&str], now: &str) -> Wanted {
        renew(existing, "test", &hosts(names), at(now)).unwrap()
    }

    #[test]
    fn what_is_good_stays_and_what_is_not_is_made_again() {
        let names = ["api-int.example.com", "192.0.2.1", "fd00::1"];
        let first = renewed(Existing::default(), &names, "2026-01-01T00:00:00Z");
        let facts = summary(&first.serving.certificate).unwrap();
        let mut named = facts.hosts.clone();
        named.sort_unstable();
        assert_eq!(named, ["192.0.2.1", "api-int.example.com", "fd00::1"]);
        assert_eq!(facts.not_after, at("2036-01-01T00:00:00Z"));

        let again = renewed(existing(&first), &names, "2030-01-01T00:00:00Z");
        assert_eq!(again.serving, first.serving, "nothing to do");
        assert_eq!(again.bundle, first.bundle);

        let moved = renewed(existing(&first), &["192.0.2.2"], "2030-01-01T00:00:00Z");
        assert_ne!(moved.serving, first.serving, "another address");
        assert_eq!(moved.authority, first.authority, "but the same authority");
        assert_eq!(moved.bundle, first.bundle);

        let late = renewed(existing(&first), &names, "2034-06-01T00:00:00Z");
        assert_ne!(late.authority, first.authority, "eight of ten years are over");
        assert_ne!(late.serving, first.serving);
        assert_eq!(
            certificates(&late.bundle).unwrap().len(),
            2,
            "the old one is still trusted"
        );
        assert!(late.bundle.trim_end().ends_with(first.bundle.trim_end()));

        let later = renewed(existing(&late), &names, "2043-06-01T00:00:00Z");
        assert_eq!(
            certificates(&later.bundle).unwrap().len(),
            2,
            "the first has expired by now"
        );
    }

    #[test]
    fn what_others_signed_is_kept_until_it_wears_out() {
        let theirs = renewed(
            Existing::default(),
            &["other.example.com"],
            "2026-01-01T00:00:00Z",
        );
        let without_authority = || Existing {
            authority: None,
            ..existing(&theirs)
        };
        let kept = renewed(
            without_authority(),
            &["api-int.example.com"],
            "2027-01-01T00:00:00Z",
        );
        assert_eq!(kept.authority, None);
        assert_eq!(
            (kept.serving, kept.bundle),
            (theirs.serving.clone(), theirs.bundle.clone())
        );

        let taken_over = renewed(
            without_authority(),
            &["api-int.example.com"],
            "2034-06-01T00:00:00Z",
        );
        assert!(taken_over.authority.is_some());
        assert_eq!(certificates(&taken_over.bundle).unwrap().len(), 2);
    }

    fn made_by_go(certificate: &str, key: &str) -> Existing {
        Existing {
            authority: Some(KeyedCertificate {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            }),
            bundle: certificate.to_owned(),
            serving: None,
        }
    }

    fn verified(wanted: &Wanted) {
        let authority = first(&wanted.authority.as_ref().unwrap().certificate).unwrap();
        let serving = first(&wanted.serving.certificate).unwrap();
        let (_, authority) = X509Certificate::from_der(&authority).unwrap();
        let (_, serving) = X509Certificate::from_der(&serving).unwrap();
        serving
            .verify_signature(Some(authority.public_key()))
            .expect("the authority's key has signed");
        assert_eq!(serving.issuer().to_string(), authority.subject().to_string());
    }

    #[test]
    fn an_authority_that_go_made_signs_here_too() {
        let now = "2027-01-01T00:00:00Z";
        for (name, certificate, key) in [
            (
                "RSA in PKCS#1",
                include_str!("certificates/go/rsa.crt"),
                include_str!("certificates/go/rsa.key"),
            ),
            (
                "P-256 in SEC 1",
                include_str!("certificates/go/p256.crt"),
                include_str!("certificates/go/p256.key"),
            ),
            (
                "P-384 in SEC 1",
                include_str!("certificates/go/p384.crt"),
                include_str!("certificates/go/p384.key"),
            ),
        ] {
            let theirs = made_by_go(certificate, key);
            let signed = renewed(theirs.clone(), &["api-int.example.com"], now);
            assert_eq!(signed.authority, theirs.authority, "{name}");
            assert_eq!(signed.bundle.trim(), certificate.trim(), "{name}");
            verified(&signed);
            let again = renewed(existing(&signed), &["api-int.example.com"], now);
            assert_eq!(again.serving, signed.serving, "{name}: nothing to do");
        }
    }

    #[test]
    fn an_authority_whose_key_cannot_be_used_is_replaced_and_stays_trusted() {
        let (certificate, key) = (
            include_str!("certificates/go/p521.crt"),
            include_str!("certificates/go/p521.key"),
        );
        for (name, key) in [
            ("a curve that we cannot sign on", key),
            ("no key at all", ""),
            (
                "another authority's key",
                include_str!("certificates/go/p256.key"),
            ),
        ] {
            let mut theirs = made_by_go(certificate, key);
            theirs.bundle.clear();
            let replaced = renewed(theirs.clone(), &["a"], "2027-01-01T00:00:00Z");
            assert_ne!(replaced.authority, theirs.authority, "{name}");
            verified(&replaced);
            let trusted = certificates(&replaced.bundle).unwrap();
            assert_eq!(trusted.len(), 2, "{name}");
            assert_eq!(trusted[1], first(certificate).unwrap(), "{name}");
            let again = renewed(existing(&replaced), &["a"], "2027-01-02T00:00:00Z");
            assert_eq!(
                (again.authority, again.bundle),
                (replaced.authority, replaced.bundle)
            );
        }
    }

    #[test]
    fn a_certificate_whose_authority_is_lost_without_a_trace_is_replaced() {
        let now = "2026-01-01T00:00:00Z";
        let before = renewed(Existing::default(), &["a"], now);
        for bundle in ["", "garbage"] {
            let lost = Existing {
                authority: None,
                bundle: bundle.to_owned(),
                serving: Some(before.serving.clone()),
            };
            let renewed = renewed(lost, &["a"], now);
            verified(&renewed);
            assert_eq!(certificates(&renewed.bundle).unwrap().len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_read_in_a_bundle_goes() {
        let now = "2026-01-01T00:00:00Z";
        let first = renewed(Existing::default(), &["a"], now);
        let damaged = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let spoilt = Existing {
            bundle: format!("{damaged}{}", first.bundle),
            ..existing(&first)
        };
        let renewed = renewed(spoilt, &["a"], now);
        assert_eq!((renewed.bundle, renewed.serving), (first.bundle, first.serving));
    }

    #[test]
    fn a_certificate_of_another_authority_or_without_its_key_is_replaced() {
        let now = "2026-01-01T00:00:00Z";
        let first = renewed(Existing::default(), &["a"], now);
        let other = renewed(Existing::default(), &["a"], now);
        let mixed = Existing {
            serving: Some(other.serving.clone()),
            ..existing(&first)
        };
        assert_ne!(renewed(mixed, &["a"], now).serving, other.serving);
        for key in ["", "garbage", &other.serving.key] {
            let mismatched = Existing {
                serving: Some(KeyedCertificate {
                    key: key.to_owned(),
                    ..first.serving.clone()
                }),
                ..existing(&first)
            };
            let renewed = renewed(mismatched, &["a"], now);
            assert_ne!(renewed.serving.certificate, first.serving.certificate);
            assert!(is_pair(&renewed.serving));
        }
        let garbage = Existing {
            serving: Some(KeyedCertificate {
                certificate: "garbage".to_owned(),
                key: "garbage".to_owned(),
            }),
            ..existing(&first)
        };
        assert!(summary(&renewed(garbage, &["a"], now).serving.certificate).is_ok());
    }
}
