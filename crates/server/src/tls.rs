//! The TLS side: which versions and suites are offered, and a certificate that can be replaced while serving.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use thiserror::Error;
use tracing::{error, info, warn};

/// Certificates are replaced rarely and by tools that take seconds themselves.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Suites that clusters may still name but that are too weak to be implemented here.
const KNOWN_WEAK: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// The names that OpenSSL, and the TLS profiles of clusters, use for suites.
const OPENSSL_NAMES: &[(&str, &str)] = &[
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("unknown TLS version {0:?}; use VersionTLS12 or VersionTLS13")]
    Version(String),
    #[error("unknown TLS cipher suite {0:?}; use the IANA name, for example TLS_AES_128_GCM_SHA256")]
    Suite(String),
    #[error("none of the TLS cipher suites asked for can be offered with minimum version {0}")]
    NoSuite(String),
    #[error("cannot read {path}: {message}", path = path.display())]
    Read { path: PathBuf, message: String },
    #[error("certificate {certificate} and key {key} cannot be used: {message}", certificate = certificate.display(), key = key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        message: String,
    },
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// What is offered to clients.
#[derive(Clone, Debug)]
pub struct Offer {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
}

impl Offer {
    /// From the flags of the command line. No suites means all good ones.
    pub fn new(minimum: &str, suites: &[String]) -> Result<Self, TlsError> {
        let mut versions = match minimum {
            "" | "VersionTLS12" => vec![&version::TLS13, &version::TLS12],
            "VersionTLS10" | "VersionTLS11" => {
                warn!("{minimum} is too weak to be offered; the minimum is VersionTLS12");
                vec![&version::TLS13, &version::TLS12]
            }
            "VersionTLS13" => vec![&version::TLS13],
            other => return Err(TlsError::Version(other.to_owned())),
        };
        let named = named_suites(suites)?;
        let all = ring::ALL_CIPHER_SUITES;
        let of = |version: &'static SupportedProtocolVersion| {
            let known = all.iter().filter(move |suite| suite.version() == version);
            let chosen: Vec<_> = known
                .clone()
                .filter(|suite| named.contains(&suite.suite()))
                .copied()
                .collect();
            // Nobody could ever choose among the suites of TLS 1.3, so naming none of them means all of them.
            if chosen.is_empty() && (suites.is_empty() || version == &version::TLS13) {
                known.copied().collect()
            } else {
                chosen
            }
        };
        let mut offered = Vec::new();
        versions.retain(|version| {
            let suites = of(version);
            let usable = !suites.is_empty();
            offered.extend(suites);
            usable
        });
        if offered.is_empty() {
            return Err(TlsError::NoSuite(minimum.to_owned()));
        }
        Ok(Self {
            versions,
            suites: offered,
        })
    }

    /// The configuration for new connections, whose certificate comes from `certificates`.
    pub fn server_config(&self, certificates: Arc<Certificates>) -> Result<ServerConfig, TlsError> {
        let provider = CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..ring::default_provider()
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A machine boots once: remembering its session would only cost memory.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn named_suites(names: &[String]) -> Result<Vec<CipherSuite>, TlsError> {
    let mut suites = Vec::new();
    for name in names
        .iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty())
    {
        let iana = OPENSSL_NAMES
            .iter()
            .find(|(openssl, _)| *openssl == name)
            .map_or(name, |(_, iana)| *iana);
        // rustls spells the suites of TLS 1.3 with their version.
        let ours = match iana.strip_prefix("TLS_") {
            Some(rest) if !rest.contains("_WITH_") => format!("TLS13_{rest}"),
            _ => iana.to_owned(),
        };
        let known = ring::ALL_CIPHER_SUITES
            .iter()
            .map(SupportedCipherSuite::suite)
            .find(|suite| suite.as_str() == Some(ours.as_str()));
        match known {
            Some(suite) => suites.push(suite),
            None if KNOWN_WEAK.contains(&iana) => warn!("cipher suite {name} is too weak and is not offered"),
            None => return Err(TlsError::Suite(name.to_owned())),
        }
    }
    Ok(suites)
}

/// The certificate and key of the server, re-read when their files change.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    pair: Arc<CertifiedKey>,
    /// What the files held, to see whether they changed.
    text: (Vec<u8>, Vec<u8>),
}

impl Certificates {
    /// Reads the pair for the first time, which must succeed.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let text = read_both(certificate, key)?;
        let pair = parse(certificate, key, &text)?;
        Ok(Arc::new(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: RwLock::new(Loaded { pair, text }),
        }))
    }

    /// Looks at the files for ever. A pair that cannot be used is ignored and said once; new connections go on with
    /// the old one.
    pub async fn follow(self: Arc<Self>) {
        let mut complaint = String::new();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let certificates = Arc::clone(&self);
            let result = tokio::task::spawn_blocking(move || certificates.reload()).await;
            match result {
                Ok(Ok(false)) => complaint.clear(),
                Ok(Ok(true)) => {
                    complaint.clear();
                    info!("new certificate in use from {}", self.certificate.display());
                }
                Ok(Err(problem)) => {
                    let problem = problem.to_string();
                    if problem != complaint {
                        error!("keeping the old certificate: {problem}");
                        complaint = problem;
                    }
                }
                Err(problem) => error!("cannot look at the certificate: {problem}"),
            }
        }
    }

    /// Takes the files' pair if it is new and usable. Says whether it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let text = read_both(&self.certificate, &self.key)?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).text == text {
            return Ok(false);
        }
        let pair = parse(&self.certificate, &self.key, &text)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Loaded { pair, text };
        Ok(true)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current.pair))
    }
}

fn read_both(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| TlsError::Read {
            path: path.to_owned(),
            message: error.to_string(),
        })
    };
    Ok((read(certificate)?, read(key)?))
}

fn parse(certificate: &Path, key: &Path, text: &(Vec<u8>, Vec<u8>)) -> Result<Arc<CertifiedKey>, TlsError> {
    let unusable = |message: String| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        message,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text.0)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable("no certificate in the file".to_owned()));
    }
    // The error is not repeated: it could quote the key.
    let key = PrivateKeyDer::from_pem_slice(&text.1)
        .map_err(|_| unusable("no private key in the file".to_owned()))?;
    let pair = CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minimum: &str, suites: &str) -> Result<(usize, usize), String> {
        let suites: Vec<_> = suites
            .split(',')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect();
        Offer::new(minimum, &suites)
            .map(|offer| (offer.versions.len(), offer.suites.len()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_decide_what_is_offered() {
        for (name, minimum, suites, expected) in [
            ("nothing said", "", "", (2, 9)),
            ("the default", "VersionTLS12", "", (2, 9)),
            ("a weak minimum is raised", "VersionTLS10", "", (2, 9)),
            ("only TLS 1.3", "VersionTLS13", "", (1, 3)),
            (
                "one old suite; those of TLS 1.3 stay",
                "VersionTLS12",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                (2, 4),
            ),
            (
                "only a new suite",
                "VersionTLS12",
                "TLS_AES_128_GCM_SHA256",
                (1, 1),
            ),
            (
                "OpenSSL's names",
                "VersionTLS12",
                "ECDHE-RSA-AES128-GCM-SHA256,TLS_AES_128_GCM_SHA256",
                (2, 2),
            ),
            (
                "weak ones are left out",
                "VersionTLS12",
                "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256",
                (1, 1),
            ),
        ] {
            assert_eq!(offer(minimum, suites), Ok(expected), "{name}");
        }
        assert!(offer("TLS1.2", "").unwrap_err().contains("unknown TLS version"));
        assert!(
            offer("", "TLS_NULL")
                .unwrap_err()
                .contains("unknown TLS cipher suite \"TLS_NULL\"")
        );
    }

    #[test]
    fn a_broken_pair_is_refused_and_the_old_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        assert!(
            Certificates::load(&certificate, &key)
                .unwrap_err()
                .to_string()
                .contains("cannot read")
        );
        let write = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&certificate, pair.cert.pem()).unwrap();
            fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        };
        write();
        let certificates = Certificates::load(&certificate, &key).unwrap();
        let in_use = || certificates.current.read().unwrap().pair.cert[0].clone();
        let first = in_use();
        assert!(!certificates.reload().unwrap());

        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        assert!(certificates.reload().is_err(), "a key of another certificate");
        fs::write(&certificate, "nonsense").unwrap();
        assert!(certificates.reload().is_err());
        assert_eq!(in_use(), first);

        write();
        assert!(certificates.reload().unwrap());
        assert_ne!(in_use(), first);
    }
}
