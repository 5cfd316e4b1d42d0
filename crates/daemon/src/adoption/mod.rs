//! Adoption of a machine that existed before: what its pool's config would change, the empty starting point, and the way
//! back.

mod agents;
mod os;
mod packages;

use std::collections::{BTreeMap, BTreeSet};

use mco_api::node_adoption::{
    AdoptionCost, AdoptionDifference, AdoptionFile, AdoptionSummary, MAX_DIFFERENCES, NodeAdoptionStatus,
};
use mco_core::config::disruption::{Drain, PostConfigAction};
use mco_core::config::guarded::{Allowance, GuardedPath};
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::adoption::AdoptionFindings;
use mco_host::{Attributes, FileEntry, FileKind, FsError, Machine, Root, RootedPath};
use sha2::{Digest as _, Sha256};

use crate::apply::{self, ApplyRequest, Circumstances, ConfigApplyError};
use crate::config::NodeConfig;
use crate::custody::{AdoptionRecord, Custody, RECORD_ATTRIBUTES};
use crate::disk::{self, DiskError};
use crate::guarded as guarded_paths;
use crate::images::{self, ImagesError};
use crate::live;
use crate::paths;
use crate::plan::{self, ApplyPlan, LiveContentSource, PlanAction, PlanError};
use crate::target::{self, Wanted};

/// Files up to this size are hashed.
const LARGEST_HASHED: u64 = 64 << 20;
/// Longer messages do not fit into the object.
const LONGEST_MESSAGE: usize = 2000;

/// The result of a comparison.
#[derive(Debug)]
pub struct Comparison {
    pub status: NodeAdoptionStatus,
    pub findings: AdoptionFindings,
}

/// Compares the machine with a config, without any write.
pub fn compare(
    machine: &Machine,
    new: &NodeConfig,
    rules: &AdministratorRules,
) -> Result<Comparison, ConfigApplyError> {
    let root = &machine.root;
    let old = disk::current_config(root)
        .map_err(PlanError::from)?
        .unwrap_or_else(NodeConfig::empty);
    let custody = match Custody::of(root).map_err(PlanError::from)? {
        // Nothing was declared: the machine would start from the empty config.
        Custody::Declared => Custody::Adopted,
        known => known,
    };
    let request = ApplyRequest {
        old: &old,
        new,
        policy: &rules.policy,
        overrides: rules.overrides,
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody,
    };
    let plan = plan::plan(machine, &old, new, LiveContentSource::FromCluster, custody)?;
    let guarded = refused(machine, &plan, &request)?;
    let mut differences = differences(machine, &old, new, &plan)?;
    for difference in &mut differences.changed {
        let found = guarded.iter().find(|guarded| guarded.path == difference.path);
        difference.guarded = found.map(|guarded| guarded.why.to_owned());
    }
    packages::name(root, &mut differences.changed).map_err(PlanError::from)?;
    let (cost, os_changes, obstacle) = match apply::prepare(machine, &request) {
        Ok(prepared) => {
            let cost = cost(&prepared.cost.drain, &prepared.cost.actions);
            (cost, os::changes(&prepared.diff), None)
        }
        Err(error) => {
            let os_changes = os::changes(&apply::difference(&old, new));
            (AdoptionCost::default(), os_changes, Some(error.to_string()))
        }
    };
    let summary = &differences.summary;
    let paths = summary.create + summary.replace + summary.remove;
    let has_others = cost != AdoptionCost::default() || !os_changes.is_empty();
    let changes = paths.max(u32::from(has_others));
    let omitted = differences.changed.len().saturating_sub(MAX_DIFFERENCES);
    let agents = agents::detect(root, new).map_err(PlanError::from)?;
    differences.changed.truncate(MAX_DIFFERENCES);
    let status = NodeAdoptionStatus {
        phase: "Compared".to_owned(),
        config: new.name().to_owned(),
        summary: differences.summary,
        os_changes,
        cost,
        differences: differences.changed,
        omitted: u32::try_from(omitted).unwrap_or(u32::MAX),
        agents,
        ..NodeAdoptionStatus::default()
    };
    Ok(Comparison {
        status,
        findings: AdoptionFindings {
            changes: changes as usize,
            is_empty: apply::difference(&NodeConfig::empty(), new).is_empty(),
            obstacle: obstacle.map(|text| shortened(&text)),
        },
    })
}

pub fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_MESSAGE).collect()
}

/// Records the empty starting point: from here on the machine is managed, and everything it has is kept.
pub fn adopt(machine: &Machine) -> Result<(), DiskError> {
    let root = &machine.root;
    let path = |path: &str| RootedPath::new(path).map_err(FsError::from);
    root.create_directories(&path(paths::STATE_DIRECTORY)?, Attributes::root(0o755))?;
    if AdoptionRecord::read(root)?.is_none() {
        let record = AdoptionRecord::default().to_bytes();
        root.write_atomically(&path(paths::ADOPTION)?, RECORD_ATTRIBUTES, &record)?;
    }
    // Last, because it is what makes the machine managed.
    let empty = serde_json::to_vec(&*NodeConfig::empty().object).unwrap_or_default();
    root.write_atomically(&path(paths::CURRENT_CONFIG)?, RECORD_ATTRIBUTES, &empty)?;
    root.remove_file(&path(paths::RELEASED)?)?;
    Ok(())
}

/// Whether the machine was released, and is not adopted again by itself.
pub fn is_released(root: &Root) -> Result<bool, DiskError> {
    Ok(root.exists(&RootedPath::new(paths::RELEASED).map_err(FsError::from)?)?)
}

/// Removes what is left of the daemon's state on a machine whose originals are restored. Repeated after an interruption.
pub fn forget(machine: &Machine) -> Result<(), ImagesError> {
    let root = &machine.root;
    let path = |path: &str| RootedPath::new(path).map_err(FsError::from);
    root.create_directories(&path(paths::STATE_DIRECTORY)?, Attributes::root(0o755))?;
    images::unpin(machine)?;
    // Before all state: it marks the release as decided, and no image is pinned from here on.
    root.write_atomically(&path(paths::RELEASED)?, Attributes::root(0o644), b"")?;
    // Again, because a pull may have ended in between.
    images::unpin(machine)?;
    live::remove_all(root)?;
    for directory in [paths::ORIGINALS, paths::NO_ORIGINALS] {
        remove_empty(root, &path(directory)?)?;
    }
    for state in [
        paths::CURRENT_CONFIG,
        paths::CURRENT_IMAGE,
        paths::FORCE_FILE,
        paths::ADOPTION,
    ] {
        root.remove_file(&path(state)?)?;
    }
    Ok(())
}

/// Removes a directory tree without files. An original that could not be restored stays.
fn remove_empty(root: &Root, directory: &RootedPath) -> Result<(), FsError> {
    let is_directory = |path: &RootedPath| -> Result<bool, FsError> {
        Ok(root
            .entry(path)?
            .is_some_and(|entry| entry.kind == FileKind::Directory))
    };
    if !is_directory(directory)? {
        return Ok(());
    }
    for name in root.list(directory)? {
        let path = directory.join(&name)?;
        if is_directory(&path)? {
            remove_empty(root, &path)?;
        }
    }
    root.remove_directory(directory)?;
    Ok(())
}

fn refused(
    machine: &Machine,
    plan: &ApplyPlan<'_>,
    request: &ApplyRequest<'_>,
) -> Result<Vec<GuardedPath>, PlanError> {
    if request.custody.is_installed() {
        return Ok(Vec::new());
    }
    let allowance = Allowance::of(request.new.object.metadata.annotations.as_ref());
    let mut found = guarded_paths::changed(machine, plan, request)?;
    found.retain(|guarded| !allowance.allows(&guarded.path));
    Ok(found)
}

fn cost(drain: &Drain, actions: &[PostConfigAction]) -> AdoptionCost {
    let services = actions.iter().filter(|action| {
        !matches!(
            action,
            PostConfigAction::None | PostConfigAction::Drain | PostConfigAction::Reboot
        )
    });
    AdoptionCost {
        drain: *drain != Drain::NotNeeded,
        reboot: actions.contains(&PostConfigAction::Reboot),
        actions: services.map(ToString::to_string).take(64).collect(),
    }
}

#[derive(Debug, Default)]
struct Differences {
    summary: AdoptionSummary,
    changed: Vec<AdoptionDifference>,
}

fn differences(
    machine: &Machine,
    old: &NodeConfig,
    new: &NodeConfig,
    plan: &ApplyPlan<'_>,
) -> Result<Differences, PlanError> {
    let root = &machine.root;
    let ours: BTreeSet<RootedPath> = target::managed_paths(old)?
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    let managed: BTreeMap<RootedPath, Wanted<'_>> = target::managed(new, machine.accounts())?
        .into_iter()
        .map(|managed| (managed.path, managed.wanted))
        .collect();
    let steps: BTreeMap<&RootedPath, &PlanAction<'_>> =
        plan.steps.iter().map(|step| (&step.path, &step.action)).collect();
    let mut all = Differences::default();
    for (path, wanted) in &managed {
        if !steps.contains_key(path) {
            all.summary.equal += 1;
            continue;
        }
        let entry = root.entry(path)?;
        let is_ours = ours.contains(path);
        all.add(
            root,
            path,
            entry,
            wanted_file(path, wanted)?,
            matches!(wanted, Wanted::Absent),
            is_ours,
        )?;
    }
    for (path, action) in steps {
        let is_state = path.is_within(paths::STATE_DIRECTORY);
        if managed.contains_key(path) || is_state {
            continue;
        }
        let entry = root.entry(path)?;
        match action {
            // Missing parents follow from their files.
            PlanAction::CreateDirectory { .. } | PlanAction::RemoveDirectory => {}
            PlanAction::Remove => all.add(root, path, entry, None, true, ours.contains(path))?,
            PlanAction::Link { target } => {
                let file = AdoptionFile {
                    target: Some(target.clone()),
                    ..AdoptionFile::default()
                };
                all.add(root, path, entry, Some(file), false, ours.contains(path))?;
            }
            PlanAction::Write { .. }
            | PlanAction::Copy { .. }
            | PlanAction::ChangeAttributes { .. }
            | PlanAction::SetPassword { .. } => {
                all.add(root, path, entry, None, false, ours.contains(path))?
            }
        }
    }
    all.changed.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(all)
}

impl Differences {
    fn add(
        &mut self,
        root: &Root,
        path: &RootedPath,
        entry: Option<FileEntry>,
        wanted: Option<AdoptionFile>,
        removes: bool,
        is_ours: bool,
    ) -> Result<(), FsError> {
        let (action, count) = match (entry, removes) {
            (None, _) => ("create", &mut self.summary.create),
            (Some(_), true) if !is_ours => ("remove", &mut self.summary.remove),
            (Some(_), false) if !is_ours => ("replace", &mut self.summary.replace),
            // A file of an earlier config: nothing of others changes.
            (Some(_), _) => ("update", &mut self.summary.create),
        };
        *count += 1;
        self.changed.push(AdoptionDifference {
            path: path.to_string(),
            action: action.to_owned(),
            found: entry.map(|entry| found_file(root, path, entry)).transpose()?,
            wanted,
            ..AdoptionDifference::default()
        });
        Ok(())
    }
}

fn wanted_file(path: &RootedPath, wanted: &Wanted<'_>) -> Result<Option<AdoptionFile>, PlanError> {
    Ok(match wanted {
        Wanted::File { contents, attributes } => {
            let bytes = contents.bytes().map_err(|source| target::TargetError::Contents {
                path: path.to_string(),
                source,
            })?;
            Some(AdoptionFile {
                size: Some(bytes.len() as u64),
                sha256: is_public(attributes.mode).then(|| hash(&bytes)),
                mode: Some(format!("{:04o}", attributes.mode)),
                target: None,
            })
        }
        Wanted::Link { target } => Some(AdoptionFile {
            target: Some(target.clone()),
            ..AdoptionFile::default()
        }),
        Wanted::Directory { attributes } => Some(AdoptionFile {
            mode: Some(format!("{:04o}", attributes.mode)),
            ..AdoptionFile::default()
        }),
        Wanted::Absent => None,
    })
}

fn found_file(root: &Root, path: &RootedPath, entry: FileEntry) -> Result<AdoptionFile, FsError> {
    if entry.kind == FileKind::Symlink {
        return Ok(AdoptionFile {
            target: root.read_link(path)?,
            ..AdoptionFile::default()
        });
    }
    let is_file = entry.kind == FileKind::File;
    let contents = if is_file && is_public(entry.mode) && entry.size <= LARGEST_HASHED {
        root.read(path, LARGEST_HASHED)?
    } else {
        None
    };
    Ok(AdoptionFile {
        size: is_file.then_some(entry.size),
        sha256: contents.map(|contents| hash(&contents)),
        mode: Some(format!("{:04o}", entry.mode & 0o7777)),
        target: None,
    })
}

/// Whether everyone on the machine may read a file. Hashes of other files could be used to guess short secrets.
fn is_public(mode: u32) -> bool {
    mode & 0o004 != 0
}

fn hash(bytes: &[u8]) -> String {
    mco_core::config::hex::encode(&Sha256::digest(bytes))
}
