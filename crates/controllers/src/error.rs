//! What can go wrong while reconciling.

use std::net::SocketAddr;

use mco_runtime::{ErrorClass, ReconcileError, describe};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error("{attempt}: {}", describe(.source))]
    Api {
        attempt: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{0}")]
    Invalid(String),
    #[error("listening for scrapes on {address}: {source}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("{task} ended: {reason}")]
    Ended { task: &'static str, reason: String },
}

impl Error {
    pub(crate) fn api(attempt: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Api {
            attempt,
            source: Box::new(source),
        }
    }
}

impl ReconcileError for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Api { source, .. } => source.as_ref().into(),
            Self::Invalid(_) => ErrorClass::Invalid,
            Self::Listen { .. } | Self::Ended { .. } => ErrorClass::Fatal,
        }
    }
}
