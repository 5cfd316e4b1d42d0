//! What errors of the API server mean for the next attempt.

use std::fmt;

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A retry may succeed.
    Transient,
    /// Another client has written the object meanwhile; read it again and retry.
    Conflict,
    /// The input must be changed before a retry can succeed.
    Invalid,
    /// The process cannot continue.
    Fatal,
}

impl From<&kube::Error> for ErrorClass {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            kube::Error::Api(status) if status.is_invalid() => Self::Invalid,
            _ => Self::Transient,
        }
    }
}

/// Returns true if the API server has no such object, or no such kind. The response for an unknown kind is plain text
/// without a reason, so `Status::is_not_found` does not recognise it.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns true if a create failed because the object exists.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Returns true if the object was written by another client since it was read.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// Displays the message of an API server's response alone; kube's own text repeats it as a structure.
pub fn describe(error: &kube::Error) -> impl fmt::Display + '_ {
    Described(error)
}

struct Described<'a>(&'a kube::Error);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            kube::Error::Api(status) => f.write_str(&status.message),
            other => other.fmt(f),
        }
    }
}
