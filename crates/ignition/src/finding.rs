//! Findings: what is wrong with a config, and where.

use std::fmt;

/// An error or warning about a config. Its message never contains file contents, keys or password hashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The path, as in `storage.files[2].path`; empty for the config as a whole.
    pub path: String,
    /// What is wrong, with Ignition's own message.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Finding {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "{}", self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// The result of validation. Warnings never make a config invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingReport {
    pub errors: Vec<Finding>,
    pub warnings: Vec<Finding>,
}

impl FindingReport {
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}
