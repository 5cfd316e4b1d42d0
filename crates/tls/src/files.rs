//! A certificate and its key in two files that somebody else replaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::{Certificate, TlsError};

/// Certificates are replaced rarely and by tools that take seconds themselves.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The certificate and key of a server, re-read when their files change.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    current: Certificate,
    /// What the files held, to see whether they changed.
    seen: Mutex<Option<Text>>,
}

#[derive(PartialEq, Eq)]
struct Text {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Text").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the pair for the first time, which must succeed.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let files = Self::awaited(certificate, key);
        files.reload()?;
        Ok(Arc::new(files))
    }

    /// Files that may come later.
    pub fn awaited(certificate: &Path, key: &Path) -> Self {
        Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: Certificate::default(),
            seen: Mutex::default(),
        }
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
        let text = Text {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref() == Some(&text) {
            return Ok(false);
        }
        let taken = self.current.set(&text.certificate, &text.key);
        taken.map_err(|problem| TlsError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            message: problem.to_string(),
        })?;
        *seen = Some(text);
        Ok(true)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.resolve(hello)
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
    fn what_is_new_and_good_in_the_files_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let missing = Certificates::load(&certificate, &key).unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
        let files = Certificates::awaited(&certificate, &key);
        assert!(files.reload().is_err());
        let write = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&certificate, pair.cert.pem()).unwrap();
            fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        };
        write();
        assert!(files.reload().unwrap(), "they came late");
        assert!(!files.reload().unwrap(), "nothing new");

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
        assert!(Certificates::load(&certificate, &key).is_ok());
    }
}
