//! The control plane topologies of Infrastructure.

pub const HIGHLY_AVAILABLE_ARBITER: &str = "HighlyAvailableArbiter";
pub const SINGLE_REPLICA: &str = "SingleReplica";
pub const DUAL_REPLICA: &str = "DualReplica";
pub const EXTERNAL: &str = "External";
