//! Label keys and their special values.

/// On a MachineConfig: the role whose pools select it, and on which its place in the merge order depends. On the
/// configs that controllers make, the pool.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// On a pool: it is part of the product, not user-defined.
pub const BUILT_IN: &str = "machineconfiguration.openshift.io/mco-built-in";

/// On a pool: an upgrade is not complete before the pool is.
pub const REQUIRED_FOR_UPGRADE: &str = "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// On a pool: with the pool's name appended, a label by which other objects select exactly this pool.
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";

/// On a CustomResourceDefinition: an operator manages it.
pub const OPERATOR_MANAGED: &str = "openshift.io/operator-managed";

/// On a pool's user-data secret: its certificates come from our own bundle.
pub const MANAGED_CA_BUNDLE: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";

/// On a pod: the name of the component it belongs to.
pub const APP: &str = "k8s-app";

/// On a ConfigMap: it has fetched contents that MachineConfigs refer to.
pub const REMOTE_CONTENTS: &str = "mco.dev/remote-contents";

/// "true" on a Secret in the namespace of the operator: RolloutPolicies may send it to the addresses that they name.
pub const ROLLOUT_POLICY: &str = "mco.dev/rollout-policy";

/// "true" on a Secret in the namespace of the operator: MachineConfigs may have its values written to nodes.
pub const SECRET_FILES: &str = "mco.dev/secret-files";

/// On Nodes.
pub mod node {
    /// With a role appended: the Node has that role.
    pub const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
    pub const ROLE_MASTER: &str = "node-role.kubernetes.io/master";
    pub const ROLE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
    pub const ROLE_WORKER: &str = "node-role.kubernetes.io/worker";
    pub const ROLE_ARBITER: &str = "node-role.kubernetes.io/arbiter";
    /// Set by RKE2 and k3s: the Node runs an etcd member.
    pub const ROLE_ETCD: &str = "node-role.kubernetes.io/etcd";
    /// The failure domain, by which a rollout is ordered.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Cloud providers send no traffic of load balancers to the Node.
    pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    pub const OS: &str = "kubernetes.io/os";
    /// The value of [`OS`] on Nodes that belong to no pool.
    pub const OS_WINDOWS: &str = "windows";
}

/// On MachineOSBuilds and on the objects that exist only while an image is being built.
pub mod build {
    /// "true" on a build that never ran because its image came with the installation.
    pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";
    /// The pool whose machines run the image.
    pub const POOL: &str = "machineconfiguration.openshift.io/target-machine-config-pool";
    /// The rendered MachineConfig that the image is built from.
    pub const RENDERED_CONFIG: &str = "machineconfiguration.openshift.io/rendered-machine-config";
    /// The MachineOSConfig of the build.
    pub const MACHINE_OS_CONFIG: &str = "machineconfiguration.openshift.io/machine-os-config";
    /// The MachineOSBuild that an object was created for.
    pub const MACHINE_OS_BUILD: &str = "machineconfiguration.openshift.io/machine-os-build";
    /// The object exists only for the duration of a build.
    pub const EPHEMERAL: &str = "machineconfiguration.openshift.io/ephemeral-build-object";
    pub const ON_CLUSTER_LAYERING: &str = "machineconfiguration.openshift.io/on-cluster-layering";
    /// On a Secret that was converted to the current format of registry credentials.
    pub const CANONICALIZED_SECRET: &str = "machineconfiguration.openshift.io/canonicalizedSecret";
    /// The name of the Secret that it was converted from.
    pub const ORIGINAL_SECRET_NAME: &str = "machineconfiguration.openshift.io/originalSecretName";
}

/// On a pool: its images are built in the cluster, also before it has a MachineOSConfig.
pub const LAYERING_ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";

/// On operating system images: metadata of the image.
pub mod image {
    /// "true" on an image that extensions are installed from.
    pub const EXTENSIONS: &str = "io.openshift.os.extensions";
}

/// Returns the label that selects exactly this pool.
pub fn pool(name: &str) -> String {
    format!("{POOL_PREFIX}{name}")
}

/// Returns the label of a Node with this role.
pub fn node_role(role: &str) -> String {
    format!("{}{role}", node::ROLE_PREFIX)
}
