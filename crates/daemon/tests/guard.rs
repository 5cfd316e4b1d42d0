//! A revert that is interrupted at any step is completed by the next guard, and there is never a second one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mco_core::config::disruption::DisruptionPolicy;
use mco_core::config::reconcilable::Overrides;
use mco_daemon::apply::{self, ApplyRequest, ApplyResult, Circumstances};
use mco_daemon::boot_proof;
use mco_daemon::custody::Custody;
use mco_daemon::guard::{self, GuardEnd, GuardTiming, RequiredHealth};
use mco_daemon::once;
use mco_daemon::paths;
use mco_daemon::transaction::{Checkpoints, Uninterrupted, read_journal};
use serde_json::json;
use support::{Node, Snapshot, config_with, file, files};

/// Fails at every checkpoint from this one on, as if the process had been killed.
struct KilledAt(Cell<usize>);

impl Checkpoints for KilledAt {
    fn at(&self, _: &'static str) -> io::Result<()> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(io::Error::other("killed")),
        }
    }
}

/// The machine without what says that a config was reverted, and without simulated boots.
fn state(node: &Node) -> Snapshot {
    let mut found = node.snapshot();
    for path in [
        paths::ROLLED_BACK,
        "/run/machine-config-daemon/simulated-boot-id",
        "/run/machine-config-daemon/lock",
        "/var/lib/mco-simulated-os.json",
    ] {
        found.remove(path);
    }
    found
}

/// A node that has booted into a config that is not confirmed, and its state before.
fn unconfirmed() -> (Node, Snapshot) {
    let node = Node::new();
    let both = [file("/etc/a", "1\n"), file("/etc/b", "1\n")];
    let old = config_with("old", &files(&both), &json!({}));
    node.apply(&old).unwrap();
    let before = state(&node);
    let changed = [file("/etc/a", "2\n"), file("/etc/new/c", "2\n")];
    let new = config_with("new", &files(&changed), &json!({}));
    let request = ApplyRequest {
        old: &old,
        new: &new,
        policy: &DisruptionPolicy::default(),
        overrides: Overrides::default(),
        circumstances: Circumstances::Standalone,
        reboot_owed: None,
        pending_os: None,
        custody: Custody::Installed,
    };
    // Nothing listens there.
    let required = RequiredHealth::new(
        Duration::ZERO,
        Some("http://127.0.0.1:1/healthz".to_owned()),
        None,
    );
    let prepared = apply::prepare(&node.machine, &request).unwrap();
    let steps = guard::preparation(&node.machine.root).unwrap();
    let prepared = prepared.with_steps(steps).requiring(required);
    let journal = apply::commit(&node.machine, prepared, &Uninterrupted)
        .unwrap()
        .unwrap();
    let settled = apply::settle(&node.machine, journal, &Uninterrupted).unwrap();
    assert!(matches!(settled, ApplyResult::AwaitingBoot { .. }));
    node.machine.power.reboot(&node.machine.root, "test").unwrap();
    assert_eq!(node.read("/etc/a"), "2\n");
    (node, before)
}

async fn watch(node: &Node) -> GuardEnd {
    let timing = GuardTiming {
        interval: Duration::from_millis(1),
        stable: Duration::ZERO,
    };
    let watched = guard::watch(Arc::clone(&node.machine), timing);
    let watched = tokio::time::timeout(Duration::from_mins(1), watched).await;
    watched.expect("the guard ends").unwrap()
}

#[tokio::test]
async fn a_revert_that_is_killed_at_any_step_is_completed_once() {
    let mut step = 0;
    loop {
        let (node, before) = unconfirmed();
        let machine = &node.machine;
        let journal = read_journal(&machine.root).unwrap().unwrap();
        let killed = boot_proof::give_up(machine, &journal, "first", &KilledAt(Cell::new(step)));
        if killed.is_err() {
            let ended = watch(&node).await;
            assert!(matches!(ended, GuardEnd::Reverted { .. }), "{step}: {ended:?}");
        } else {
            machine.power.reboot(&machine.root, "the revert").unwrap();
        }
        let boot = machine.power.boot_id(&machine.root).unwrap();
        assert_eq!(watch(&node).await, GuardEnd::NotNeeded, "{step}");
        assert_eq!(machine.power.boot_id(&machine.root).unwrap(), boot, "{step}");
        let due = once::settle_past(machine, &Uninterrupted).unwrap();
        assert_eq!(due, None, "{step}: one boot is enough");
        assert_eq!(state(&node), before, "{step}");
        let target = boot_proof::rolled_back(machine).unwrap().unwrap();
        assert_eq!((target.config.as_str(), target.from.as_str()), ("new", "old"));
        if killed.is_ok() {
            break;
        }
        step += 1;
    }
    assert!(step > 10, "only {step} steps");
}

#[tokio::test]
async fn a_change_without_required_health_is_never_reverted() {
    let (node, _) = unconfirmed();
    let mut journal: serde_json::Value = serde_json::from_str(&node.read(paths::JOURNAL)).unwrap();
    journal.as_object_mut().unwrap().remove("health");
    node.write(paths::JOURNAL, &journal.to_string());
    assert_eq!(watch(&node).await, GuardEnd::NotNeeded);
    assert_eq!(node.read("/etc/a"), "2\n");
    std::fs::remove_file(node.path(paths::JOURNAL)).unwrap();
    assert_eq!(watch(&node).await, GuardEnd::NotNeeded);
}
