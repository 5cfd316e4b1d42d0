//! Paths on a node that are part of the contract: other implementations read and write the same files.

/// The current MachineConfig, or the one being booted into, as one JSON document.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The pool's current built image; empty or absent in ordinary pools.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// The annotations that a new node registers with.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// Where the file above is moved after registration. The missing "s" is part of the contract.
pub const NODE_ANNOTATIONS_DONE: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// Written once if the config a node was installed with is not the one the cluster renders.
pub const BOOTSTRAP_DIFF: &str = "/etc/machine-config-daemon/bootstrapconfigdiff";
/// A MachineConfig without its Ignition part, to be completed at first boot.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
pub const ENCAPSULATED_DONE: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// The MachineConfig the node was installed with.
pub const INSTALLED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// The current MachineConfig of a node of a hosted cluster, in place of [`CURRENT_CONFIG`], which is empty there.
pub const HOSTED_CONFIG: &str = "/etc/mcd-currentconfig.json";
/// Presets written by Ignition; after the first sync the distribution's own apply again.
pub const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";
/// While it exists, validation is skipped and everything is applied again.
pub const FORCE_FILE: &str = mco_core::config::applicability::FORCE_FILE;

/// The MachineConfig to apply again after a revert from a built image.
pub const REVERT_CONFIG: &str = "/etc/mco/machineconfig-revert.json";
/// The cluster's proxy for services, and its copy for the boot before any config has written it.
pub const PROXY_ENV: &str = "/etc/mco/proxy.env";
pub const PROXY_ENV_BACKUP: &str = "/etc/mco/proxy.env.backup";

/// The logs of the daemon's pods at the last stop.
pub const PREVIOUS_LOGS: &str = "/etc/machine-config-daemon/previous-logs";

/// The daemon's state directory.
pub const STATE_DIRECTORY: &str = "/etc/machine-config-daemon";
/// Backups of files that existed before a config replaced them.
pub const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
pub const ORIGINAL_SUFFIX: &str = ".mcdorig";
/// Markers for paths where no file existed before.
pub const NO_ORIGINALS: &str = "/etc/machine-config-daemon/noorig";
pub const NO_ORIGINAL_SUFFIX: &str = ".mcdnoorig";

/// The current transaction, or one that waits for its proof. Specific to this implementation.
pub const JOURNAL: &str = "/etc/machine-config-daemon/transaction.json";
/// The journal for rolling back the same transaction, written in advance. Specific to this implementation.
pub const UNDO_JOURNAL: &str = "/etc/machine-config-daemon/transaction-undo.json";
/// The old contents of the files of the current transaction, away from the directories that services read. Specific to
/// this implementation.
pub const OLD_CONTENTS: &str = "/etc/machine-config-daemon/old";
/// What is staged for the next boot. Specific to this implementation.
pub const STAGED_DEPLOYMENT: &str = "/run/machine-config-daemon/staged-deployment.json";
/// An OS deployment that is being rolled back, and why. In `/var`, which all deployments share. Specific to this
/// implementation.
pub const ROLLBACK_REQUEST: &str = "/var/lib/machine-config-daemon/rollback.json";
/// The target that was rolled back, and why; it is not attempted again. Specific to this implementation.
pub const ROLLED_BACK: &str = "/etc/machine-config-daemon/rolled-back.json";
/// The copy of this program that `mco-guard.service` runs while a change is not confirmed. In `/var`, which all
/// deployments share. Specific to this implementation.
pub const GUARD_PROGRAM: &str = "/var/lib/machine-config-daemon/guard";
/// The lock of the one daemon that may change the machine. Specific to this implementation.
pub const LOCK: &str = "/run/machine-config-daemon/lock";

/// What a machine had before it was adopted. Only on adopted machines. Specific to this implementation.
pub const ADOPTION: &str = "/etc/machine-config-daemon/adoption.json";
/// Exists on a machine that was released: it is not adopted again by itself. Specific to this implementation.
pub const RELEASED: &str = "/etc/machine-config-daemon/released";
/// What the node has in the files that differ between the nodes of its pool: values, and salted hashes of Secrets. Specific
/// to this implementation.
pub const NODE_FILES: &str = "/etc/machine-config-daemon/node-files.json";
/// The certificates that the daemon has written, with their hashes. Specific to this implementation.
pub const LIVE_RECORD: &str = "/etc/machine-config-daemon/live.json";

/// The machine's membership in a cluster of `mco up`: server, node name and credential. Specific to this
/// implementation.
pub const MEMBERSHIP: &str = "/etc/machine-config-daemon/membership.json";
/// The kubeconfig for that cluster. Specific to this implementation.
pub const MEMBER_KUBECONFIG: &str = "/etc/machine-config-daemon/kubeconfig";

/// The daemon's current activity, for `mco daemon status`. Specific to this implementation.
pub const ACTIVITY: &str = "/run/machine-config-daemon/activity.json";

/// Exists while a reload of CRI-O for changed pinned images is pending. Specific to this implementation.
pub const CRIO_RELOAD_OWED: &str = "/run/machine-config-daemon/crio-reload-owed";

/// Exists while a restart of the kubelet for a new CA of the API server is pending. Specific to this implementation.
pub const KUBELET_RESTART_OWED: &str = "/run/machine-config-daemon/kubelet-restart-owed";

pub const AUTHORIZED_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
pub const SSH_DIRECTORY: &str = "/home/core/.ssh";
pub const CORE_HOME: &str = "/home/core";

/// The credentials with which a new machine joins.
pub const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The kubelet's own credentials.
pub const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
pub const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
pub const USER_CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
pub const REGISTRY_CAS: &str = "/etc/docker/certs.d";
pub const MERGED_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";

/// Synced from the cluster, so validation ignores a config's copy of them.
pub const LIVE_CONTENT: [&str; 3] = [KUBELET_CA, CLOUD_CA, MERGED_PULL_SECRET];

/// Links that older releases left behind and that keep their units from being removed.
pub const LEFTOVER_LINKS: [&str; 2] = [
    "/etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "/etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];
