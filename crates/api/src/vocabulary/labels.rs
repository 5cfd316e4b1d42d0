//! Label keys.

/// On a MachineConfig: the role whose pools select it, and on which its place in the merge order depends.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// On a pool: it belongs to the product and is not the user's own.
pub const BUILT_IN: &str = "machineconfiguration.openshift.io/mco-built-in";

/// On a pool: an upgrade is not complete before it is.
pub const REQUIRED_FOR_UPGRADE: &str = "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// On a pool: with the pool's name appended, a label by which other objects select exactly this pool.
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";

/// On a pool: its machines boot images that were built in the cluster.
pub const LAYERING_ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";

/// On a pool: build its image again.
pub const REBUILD_IMAGE: &str = "machineconfiguration.openshift.io/rebuildImage";

/// On a Node: with a role appended, the Node has that role.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// The label that selects exactly this pool.
pub fn pool(name: &str) -> String {
    format!("{POOL_PREFIX}{name}")
}

/// The label that gives a Node this role.
pub fn node_role(role: &str) -> String {
    format!("{NODE_ROLE_PREFIX}{role}")
}
