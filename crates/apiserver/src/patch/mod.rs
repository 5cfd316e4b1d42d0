//! The patch formats other than server-side apply.
//!
//! Each computes the new object from the current one and a patch. The caller validates, defaults and stores it.
//! Server-side apply is in [`crate::apply`].

pub mod json;
pub mod merge;
pub mod strategic;

use crate::cpu::OutOfTime;

/// The reason why a patch was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest with this message.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422 Invalid with empty details. Kubernetes does not show this text and
    /// responds with the fixed sentence of [`PatchError::status_message`].
    #[error("{0}")]
    DoesNotApply(String),
    /// More operations than allowed: 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// A strategic merge patch that contradicts the kind's merge rules: 500 with this message and no reason, as in
    /// Kubernetes.
    #[error("{0}")]
    Contradictory(String),
    /// The patch needs more time than a request has: 504.
    #[error(transparent)]
    OutOfTime(#[from] OutOfTime),
}

impl PatchError {
    /// Returns the message of the status, which hides the cause for patches that do not apply.
    pub fn status_message(&self) -> String {
        match self {
            Self::DoesNotApply(_) => {
                "the server rejected our request due to an error in our request".to_owned()
            }
            Self::TooLarge(text) => format!("Request entity too large: {text}"),
            Self::Malformed(text) | Self::Contradictory(text) => text.clone(),
            Self::OutOfTime(error) => error.to_string(),
        }
    }
}
