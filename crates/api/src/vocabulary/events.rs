//! Reasons of events, by component.

/// Of the rollout controller, about pools.
pub mod rollout {
    pub const SET_DESIRED_CONFIG: &str = "SetDesiredConfig";
    pub const SET_DESIRED_CONFIG_AND_OS_IMAGE: &str = "SetDesiredConfigAndOSImage";
    pub const UPDATING: &str = "Updating";
    pub const COMPLETED: &str = "Completed";
    pub const ANNOTATION_CHANGE: &str = "AnnotationChange";
    pub const DEFERRING_OPERATOR_NODE_UPDATE: &str = "DeferringOperatorNodeUpdate";
    pub const SELECTING_ALL: &str = "SelectingAll";
    /// The pool's settings allow no machine to be updated. Specific to this implementation; others only log it.
    pub const FAILED_ROLLOUT: &str = "FailedRollout";
    /// Several custom pools select the node. Specific to this implementation; others only log it.
    pub const CONTESTED_NODE: &str = "ContestedNode";
    /// A RolloutPolicy holds the pool, or continues. Specific to this implementation, as are the next four.
    pub const ROLLOUT_WAITING: &str = "RolloutWaiting";
    pub const ROLLOUT_HALTED: &str = "RolloutHalted";
    pub const ROLLOUT_REVERTED: &str = "RolloutReverted";
    pub const ROLLOUT_RESUMED: &str = "RolloutResumed";
    pub const WAVE_COMPLETED: &str = "WaveCompleted";
}

/// Of the registries controller, about mirror sets and image policies. Specific to this implementation; others only
/// log.
pub mod registries {
    /// The object is invalid and ignored.
    pub const INVALID: &str = "InvalidRegistrySettings";
}

/// Of the drain controller, about Nodes.
pub mod drain {
    pub const DRAIN_FAILED: &str = "DrainFailed";
    pub const DRAIN_THRESHOLD_EXCEEDED: &str = "DrainThresholdExceeded";
    /// A PodDisruptionBudget blocks an eviction. Specific to this implementation; others report a blocked drain only
    /// after ten minutes, and without the pod.
    pub const DRAIN_BLOCKED: &str = "DrainBlocked";
}

/// Of the controllers that render and generate configs.
pub mod render {
    pub const RENDERED_CONFIG_GENERATED: &str = "RenderedConfigGenerated";
    pub const OS_IMAGE_URL_OVERRIDDEN: &str = "OSImageURLOverridden";
    pub const ACTION_PROHIBITED: &str = "ActionProhibited";
}

/// Of the operator, about its ClusterOperator.
pub mod operator {
    pub const OPERATOR_VERSION_CHANGED: &str = "OperatorVersionChanged";

    /// Returns the reason of a failure, from the condition's reason.
    pub fn degraded(reason: &str) -> String {
        format!("OperatorDegraded: {reason}")
    }
}

/// Of the daemon, about its Node.
pub mod daemon {
    pub const CORDON: &str = "Cordon";
    pub const DRAIN: &str = "Drain";
    pub const UNCORDON: &str = "Uncordon";
    pub const REBOOT: &str = "Reboot";
    pub const NODE_DONE: &str = "NodeDone";
    pub const BOOT_RESYNC: &str = "BootResync";
    pub const SKIP_REBOOT: &str = "SkipReboot";
    pub const SERVICE_RELOAD: &str = "ServiceReload";
    pub const SERVICE_RESTART: &str = "ServiceRestart";
    pub const IN_CLUSTER_UPGRADE: &str = "InClusterUpgrade";
    pub const OS_UPDATE_STARTED: &str = "OSUpdateStarted";
    pub const OS_UPDATE_STAGED: &str = "OSUpdateStaged";
    pub const OS_UPGRADE_APPLIED: &str = "OSUpgradeApplied";
    pub const OS_UPGRADE_SKIPPED: &str = "OSUpgradeSkipped";
    pub const CONFIG_DRIFT_MONITOR_STARTED: &str = "ConfigDriftMonitorStarted";
    pub const CONFIG_DRIFT_MONITOR_STOPPED: &str = "ConfigDriftMonitorStopped";
    pub const ADD_SIGTERM_PROTECTION: &str = "AddSigtermProtection";
    pub const REMOVE_SIGTERM_PROTECTION: &str = "RemoveSigtermProtection";
    pub const FAILED_TO_DRAIN: &str = "FailedToDrain";
    pub const FAILED_TO_UNCORDON: &str = "FailedToUncordon";
    pub const FAILED_TO_RECONCILE: &str = "FailedToReconcile";
    pub const FAILED_SERVICE_RELOAD: &str = "FailedServiceReload";
    pub const FAILED_SERVICE_RESTART: &str = "FailedServiceRestart";
    pub const CONFIG_DRIFT_DETECTED: &str = "ConfigDriftDetected";
    pub const PREFLIGHT_CONFIG_DRIFT_CHECK_FAILED: &str = "PreflightConfigDriftCheckFailed";
    pub const ON_DISK_STATE_VALIDATION_FAILED: &str = "OnDiskStateValidationFailed";
    pub const FAILED_FINALIZATION: &str = "FailedFinalization";
    pub const OS_ROLLED_BACK: &str = "OSRolledBack";
    /// A config with which the node was not healthy was rolled back.
    pub const REVERTED: &str = "Reverted";
    pub const HOOK_FAILED: &str = "HookFailed";
    /// The Node no longer has a value that its files need.
    pub const NODE_VALUES_MISSING: &str = "NodeValuesMissing";
    pub const OS_STAGED_AHEAD: &str = "OSStagedAhead";
    pub const FAILED_TO_STAGE_AHEAD: &str = "FailedToStageAhead";
    pub const GOT_SIGTERM_DURING_UPDATE: &str = "GotSigtermDuringUpdate";
}

/// Of the image builder, about builds, their configs and pools.
pub mod build {
    pub const BUILD_STARTED: &str = "BuildStarted";
    pub const BUILD_PREPARING: &str = "BuildPreparing";
    pub const BUILD_BUILDING: &str = "BuildBuilding";
    pub const BUILD_COMPLETED: &str = "BuildCompleted";
    pub const BUILD_FAILED: &str = "BuildFailed";
    pub const BUILD_INTERRUPTED: &str = "BuildInterrupted";
    pub const BUILD_DELETED: &str = "BuildDeleted";
    pub const JOB_CREATED: &str = "JobCreated";
    pub const JOB_STARTED: &str = "JobStarted";
    pub const JOB_COMPLETED: &str = "JobCompleted";
    pub const JOB_DELETED: &str = "JobDeleted";
    pub const JOB_FAILED: &str = "JobFailed";
    pub const CONFIG_RECONCILED: &str = "ConfigReconciled";
    pub const CONFIG_RECONCILE_FAILED: &str = "ConfigReconcileFailed";
    pub const REBUILD_REQUESTED: &str = "RebuildRequested";
    pub const CONFIG_DELETED: &str = "ConfigDeleted";
    pub const BUILD_DEGRADED: &str = "BuildDegraded";
    pub const BUILD_RECOVERED: &str = "BuildRecovered";
    pub const POOL_CONFIG_CHANGED: &str = "PoolConfigChanged";
}
