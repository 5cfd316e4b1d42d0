//! Finalizers.

/// On a rendered MachineConfig that a node or a pool still uses. Specific to this implementation; others ignore it.
pub const RENDERED_CONFIG_IN_USE: &str = "machineconfiguration.openshift.io/rendered-config-in-use";

/// On a MachineOSBuild: it is deleted after its Job.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";

// A KubeletConfig or ContainerRuntimeConfig carries one finalizer per pool, which is the *name* of the MachineConfig
// made for that pool (see `names::generated_kubelet` and `names::generated_container_runtime`).
