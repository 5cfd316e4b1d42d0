//! What the daemon does about drift: files that differ from the node's config.

/// The value of the `drift-policy` annotation of a pool or Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftPolicy {
    /// Report the node as Degraded and change nothing, as the reference implementation does.
    #[default]
    Degrade,
    /// Write the config's contents again, a bounded number of times.
    Heal,
    /// Report the drift in log and metrics only.
    Ignore,
}

impl DriftPolicy {
    /// Parses the annotation. An unknown value must not make a node change itself, so it means the default.
    pub fn from_annotation(value: &str) -> Self {
        match value {
            "heal" => Self::Heal,
            "ignore" => Self::Ignore,
            _ => Self::Degrade,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_policies_touch_nothing() {
        for (value, expected) in [
            ("degrade", DriftPolicy::Degrade),
            ("heal", DriftPolicy::Heal),
            ("ignore", DriftPolicy::Ignore),
            ("Heal ", DriftPolicy::Degrade),
            ("", DriftPolicy::Degrade),
        ] {
            assert_eq!(DriftPolicy::from_annotation(value), expected, "{value:?}");
        }
    }
}
