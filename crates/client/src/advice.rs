//! Advice for the messages of degraded nodes and pools: what a message means, and how to resolve it.
//!
//! Messages are texts that other programs also match, so they are recognised by their stable parts. An unrecognised
//! message gets general advice, never a guess. `docs/troubleshooting.md` explains every entry.

use mco_core::rollout::messages;
use serde::Serialize;

/// The kind of failure that an [`Advice`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdviceTopic {
    Irreconcilable,
    DrainTimeout,
    UncordonTimeout,
    Drift,
    ConfigMissing,
    OtherBootstrapConfig,
    ServiceFailed,
    UserMissing,
    BootedDifferent,
    OsUpdateFailed,
    DiskFull,
    RollbackFailed,
    DisruptionPoliciesNotReady,
    CertificatesNotWritten,
    RenderFailed,
    ImageBuildFailed,
    ApiUnreachable,
    Other,
}

/// The meaning of a message, and how to resolve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    #[serde(skip)]
    pub topic: AdviceTopic,
    /// A short title; the heading of its section in the guide.
    pub title: &'static str,
    pub meaning: &'static str,
    /// The steps to try, in order.
    pub steps: &'static [&'static str],
    #[serde(skip)]
    signs: &'static [&'static str],
}

/// Returns the advice for a message: that of the first matching entry.
pub fn for_complaint(complaint: &str) -> &'static Advice {
    ALL.iter()
        .find(|advice| advice.signs.iter().any(|sign| complaint.contains(sign)))
        .unwrap_or(&UNKNOWN)
}

/// Returns every entry, for documentation.
pub fn all() -> impl Iterator<Item = &'static Advice> {
    ALL.iter().chain([&UNKNOWN])
}

/// Whether a message reports config drift.
pub fn is_drift(complaint: &str) -> bool {
    for_complaint(complaint).topic == AdviceTopic::Drift
}

/// Specific entries before general ones: a message may quote another.
const ALL: [Advice; 17] = [
    Advice {
        topic: AdviceTopic::Irreconcilable,
        title: "The new config cannot be applied to running nodes",
        meaning: "The change touches something that can only be set at installation, such as disks, filesystems \
                  or FIPS.",
        steps: &[
            "Revert the change in the MachineConfig that the message names; mco rollout undo shows how. The node is \
             updated to the next config immediately.",
            "Or reprovision the node; a first boot applies every part of a config.",
        ],
        signs: &["are not reconcilable", "is not reconcilable against"],
    },
    Advice {
        topic: AdviceTopic::DrainTimeout,
        title: "A drain takes too long",
        meaning: "Not every pod could be evicted from the node within an hour, so the node could not be updated.",
        steps: &[
            "See which pod and which PodDisruptionBudget the drain waits for.",
            "Scale the workload up, repair its unhealthy pods, correct the budget, or delete the pod; the drain is \
             retried automatically.",
        ],
        signs: &[messages::DRAIN_TIMED_OUT],
    },
    Advice {
        topic: AdviceTopic::UncordonTimeout,
        title: "A node is not uncordoned",
        meaning: "The node has its new config, but it was not uncordoned within ten minutes.",
        steps: &[
            "Check that the controller is running (kubectl get pods -n openshift-machine-config-operator); it then \
             uncordons the node.",
            "Run kubectl uncordon if the node must be schedulable now.",
        ],
        signs: &[messages::UNCORDON_TIMED_OUT],
    },
    Advice {
        topic: AdviceTopic::Drift,
        title: "A node has drifted from its config",
        meaning: "A file, a unit or a key that a MachineConfig manages was changed on the node. Nothing is \
                  overwritten, and the node is not updated until the drift is resolved.",
        steps: &[
            "See the differences with mco drift and restore the file; the node then recovers automatically.",
            "Or, to keep the change, add it to a MachineConfig, which applies it to every node of the pool.",
            "On an adopted node, mco adopt NODE shows what the config replaces; mco release NODE restores what was there \
             before.",
            "If a program keeps changing it, remove the file from the MachineConfig, or enable automatic repair with \
             the annotation machineconfiguration.openshift.io/drift-policy: heal on the pool.",
        ],
        signs: messages::DRIFT_SIGNS,
    },
    Advice {
        topic: AdviceTopic::ConfigMissing,
        title: "The rendered config does not exist",
        meaning: "The desired rendered config of the node does not exist in the cluster, and the node has no copy.",
        steps: &[
            "If its MachineConfigs are unchanged, the controller renders the same config under the same name again.",
            "Otherwise change any MachineConfig of the pool, so that a new target is rendered; failed nodes are \
             updated to it immediately.",
        ],
        signs: &[
            "machineconfig.machineconfiguration.openshift.io",
            "MachineConfig not found",
        ],
    },
    Advice {
        topic: AdviceTopic::OtherBootstrapConfig,
        title: "The node was provisioned with another config",
        meaning: "The config of the node's first boot differs from the one that the cluster renders for its pool.",
        steps: &[
            "Compare the installer's MachineConfigs with those in the cluster; the node stores the difference in \
             /etc/machine-config-daemon/bootstrapconfigdiff.",
            "Create the missing objects in the cluster, or reprovision the node.",
        ],
        signs: &["bootstrap generated MC"],
    },
    Advice {
        topic: AdviceTopic::ServiceFailed,
        title: "A service could not be reloaded or restarted",
        meaning: "The files are written, but a service that uses them could not be reloaded or restarted.",
        steps: &[
            "Inspect the service on the node with systemctl status and journalctl -u.",
            "Fix its configuration in the MachineConfig; the daemon retries automatically.",
        ],
        signs: &[" after reload ", " after restart ", "systemctl"],
    },
    Advice {
        topic: AdviceTopic::UserMissing,
        title: "A user does not exist on the node",
        meaning: "The new config sets SSH keys or a password of a user that the node does not have. Nothing was \
                  changed.",
        steps: &[
            "Create the user on the node, for example with useradd --create-home core; the daemon retries \
             automatically.",
            "Or remove the user from passwd.users of the MachineConfig.",
        ],
        signs: &["this machine has no such user"],
    },
    Advice {
        topic: AdviceTopic::BootedDifferent,
        title: "The node does not match its config after the reboot",
        meaning: "The node has rebooted, but its state does not match its new config.",
        steps: &[
            "The message names the file or the part of the system. Find out what writes it at boot, and remove it from \
             either that program or the MachineConfig.",
        ],
        signs: &["the machine has booted, but"],
    },
    Advice {
        topic: AdviceTopic::OsUpdateFailed,
        title: "The operating system could not be changed",
        meaning: "The node's image, kernel or extensions could not be staged, or were lost at the last reboot.",
        steps: &[
            "See rpm-ostree status or bootc status on the node, and the journal of the previous boot \
             (journalctl -b -1).",
            "On a node without an image backend, remove osImageURL, kernelType and extensions from the \
             MachineConfigs.",
        ],
        signs: &[
            "cannot be changed on this machine",
            "staged deployment is missing",
            "rpm-ostree",
            "bootc",
        ],
    },
    Advice {
        topic: AdviceTopic::DiskFull,
        title: "The disk is full",
        meaning: "Nothing could be written. The old config is still complete.",
        steps: &["Free some space on the node; the daemon retries automatically."],
        signs: &["No space left", "disk full", "ENOSPC"],
    },
    Advice {
        topic: AdviceTopic::RollbackFailed,
        title: "A rollback failed",
        meaning: "An update failed, and so did its rollback: the disk may be failing, or a tool that changes the \
                  operating system.",
        steps: &[
            "Check the disk (df, dmesg) and the tool that the message names. The daemon retries the rollback \
             automatically, and reports Done only when it succeeds.",
        ],
        signs: &["error rolling back", "the journal of the last change"],
    },
    Advice {
        topic: AdviceTopic::DisruptionPoliciesNotReady,
        title: "The disruption policies are not ready",
        meaning: "The operator has not yet reconciled the MachineConfiguration, so the disruption of a change \
                  is undetermined.",
        steps: &[
            "Check that the operator is running; the update continues once MachineConfiguration cluster has a \
             status.",
        ],
        signs: &["NodeDisruptionPolicyStatus was not ready"],
    },
    Advice {
        topic: AdviceTopic::CertificatesNotWritten,
        title: "Certificates could not be written",
        meaning: "The daemon could not write the cluster's certificates to disk.",
        steps: &[
            "The message names the file. Check for a full or read-only disk; the daemon retries automatically.",
        ],
        signs: &["could not sync certificates"],
    },
    Advice {
        topic: AdviceTopic::RenderFailed,
        title: "A pool cannot be rendered",
        meaning: "The pool's MachineConfigs do not merge into a valid config. Its nodes keep their current config.",
        steps: &[
            "The message names the MachineConfig and the field. Check your fix with mco plan -f FILE before you \
             apply it.",
            "Or roll back to the pool's previous config with mco rollout undo.",
        ],
        signs: &["Failed to render configuration for pool"],
    },
    Advice {
        topic: AdviceTopic::ImageBuildFailed,
        title: "An operating system image could not be built",
        meaning: "The pool has a MachineOSConfig, and the build of its image failed.",
        steps: &["Inspect the MachineOSBuild and its pod's log, and fix or delete the MachineOSConfig."],
        signs: &["Custom OS image build failed"],
    },
    Advice {
        topic: AdviceTopic::ApiUnreachable,
        title: "The API server is not reachable from the node",
        meaning: "The daemon could not read or write its objects for half a minute.",
        steps: &[
            "Check the network between the node and the API server, and the node's credentials. The daemon retries \
             automatically.",
        ],
        signs: &[
            "could not read MachineConfig",
            "could not read the disruption policies",
            "could not find the pool of node",
            "could not annotate node",
        ],
    },
];

const UNKNOWN: Advice = Advice {
    topic: AdviceTopic::Other,
    title: "Something else",
    meaning: "The daemon could not update the node and retries; the node still has its old config.",
    steps: &[
        "Read the message; it names the object or path that is wrong.",
        "Fix the MachineConfig it names: a node that failed on a bad config is updated to a new one immediately.",
        "See the daemon's log: the node's machine-config-daemon pod in openshift-machine-config-operator, or \
         journalctl -u machine-config-daemon on the node.",
    ],
    signs: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_recognised_by_words_that_never_change() {
        for (complaint, title) in [
            (
                "unexpected on-disk state validating against rendered-worker-1: content mismatch for file \"/etc/a\"",
                "A node has drifted from its config",
            ),
            (
                "content mismatch for file \"/etc/chrony.conf\"",
                "A node has drifted from its config",
            ),
            (
                "can't reconcile config a with b: configs a, b are not reconcilable: disks changed",
                "The new config cannot be applied to running nodes",
            ),
            (
                "failed to drain node: worker-1 after 1 hour. Please see machine-config-controller logs",
                "A drain takes too long",
            ),
            (
                "machineconfig.machineconfiguration.openshift.io \"rendered-worker-1\" not found",
                "The rendered config does not exist",
            ),
            (
                "the machine has booted, but kernel arguments differ",
                "The node does not match its config after the reboot",
            ),
            (
                "cannot set SSH keys or the password of user \"core\": this machine has no such user. Create it",
                "A user does not exist on the node",
            ),
            ("write /etc/a: No space left on device", "The disk is full"),
            ("the moon is full", "Something else"),
            ("", "Something else"),
        ] {
            assert_eq!(for_complaint(complaint).title, title, "{complaint}");
        }
    }

    #[test]
    fn drift_is_drift_and_nothing_else_is() {
        assert!(is_drift(
            "mode mismatch for file: \"/etc/a\"; expected: 0644; received: 0600"
        ));
        assert!(!is_drift("failed to drain node: a after 1 hour"));
        assert!(!is_drift(""));
    }

    #[test]
    fn every_title_is_used_once() {
        let mut titles: Vec<_> = all().map(|advice| advice.title).collect();
        titles.sort_unstable();
        let number = titles.len();
        titles.dedup();
        assert_eq!(titles.len(), number);
    }
}
