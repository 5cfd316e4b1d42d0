//! Power failures: the operations of a change are recorded, and every state that a power failure may leave on a
//! journaling filesystem is built and recovered. Each must be the old or the new config, complete, with modes, owners
//! and enablement; once a result was reported, it must be that one.
//!
//! The default is a sample that fits into every CI run; `MCO_POWER=all` examines all states of all changes of up to
//! three elements (`make proof`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod changes;
mod disk;
mod run;
mod states;
#[path = "../support/mod.rs"]
mod support;
mod trace;

use std::collections::{BTreeMap, BTreeSet};

use changes::{ELEMENTS, Element};
use run::{Change, Effort, Ending, Tally};
use trace::Filesystems;

fn is_thorough() -> bool {
    std::env::var("MCO_POWER").is_ok_and(|value| value == "all")
}

fn effort(states: usize, thorough: usize) -> Effort {
    Effort {
        states: if is_thorough() { thorough } else { states },
        complete: if is_thorough() { 8 } else { 16 },
        again: if is_thorough() { 64 } else { 128 },
        seed: 1,
    }
}

fn examine_all(what: &str, changes: impl IntoIterator<Item = Change>, effort: Effort) {
    let mut total = Tally::default();
    let (mut count, mut operations) = (0, 0);
    let mut failures = Vec::new();
    for change in changes {
        count += 1;
        operations += change.operations;
        match change.examine(None, effort) {
            Ok(tally) => total.add(tally),
            Err(failure) => failures.push(failure),
        }
    }
    eprintln!(
        "{what}: {count} changes, {operations} recorded operations, {} states ({:?}), {} of {} moments sampled, {} states \
         of a second power failure while recovering",
        total.states, total.outcomes, total.sampled_windows, total.windows, total.cuts_while_recovering
    );
    assert!(
        failures.is_empty(),
        "{} of {count} changes:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

fn recorded(elements: &[Element], ending: Ending) -> Change {
    let (old, new) = changes::configs(elements);
    Change::record(&format!("{elements:?}"), Some(&old), &new, ending)
}

#[test]
fn every_state_of_a_change_of_one_element_is_old_or_new() {
    let changes = ELEMENTS.map(|element| recorded(&[element], Ending::Applied));
    examine_all("one element", changes, effort(32, 1 << 17));
}

#[test]
fn every_state_of_the_first_config_of_a_machine_is_old_or_new() {
    let changes = ELEMENTS.map(|element| {
        let (_, new) = changes::configs(&[element]);
        Change::record(&format!("first config, {element:?}"), None, &new, Ending::Applied)
    });
    examine_all("first config", changes, effort(6, 1 << 15));
}

#[test]
fn every_state_of_a_rollback_is_old() {
    let changes = [
        Element::ReplacedFile,
        Element::NewFileInNewDirectories,
        Element::RemovedFile,
        Element::DirectoryAttributes,
        Element::EnabledUnit,
    ];
    let changes = changes.into_iter().flat_map(|element| {
        [
            recorded(&[element], Ending::RolledBackAt("sync directory")),
            recorded(&[element], Ending::RolledBackAt("journal swapped")),
            recorded(&[element], Ending::RolledBackOnFullDisk),
        ]
    });
    examine_all("rollback", changes, effort(6, 1 << 15));
}

#[test]
fn every_state_of_a_change_of_two_or_three_elements_is_old_or_new() {
    let mut combinations = Vec::new();
    for (index, first) in ELEMENTS.iter().enumerate() {
        for (offset, second) in ELEMENTS[index + 1..].iter().enumerate() {
            combinations.push(vec![*first, *second]);
            for third in &ELEMENTS[index + offset + 2..] {
                combinations.push(vec![*first, *second, *third]);
            }
        }
    }
    // The sample of a CI run: every so many.
    let every = if is_thorough() { 1 } else { 60 };
    let chosen = combinations.iter().step_by(every);
    let changes = chosen.map(|elements| recorded(elements, Ending::Applied));
    examine_all("two or three elements", changes, effort(8, 1 << 12));
}

#[test]
fn sampled_states_of_a_change_of_200_files_are_old_or_new() {
    let (old, new) = changes::large();
    let change = Change::record("200 files", Some(&old), &new, Ending::Applied);
    examine_all("200 files", [change], effort(1, 150));
}

fn recorded_on(filesystems: Filesystems, element: Element, ending: Ending) -> Change {
    let (old, new) = changes::configs(&[element]);
    let name = format!("{element:?}");
    Change::record_on(&name, Some(&old), &new, ending, filesystems, &|_| {})
}

/// The elements with old contents that are kept.
const REPLACING: [Element; 5] = [
    Element::ReplacedFile,
    Element::RemovedFile,
    Element::RestoredOriginal,
    Element::DisabledUnit,
    Element::Link,
];

/// What these filesystems change: old contents are copied, and brought back as copies.
fn kept_as_copies(filesystems: Filesystems) -> impl Iterator<Item = Change> {
    REPLACING.into_iter().flat_map(move |element| {
        [
            Ending::Applied,
            Ending::RolledBackAt("sync directory of old contents"),
            Ending::RolledBackAt("journal swapped"),
            Ending::RolledBackOnFullDisk,
        ]
        .map(|ending| recorded_on(filesystems, element, ending))
    })
}

#[test]
fn every_state_of_a_change_with_old_contents_on_another_filesystem_is_old_or_new() {
    let changes = kept_as_copies(Filesystems::StateApart);
    examine_all("two filesystems", changes, effort(16, 1 << 15));
}

#[test]
fn every_state_of_a_change_on_a_filesystem_without_hard_links_is_old_or_new() {
    let changes = kept_as_copies(Filesystems::WithoutLinks);
    examine_all("without hard links", changes, effort(6, 1 << 15));
}

/// Places that sync something without which no state is lost, with the reason why they stay.
const REDUNDANT: [(&str, &str); 7] = [
    (
        "create directory of old contents: the directory of old contents",
        "its names are synced at the end of staging, and nothing reads them before; it belongs to a helper that others use",
    ),
    (
        "create directory of old contents: the state directory",
        "the state directory is synced again at the end of staging",
    ),
    (
        "journal awaiting boot: the state directory",
        "the journal before it says swapped, from which the recovery reaches this phase again",
    ),
    (
        "journal swapped: the state directory",
        "the journal before it says prepared, from which the recovery swaps again",
    ),
    (
        "journal undoing in advance: the state directory",
        "the journal that says prepared is synced next, in the same directory",
    ),
    (
        "remove journal: the state directory",
        "a journal that comes back is completed again, without an effect",
    ),
    (
        "set password: a directory",
        "all directories of a change are synced at the end of the swap",
    ),
];

fn first(elements: &[Element]) -> Change {
    let (_, new) = changes::configs(elements);
    Change::record(
        &format!("first config, {elements:?}"),
        None,
        &new,
        Ending::Applied,
    )
}

#[test]
fn leaving_out_any_one_sync_is_found() {
    use Element::{
        DirectoryAttributes, DisabledUnit, EnabledUnit, KernelArguments, Link, NewFileInNewDirectories,
        Password, RemovedFile, ReplacedFile, ReplacedOriginal, RestoredOriginal, SshKeys,
    };
    let changes = [
        recorded(&[ReplacedFile, DirectoryAttributes], Ending::Applied),
        recorded(&[NewFileInNewDirectories], Ending::Applied),
        first(&[NewFileInNewDirectories]),
        first(&[DirectoryAttributes, EnabledUnit]),
        recorded(&[Password], Ending::Applied),
        recorded(&[KernelArguments], Ending::Applied),
        recorded(
            &[ReplacedFile, DirectoryAttributes],
            Ending::RolledBackAt("journal swapped"),
        ),
        recorded(&[NewFileInNewDirectories], Ending::RolledBackOnFullDisk),
        adopted(),
        recorded(&[ReplacedOriginal], Ending::Applied),
        recorded(&[RestoredOriginal], Ending::Applied),
        recorded(&[RemovedFile], Ending::Applied),
        recorded(&[SshKeys], Ending::Applied),
        recorded(&[Link], Ending::Applied),
        recorded(&[DisabledUnit], Ending::Applied),
        recorded_on(
            Filesystems::StateApart,
            ReplacedFile,
            Ending::RolledBackAt("journal swapped"),
        ),
    ];
    let effort = Effort {
        states: if is_thorough() { 4000 } else { 60 },
        complete: 0,
        again: 0,
        seed: 1,
    };
    let known: BTreeMap<&str, &str> = REDUNDANT.into_iter().collect();
    let (mut sites, mut found) = (BTreeSet::new(), BTreeMap::new());
    for change in &changes {
        for (index, site) in change.trace.syncs().into_iter().enumerate() {
            // All states of the places that are known not to matter take long.
            let is_due = is_thorough() || !known.contains_key(site.as_str());
            if is_due && !found.contains_key(&site) && change.examine(Some(index), effort).is_err() {
                found.insert(site.clone(), change.name.clone());
            }
            sites.insert(site);
        }
    }
    eprintln!(
        "{} of {} places that sync are found when they are left out:",
        found.len(),
        sites.len()
    );
    for (site, change) in &found {
        eprintln!("  {site} (by {change})");
    }
    let unexpected: Vec<&String> = sites
        .iter()
        .filter(|site| !found.contains_key(*site) && !known.contains_key(site.as_str()))
        .collect();
    assert!(unexpected.is_empty(), "not found:\n{unexpected:#?}");
    for (site, reason) in known {
        assert!(!found.contains_key(site), "{site} is needed, although {reason}");
    }
}

#[test]
fn an_adopted_machine_that_leaves_directories_is_old_or_new() {
    examine_all("adopted", [adopted()], effort(30, 1 << 15));
}

/// A change that removes the directories which an earlier config has created on an adopted machine.
fn adopted() -> Change {
    let (with, without) = (
        changes::configs(&[Element::NewFileInNewDirectories]).1,
        changes::configs(&[Element::ReplacedFile]).1,
    );
    let adopt = |path: &std::path::Path| {
        let state = path.join("etc/machine-config-daemon");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(state.join("adoption.json"), "{}").unwrap();
    };
    let old = support::config("old", &with_body(&with));
    Change::record_on(
        "adopted",
        Some(&old),
        &without,
        Ending::Applied,
        Filesystems::One,
        &adopt,
    )
}

fn with_body(config: &mco_daemon::config::NodeConfig) -> serde_json::Value {
    let spec = serde_json::to_value(&config.object.spec).unwrap();
    let mut body = spec["config"].clone();
    body.as_object_mut().unwrap().remove("ignition");
    body
}
