//! TLS verification by the pinned fingerprint of the server's certificate authority (CA).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const HASH: &str = "sha256:";

/// The hash of a CA's public key, formatted as `sha256:` and hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CaFingerprint([u8; 32]);

impl CaFingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        Some(Self(Sha256::digest(parsed.public_key().raw).into()))
    }
}

impl fmt::Display for CaFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CaFingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(HASH).unwrap_or_default();
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not {HASH} and 64 hexadecimal digits"))
    }
}

/// A join token: the secret sent to the server, and the CA fingerprint that authenticates the server.
#[derive(Clone)]
pub struct Invitation {
    pub token: String,
    pub authority: CaFingerprint,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvitationError {
    #[error("this is not a join token; paste the whole command that mco up --join-token prints")]
    Malformed,
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (token, authority) = text.rsplit_once('.').ok_or(InvitationError::Malformed)?;
        let bytes = URL_SAFE_NO_PAD.decode(authority).ok();
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        match bytes {
            Some(bytes) if token.contains('.') => Ok(Self {
                token: token.to_owned(),
                authority: CaFingerprint(bytes),
            }),
            _ => Err(InvitationError::Malformed),
        }
    }
}

/// Redacts the secret.
impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// A certificate verifier that trusts only the CA with the pinned fingerprint, which the server has to send along.
/// Names, validity and signatures are verified as usual.
#[derive(Debug)]
pub(super) struct PinnedConnector {
    authority: CaFingerprint,
    provider: Arc<CryptoProvider>,
}

impl PinnedConnector {
    pub fn new(authority: CaFingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { authority, provider }
    }
}

impl ServerCertVerifier for PinnedConnector {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = intermediates
            .iter()
            .find(|certificate| CaFingerprint::of(certificate) == Some(self.authority))
            .ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_they_are_written() {
        let text = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(text.parse::<CaFingerprint>().unwrap().to_string(), text);
        for wrong in [
            "",
            "sha256:",
            "sha256:0f",
            "md5:00",
            &text[..70],
            &text.replace('0', "ä"),
        ] {
            assert!(wrong.parse::<CaFingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_names_its_server_and_hides_its_secret() {
        let token = format!("1a2b3c4d.secret.{}", URL_SAFE_NO_PAD.encode([7; 32]));
        let invitation: Invitation = token.parse().unwrap();
        assert_eq!(invitation.token, "1a2b3c4d.secret");
        assert_eq!(invitation.authority, CaFingerprint([7; 32]));
        assert!(!format!("{invitation:?}").contains("secret"));
        for wrong in [
            "",
            "a.b",
            "1a2b3c4d.secret",
            &token[..token.len() - 1],
            &token[9..],
        ] {
            assert!(wrong.parse::<Invitation>().is_err(), "{wrong}");
        }
    }
}
