//! Annotation keys.

/// On a MachineConfig made by a controller, rendered ones included: the controller's source revision. Absent or
/// empty, the MachineConfig is the user's.
pub const GENERATED_BY_CONTROLLER_VERSION: &str =
    "machineconfiguration.openshift.io/generated-by-controller-version";

/// On a ControllerConfig: the build version of the operator that wrote it.
pub const GENERATED_BY_VERSION: &str = "machineconfiguration.openshift.io/generated-by-version";

/// On a rendered MachineConfig and a ControllerConfig: the release's version. On an OSImageStream: the controller's
/// source revision.
pub const RELEASE_IMAGE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";

/// On a rendered MachineConfig: "true" when its operating system image is not the default one.
pub const OS_IMAGE_URL_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

/// On a ControllerConfig: whether the service CA was rotated, "true" or "false".
pub const SERVICE_CA_ROTATE: &str = "machineconfiguration.openshift.io/service-ca-rotate";

/// On a KubeletConfig or ContainerRuntimeConfig: the number that ends the name of the MachineConfig made from it.
pub const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";

/// On a MachineConfig or MachineOSConfig: the operating system image that was built before the cluster, by digest.
pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";
