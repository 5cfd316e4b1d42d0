//! Files on a node that are part of the contract: other implementations read and write the same ones.

/// The MachineConfig the node has, or is booting into, as one JSON document.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The pool's built image the node has; empty or absent in ordinary pools.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// What a new node should say of itself before it has met the cluster.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// Where the file above goes after that meeting. The missing "s" is part of the contract.
pub const NODE_ANNOTATIONS_DONE: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// Written once when the config a node was installed with is not the one the cluster renders.
pub const BOOTSTRAP_DIFF: &str = "/etc/machine-config-daemon/bootstrapconfigdiff";
/// A MachineConfig without its Ignition part, to be completed at first boot.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
pub const ENCAPSULATED_DONE: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// The MachineConfig the node was installed with.
pub const INSTALLED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// Presets that Ignition wrote; after the first sync the distribution's own count again.
pub const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";
/// While it exists, checks are skipped and everything is applied again.
pub const FORCE_FILE: &str = mco_core::config::validate::FORCE_FILE;

/// The MachineConfig to put in place once more after a built image was left.
pub const REVERT_CONFIG: &str = "/etc/mco/machineconfig-revert.json";
/// The cluster's proxy for services, and its copy for the boot at which no config has written it yet.
pub const PROXY_ENV: &str = "/etc/mco/proxy.env";
pub const PROXY_ENV_BACKUP: &str = "/etc/mco/proxy.env.backup";

/// Everything the daemon keeps for itself.
pub const STATE_DIRECTORY: &str = "/etc/machine-config-daemon";
/// Copies of files that were there before a config took them over.
pub const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
pub const ORIGINAL_SUFFIX: &str = ".mcdorig";
/// Notes that there was nothing before.
pub const NO_ORIGINALS: &str = "/etc/machine-config-daemon/noorig";
pub const NO_ORIGINAL_SUFFIX: &str = ".mcdnoorig";

/// The transaction under way, or waiting for its proof. Ours alone.
pub const JOURNAL: &str = "/etc/machine-config-daemon/transaction.json";
/// The same transaction as it reads while being undone, written in advance. Ours alone.
pub const UNDO_JOURNAL: &str = "/etc/machine-config-daemon/transaction-undo.json";
/// Held by the one daemon that may change the machine. Ours alone.
pub const LOCK: &str = "/run/machine-config-daemon/lock";

/// Which cluster of `mco up` the machine has joined, as whom, and with what credential. Ours alone.
pub const MEMBERSHIP: &str = "/etc/machine-config-daemon/membership.json";
/// How its daemon reaches that cluster. Ours alone.
pub const MEMBER_KUBECONFIG: &str = "/etc/machine-config-daemon/kubeconfig";

/// What the daemon is doing, for people. Ours alone.
pub const ACTIVITY: &str = "/run/machine-config-daemon/activity.json";

/// CRI-O has not been told yet of the images it shall keep. Ours alone.
pub const CRIO_RELOAD_OWED: &str = "/run/machine-config-daemon/crio-reload-owed";

pub const AUTHORIZED_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
pub const SSH_DIRECTORY: &str = "/home/core/.ssh";
pub const CORE_HOME: &str = "/home/core";

pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
pub const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
pub const USER_CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
pub const REGISTRY_CAS: &str = "/etc/docker/certs.d";
pub const MERGED_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";

/// Synced from the cluster as they change, so no config's copy of them is compared.
pub const LIVE_CONTENT: [&str; 3] = [KUBELET_CA, CLOUD_CA, MERGED_PULL_SECRET];

/// Links that older releases left behind and that keep units of theirs from going away.
pub const LEFTOVER_LINKS: [&str; 2] = [
    "/etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "/etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];
