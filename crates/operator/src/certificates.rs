//! The certificates of a serving component: a CA, what it signs, and when each of them is renewed.
//!
//! Pure except for the randomness of new keys: existing certificates and the time come in, the wanted ones go out. A CA
//! is created only when something has to be signed, so certificates of another implementation are kept as long as they
//! are valid. A replaced CA stays trusted until it expires, so that no client is locked out.

use jiff::{Timestamp, ToSpan as _};
use mco_http::pki::{
    CertificateAuthority, CertificateRequest, CertificateUsage, first_certificate, is_signed_by, trust_bundle,
};
use mco_http::tls::CertificateStore;

pub use mco_http::pki::{CertificateError, CertificatePair, CertificateSummary, summary};

/// Machines that were created long ago still carry the CA of their time.
const LIFETIME_YEARS: i64 = 10;
/// A certificate is renewed when this part of its lifetime is over.
const RENEW_PERCENT: i64 = 80;

/// The certificates that exist.
#[derive(Clone, Debug, Default)]
pub struct ExistingCertificates {
    pub ca: Option<CertificatePair>,
    /// The certificates that clients trust.
    pub bundle: String,
    pub serving: Option<CertificatePair>,
}

/// The certificates that should exist.
#[derive(Clone, Debug)]
pub struct WantedCertificates {
    /// `None` while everything that exists was signed by another CA.
    pub ca: Option<CertificatePair>,
    pub bundle: String,
    pub serving: CertificatePair,
}

/// Keeps valid certificates and creates those that are missing, due for renewal, or for other hosts.
pub fn renew(
    existing: ExistingCertificates,
    name: &str,
    hosts: &[String],
    now: Timestamp,
) -> Result<WantedCertificates, CertificateError> {
    let ExistingCertificates { ca, bundle, serving } = existing;
    let ours = ca.as_ref();
    let valid = serving.filter(|serving| {
        can_be_served(serving)
            && !is_due(&serving.certificate, now)
            && match ours {
                Some(ca) => is_for(serving, ca, hosts),
                // A foreign certificate may name other hosts, but clients need a bundle to verify it with.
                None => first_certificate(&bundle).is_ok(),
            }
    });
    let ca_is_due = ours.is_some_and(|ca| is_due(&ca.certificate, now));
    if let Some(serving) = valid
        && !ca_is_due
    {
        let bundle = match ours {
            Some(ca) => trust_bundle(&ca.certificate, &bundle, now)?,
            None => bundle,
        };
        return Ok(WantedCertificates { ca, bundle, serving });
    }
    let mut bundle = bundle;
    let ca = match ca {
        // A CA whose key is unusable cannot sign and is replaced as well.
        Some(ca) if !ca_is_due && CertificateAuthority::load(&ca).is_ok() => ca,
        replaced => {
            let old = replaced.map(|old| old.certificate).unwrap_or_default();
            if first_certificate(&old).is_ok() {
                bundle = format!("{bundle}\n{old}");
            }
            // The time distinguishes the CAs of a bundle.
            let name = format!("{name}@{}", now.as_second());
            CertificateAuthority::create(&name, now, LIFETIME_YEARS.years())?
        }
    };
    let serving = sign(&ca, hosts, now)?;
    Ok(WantedCertificates {
        bundle: trust_bundle(&ca.certificate, &bundle, now)?,
        serving,
        ca: Some(ca),
    })
}

fn can_be_served(pair: &CertificatePair) -> bool {
    CertificateStore::accepts(pair.certificate.as_bytes(), pair.key.as_bytes())
}

/// Whether this CA signed a certificate for exactly these hosts.
fn is_for(serving: &CertificatePair, ca: &CertificatePair, hosts: &[String]) -> bool {
    let Ok(facts) = summary(&serving.certificate) else {
        return false;
    };
    let mut named = facts.hosts;
    named.sort_unstable();
    named == sorted(hosts) && is_signed_by(&serving.certificate, &ca.certificate)
}

/// Whether a certificate has to be renewed; an unreadable one has.
fn is_due(pem: &str, now: Timestamp) -> bool {
    let Ok(facts) = summary(pem) else {
        return true;
    };
    let lifetime = facts.not_after.as_second() - facts.not_before.as_second();
    let age = now.as_second() - facts.not_before.as_second();
    age.saturating_mul(100) >= lifetime.saturating_mul(RENEW_PERCENT)
}

fn sign(ca: &CertificatePair, hosts: &[String], now: Timestamp) -> Result<CertificatePair, CertificateError> {
    let hosts = sorted(hosts);
    let request = CertificateRequest {
        common_name: hosts.first().map(String::as_str),
        organization: None,
        usage: CertificateUsage::Server { hosts: &hosts },
        lifetime: LIFETIME_YEARS.years(),
    };
    CertificateAuthority::load(ca)?.sign(&request, now)
}

fn sorted(hosts: &[String]) -> Vec<String> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use mco_http::pki::certificates;
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn existing(wanted: &WantedCertificates) -> ExistingCertificates {
        ExistingCertificates {
            ca: wanted.ca.clone(),
            bundle: wanted.bundle.clone(),
            serving: Some(wanted.serving.clone()),
        }
    }

    fn renewed(existing: ExistingCertificates, names: &[&str], now: &str) -> WantedCertificates {
        renew(existing, "test", &hosts(names), at(now)).unwrap()
    }

    #[test]
    fn valid_certificates_stay_and_others_are_renewed() {
        let names = ["api-int.example.com", "192.0.2.1", "fd00::1"];
        let first = renewed(ExistingCertificates::default(), &names, "2026-01-01T00:00:00Z");
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
        assert_eq!(moved.ca, first.ca, "but the same CA");
        assert_eq!(moved.bundle, first.bundle);

        let late = renewed(existing(&first), &names, "2034-06-01T00:00:00Z");
        assert_ne!(late.ca, first.ca, "eight of ten years are over");
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
    fn foreign_certificates_are_kept_until_their_renewal() {
        let theirs = renewed(
            ExistingCertificates::default(),
            &["other.example.com"],
            "2026-01-01T00:00:00Z",
        );
        let without_ca = || ExistingCertificates {
            ca: None,
            ..existing(&theirs)
        };
        let kept = renewed(without_ca(), &["api-int.example.com"], "2027-01-01T00:00:00Z");
        assert_eq!(kept.ca, None);
        assert_eq!(
            (kept.serving, kept.bundle),
            (theirs.serving.clone(), theirs.bundle.clone())
        );

        let taken_over = renewed(without_ca(), &["api-int.example.com"], "2034-06-01T00:00:00Z");
        assert!(taken_over.ca.is_some());
        assert_eq!(certificates(&taken_over.bundle).unwrap().len(), 2);
    }

    fn created_by_go(certificate: &str, key: &str) -> ExistingCertificates {
        ExistingCertificates {
            ca: Some(CertificatePair {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            }),
            bundle: certificate.to_owned(),
            serving: None,
        }
    }

    fn verified(wanted: &WantedCertificates) {
        let ca = first_certificate(&wanted.ca.as_ref().unwrap().certificate).unwrap();
        let serving = first_certificate(&wanted.serving.certificate).unwrap();
        let (_, ca) = X509Certificate::from_der(&ca).unwrap();
        let (_, serving) = X509Certificate::from_der(&serving).unwrap();
        serving
            .verify_signature(Some(ca.public_key()))
            .expect("the key of the CA has signed");
        assert_eq!(serving.issuer().to_string(), ca.subject().to_string());
    }

    #[test]
    fn a_ca_that_go_created_can_sign() {
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
            let theirs = created_by_go(certificate, key);
            let signed = renewed(theirs.clone(), &["api-int.example.com"], now);
            assert_eq!(signed.ca, theirs.ca, "{name}");
            assert_eq!(signed.bundle.trim(), certificate.trim(), "{name}");
            verified(&signed);
            let again = renewed(existing(&signed), &["api-int.example.com"], now);
            assert_eq!(again.serving, signed.serving, "{name}: nothing to do");
        }
    }

    #[test]
    fn a_ca_with_an_unusable_key_is_replaced_and_stays_trusted() {
        let (certificate, key) = (
            include_str!("certificates/go/p521.crt"),
            include_str!("certificates/go/p521.key"),
        );
        for (name, key) in [
            ("an unsupported curve", key),
            ("no key", ""),
            ("the key of another CA", include_str!("certificates/go/p256.key")),
        ] {
            let mut theirs = created_by_go(certificate, key);
            theirs.bundle.clear();
            let replaced = renewed(theirs.clone(), &["a"], "2027-01-01T00:00:00Z");
            assert_ne!(replaced.ca, theirs.ca, "{name}");
            verified(&replaced);
            let trusted = certificates(&replaced.bundle).unwrap();
            assert_eq!(trusted.len(), 2, "{name}");
            assert_eq!(trusted[1], first_certificate(certificate).unwrap(), "{name}");
            let again = renewed(existing(&replaced), &["a"], "2027-01-02T00:00:00Z");
            assert_eq!((again.ca, again.bundle), (replaced.ca, replaced.bundle));
        }
    }

    #[test]
    fn a_certificate_without_a_trusted_ca_is_replaced() {
        let now = "2026-01-01T00:00:00Z";
        let before = renewed(ExistingCertificates::default(), &["a"], now);
        for bundle in ["", "garbage"] {
            let lost = ExistingCertificates {
                ca: None,
                bundle: bundle.to_owned(),
                serving: Some(before.serving.clone()),
            };
            let renewed = renewed(lost, &["a"], now);
            verified(&renewed);
            assert_eq!(certificates(&renewed.bundle).unwrap().len(), 1);
        }
    }

    #[test]
    fn unreadable_certificates_of_a_bundle_are_dropped() {
        let now = "2026-01-01T00:00:00Z";
        let first = renewed(ExistingCertificates::default(), &["a"], now);
        let damaged = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let spoilt = ExistingCertificates {
            bundle: format!("{damaged}{}", first.bundle),
            ..existing(&first)
        };
        let renewed = renewed(spoilt, &["a"], now);
        assert_eq!((renewed.bundle, renewed.serving), (first.bundle, first.serving));
    }

    #[test]
    fn a_certificate_of_another_ca_or_without_its_key_is_replaced() {
        let now = "2026-01-01T00:00:00Z";
        let first = renewed(ExistingCertificates::default(), &["a"], now);
        let other = renewed(ExistingCertificates::default(), &["a"], now);
        let mixed = ExistingCertificates {
            serving: Some(other.serving.clone()),
            ..existing(&first)
        };
        assert_ne!(renewed(mixed, &["a"], now).serving, other.serving);
        for key in ["", "garbage", &other.serving.key] {
            let mismatched = ExistingCertificates {
                serving: Some(CertificatePair {
                    key: key.to_owned(),
                    ..first.serving.clone()
                }),
                ..existing(&first)
            };
            let renewed = renewed(mismatched, &["a"], now);
            assert_ne!(renewed.serving.certificate, first.serving.certificate);
            assert!(can_be_served(&renewed.serving));
        }
        let garbage = ExistingCertificates {
            serving: Some(CertificatePair {
                certificate: "garbage".to_owned(),
                key: "garbage".to_owned(),
            }),
            ..existing(&first)
        };
        assert!(summary(&renewed(garbage, &["a"], now).serving.certificate).is_ok());
    }
}
