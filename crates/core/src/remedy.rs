//! What a node's complaint means and what to do about it, for the person who has to.
//!
//! Reads the text that daemons report; the texts of the Go implementation are known as well.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// One sentence.
    pub meaning: &'static str,
    /// In the order to try them.
    pub steps: &'static [&'static str],
}

/// The first entry of which a text occurs in the complaint counts, so special ones come first.
const KNOWN: &[(&[&str], Remedy)] = &[
    (
        &[
            "content mismatch",
            "mode mismatch",
            "unexpected on-disk state",
            "could not stat file",
            "owner mismatch",
        ],
        Remedy {
            meaning: "Something on the machine was changed by hand, or by another program, and differs from its config.",
            steps: &[
                "Put the file back as the config says; the node notices and recovers without a reboot.",
                "Or, if the change is wanted, write it into a MachineConfig; it then reaches every node of the pool.",
                "If a program keeps changing it, take the file out of the MachineConfig, or let the pool heal drift \
                 with the annotation machineconfiguration.openshift.io/drift-policy: heal.",
            ],
        },
    ),
    (
        &["failed to drain", "budget", "evict"],
        Remedy {
            meaning: "Pods cannot leave the node, so it cannot be updated.",
            steps: &[
                "Look which pod and which PodDisruptionBudget are named, and whether the workload has enough healthy replicas.",
                "Scale the workload up, repair its unhealthy pods, or relax the budget; the drain goes on by itself.",
            ],
        },
    ),
    (
        &["failed to uncordon"],
        Remedy {
            meaning: "The node was updated but is still kept from taking work.",
            steps: &[
                "Check that the controller runs and may write Nodes.",
                "Uncordon the node by hand with kubectl uncordon if it has to take work now.",
            ],
        },
    ),
    (
        &["not reconcilable", "can't reconcile"],
        Remedy {
            meaning: "The new config changes something that a running machine cannot take, such as disks or users.",
            steps: &[
                "Take that part back out of the MachineConfig; the pool renders a new config and the node follows it.",
                "Or install the machine anew; a first boot takes every part of a config.",
            ],
        },
    ),
    (
        &["bootstrap generated MC"],
        Remedy {
            meaning: "The machine was installed with a config that the cluster does not render.",
            steps: &[
                "Compare the MachineConfigs given to the installer with those in the cluster; one of them is missing or differs.",
                "Create the missing MachineConfig in the cluster.",
            ],
        },
    ),
    (
        &["not found"],
        Remedy {
            meaning: "An object that the node needs is gone, usually a rendered config that somebody deleted.",
            steps: &[
                "If its MachineConfigs are unchanged, the controller renders the same config under the same name again.",
                "Otherwise change any MachineConfig of the pool, so that a new target is rendered.",
            ],
        },
    ),
    (
        &["NodeDisruptionPolicyStatus was not ready"],
        Remedy {
            meaning: "The operator has not looked at the disruption policies yet.",
            steps: &["Check that the operator runs; the node goes on as soon as it has."],
        },
    ),
    (
        &["could not sync certificates"],
        Remedy {
            meaning: "New certificates could not be written to the machine.",
            steps: &["Check for a full or read-only disk; the daemon keeps trying."],
        },
    ),
    (
        &["No space left", "disk full", "ENOSPC"],
        Remedy {
            meaning: "The machine's disk is full. Nothing was half-written: the old config is still in place.",
            steps: &["Free some space on the node; the daemon tries again by itself."],
        },
    ),
];

const UNKNOWN: Remedy = Remedy {
    meaning: "The daemon could not bring the machine to its config and keeps trying; the machine still has its old config.",
    steps: &[
        "Read the reason; it names the object or path that is wrong.",
        "Correct the MachineConfig it names: a node that failed on a bad config follows a new one at once.",
        "The daemon's log on the node has the details.",
    ],
};

/// What to do about a node that reports this reason.
pub fn remedy(reason: &str) -> Remedy {
    let known = KNOWN
        .iter()
        .find(|(texts, _)| texts.iter().any(|text| reason.contains(text)));
    known.map_or(UNKNOWN, |(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_understood_by_their_words() {
        let cases = [
            (
                "unexpected on-disk state validating against rendered-worker-1: content mismatch for file \"/etc/a\"",
                "changed by hand",
            ),
            (
                "failed to drain node: worker-1 after 1 hour.",
                "Pods cannot leave",
            ),
            (
                "can't reconcile config a with b: configs a, b are not reconcilable",
                "cannot take",
            ),
            (
                "machineconfig.machineconfiguration.openshift.io \"rendered-worker-1\" not found",
                "gone",
            ),
            ("nobody has ever seen this", "keeps trying"),
        ];
        for (reason, meaning) in cases {
            let found = remedy(reason);
            assert!(found.meaning.contains(meaning), "{reason}: {}", found.meaning);
            assert!(!found.steps.is_empty());
        }
    }
}
