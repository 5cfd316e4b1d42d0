//! The phases of an update, in order, and the condition messages of each.

use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::reasons::machine_config_node as reason;

use crate::rollout::image_mode_status::ImageModeStatus;

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
    /// The images of the operating system and of its extensions are being pulled.
    PullingImage,
    ImagePulled,
    ImagePullFailed {
        error: String,
    },
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

/// The message of a phase: a condition and its sub-conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub parent: ConditionPart,
    pub children: Vec<ConditionPart>,
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

    /// Whether the phase is reported only with the feature gate `ImageModeStatusReporting`.
    pub(super) fn is_about_image(&self) -> bool {
        matches!(
            self,
            Self::PullingImage | Self::ImagePulled | Self::ImagePullFailed { .. }
        )
    }

    pub(super) fn statement(&self, node: &str, mode: ImageModeStatus) -> Statement {
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
            Self::PullingImage => pulling(status::UNKNOWN, format!("Node {node} is pulling the image")),
            Self::ImagePulled => pulling(status::TRUE, format!("Node {node} has pulled the image")),
            Self::ImagePullFailed { error } => pulling(
                status::FALSE,
                format!("Node {node} could not pull the image: {error}"),
            ),
            Self::Applying(applied) => applying(status::UNKNOWN, *applied, mode),
            Self::Applied(applied) => applying(status::TRUE, *applied, mode),
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

fn pulling(status: &'static str, message: String) -> Statement {
    alone(type_::IMAGE_PULLED_FROM_REGISTRY, status, message)
}

fn applying(status: &'static str, applied: Applied, mode: ImageModeStatus) -> Statement {
    let children = match (mode, applied) {
        (ImageModeStatus::Off, Applied::Files) => vec![(type_::APPLIED_FILES_AND_OS, "files")],
        (ImageModeStatus::Off, Applied::FilesAndOs) => {
            vec![(type_::APPLIED_FILES_AND_OS, "files and operating system")]
        }
        (ImageModeStatus::On, Applied::Files) => vec![(type_::APPLIED_FILES, "files")],
        (ImageModeStatus::On, Applied::FilesAndOs) => vec![
            (type_::APPLIED_FILES, "files"),
            (type_::APPLIED_OS_IMAGE, "operating system"),
        ],
    };
    let is_done = status == status::TRUE;
    let verb = if is_done { "are" } else { "are being" };
    let parts = children.iter().map(|(type_, what)| {
        let verb = if *what == "operating system" {
            verb.replacen("are", "is", 1)
        } else {
            verb.to_owned()
        };
        ConditionPart {
            type_,
            status,
            reason: reason::child(type_::UPDATE_EXECUTED, type_),
            message: format!("The new {what} {verb} written"),
        }
    });
    let message = if is_done {
        "The update is written to disk"
    } else {
        "The update is being written to disk"
    };
    let mut statement = alone(type_::UPDATE_EXECUTED, status, message.to_owned());
    statement.children = parts.collect();
    if let Some((last, _)) = children.last() {
        (*last).clone_into(&mut statement.parent.reason);
    }
    statement
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
        children: Vec::new(),
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
        children: vec![ConditionPart {
            type_: child,
            status: child_status,
            reason: reason::child(type_, child),
            message: child_message,
        }],
    }
}
