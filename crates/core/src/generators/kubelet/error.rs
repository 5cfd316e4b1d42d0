//! Validation errors of kubelet configurations. The texts are the reference's, which users and tools search for.

use thiserror::Error;

use super::tree::KubeletDecodeError;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KubeletError {
    #[error("KubeletConfig's LogLevel is not valid [0,10]: {0}")]
    LogLevel(i32),
    #[error("KubeletConfig could not be unmarshalled, err: {0}")]
    Undecodable(KubeletDecodeError),
    #[error("KubeletConfiguration: {field} is not allowed to be set, but contains: {found}")]
    Forbidden { field: &'static str, found: String },
    #[error("KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together")]
    SizingTwice,
    #[error("KubeletConfiguration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})")]
    CgroupsDiffer { reserved: String, system: String },
    #[error(
        "invalid merged configuration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})"
    )]
    MergedCgroupsDiffer { reserved: String, system: String },
    #[error("KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool {pool:?}")]
    StaticPodsOnControlPlane { pool: String },
    #[error("KubeletConfiguration: staticPodPath must be empty for pool {pool:?}, but contains: {found}")]
    StaticPods { pool: String, found: String },
    #[error("could not get original kubelet config: {0}")]
    Base(String),
    #[error("unknown cgroup mode found {0}, failed to update the machine config resource")]
    CgroupMode(String),
    #[error(
        "unknown workerLatencyProfile found {0:?}; use Default, MediumUpdateAverageReaction or LowUpdateSlowReaction"
    )]
    LatencyProfile(String),
}
