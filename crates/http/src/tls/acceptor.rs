//! Versions and cipher suites that can be replaced while serving.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

/// Holds the TLS configuration for new connections.
#[derive(Clone)]
pub struct SharedAcceptor {
    current: Arc<RwLock<TlsAcceptor>>,
}

impl fmt::Debug for SharedAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAcceptor")
    }
}

impl SharedAcceptor {
    pub fn new(config: ServerConfig) -> Self {
        Self {
            current: Arc::new(RwLock::new(acceptor(config))),
        }
    }

    /// Replaces the configuration; open connections keep theirs.
    pub fn set(&self, config: ServerConfig) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = acceptor(config);
    }

    pub fn current(&self) -> TlsAcceptor {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn acceptor(config: ServerConfig) -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(config))
}
