//! A certificate in memory that can be replaced while serving.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;

/// Why a certificate and a key cannot be used together.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct CertificatePairError(String);

/// Holds the certificate for new connections. TLS handshakes fail while it is empty.
#[derive(Debug, Default)]
pub struct CertificateStore {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl CertificateStore {
    /// Replaces the certificate and key, given as PEM. A pair that cannot be used is rejected and the old one stays.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificatePairError> {
        let pair = Arc::new(parse(certificate, key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(pair);
        Ok(())
    }

    /// Whether a certificate and key, given as PEM, can be served together.
    pub fn accepts(certificate: &[u8], key: &[u8]) -> bool {
        parse(certificate, key).is_ok()
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

fn parse(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificatePairError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificatePairError(error.to_string()))?;
    if chain.is_empty() {
        return Err(CertificatePairError("no certificate in the file".to_owned()));
    }
    // The error of the parser is dropped because it could quote the key.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| CertificatePairError("no private key in the file".to_owned()))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| CertificatePairError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_pair_is_rejected_and_the_old_one_stays() {
        let new_pair = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            (pair.cert.pem(), pair.signing_key.serialize_pem())
        };
        let (certificate, key) = new_pair();
        let store = CertificateStore::default();
        assert!(store.current().is_none());
        store.set(certificate.as_bytes(), key.as_bytes()).unwrap();
        let first = store.current().unwrap().cert[0].clone();
        let (_, other_key) = new_pair();
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
            let problem = store.set(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(problem.to_string().contains(expected), "{name}: {problem}");
            assert_eq!(store.current().unwrap().cert[0], first, "{name}");
        }
        let (certificate, key) = new_pair();
        store.set(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_ne!(store.current().unwrap().cert[0], first);
    }
}
