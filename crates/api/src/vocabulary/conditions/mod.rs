//! Condition types and statuses, and functions on lists of conditions.

pub mod pool;

/// The statuses a condition can have.
pub mod status {
    pub const TRUE: &str = "True";
    pub const FALSE: &str = "False";
    pub const UNKNOWN: &str = "Unknown";
}

/// Types of the ControllerConfig's conditions.
pub mod controller_config {
    pub const TEMPLATE_CONTROLLER_RUNNING: &str = "TemplateControllerRunning";
    pub const TEMPLATE_CONTROLLER_COMPLETED: &str = "TemplateControllerCompleted";
    pub const TEMPLATE_CONTROLLER_FAILING: &str = "TemplateControllerFailing";
}

/// Types of a KubeletConfig's or ContainerRuntimeConfig's conditions.
pub mod node_config {
    /// Whether the controller accepted the object. Only on KubeletConfigs.
    pub const ACCEPTED: &str = "Accepted";
    pub const SUCCESS: &str = "Success";
    pub const FAILURE: &str = "Failure";
}

/// Types of a MachineConfigNode's conditions: the steps of an update.
pub mod machine_config_node {
    /// No update is pending.
    pub const UPDATED: &str = "Updated";
    /// The update is possible and its cost is determined.
    pub const UPDATE_PREPARED: &str = "UpdatePrepared";
    /// The update is in place, but may not be effective yet.
    pub const UPDATE_EXECUTED: &str = "UpdateExecuted";
    /// Part of [`UPDATE_EXECUTED`].
    pub const CORDONED: &str = "Cordoned";
    /// Part of [`UPDATE_EXECUTED`].
    pub const DRAINED: &str = "Drained";
    /// Part of [`UPDATE_EXECUTED`].
    pub const APPLIED_FILES_AND_OS: &str = "AppliedFilesAndOS";
    /// Part of [`UPDATE_EXECUTED`], with the feature gate `ImageModeStatusReporting`.
    pub const APPLIED_FILES: &str = "AppliedFiles";
    /// Part of [`UPDATE_EXECUTED`], with the feature gate `ImageModeStatusReporting`.
    pub const APPLIED_OS_IMAGE: &str = "AppliedOSImage";
    /// The images of the update are on the machine, with the feature gate `ImageModeStatusReporting`.
    pub const IMAGE_PULLED_FROM_REGISTRY: &str = "ImagePulledFromRegistry";
    /// All services are reloaded or restarted.
    pub const UPDATE_POST_ACTION_COMPLETE: &str = "UpdatePostActionComplete";
    /// The machine has rebooted.
    pub const REBOOTED_NODE: &str = "RebootedNode";
    /// The daemon is running again after the update.
    pub const RESUMED: &str = "Resumed";
    /// The node is schedulable again.
    pub const UPDATE_COMPLETE: &str = "UpdateComplete";
    /// Part of [`UPDATE_COMPLETE`].
    pub const UNCORDONED: &str = "Uncordoned";
    /// The update failed.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    pub const PINNED_IMAGE_SETS_PROGRESSING: &str = "PinnedImageSetsProgressing";
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
}

/// Types of a MachineOSConfig's conditions.
pub mod machine_os_config {
    /// The image came with the installation.
    pub const SEEDED: &str = "Seeded";
}

/// Types of a MachineOSBuild's conditions. At most one is True; the last three are final.
pub mod machine_os_build {
    pub const PREPARED: &str = "Prepared";
    pub const BUILDING: &str = "Building";
    pub const FAILED: &str = "Failed";
    pub const INTERRUPTED: &str = "Interrupted";
    pub const SUCCEEDED: &str = "Succeeded";
}

/// Types of the MachineConfiguration's conditions.
pub mod machine_configuration {
    pub const BOOT_IMAGE_UPDATE_DEGRADED: &str = "BootImageUpdateDegraded";
    pub const BOOT_IMAGE_UPDATE_PROGRESSING: &str = "BootImageUpdateProgressing";
}

/// Types of our ClusterOperator's conditions.
pub mod cluster_operator {
    pub const AVAILABLE: &str = "Available";
    pub const PROGRESSING: &str = "Progressing";
    pub const DEGRADED: &str = "Degraded";
    pub const UPGRADEABLE: &str = "Upgradeable";
    pub const EVALUATION_CONDITIONS_DETECTED: &str = "EvaluationConditionsDetected";
}

/// Types of an ImagePolicy's conditions.
pub mod image_policy {
    pub const PENDING: &str = "Pending";
}

/// Types of the credential provider configuration's conditions.
pub mod credential_provider {
    pub const VALIDATED: &str = "Validated";
    pub const MACHINE_CONFIG_RENDERED: &str = "MachineConfigRendered";
}

/// Types of the conditions of a release that nodes serve themselves.
pub mod internal_release_image {
    pub const AVAILABLE: &str = "Available";
    pub const DEGRADED: &str = "Degraded";
}
