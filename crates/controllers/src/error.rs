//! What can go wrong while acting, and what that means for trying again.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;

/// What an error means for whoever tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It may work later.
    Transient,
    /// Somebody else was faster; look again.
    Conflict,
    /// What was asked for cannot be done; somebody has to change it.
    Invalid,
    /// This process cannot go on.
    Fatal,
}

#[derive(Debug, Error)]
pub enum Error {
    #[error("{attempt}: {}", Described(.source))]
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

    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) if status.is_conflict() => Class::Conflict,
                kube::Error::Api(status) if status.is_invalid() => Class::Invalid,
                _ => Class::Transient,
            },
            Self::Invalid(_) => Class::Invalid,
            Self::Listen { .. } | Self::Ended { .. } => Class::Fatal,
        }
    }
}

/// An API server's answer in its own words; kube's text repeats it as a structure.
struct Described<'a>(&'a kube::Error);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            kube::Error::Api(status) => f.write_str(&status.message),
            other => other.fmt(f),
        }
    }
}

/// Whether the API server said that there is no such object, or no such kind: about an unknown kind it says so in plain
/// text, and kube's own question looks for a reason there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the API server said that there is such an object already.
pub(crate) fn is_already_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}
