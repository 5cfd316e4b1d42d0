//! The certificates that a webhook may present.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The `caBundle` of a webhook, or the certificate authorities of the system without one.
#[derive(Debug)]
pub(super) struct TrustedRoots {
    bundle: Option<String>,
    /// Built on the first call.
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl TrustedRoots {
    pub fn read(bundle: &str) -> Self {
        Self {
            bundle: (!bundle.is_empty()).then(|| bundle.to_owned()),
            config: Mutex::new(None),
        }
    }

    /// Returns the TLS settings of a call.
    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut cached = self.config.lock();
        if let Some(config) = &*cached {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.build()?);
        *cached = Some(Arc::clone(&config));
        Ok(config)
    }

    fn build(&self) -> Result<ClientConfig, String> {
        let unusable = "unable to load root certificates: unable to parse bytes as PEM block";
        let certificates = match &self.bundle {
            Some(bundle) => {
                let pem = base64::engine::general_purpose::STANDARD
                    .decode(bundle)
                    .map_err(|_| unusable.to_owned())?;
                let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
                if certificates.is_empty() {
                    return Err(unusable.to_owned());
                }
                certificates
            }
            None => SYSTEM.clone(),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        if roots.is_empty() {
            return Err("unable to load root certificates: none of them is usable".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(BundleVerifier {
                verifier,
                bundle: certificates,
            }))
            .with_no_client_auth();
        Ok(config)
    }
}

/// The certificate authorities of the system, read once.
static SYSTEM: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

/// Verifies as usual, and accepts a certificate that is itself in the bundle, as Kubernetes does.
#[derive(Debug)]
struct BundleVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let outcome =
            self.verifier
                .verify_server_cert(certificate, intermediates, server_name, ocsp_response, now);
        match outcome {
            // One that is its own authority, or whose authority is not in the bundle: the usual ways to make a
            // certificate for a test.
            Err(error) if lacks_authority(&error) && self.bundle.iter().any(|own| own == certificate) => {
                check_validity(certificate, now)?;
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn lacks_authority(error: &Error) -> bool {
    match error {
        // A certificate of the bundle that has the name of the authority, but another key, makes the signature wrong.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.0.to_string().contains("CaUsedAsEndEntity")
        }
        _ => false,
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let invalid = |error| Error::InvalidCertificate(error);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| invalid(CertificateError::BadEncoding))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(invalid(CertificateError::NotValidYet));
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(invalid(CertificateError::Expired));
    }
    Ok(())
}
