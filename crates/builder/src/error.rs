//! What can go wrong while reconciling.

use mco_core::generators::os_builds::{BuildError, IdentityError};
use mco_runtime::{ErrorClass, ReconcileError, describe};
use thiserror::Error;

use crate::registry::RegistryError;

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
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Build(#[from] Box<BuildError>),
    #[error("{attempt}: {source}")]
    Registry {
        attempt: String,
        #[source]
        source: RegistryError,
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
            Self::Invalid(_) | Self::Identity(_) | Self::Build(_) => ErrorClass::Invalid,
            Self::Registry { .. } => ErrorClass::Transient,
            Self::Ended { .. } => ErrorClass::Fatal,
        }
    }
}
