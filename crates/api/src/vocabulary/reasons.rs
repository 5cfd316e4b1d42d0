//! Reasons of conditions, by object.

/// No problem.
pub const AS_EXPECTED: &str = "AsExpected";

/// On pools. Most pool conditions have an empty reason.
pub mod pool {
    pub const BUILD_FAILED: &str = "BuildFailed";
    pub const BUILDING: &str = "Building";
    pub const BUILD_SUCCESS: &str = "BuildSuccess";
    pub const BUILD_INTERRUPTED: &str = "BuildInterrupted";
    pub const BUILD_PENDING: &str = "BuildPending";
    pub const NO_LAYERED_OBJECTS: &str = "NoLayeredObjects";
    /// Of Updating: RolloutPolicies or holds keep back all nodes that are not updated.
    pub const ROLLOUT_HELD: &str = "RolloutHeld";

    /// Returns the reason for this number of degraded nodes in a pool.
    pub fn degraded_nodes(count: usize) -> String {
        format!("{count} nodes are reporting degraded status on sync")
    }
}

/// On our ClusterOperator.
pub mod cluster_operator {
    pub const NO_DATA: &str = "NoData";
    pub const DEGRADED_POOL: &str = "DegradedPool";
    pub const INTERRUPTED_BUILD: &str = "InterruptedBuild";
    pub const CLUSTER_BOOT_IMAGE_SKEW_ERROR: &str = "ClusterBootImageSkewError";

    /// Returns the reason for a failed step of the operator.
    pub fn failed(step: &str) -> String {
        format!("{step}Failed")
    }
}

/// On MachineConfigNodes.
pub mod machine_config_node {
    pub const NOT_YET_OCCURRED: &str = "NotYetOccurred";
    pub const NONE: &str = "None";
    pub const IMAGE_PREFETCH: &str = "ImagePrefetch";
    pub const PREFETCH_FAILED: &str = "PrefetchFailed";

    /// Returns the reason of a condition that is part of another one.
    pub fn child(parent: &str, child: &str) -> String {
        format!("{parent}{child}")
    }
}

/// On MachineOSConfigs.
pub mod machine_os_config {
    pub const PRE_BUILT_IMAGE_SEEDED: &str = "PreBuiltImageSeeded";
}

/// On MachineOSBuilds.
pub mod machine_os_build {
    pub const PREPARED: &str = "Prepared";
    pub const BUILDING: &str = "Building";
    pub const FAILED: &str = "Failed";
    pub const INTERRUPTED: &str = "Interrupted";
    /// Of the type Succeeded.
    pub const READY: &str = "Ready";
}

/// On ImagePolicies.
pub mod image_policy {
    pub const CONFLICT_SCOPES: &str = "ConflictScopes";
}

/// On the credential provider configuration.
pub mod credential_provider {
    pub const CONFIGURATION_PARTIALLY_APPLIED: &str = "ConfigurationPartiallyApplied";
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    pub const MACHINE_CONFIG_RENDERING_SUCCEEDED: &str = "MachineConfigRenderingSucceeded";
    pub const MACHINE_CONFIG_RENDERING_FAILED: &str = "MachineConfigRenderingFailed";
}

/// On the InternalReleaseImage.
pub mod internal_release_image {}
