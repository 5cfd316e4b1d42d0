//! Taints on Nodes.

/// Pods should preferably be scheduled to nodes that are not about to be updated.
pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";

/// Effects of a taint.
pub mod effect {
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    pub const NO_SCHEDULE: &str = "NoSchedule";
}
