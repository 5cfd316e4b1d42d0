//! A certificate and its key in two files that another process replaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{CertificateStore, TlsError};

/// Certificates are replaced rarely, by tools that take seconds themselves.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The certificate and key of a server, re-read when their files change.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: CertificateStore,
    /// The contents when they were last read, to detect changes.
    seen: Mutex<Option<PairContents>>,
}

#[derive(PartialEq, Eq)]
struct PairContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for PairContents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PairContents").finish_non_exhaustive()
    }
}

impl CertificateFiles {
    /// Reads the pair, which must exist and be usable.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let files = Self::awaited(certificate, key);
        files.reload()?;
        Ok(Arc::new(files))
    }

    /// Returns a pair whose files need not exist yet.
    pub fn awaited(certificate: &Path, key: &Path) -> Self {
        Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: CertificateStore::default(),
            seen: Mutex::default(),
        }
    }

    /// Reloads the files when they change, without end. An unusable pair is logged once and ignored; new connections
    /// keep the old one.
    pub async fn follow(self: Arc<Self>) {
        let mut last_error = String::new();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let certificates = Arc::clone(&self);
            let result = tokio::task::spawn_blocking(move || certificates.reload()).await;
            match result {
                Ok(Ok(false)) => last_error.clear(),
                Ok(Ok(true)) => {
                    last_error.clear();
                    info!("new certificate in use from {}", self.certificate.display());
                }
                Ok(Err(problem)) => {
                    let problem = problem.to_string();
                    if problem != last_error {
                        error!("keeping the old certificate: {problem}");
                        last_error = problem;
                    }
                }
                Err(problem) => error!("cannot read the certificate: {problem}"),
            }
        }
    }

    /// Loads the pair if its files have changed. Returns whether they had.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let contents = PairContents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref() == Some(&contents) {
            return Ok(false);
        }
        let loaded = self.current.set(&contents.certificate, &contents.key);
        loaded.map_err(|problem| TlsError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            message: problem.to_string(),
        })?;
        *seen = Some(contents);
        Ok(true)
    }
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.resolve(hello)
    }
}

/// A pair that is reloaded during a TLS handshake if its files have changed, for servers with few connections.
#[derive(Debug)]
pub struct ReloadOnHandshake {
    files: CertificateFiles,
    checked: Mutex<Option<Instant>>,
}

impl ReloadOnHandshake {
    pub fn new(certificate: &Path, key: &Path) -> Self {
        Self {
            files: CertificateFiles::awaited(certificate, key),
            checked: Mutex::default(),
        }
    }

    /// Clients that reconnect again and again do not cause as many reads.
    fn reload_if_due(&self) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL) {
            return;
        }
        if let Err(problem) = self.files.reload() {
            warn!("keeping the old certificate: {problem}");
        }
        *checked = Some(Instant::now());
    }
}

impl ResolvesServerCert for ReloadOnHandshake {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.reload_if_due();
        self.files.resolve(hello)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read {
        path: path.to_owned(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_loaded_if_they_are_usable() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let missing = CertificateFiles::load(&certificate, &key).unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
        let files = CertificateFiles::awaited(&certificate, &key);
        assert!(files.reload().is_err());
        let write = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&certificate, pair.cert.pem()).unwrap();
            fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        };
        write();
        assert!(files.reload().unwrap(), "created late");
        assert!(!files.reload().unwrap(), "unchanged");

        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        let problem = files.reload().unwrap_err().to_string();
        assert!(
            problem.contains("tls.key cannot be used"),
            "a key of another certificate: {problem}"
        );
        assert!(!problem.contains("BEGIN"), "{problem}");

        write();
        assert!(files.reload().unwrap());
        assert!(CertificateFiles::load(&certificate, &key).is_ok());
    }
}
