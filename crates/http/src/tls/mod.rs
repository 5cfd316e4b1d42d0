//! TLS of servers: versions, cipher suites, and certificates that can be replaced while serving.

mod acceptor;
mod files;
mod policy;
mod store;

use std::path::PathBuf;

use thiserror::Error;

pub use acceptor::SharedAcceptor;
pub use files::{CertificateFiles, ReloadOnHandshake};
pub use policy::{ALPN_HTTP1, ALPN_HTTP1_AND_HTTP2, TlsPolicy};
pub use store::{CertificatePairError, CertificateStore};

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("unknown TLS version {0:?}; use VersionTLS12 or VersionTLS13")]
    Version(String),
    #[error("unknown TLS cipher suite {0:?}; use the IANA name, for example TLS_AES_128_GCM_SHA256")]
    Suite(String),
    #[error("no requested TLS cipher suite can be used with minimum version {0}")]
    NoSuite(String),
    #[error("cannot read {path}: {message}", path = path.display())]
    Read { path: PathBuf, message: String },
    #[error(
        "certificate {certificate} and key {key} cannot be used: {message}",
        certificate = certificate.display(),
        key = key.display()
    )]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        message: String,
    },
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}
