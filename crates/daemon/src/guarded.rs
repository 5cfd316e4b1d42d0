//! Guarded paths on an adopted machine: which steps of a plan the config's sources have to allow.

use std::collections::{BTreeMap, BTreeSet};

use mco_core::config::guarded::{
    self, Allowance, GuardedPath, IS_API_NETWORK, IS_CREDENTIAL, STARTS_KUBELET,
};
use mco_host::systemd::MASK;
use mco_host::{FileKind, FsError, Machine, Root, RootedPath};

use crate::apply::ApplyRequest;
use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::plan::{ApplyPlan, PlanAction, PlanError, backups};
use crate::target;

const LARGEST: u64 = 4 << 20;
const ROUTES: &str = "/proc/net/route";

/// Returns the steps that change a guarded path without an allowance. Restoring an original is always allowed.
pub fn refused(
    machine: &Machine,
    plan: &ApplyPlan<'_>,
    request: &ApplyRequest<'_>,
) -> Result<Vec<GuardedPath>, PlanError> {
    if request.custody.is_installed() {
        return Ok(Vec::new());
    }
    let annotations = request.new.object.metadata.annotations.as_ref();
    let allowance = Allowance::of(annotations);
    let mut found = changed(machine, plan, request)?;
    found.retain(|guarded| !allowance.allows(&guarded.path));
    Ok(found)
}

/// Returns the guarded paths among the steps of a plan, allowed or not.
pub fn changed(
    machine: &Machine,
    plan: &ApplyPlan<'_>,
    request: &ApplyRequest<'_>,
) -> Result<Vec<GuardedPath>, PlanError> {
    let by_config: BTreeMap<String, &'static str> = guarded::of_config(&request.new.ignition)
        .into_iter()
        .map(|guarded| (guarded.path, guarded.why))
        .collect();
    let named = paths_of(request.new)?;
    // Nothing proves that a file is of a config that was only declared.
    let ours = match request.custody {
        Custody::Declared => BTreeSet::new(),
        Custody::Installed | Custody::Adopted => paths_of(request.old)?,
    };
    let mut found = Vec::new();
    for step in &plan.steps {
        let mut path = step.path.to_string();
        let why = if let Some(why) = by_config.get(&path) {
            Some(*why)
        } else if named.contains(&step.path) {
            let found = by_contents(&machine.root, &step.path, &step.action)?;
            match found {
                None if replaces_start(&machine.root, &step.path, &step.action, &ours)? => {
                    Some(STARTS_KUBELET)
                }
                found => found,
            }
        } else if stops(request, &step.path, &step.action) {
            path = format!("{}/{}", mco_host::systemd::UNIT_DIRECTORY, step.path.name());
            Some(STARTS_KUBELET)
        } else {
            None
        };
        found.extend(why.map(|why| GuardedPath { path, why }));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn paths_of(config: &NodeConfig) -> Result<BTreeSet<RootedPath>, PlanError> {
    let paths = target::managed_paths(config)?;
    Ok(paths.into_iter().map(|(path, _)| path).collect())
}

/// Returns whether a step takes away what starts the kubelet or the container runtime: the file at its path, or one of
/// the same name that systemd does not read any more. At a path of ours, the original counts.
fn replaces_start(
    root: &Root,
    path: &RootedPath,
    action: &PlanAction<'_>,
    ours: &BTreeSet<RootedPath>,
) -> Result<bool, PlanError> {
    let [original, _] = backups(path)?;
    let before = if ours.contains(path) { &original } else { path };
    if guarded::is_environment_file(path.as_str()) {
        return Ok(text_is(root, before, guarded::names_credentials)?);
    }
    if guarded::guarded_unit_path(path.as_str()).is_none() {
        return Ok(false);
    }
    match action {
        // What is masked may be unmasked.
        PlanAction::Remove => {
            Ok(root.entry(before)?.is_some() && root.read_link(before)?.as_deref() != Some(MASK))
        }
        PlanAction::Write { .. } | PlanAction::Copy { .. } | PlanAction::Link { .. } => {
            if text_is(root, before, guarded::sets_start)? {
                return Ok(true);
            }
            for hidden in guarded::replaced_by(path.as_str()) {
                let hidden = RootedPath::new(&hidden).map_err(FsError::from)?;
                if text_is(root, &hidden, guarded::sets_start)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        PlanAction::CreateDirectory { .. }
        | PlanAction::RemoveDirectory
        | PlanAction::ChangeAttributes { .. }
        | PlanAction::SetPassword { .. } => Ok(false),
    }
}

/// Returns whether a file has such a text. What cannot be read as text is not trusted.
fn text_is(root: &Root, path: &RootedPath, is: impl Fn(&str) -> bool) -> Result<bool, FsError> {
    let Some(entry) = root.entry(path)? else {
        return Ok(false);
    };
    match entry.kind {
        FileKind::Directory => Ok(false),
        FileKind::Symlink => Ok(root.read_link(path)?.as_deref() != Some(MASK)),
        FileKind::File if entry.size <= LARGEST => {
            let bytes = root.read(path, LARGEST)?.unwrap_or_default();
            Ok(String::from_utf8(bytes).map_or(true, |text| is(&text)))
        }
        FileKind::File | FileKind::Special => Ok(true),
    }
}

/// Returns whether a step disables the kubelet or the container runtime.
fn stops(request: &ApplyRequest<'_>, path: &RootedPath, action: &PlanAction<'_>) -> bool {
    matches!(action, PlanAction::Remove)
        && path.is_within(mco_host::systemd::UNIT_DIRECTORY)
        && guarded::is_guarded_unit(path.name())
        && request
            .new
            .ignition
            .systemd
            .units
            .iter()
            .any(|unit| unit.name == path.name() && unit.enabled == Some(false))
}

/// Returns why a path is guarded by what it holds now or would hold.
fn by_contents(
    root: &Root,
    path: &RootedPath,
    action: &PlanAction<'_>,
) -> Result<Option<&'static str>, PlanError> {
    let before = match root.entry(path)? {
        Some(entry) if entry.kind == FileKind::File && entry.size <= LARGEST => root.read(path, LARGEST)?,
        _ => None,
    };
    if before.as_deref().is_some_and(guarded::is_credential) {
        return Ok(Some(IS_CREDENTIAL));
    }
    if !guarded::is_network(path.as_str()) {
        return Ok(None);
    }
    let exists = root.entry(path)?.is_some();
    let after = match action {
        PlanAction::Write { contents, .. } => contents.bytes(path)?,
        _ => Vec::new(),
    };
    let text = String::from_utf8_lossy(&after);
    let names_route = match route_interface(root)? {
        Some(interface) => is_word_of(&interface, &text),
        None => false,
    };
    Ok((exists || names_route).then_some(IS_API_NETWORK))
}

/// Returns the interface of the default route, through which most nodes reach the API server.
fn route_interface(root: &Root) -> Result<Option<String>, FsError> {
    let text = root.read_text(&RootedPath::new(ROUTES)?, 1 << 20)?;
    let is_default = |line: &&str| line.split_whitespace().nth(1) == Some("00000000");
    let line = text.as_deref().and_then(|text| text.lines().find(is_default));
    Ok(line
        .and_then(|line| line.split_whitespace().next())
        .map(str::to_owned))
}

fn is_word_of(word: &str, text: &str) -> bool {
    text.split(|character: char| !character.is_ascii_alphanumeric() && !"-_.@".contains(character))
        .any(|found| found == word)
}
