//! Progress notes that blocking work sends to the event loop: progress phases and events.

use mco_api::vocabulary::events::daemon as event;
use mco_core::rollout::hooks::HookResult;
use mco_core::rollout::node_progress::UpdatePhase;
use mco_host::os::OsChange;

use crate::config::NodeConfig;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Note {
    Phase(UpdatePhase),
    Event { reason: &'static str, message: String },
    Hooks(Vec<HookResult>),
}

impl From<UpdatePhase> for Note {
    fn from(phase: UpdatePhase) -> Self {
        Self::Phase(phase)
    }
}

fn event(reason: &'static str, message: impl Into<String>) -> Note {
    Note::Event {
        reason,
        message: message.into(),
    }
}

/// From here on a shutdown waits until the transaction is complete or rolled back.
pub(super) fn protected() -> Note {
    event(event::ADD_SIGTERM_PROTECTION, "Adding SIGTERM protection")
}

pub(super) fn unprotected() -> Note {
    event(event::REMOVE_SIGTERM_PROTECTION, "Removing SIGTERM protection")
}

/// Returns the notes to send before the operating system is changed.
pub(super) fn os_update_started(change: &OsChange, new: &NodeConfig) -> Vec<Note> {
    let packages = !change.install_packages.is_empty() || !change.uninstall_packages.is_empty();
    let arguments = !change.append_kernel_arguments.is_empty() || !change.delete_kernel_arguments.is_empty();
    let reasons: Vec<&str> = [
        (change.image.is_some(), "Upgrading OS"),
        (packages, "Installing extensions"),
        (change.kernel.is_some(), "Changing kernel type"),
        (arguments, "Changing kernel arguments"),
    ]
    .into_iter()
    .filter_map(|(changes, what)| changes.then_some(what))
    .collect();
    let mut notes = Vec::new();
    if change.image.is_some() || packages || change.kernel.is_some() {
        let text = format!("Updating from oscontainer {}", new.os_image());
        notes.push(event(event::IN_CLUSTER_UPGRADE, text));
    }
    notes.push(event(event::OS_UPDATE_STARTED, reasons.join("; ")));
    notes
}

/// Returns the note about an OS that is staged while the node still runs its workloads.
pub(super) fn os_staged_ahead(new: &NodeConfig) -> Note {
    let text = format!("Changes to OS staged for config {} before the drain", new.name());
    event(event::OS_STAGED_AHEAD, text)
}

/// Returns the notes to send once the OS change is staged for the next boot.
pub(super) fn os_update_staged(change: &OsChange, old: &NodeConfig, new: &NodeConfig) -> [Note; 2] {
    let image = new.os_image();
    let outcome = if change.image.is_some() {
        let text = format!(
            "OS upgrade applied; new MachineConfig ({}) has new OS image ({image})",
            new.name()
        );
        event(event::OS_UPGRADE_APPLIED, text)
    } else {
        let text = format!(
            "OS upgrade skipped; new MachineConfig ({}) has same OS image ({image}) as old MachineConfig ({})",
            new.name(),
            old.name()
        );
        event(event::OS_UPGRADE_SKIPPED, text)
    };
    [outcome, event(event::OS_UPDATE_STAGED, "Changes to OS staged")]
}
