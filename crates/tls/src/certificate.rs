//! The certificate in force, in memory.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;

/// Why a certificate and a key are no pair.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PairError(String);

/// The certificate that new connections are shown. While there is none, no connection comes about.
#[derive(Debug, Default)]
pub struct Certificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl Certificate {
    /// Shows another one from now on, given as PEM. One that cannot be used changes nothing.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), PairError> {
        let pair = Arc::new(parse(certificate, key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(pair);
        Ok(())
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

fn parse(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, PairError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| PairError(error.to_string()))?;
    if chain.is_empty() {
        return Err(PairError("no certificate in the file".to_owned()));
    }
    // The error is not repeated: it could quote the key.
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|_| PairError("no private key in the file".to_owned()))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| PairError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_cannot_be_used_changes_nothing() {
        let made = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            (pair.cert.pem(), pair.signing_key.serialize_pem())
        };
        let (certificate, key) = made();
        let held = Certificate::default();
        assert!(held.current().is_none());
        held.set(certificate.as_bytes(), key.as_bytes()).unwrap();
        let first = held.current().unwrap().cert[0].clone();
        let (_, other_key) = made();
        for (name, certificate, key, expected) in [
            (
                "a key of another certificate",
                certificate.as_str(),
                other_key.as_str(),
                "",
            ),
            (
                "no certificate",
                "nonsense",
                key.as_str(),
                "no certificate in the file",
            ),
            (
                "no key",
                certificate.as_str(),
                "nonsense",
                "no private key in the file",
            ),
        ] {
            let problem = held.set(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(problem.to_string().contains(expected), "{name}: {problem}");
            assert_eq!(held.current().unwrap().cert[0], first, "{name}");
        }
        let (certificate, key) = made();
        held.set(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_ne!(held.current().unwrap().cert[0], first);
    }
}
