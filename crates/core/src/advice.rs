//! What a degraded node's or pool's complaint means, and what to do about it.
//!
//! Complaints are texts that other programs know, so they are recognised by the words that never change. What is not
//! recognised gets general advice; nothing is guessed. `docs/troubleshooting.md` explains every entry.

use serde::Serialize;

/// What a complaint means, in the order: what happened, what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// A few words; the heading of its section in the guide.
    pub title: &'static str,
    pub meaning: &'static str,
    pub remedy: &'static str,
    #[serde(skip)]
    signs: &'static [&'static str],
}

/// The advice for a complaint: that of the first entry of which the complaint has a sign.
pub fn for_complaint(complaint: &str) -> &'static Advice {
    ALL.iter()
        .find(|advice| advice.signs.iter().any(|sign| complaint.contains(sign)))
        .unwrap_or(&UNKNOWN)
}

/// Every entry, for documentation.
pub fn all() -> impl Iterator<Item = &'static Advice> {
    ALL.iter().chain([&UNKNOWN])
}

/// Whether a complaint says that the machine is not what its config says.
pub fn is_drift(complaint: &str) -> bool {
    for_complaint(complaint) == &ALL[DRIFT]
}

/// The place of drift in the list.
const DRIFT: usize = 3;

/// Specific entries before general ones: a complaint may quote another.
const ALL: [Advice; 15] = [
    Advice {
        title: "The new config cannot be applied to running machines",
        meaning: "The change touches something that only an installation can set, such as disks, filesystems or FIPS.",
        remedy: "Take the change out of the MachineConfig that the message names, or install the machine anew with it.",
        signs: &["are not reconcilable", "is not reconcilable against"],
    },
    Advice {
        title: "A drain takes too long",
        meaning: "For an hour not every pod could be moved away from the node, so it could not be changed.",
        remedy: "See what the drain waits for with mco node NODE. Make room for another replica, correct the \
                 PodDisruptionBudget, or delete the pod; the drain goes on by itself.",
        signs: &["failed to drain node"],
    },
    Advice {
        title: "A node cannot be given back",
        meaning: "The node has its new config, but for ten minutes nobody uncordoned it.",
        remedy: "Check that the controller runs (kubectl get pods -n openshift-machine-config-operator); it uncordons \
                 the node as soon as it does.",
        signs: &["failed to uncordon node"],
    },
    Advice {
        title: "A machine is not what its config says",
        meaning: "Somebody or something has changed a file, a unit or a key that a MachineConfig manages. Nothing is \
                  overwritten, and the node takes no new config until it is clear which side is right.",
        remedy: "See what differs with mco drift. Put the file back as it was and the node recovers by itself; or put \
                 your change into a MachineConfig; or have the config written again by creating \
                 /run/machine-config-daemon-force on the node.",
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
        remedy: "See which config the pool wants with mco status. If somebody deleted a rendered config, it is \
                 rendered again as soon as one of its MachineConfigs changes; mco rollout history lists what is left.",
        signs: &[
            "machineconfig.machineconfiguration.openshift.io",
            "MachineConfig not found",
        ],
    },
    Advice {
        title: "The machine was installed with another config",
        meaning: "The config that the machine got at its first boot is not the one that the cluster renders for its pool.",
        remedy: "Compare both with the difference that the node keeps at \
                 /etc/machine-config-daemon/bootstrapconfigdiff, and give the cluster what the installation had, or \
                 install the machine anew.",
        signs: &["bootstrap generated MC"],
    },
    Advice {
        title: "A service could not be reloaded or restarted",
        meaning: "The files are in place, but a service that has to notice them did not do so.",
        remedy: "Look at the service on the node (systemctl status, journalctl -u). A mistake in its configuration is \
                 corrected in the MachineConfig; the node tries again by itself.",
        signs: &[" after reload ", " after restart ", "systemctl"],
    },
    Advice {
        title: "The machine came back different",
        meaning: "The machine has booted, but something is not what its new config says.",
        remedy: "The message names the file or the part of the system. Look for what writes it at boot, and take it out \
                 of either that program or the MachineConfig.",
        signs: &["the machine has booted, but"],
    },
    Advice {
        title: "The operating system could not be changed",
        meaning: "The machine's image, kernel or extensions could not be put in place, or were lost at the last boot.",
        remedy: "The message says what is missing. On the node, rpm-ostree status or bootc status and the journal of the \
                 previous boot (journalctl -b -1) say why.",
        signs: &[
            "cannot be changed on this machine",
            "staged deployment is missing",
            "rpm-ostree",
            "bootc",
        ],
    },
    Advice {
        title: "A change could not be taken back",
        meaning: "Writing failed half-way and so did putting the old files back; the disk may be full or failing.",
        remedy: "Check the disk (df, dmesg). The daemon finishes or takes back the change by itself as soon as it can \
                 write.",
        signs: &["error rolling back", "the journal of the last change"],
    },
    Advice {
        title: "The disruption policies are not ready",
        meaning: "The operator has not yet looked at the MachineConfiguration, so it is not known what a change costs.",
        remedy: "Check that the operator runs and that MachineConfiguration cluster has a status.",
        signs: &["NodeDisruptionPolicyStatus was not ready"],
    },
    Advice {
        title: "Certificates could not be written",
        meaning: "The node could not put the cluster's certificates onto its disk.",
        remedy: "The message says which file. Check the disk and the ControllerConfig's certificates.",
        signs: &["could not sync certificates"],
    },
    Advice {
        title: "A pool cannot be rendered",
        meaning: "The pool's MachineConfigs do not make a valid config together. Its machines stay as they are.",
        remedy: "The message names the MachineConfig and the place in it. Try your correction with mco plan -f FILE \
                 before you apply it.",
        signs: &["Failed to render configuration for pool"],
    },
    Advice {
        title: "An operating system image could not be built",
        meaning: "The pool has a MachineOSConfig, and the build of its image failed.",
        remedy: "Look at the MachineOSBuild and its pod's log, and correct the MachineOSConfig.",
        signs: &["Custom OS image build failed"],
    },
    Advice {
        title: "The cluster does not answer the node",
        meaning: "The daemon could not read or write its objects for half a minute.",
        remedy: "Check the network between the node and the API server, and the node's credentials. The daemon goes on \
                 by itself.",
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
    meaning: "The node's daemon could not do its work; it keeps trying.",
    remedy: "The message says what failed. The daemon's log says more: kubectl logs -n openshift-machine-config-operator \
             of the node's machine-config-daemon pod, or journalctl -u machine-config-daemon on the node.",
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
            ("disk full", "Something else"),
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
