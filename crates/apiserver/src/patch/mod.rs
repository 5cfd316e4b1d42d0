//! The three kinds of patches that change an object without owning its fields.
//!
//! Each takes the current object and a patch and gives the object that should be; validating, defaulting and
//! storing it is the caller's business. Server-side apply lives in [`crate::apply`].

pub mod json;
pub mod merge;
pub mod strategic;

/// Why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest with this message.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422 Invalid with empty details. Kubernetes keeps this text to itself and
    /// answers with the fixed sentence of [`PatchError::status_message`].
    #[error("{0}")]
    DoesNotApply(String),
    /// More operations than allowed: 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// A strategic merge patch that contradicts the kind's merge rules: 500 with this
    /// message and no reason, as Kubernetes has it.
    #[error("{0}")]
    Contradictory(String),
}

impl PatchError {
    /// The message of the whole status, which for patches that do not apply hides the cause.
    pub fn status_message(&self) -> String {
        match self {
            Self::DoesNotApply(_) => {
                "the server rejected our request due to an error in our request".to_owned()
            }
            Self::TooLarge(text) => format!("Request entity too large: {text}"),
            Self::Malformed(text) | Self::Contradictory(text) => text.clone(),
        }
    }
}
