//! Annotation keys and their special values.

/// On a MachineConfig made by a controller, rendered ones included: the controller's source revision. Absent or
/// empty, the MachineConfig is the user's.
pub const GENERATED_BY_CONTROLLER_VERSION: &str =
    "machineconfiguration.openshift.io/generated-by-controller-version";

/// On a ControllerConfig: the build version of the operator that wrote it.
pub const GENERATED_BY_VERSION: &str = "machineconfiguration.openshift.io/generated-by-version";

/// On a rendered MachineConfig and a ControllerConfig: the release's version. On an OSImageStream: the controller's
/// source revision.
pub const RELEASE_IMAGE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";

/// On an OSImageStream: the release's image that it was made from.
pub const RELEASE_PAYLOAD_IMAGE: &str = "machineconfiguration.openshift.io/release-payload-image";

/// On an OSImageStream that was generated on request from a release's files and exists in no cluster.
pub const GENERATED_BY_STREAM_QUERY: &str =
    "machineconfiguration.openshift.io/generated-by-machine-config-osimagestream";

/// On a rendered MachineConfig: "true" when its operating system image is not the default one.
pub const OS_IMAGE_URL_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

/// On a ControllerConfig: whether the service CA was rotated, "true" or "false".
pub const SERVICE_CA_ROTATE: &str = "machineconfiguration.openshift.io/service-ca-rotate";

/// On a KubeletConfig or ContainerRuntimeConfig: the number that ends the name of the MachineConfig made from it,
/// or empty for the name without a number.
pub const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";

/// On a MachineConfig, a MachineOSConfig, or a MachineOSBuild that uses it: the operating system image that came with the
/// installation, by digest.
pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";

/// On the MachineConfiguration: when a default turned on the updates of boot images.
pub const BOOT_IMAGES_OPTED_IN: &str = "machineconfiguration.openshift.io/boot-image-updates-opted-in-at";

/// On a user-data secret: the Ignition version that its stub was converted to.
pub const STUB_UPGRADED_TO: &str = "machineconfiguration.openshift.io/stub-ignition-upgraded-to";

/// On a user-data secret: when its stub was converted.
pub const STUB_UPGRADED_AT: &str = "machineconfiguration.openshift.io/stub-ignition-upgraded-at";

/// On a MachineConfigPool: "true" when `mco switch` has paused it, so that the pools that administrators paused stay so.
pub const PAUSED_FOR_SWITCH: &str = "machineconfiguration.openshift.io/paused-for-switch";

/// On a MachineConfigPool or a Node: what the daemon does about drift, "degrade", "heal" or "ignore".
pub const DRIFT_POLICY: &str = "machineconfiguration.openshift.io/drift-policy";

/// On a Node: every difference of a drifted node, as a JSON list of the messages of which the first is its reason.
pub const DRIFT: &str = "mco.dev/drift";

/// On a Node: the prefix of annotations that hold its update back. The rest of the key names what holds it.
pub const HOLD_PREFIX: &str = "mco.dev/hold.";

/// On a MachineConfigPool: how long a node may take to be healthy with a new config before it reverts it, such as 10m. The
/// controller copies it, or the deadline of the RolloutPolicy, to each Node with its target.
pub const CONFIRM_DEADLINE: &str = "mco.dev/confirm-deadline";

/// On a Node: the results of the hooks of its last update, as a JSON list.
pub const HOOKS: &str = "mco.dev/hooks";

/// On a RolloutPolicy: what an administrator has decided about its rollouts, as a JSON map by pool. Written by `mco
/// rollout resume`, `promote` and `abort`.
pub const ROLLOUT_CONTROL: &str = "mco.dev/rollout-control";

/// On a Node: "true" keeps the cluster autoscaler from removing it.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// On a Node, by the FleetLock endpoint: when its own update agent last asked to reboot it. The controller removes it when it
/// grants the request.
pub const REBOOT_REQUEST: &str = "mco.dev/reboot-request";

/// On a Node: its own update agent may reboot it. Set by the controller and removed by the FleetLock endpoint. Like every
/// hold it keeps updates away.
pub const REBOOT_LOCK: &str = "mco.dev/hold.fleetlock";

/// On a Node that waits for its turn: the rendered config whose OS is already staged.
pub const STAGED_CONFIG: &str = "mco.dev/staged-config";

/// On a MachineConfig: the guarded paths and units that it may change on adopted nodes, separated by commas. On a rendered
/// MachineConfig: those that its sources name and allow.
pub const ALLOW_GUARDED_PATHS: &str = "mco.dev/allow-guarded-paths";

/// On a MachineConfig: the files whose contents are values of Secrets, as a JSON list.
pub const SECRET_FILES: &str = "mco.dev/secret-files";

/// On a MachineConfig: "true" if its files may have placeholders for values of the node.
pub const NODE_VALUES: &str = "mco.dev/node-values";

/// On a Node: with a name appended, a value for the files of MachineConfigs.
pub const VALUE_PREFIX: &str = "mco.dev/value.";

/// On a Node, by its daemon: it waits for its turn, or has it, to write the files whose values have changed.
pub const NODE_FILES_UPDATE: &str = "mco.dev/node-files-update";

/// On a Node, by its daemon: why it cannot write the files whose values have changed.
pub const NODE_FILES_PROBLEM: &str = "mco.dev/node-files-problem";

/// On a ConfigMap with fetched contents: their hash, as in `verification.hash` of the reference.
pub const CONTENT_HASH: &str = "mco.dev/content-hash";

/// On a ConfigMap with fetched contents: their compression, or nothing.
pub const CONTENT_COMPRESSION: &str = "mco.dev/content-compression";

/// On a MachineConfigPool: which existing nodes it adopts by itself, "never", "when-equal" or "always".
pub const ADOPT: &str = "mco.dev/adopt";

/// On a Node, by a user: "compare", "adopt" or "release". The daemon removes it when it has completed the request.
pub const ADOPTION_REQUEST: &str = "mco.dev/adoption-request";

/// On the ControllerConfig: the base of the cluster, see [`crate::ClusterBase`]. Absent, the cluster is OpenShift's.
pub const BASE: &str = "mco.dev/base";

/// On a MachineConfigPool: the account of its nodes that the SSH keys of `passwd.users` belong to, in place of `core`.
/// The rendered MachineConfigs of the pool have it as well.
pub const SSH_USER: &str = "mco.dev/ssh-user";

/// On the ClusterVersion: the overrides that `mco switch prepare` has added, as a JSON list.
pub const SWITCH_OVERRIDES: &str = "machineconfiguration.openshift.io/switch-overrides";

/// On a Node: the protocol between controller and daemon.
pub mod node {
    /// The rendered config that is validated on disk. Written by the daemon.
    pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
    /// The rendered config to reach. Written by the controller.
    pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
    /// The pool's built image that the node runs. Only in layered pools.
    pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
    /// The pool's built image to reach. Only in layered pools.
    pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";
    /// See [`crate::vocabulary::node_state`].
    pub const STATE: &str = "machineconfiguration.openshift.io/state";
    /// The reason of the state, for users.
    pub const REASON: &str = "machineconfiguration.openshift.io/reason";
    /// The daemon's request: `drain-<config>` or `uncordon-<config>`.
    pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
    /// The latest request that the controller has completed.
    pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
    /// While the controller drains the node and until it is uncordoned: since when, for which request, whose cordon it
    /// is and what it waits for, as JSON. Ours alone; other implementations ignore it.
    pub const DRAIN_RECORD: &str = "machineconfiguration.openshift.io/drain-record";
    /// [`REBOOTING`] from just before a reboot until the daemon has seen the next boot.
    pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
    /// The value of [`POST_CONFIG_ACTION`] around a reboot.
    pub const REBOOTING: &str = "Rebooting";
    /// Why the previous boot could not finalize its staged deployment.
    pub const OSTREE_FINALIZE_STAGED_FAILURE: &str =
        "machineconfiguration.openshift.io/ostree-finalize-staged-failure";
    /// The shape of the control plane, see [`crate::vocabulary::topology`].
    pub const CONTROL_PLANE_TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
    /// The rendered config that the node was installed with.
    pub const FIRST_PIVOT_CONFIG: &str = "machineconfiguration.openshift.io/firstPivotConfig";
    /// Present once the node has the labels of its first pool.
    pub const CUSTOM_POOL_LABELS_APPLIED: &str = "machineconfiguration.openshift.io/customPoolLabelsApplied";
    /// The ControllerConfig whose certificates are on disk.
    pub const LAST_SYNCED_CONTROLLER_CONFIG: &str =
        "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
    /// Formerly "accessed" after an SSH login. No longer written.
    pub const SSH: &str = "machineconfiguration.openshift.io/ssh";

    /// The verb and config of a drain request.
    pub mod drain {
        pub const DRAIN: &str = "drain";
        pub const UNCORDON: &str = "uncordon";

        /// Returns the request to drain the node for this config.
        pub fn drain(config: &str) -> String {
            format!("{DRAIN}-{config}")
        }

        /// Returns the request to uncordon the node.
        pub fn uncordon(config: &str) -> String {
            format!("{UNCORDON}-{config}")
        }
    }
}

/// On MachineOSConfigs and MachineOSBuilds.
pub mod build {
    /// On a MachineOSConfig: its latest build.
    pub const CURRENT_MACHINE_OS_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";
    /// On a MachineOSConfig: the user's request to build its image again, with any value.
    pub const REBUILD: &str = "machineconfiguration.openshift.io/rebuild";
    /// On a MachineOSBuild: the Secret with which its image is pushed, inspected and deleted.
    pub const PUSH_SECRET: &str = "machineconfiguration.openshift.io/rendered-image-push-secret";
    /// On a MachineOSBuild: the UID of its Job.
    pub const JOB_UID: &str = "machineconfiguration.openshift.io/job-uid";
    /// On a MachineOSBuild that has no Job because it failed or cannot start: the problem, its place and a hint.
    pub const FAILURE: &str = "mco.dev/build-failure";
    /// On a MachineOSBuild: the last lines of the log of its build.
    pub const LOG_TAIL: &str = "mco.dev/build-log";
    /// On the objects of a build: the MachineOSConfig and the MachineOSBuild.
    pub const MACHINE_OS_CONFIG: &str = "machineconfiguration.openshift.io/machine-os-config";
    pub const MACHINE_OS_BUILD: &str = "machineconfiguration.openshift.io/machine-os-build";
    /// On the objects of a build that mounts subscription certificates, yum repositories or RPM keys.
    pub const HAS_ENTITLEMENT: &str = "machineconfiguration.openshift.io/has-etc-pki-entitlement";
    pub const HAS_YUM_REPOS: &str = "machineconfiguration.openshift.io/has-etc-yum-repos-d";
    pub const HAS_RPM_KEYS: &str = "machineconfiguration.openshift.io/has-etc-pki-rpm-gpg";
}

/// On secrets and config maps with certificates.
pub mod certificate {
    pub const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
    pub const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
    pub const ISSUER: &str = "auth.openshift.io/certificate-issuer";
    pub const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
}
