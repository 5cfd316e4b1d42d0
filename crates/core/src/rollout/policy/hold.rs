//! Why a policy holds a node.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::text;

/// Why a policy holds a node: one sentence, and until when if that is certain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyHold {
    pub policy: String,
    pub cause: PolicyCause,
    /// Such as `waits for window 22:00-04:00 Europe/Madrid`; the subject is the rollout.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
}

/// The rule that holds a node, in the order in which rules are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyCause {
    /// Several policies select the pool.
    Conflict,
    /// The policy cannot be applied.
    Invalid,
    Aborted,
    /// `maxFailures` is reached.
    Halted,
    After,
    Window,
    Soak,
    Gate,
    /// A later wave, or a wave without a node that can be updated.
    Wave,
    /// As many nodes are under way as may still fail.
    Failures,
    Budget,
    /// The drain took too long, so the node keeps its config.
    Skipped,
}

impl PolicyHold {
    pub(super) fn new(policy: &str, cause: PolicyCause, message: impl Into<String>) -> Self {
        Self {
            policy: policy.to_owned(),
            cause,
            message: message.into(),
            until: None,
        }
    }

    pub(super) fn until(mut self, until: Option<Timestamp>) -> Self {
        self.until = until;
        self
    }

    /// Whether it ends without intervention.
    pub fn passes(&self) -> bool {
        !matches!(
            self.cause,
            PolicyCause::Conflict
                | PolicyCause::Invalid
                | PolicyCause::Aborted
                | PolicyCause::Halted
                | PolicyCause::Skipped
        )
    }

    /// Returns the sentence with the remaining time: `... opens in 3 h 12 min`.
    pub fn at(&self, now: Timestamp) -> String {
        match self.until {
            Some(until) if until > now => {
                format!("{}, {} in {}", self.message, self.verb(), text::until(now, until))
            }
            _ => self.message.clone(),
        }
    }

    fn verb(&self) -> &'static str {
        match self.cause {
            PolicyCause::Window => "opens",
            _ => "ends",
        }
    }
}

impl fmt::Display for PolicyHold {
    /// Formats the sentence with the point in time, so that it does not change while nothing happens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.until {
            Some(until) => write!(f, ", {} at {until:.0}", self.verb()),
            None => Ok(()),
        }
    }
}
