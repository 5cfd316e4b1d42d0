//! The readable view of an update: which condition of the node's MachineConfigNode says what at which milestone.

use mco_api::vocabulary::conditions::{machine_config_node as step, status};

/// Where an update is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone<'a> {
    NothingPending,
    NeedsUpdate,
    Prepared,
    Impossible { why: &'a str },
    DrainNotNeeded,
    Executing,
    InPlace,
    ServicesTold,
    RebootNeeded,
    Rebooted,
    Resumed,
    Failed { why: &'a str },
    Succeeded,
}

/// A condition to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCondition {
    pub type_: &'static str,
    pub status: &'static str,
    /// A part of a step is named after both.
    pub reason: String,
    pub message: String,
}

/// What a milestone says about a node.
#[expect(
    clippy::too_many_lines,
    reason = "one table: each milestone and the conditions it sets"
)]
pub fn conditions(node: &str, config: &str, milestone: Milestone<'_>) -> Vec<StepCondition> {
    let own = |type_, status, message: String| StepCondition {
        type_,
        status,
        reason: str::to_owned(type_),
        message,
    };
    let part = |parent: &str, type_: &'static str, status, message: String| StepCondition {
        type_,
        status,
        reason: format!("{parent}{type_}"),
        message,
    };
    match milestone {
        Milestone::NothingPending => {
            vec![own(step::UPDATED, status::TRUE, format!("Node {node} Updated"))]
        }
        Milestone::NeedsUpdate => vec![own(
            step::UPDATED,
            status::FALSE,
            format!("Node {node} needs an update"),
        )],
        Milestone::Prepared => {
            vec![own(
                step::UPDATE_PREPARED,
                status::TRUE,
                format!("Update to {config} is possible"),
            )]
        }
        Milestone::Impossible { why } => vec![own(step::UPDATE_PREPARED, status::UNKNOWN, why.to_owned())],
        Milestone::DrainNotNeeded => vec![part(
            step::UPDATE_EXECUTED,
            step::DRAINED,
            status::FALSE,
            "Node Drain Not required for this update.".to_owned(),
        )],
        Milestone::Executing => vec![
            own(
                step::UPDATE_EXECUTED,
                status::UNKNOWN,
                format!("Applying {config}"),
            ),
            part(
                step::UPDATE_EXECUTED,
                step::APPLIED_FILES_AND_OS,
                status::UNKNOWN,
                "Applying files and new OS config to node.".to_owned(),
            ),
        ],
        Milestone::InPlace => vec![
            own(
                step::UPDATE_EXECUTED,
                status::TRUE,
                format!("{config} is in place"),
            ),
            part(
                step::UPDATE_EXECUTED,
                step::APPLIED_FILES_AND_OS,
                status::TRUE,
                "Applied files and new OS config to node.".to_owned(),
            ),
        ],
        Milestone::ServicesTold => {
            vec![own(
                step::UPDATE_POST_ACTION_COMPLETE,
                status::TRUE,
                format!("Node {node} needs no reboot"),
            )]
        }
        Milestone::RebootNeeded => {
            vec![own(
                step::REBOOTED_NODE,
                status::UNKNOWN,
                "Upgrade requires a reboot.".to_owned(),
            )]
        }
        Milestone::Rebooted => vec![own(
            step::REBOOTED_NODE,
            status::TRUE,
            format!("Node {node} has rebooted"),
        )],
        Milestone::Resumed => vec![own(
            step::RESUMED,
            status::TRUE,
            format!("In desired config {config}"),
        )],
        Milestone::Failed { why } => {
            vec![own(
                step::NODE_DEGRADED,
                status::TRUE,
                format!("Node {node} upgrade failure. {why}"),
            )]
        }
        Milestone::Succeeded => {
            vec![own(
                step::NODE_DEGRADED,
                status::FALSE,
                format!("Node {node} upgrade succeeded"),
            )]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_after_their_step() {
        let written = conditions("n1", "rendered-worker-1", Milestone::Executing);
        let reasons: Vec<&str> = written
            .iter()
            .map(|condition| condition.reason.as_str())
            .collect();
        assert_eq!(reasons, ["UpdateExecuted", "UpdateExecutedAppliedFilesAndOS"]);
        assert!(written.iter().all(|condition| condition.status == "Unknown"));
    }

    #[test]
    fn a_failure_names_the_node_and_the_reason() {
        let [condition] = &conditions("n1", "x", Milestone::Failed { why: "disk full" })[..] else {
            panic!("one condition");
        };
        assert_eq!(condition.message, "Node n1 upgrade failure. disk full");
    }
}
