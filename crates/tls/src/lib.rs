//! The TLS side of whoever serves: which versions and suites are offered, and certificates that are replaced while serving.
//! Opens no socket and signs nothing.

mod certificate;
mod files;
mod offer;

use std::path::PathBuf;

use thiserror::Error;

pub use certificate::{Certificate, PairError};
pub use files::Certificates;
pub use offer::Offer;

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
