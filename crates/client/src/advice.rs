//! Advice for the messages of degraded nodes and pools: what a message means, and how to resolve it.
//!
//! Messages are texts that other programs also match, so they are recognised by their stable parts. An unrecognised
//! message gets general advice, never a guess. `docs/troubleshooting.md` explains every entry.

use serde::Serialize;

/// The meaning of a message, and how to resolve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
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
    for_complaint(complaint) == &ALL[DRIFT]
}

/// The index of drift in the list.
const DRIFT: usize = 3;

/// Specific entries before general ones: a message may quote another.
const ALL: [Advice; 17] = [
    Advice {
        title: "The new config cannot be applied to running machines",
        meaning: "The change touches something that only an installation can set, such as disks, filesystems or FIPS.",
        steps: &[
            "Take the change out of the MachineConfig that the message names; mco rollout undo shows how. The node follows the \
             next config at once.",
            "Or install the machine anew; a first boot takes every part of a config.",
        ],
        signs: &["are not reconcilable", "is not reconcilable against"],
    },
    Advice {
        title: "A drain takes too long",
        meaning: "For an hour not every pod could be moved away from the node, so it could not be changed.",
        steps: &[
            "See which pod and which PodDisruptionBudget the drain waits for.",
            "Scale the workload up, repair its unhealthy pods, correct the budget, or delete the pod; the drain goes on by \
             itself.",
        ],
        signs: &["failed to drain node"],
    },
    Advice {
        title: "A node cannot be given back",
        meaning: "The node has its new config, but for ten minutes nobody uncordoned it.",
        steps: &[
            "Check that the controller runs (kubectl get pods -n openshift-machine-config-operator); it uncordons the node as \
             soon as it does.",
            "Uncordon the node by hand with kubectl uncordon if it has to take work now.",
        ],
        signs: &["failed to uncordon node"],
    },
    Advice {
        title: "A machine is not what its config says",
        meaning: "Somebody or something has changed a file, a unit or a key that a MachineConfig manages. Nothing is \
                  overwritten, and the node takes no new config until it is clear which side is right.",
        steps: &[
            "See what differs with mco drift, put the file back as it was, and the node recovers by itself.",
            "Or, if the change is wanted, put it into a MachineConfig; it then reaches every node of the pool.",
            "Or have the config written again by creating /run/machine-config-daemon-force on the node.",
            "If a program keeps changing it, take the file out of the MachineConfig, or let the pool heal drift with the \
             annotation machineconfiguration.openshift.io/drift-policy: heal.",
        ],
        signs: &[
            "unexpected on-disk state",
            "content mismatch for file",
            "mode mismatch for file",
            "owner mismatch for file",
            "target mismatch for link",
            "could not stat file",
            "invalid unit masked setting",
            "is not the configured one",
            "state validation:",
        ],
    },
    Advice {
        title: "The config is not there",
        meaning: "The rendered config that the node shall have does not exist in the cluster, and the node has no copy.",
        steps: &[
            "If its MachineConfigs are unchanged, the controller renders the same config under the same name again.",
            "Otherwise change any MachineConfig of the pool, so that a new target is rendered; failed nodes follow it at once.",
        ],
        signs: &[
            "machineconfig.machineconfiguration.openshift.io",
            "MachineConfig not found",
        ],
    },
    Advice {
        title: "The machine was installed with another config",
        meaning: "The config that the machine got at its first boot is not the one that the cluster renders for its pool.",
        steps: &[
            "Compare the MachineConfigs that the installer had with those in the cluster; the node keeps the difference in \
             /etc/machine-config-daemon/bootstrapconfigdiff.",
            "Create what is missing in the cluster, or install the machine anew.",
        ],
        signs: &["bootstrap generated MC"],
    },
    Advice {
        title: "A service could not be reloaded or restarted",
        meaning: "The files are in place, but a service that has to notice them did not do so.",
        steps: &[
            "Look at the service on the node with systemctl status and journalctl -u.",
            "Correct a mistake in its configuration in the MachineConfig; the node tries again by itself.",
        ],
        signs: &[" after reload ", " after restart ", "systemctl"],
    },
    Advice {
        title: "A user does not exist on the machine",
        meaning: "The new config sets SSH keys or a password of a user that the machine does not have. Nothing was changed.",
        steps: &[
            "Create the user on the node, for example with useradd --create-home core; the daemon tries again by itself.",
            "Or take the user out of passwd.users of the MachineConfig.",
        ],
        signs: &["this machine has no such user"],
    },
    Advice {
        title: "The machine came back different",
        meaning: "The machine has booted, but something is not what its new config says.",
        steps: &[
            "The message names the file or the part of the system. Look for what writes it at boot, and take it out of either \
             that program or the MachineConfig.",
        ],
        signs: &["the machine has booted, but"],
    },
    Advice {
        title: "The operating system could not be changed",
        meaning: "The machine's image, kernel or extensions could not be put in place, or were lost at the last boot.",
        steps: &[
            "On the node, rpm-ostree status or bootc status and the journal of the previous boot (journalctl -b -1) say why.",
            "On a machine without an image backend, take osImageURL, kernelType and extensions out of the MachineConfigs.",
        ],
        signs: &[
            "cannot be changed on this machine",
            "staged deployment is missing",
            "rpm-ostree",
            "bootc",
        ],
    },
    Advice {
        title: "The disk is full",
        meaning: "Nothing could be written. Nothing was half-written either: the old config is still in place.",
        steps: &["Free some space on the node; the daemon tries again by itself."],
        signs: &["No space left", "disk full", "ENOSPC"],
    },
    Advice {
        title: "A change could not be taken back",
        meaning: "A change failed half-way, and so did undoing it: the disk may be failing, or a tool that changes the \
                  operating system.",
        steps: &[
            "Check the disk (df, dmesg) and the tool that the message names. The daemon undoes the rest by itself as soon as \
             it can, and reports Done only then.",
        ],
        signs: &["error rolling back", "the journal of the last change"],
    },
    Advice {
        title: "The disruption policies are not ready",
        meaning: "The operator has not yet looked at the MachineConfiguration, so it is not known what a change costs.",
        steps: &[
            "Check that the operator runs; the node goes on as soon as MachineConfiguration cluster has a status.",
        ],
        signs: &["NodeDisruptionPolicyStatus was not ready"],
    },
    Advice {
        title: "Certificates could not be written",
        meaning: "The node could not put the cluster's certificates onto its disk.",
        steps: &["The message says which file. Check for a full or read-only disk; the daemon keeps trying."],
        signs: &["could not sync certificates"],
    },
    Advice {
        title: "A pool cannot be rendered",
        meaning: "The pool's MachineConfigs do not make a valid config together. Its machines stay as they are.",
        steps: &[
            "The message names the MachineConfig and the place in it. Try your correction with mco plan -f FILE before you \
             apply it.",
            "Or go back to what the pool had with mco rollout undo.",
        ],
        signs: &["Failed to render configuration for pool"],
    },
    Advice {
        title: "An operating system image could not be built",
        meaning: "The pool has a MachineOSConfig, and the build of its image failed.",
        steps: &["Look at the MachineOSBuild and its pod's log, and correct or delete the MachineOSConfig."],
        signs: &["Custom OS image build failed"],
    },
    Advice {
        title: "The cluster does not answer the node",
        meaning: "The daemon could not read or write its objects for half a minute.",
        steps: &[
            "Check the network between the node and the API server, and the node's credentials. The daemon goes on by itself.",
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
    title: "Something else",
    meaning: "The daemon could not bring the machine to its config and keeps trying; the machine still has its old config.",
    steps: &[
        "Read the message; it names the object or path that is wrong.",
        "Correct the MachineConfig it names: a node that failed on a bad config follows a new one at once.",
        "The daemon's log says more: that of the node's machine-config-daemon pod in openshift-machine-config-operator, or \
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
                "A machine is not what its config says",
            ),
            (
                "content mismatch for file \"/etc/chrony.conf\"",
                "A machine is not what its config says",
            ),
            (
                "can't reconcile config a with b: configs a, b are not reconcilable: disks changed",
                "The new config cannot be applied to running machines",
            ),
            (
                "failed to drain node: worker-1 after 1 hour. Please see machine-config-controller logs",
                "A drain takes too long",
            ),
            (
                "machineconfig.machineconfiguration.openshift.io \"rendered-worker-1\" not found",
                "The config is not there",
            ),
            (
                "the machine has booted, but kernel arguments differ",
                "The machine came back different",
            ),
            (
                "cannot set SSH keys or the password of user \"core\": this machine has no such user. Create it",
                "A user does not exist on the machine",
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
