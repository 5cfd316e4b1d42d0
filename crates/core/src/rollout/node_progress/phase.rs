//! The phases of an update, in order, and the condition messages of each.

use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::reasons::machine_config_node as reason;

/// A phase of a node's update, in order of occurrence. Not every update has every phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdatePhase {
    /// An update was requested.
    NeedsUpdate,
    /// The update is possible, and these are its actions.
    Prepared {
        post_actions: Vec<String>,
        drain_required: bool,
    },
    /// The update is not possible.
    Incompatible {
        error: String,
    },
    Cordoned,
    Draining,
    /// The drain is blocked.
    DrainBlocked {
        waits_for: String,
    },
    Drained,
    DrainNotRequired,
    /// Files and operating system are being written.
    Applying(Applied),
    /// They are written.
    Applied(Applied),
    /// The changes take effect after a reboot.
    RebootPending,
    /// All required reloads and restarts are done; the list may be empty.
    PostActionsDone {
        actions: Vec<String>,
    },
    /// No step failed.
    Succeeded,
    /// A step failed; the daemon retries.
    Failed {
        error: String,
    },
    /// The node has rebooted.
    Rebooted,
    /// The daemon is running again.
    Resumed,
    Uncordoned,
    /// The config is verified.
    Updated,
}

/// What an update changes in addition to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Files,
    FilesAndOs,
}

/// The message of a phase: a condition and optionally one of its sub-conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub parent: ConditionPart,
    pub child: Option<ConditionPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConditionPart {
    pub type_: &'static str,
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl UpdatePhase {
    /// Whether the phase starts or ends an update, so that conditions of the previous one are outdated.
    pub(super) fn starts_afresh(&self) -> bool {
        matches!(self, Self::NeedsUpdate | Self::Updated)
    }

    pub(super) fn statement(&self, node: &str) -> Statement {
        match self {
            Self::NeedsUpdate => alone(
                type_::UPDATED,
                status::FALSE,
                format!("Node {node} needs an update"),
            ),
            Self::Prepared {
                post_actions,
                drain_required,
            } => alone(
                type_::UPDATE_PREPARED,
                status::TRUE,
                format!(
                    "Update Compatible. Post Cfg Actions: [{}] Drain Required: {drain_required}",
                    post_actions.join(" ")
                ),
            ),
            Self::Incompatible { error } => alone(
                type_::UPDATE_PREPARED,
                status::UNKNOWN,
                format!("Update Failed during the Checks phase: {error}"),
            ),
            Self::Cordoned
            | Self::Draining
            | Self::DrainBlocked { .. }
            | Self::Drained
            | Self::DrainNotRequired => self.evacuation(node),
            Self::Applying(applied) => applying(status::UNKNOWN, *applied),
            Self::Applied(applied) => applying(status::TRUE, *applied),
            Self::RebootPending => alone(
                type_::REBOOTED_NODE,
                status::UNKNOWN,
                "Upgrade requires a reboot.".to_owned(),
            ),
            Self::PostActionsDone { actions } => post_actions_done(node, actions),
            Self::Succeeded => alone(
                type_::NODE_DEGRADED,
                status::FALSE,
                format!("Node {node} upgrade succeeded"),
            ),
            Self::Failed { error } => alone(
                type_::NODE_DEGRADED,
                status::TRUE,
                format!("Node {node} upgrade failure. {error}"),
            ),
            Self::Rebooted => alone(
                type_::REBOOTED_NODE,
                status::TRUE,
                format!("Node {node} has rebooted"),
            ),
            Self::Resumed => alone(
                type_::RESUMED,
                status::TRUE,
                format!("The daemon of node {node} has resumed"),
            ),
            Self::Uncordoned => with_child(
                type_::UPDATE_COMPLETE,
                status::TRUE,
                format!("Node {node} is schedulable again; the update is complete"),
                type_::UNCORDONED,
                status::TRUE,
                format!("Node {node} is uncordoned"),
            ),
            Self::Updated => alone(type_::UPDATED, status::TRUE, format!("Node {node} Updated")),
        }
    }

    fn evacuation(&self, node: &str) -> Statement {
        let (child, child_status, message) = match self {
            Self::Cordoned => (type_::CORDONED, status::TRUE, format!("Cordoned node {node}")),
            Self::Draining => (type_::DRAINED, status::UNKNOWN, format!("Draining node {node}")),
            Self::DrainBlocked { waits_for } => (
                type_::DRAINED,
                status::UNKNOWN,
                format!("Draining node {node}; the drain waits for {waits_for}"),
            ),
            Self::Drained => (type_::DRAINED, status::TRUE, format!("Node {node} is drained")),
            _ => (
                type_::DRAINED,
                status::FALSE,
                "Node Drain Not required for this update.".to_owned(),
            ),
        };
        with_child(
            type_::UPDATE_EXECUTED,
            status::UNKNOWN,
            format!("Node {node} is being prepared for the update"),
            child,
            child_status,
            message,
        )
    }
}

fn applying(status: &'static str, applied: Applied) -> Statement {
    let what = match applied {
        Applied::Files => "files",
        Applied::FilesAndOs => "files and operating system",
    };
    let (parent, child) = if status == status::TRUE {
        (
            "The update is written to disk".to_owned(),
            format!("The new {what} are written"),
        )
    } else {
        (
            "The update is being written to disk".to_owned(),
            format!("The new {what} are being written"),
        )
    };
    with_child(
        type_::UPDATE_EXECUTED,
        status,
        parent,
        type_::APPLIED_FILES_AND_OS,
        status,
        child,
    )
}

fn post_actions_done(node: &str, actions: &[String]) -> Statement {
    let (reason, message) = match actions {
        [] => (reason::NONE, "Changes do not require a reboot".to_owned()),
        actions => (
            type_::UPDATE_POST_ACTION_COMPLETE,
            format!("Node {node} has completed: {}", actions.join(", ")),
        ),
    };
    let mut statement = alone(type_::UPDATE_POST_ACTION_COMPLETE, status::TRUE, message);
    reason.clone_into(&mut statement.parent.reason);
    statement
}

fn alone(type_: &'static str, status: &'static str, message: String) -> Statement {
    Statement {
        parent: ConditionPart {
            type_,
            status,
            reason: type_.to_owned(),
            message,
        },
        child: None,
    }
}

fn with_child(
    type_: &'static str,
    status: &'static str,
    message: String,
    child: &'static str,
    child_status: &'static str,
    child_message: String,
) -> Statement {
    Statement {
        parent: ConditionPart {
            type_,
            status,
            reason: child.to_owned(),
            message,
        },
        child: Some(ConditionPart {
            type_: child,
            status: child_status,
            reason: reason::child(type_, child),
            message: child_message,
        }),
    }
}
