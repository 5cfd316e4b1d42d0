//! Taints on Nodes.

/// Pods should preferably be scheduled to nodes that are not about to be updated.
pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";

/// The prefix of taints that a node has until the rules of a readiness controller are met.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

/// Effects of a taint.
pub mod effect {
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    pub const NO_SCHEDULE: &str = "NoSchedule";
}
