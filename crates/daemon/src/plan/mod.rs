//! Computes the list of paths to change from a machine and two configs. Read-only.
//!
//! A path that is already up to date is no step: applying a config twice is a no-op the second time, and an unchanged
//! file keeps its inode.

mod adopted;
mod enablement;
pub(crate) mod originals;

use std::collections::{BTreeMap, BTreeSet};

use mco_host::{Attributes, FileEntry, FileKind, FsError, Machine, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::custody::{AdoptionRecord, Custody};
use crate::disk::DiskError;
use crate::paths;
use crate::target::{self, Contents, KeyFile, Managed, Source, TargetError, Wanted};

/// Attributes of parent directories that a config needs and does not define.
const PARENT_ATTRIBUTES: Attributes = Attributes::root(0o755);
/// The state files contain the contents of all files of the config, also of those that only root may read.
const STATE_ATTRIBUTES: Attributes = Attributes::root(0o600);

/// All steps, in order.
#[derive(Debug, Default)]
pub struct ApplyPlan<'a> {
    pub steps: Vec<PlanStep<'a>>,
}

#[derive(Debug)]
pub struct PlanStep<'a> {
    pub path: RootedPath,
    pub action: PlanAction<'a>,
}

#[derive(Debug)]
pub enum PlanAction<'a> {
    Write {
        contents: NewContents<'a>,
        attributes: Attributes,
    },
    /// A copy of another file with all its attributes.
    Copy {
        from: RootedPath,
    },
    Link {
        target: String,
    },
    Remove,
    CreateDirectory {
        attributes: Attributes,
    },
    /// Removes a directory once the change is proven, if it is empty then.
    RemoveDirectory,
    ChangeAttributes {
        before: Attributes,
        after: Attributes,
    },
    SetPassword {
        user: String,
        before: String,
        after: String,
    },
}

#[derive(Debug)]
pub enum NewContents<'a> {
    FromConfig(Contents<'a>),
    Bytes(Vec<u8>),
}

impl NewContents<'_> {
    pub fn bytes(&self, path: &RootedPath) -> Result<Vec<u8>, TargetError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::FromConfig(contents) => contents.bytes().map_err(|source| TargetError::Contents {
                path: path.to_string(),
                source,
            }),
        }
    }
}

/// The source of the certificates that change more often than configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveContentSource {
    /// There is no cluster: the config's copy is written.
    FromConfig,
    /// The daemon syncs them from the cluster.
    FromCluster,
}

#[derive(Debug, Error)]
pub enum PlanError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("{path} exists and is {found}; it cannot become {wanted}")]
    InTheWay {
        path: String,
        found: FileKind,
        wanted: &'static str,
    },
    #[error("{path} cannot be a file and hold {below} at the same time")]
    FileAsDirectory { path: String, below: String },
    #[error("could not serialize the config: {0}")]
    Encode(serde_json::Error),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Plans the change from one config to another on this machine.
pub fn plan<'a>(
    machine: &Machine,
    old: &NodeConfig,
    new: &'a NodeConfig,
    live_content: LiveContentSource,
    custody: Custody,
) -> Result<ApplyPlan<'a>, PlanError> {
    let mut builder = Builder::new(machine, old, custody)?;
    let managed = target::managed(new, machine.accounts())?;
    let wanted: BTreeSet<RootedPath> = managed.iter().map(|managed| managed.path.clone()).collect();
    for one in managed {
        let synced = live_content == LiveContentSource::FromCluster && one.path.as_str() == paths::KUBELET_CA;
        if !synced {
            builder.reach(one)?;
        }
    }
    builder.leave_stale(&wanted)?;
    enablement::plan(&mut builder, old, new)?;
    builder.keys(old, new)?;
    builder.state_files(new)?;
    builder.finish(&wanted)
}

/// Plans a config for a machine that is being installed: there are no originals to back up, and no state files yet.
pub fn plan_installation<'a>(machine: &Machine, new: &'a NodeConfig) -> Result<ApplyPlan<'a>, PlanError> {
    let mut builder = Builder::new(machine, new, Custody::Installed)?;
    for one in target::managed(new, machine.accounts())? {
        builder.reach(one)?;
    }
    enablement::plan(&mut builder, new, new)?;
    builder.keys(new, new)?;
    builder.finish(&BTreeSet::new())
}

struct Builder<'m, 'a> {
    machine: &'m Machine,
    /// What the machine had before it was adopted; `None` on a machine that was installed from a config.
    record: Option<AdoptionRecord>,
    /// The paths of the old config: their contents are ours, not originals.
    ours: BTreeMap<RootedPath, Source>,
    directories: Vec<PlanStep<'a>>,
    /// Attributes of parents that differ from the default.
    parents: Vec<(String, Attributes)>,
    steps: BTreeMap<RootedPath, PlanAction<'a>>,
    state: Vec<PlanStep<'a>>,
    others: Vec<PlanStep<'a>>,
}

impl<'m, 'a> Builder<'m, 'a> {
    fn new(machine: &'m Machine, old: &NodeConfig, custody: Custody) -> Result<Self, PlanError> {
        let record = match custody {
            Custody::Installed => None,
            Custody::Adopted | Custody::Declared => {
                Some(AdoptionRecord::read(&machine.root)?.unwrap_or_default())
            }
        };
        let ours = match custody {
            Custody::Installed | Custody::Adopted => target::managed_paths(old)?.into_iter().collect(),
            Custody::Declared => BTreeMap::new(),
        };
        Ok(Self {
            machine,
            record,
            ours,
            directories: Vec::new(),
            parents: Vec::new(),
            steps: BTreeMap::new(),
            state: Vec::new(),
            others: Vec::new(),
        })
    }

    fn root(&self) -> &'m Root {
        &self.machine.root
    }

    /// Adds a step. The config's own entry for a path takes precedence over derived ones.
    fn add(&mut self, path: RootedPath, action: PlanAction<'a>) {
        self.steps.entry(path).or_insert(action);
    }

    /// Plans one path of the new config.
    fn reach(&mut self, managed: Managed<'a>) -> Result<(), PlanError> {
        let Managed { path, wanted, .. } = managed;
        let entry = self.root().entry(&path)?;
        let in_the_way = |found: FileKind, wanted| PlanError::InTheWay {
            path: path.to_string(),
            found,
            wanted,
        };
        if let Wanted::Directory { attributes } = wanted {
            return self.reach_directory(path, attributes, entry);
        }
        match entry.map(|entry| entry.kind) {
            Some(found @ (FileKind::Directory | FileKind::Special)) => {
                return Err(in_the_way(found, "a file or link"));
            }
            Some(FileKind::File | FileKind::Symlink) | None => {}
        }
        let leaves_nothing = entry.is_none() && matches!(wanted, Wanted::Absent);
        if !self.ours.contains_key(&path) && !leaves_nothing {
            originals::keep(self, &path, entry)?;
        }
        match wanted {
            Wanted::File { contents, attributes } => {
                if !is_file(self.root(), &path, entry, contents, attributes)? {
                    self.add(
                        path,
                        PlanAction::Write {
                            contents: NewContents::FromConfig(contents),
                            attributes,
                        },
                    );
                }
            }
            Wanted::Link { target } => self.reach_link(path, target)?,
            Wanted::Absent if entry.is_some() => self.add(path, PlanAction::Remove),
            Wanted::Absent | Wanted::Directory { .. } => {}
        }
        Ok(())
    }

    fn reach_link(&mut self, path: RootedPath, target: String) -> Result<(), PlanError> {
        if self.root().read_link(&path)?.as_deref() != Some(target.as_str()) {
            self.add(path, PlanAction::Link { target });
        }
        Ok(())
    }

    fn reach_directory(
        &mut self,
        path: RootedPath,
        after: Attributes,
        entry: Option<FileEntry>,
    ) -> Result<(), PlanError> {
        match entry {
            None => {
                self.record_directory(&path, None);
                self.directories.push(PlanStep {
                    path,
                    action: PlanAction::CreateDirectory { attributes: after },
                });
            }
            Some(entry) if entry.kind == FileKind::Directory => {
                let before = Attributes {
                    mode: entry.mode,
                    owner: entry.owner,
                };
                if before != after {
                    self.record_directory(&path, Some(before));
                    self.directories.push(PlanStep {
                        path,
                        action: PlanAction::ChangeAttributes { before, after },
                    });
                }
            }
            Some(entry) => {
                return Err(PlanError::InTheWay {
                    path: path.to_string(),
                    found: entry.kind,
                    wanted: "a directory",
                });
            }
        }
        Ok(())
    }

    /// Restores the originals of paths that the old config managed and the new one does not.
    fn leave_stale(&mut self, wanted: &BTreeSet<RootedPath>) -> Result<(), PlanError> {
        let stale: Vec<RootedPath> = self
            .ours
            .iter()
            .filter(|(path, source)| !wanted.contains(*path) && **source != Source::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        for path in stale {
            let leaves = if self.is_adopted() {
                // Written by the sync alone, which also removes what it has created.
                path.as_str() != paths::KUBELET_CA || self.has_backup(&path)?
            } else {
                !is_kept_for_good(&path)
            };
            if leaves {
                originals::give_back(self, &path)?;
            }
        }
        Ok(())
    }

    fn has_backup(&self, path: &RootedPath) -> Result<bool, FsError> {
        let root = self.root();
        let [original, no_original] = backups(path)?;
        Ok(root.entry(&original)?.is_some() || root.entry(&no_original)?.is_some())
    }

    fn keys(&mut self, old: &NodeConfig, new: &NodeConfig) -> Result<(), PlanError> {
        let accounts = self.machine.accounts();
        for keys in target::key_files(old, new, self.root(), accounts)? {
            self.key_file(keys)?;
        }
        let user = target::ssh_user(new).to_owned();
        if let Some(after) = target::password(old, new)
            && let Some(before) = accounts.password_hash(&user).map_err(TargetError::from)?
            && let after = self.password_to_set(&user, &before, after, target::sets_password(new))
            && before != after
        {
            let path = RootedPath::new("/etc/shadow").map_err(FsError::from)?;
            let action = PlanAction::SetPassword { user, before, after };
            self.others.push(PlanStep { path, action });
        }
        Ok(())
    }

    fn key_file(&mut self, keys: KeyFile) -> Result<(), PlanError> {
        let entry = self.root().entry(&keys.path)?;
        if self.is_adopted() && keys.keys.is_empty() {
            return self.leave_key_file(&keys);
        }
        self.parents.push((keys.home.clone(), keys.directories));
        if !keys.is_shared {
            self.own_key_directories(&keys)?;
        }
        let contents = Contents::Text(&keys.contents);
        if is_file(self.root(), &keys.path, entry, contents, keys.file)? {
            return Ok(());
        }
        if self.is_adopted() {
            originals::keep(self, &keys.path, entry)?;
        }
        let contents = NewContents::Bytes(keys.contents.into_bytes());
        let attributes = keys.file;
        self.add(keys.path, PlanAction::Write { contents, attributes });
        Ok(())
    }

    /// Assigns the key directories to their user, because sshd rejects keys in another user's directory.
    fn own_key_directories(&mut self, keys: &KeyFile) -> Result<(), PlanError> {
        let wanted = keys.directories;
        for path in [Some(keys.ssh_directory()?), keys.path.parent()]
            .into_iter()
            .flatten()
        {
            let Some(entry) = self.root().entry(&path)? else {
                continue;
            };
            if entry.kind == FileKind::Directory && entry.owner != wanted.owner {
                let before = Attributes {
                    mode: entry.mode,
                    owner: entry.owner,
                };
                self.record_directory(&path, Some(before));
                let action = PlanAction::ChangeAttributes {
                    before,
                    after: wanted,
                };
                self.directories.push(PlanStep { path, action });
            }
        }
        Ok(())
    }

    /// Plans the daemon's state files in the same transaction, so that they can never contradict the files on disk.
    fn state_files(&mut self, new: &NodeConfig) -> Result<(), PlanError> {
        let path = RootedPath::new(paths::CURRENT_CONFIG).map_err(FsError::from)?;
        let stored = crate::disk::machine_config(self.root(), paths::CURRENT_CONFIG)
            .ok()
            .flatten();
        if stored.as_ref() != Some(new.object.as_ref()) {
            let bytes = serde_json::to_vec(&*new.object).map_err(PlanError::Encode)?;
            let action = PlanAction::Write {
                contents: NewContents::Bytes(bytes),
                attributes: STATE_ATTRIBUTES,
            };
            self.state.push(PlanStep { path, action });
        }
        let path = RootedPath::new(paths::CURRENT_IMAGE).map_err(FsError::from)?;
        let stored = crate::disk::current_image(self.root()).ok().flatten();
        if stored != new.built_image {
            let bytes = new.built_image.clone().unwrap_or_default().into_bytes();
            let action = PlanAction::Write {
                contents: NewContents::Bytes(bytes),
                attributes: STATE_ATTRIBUTES,
            };
            self.state.push(PlanStep { path, action });
        }
        self.node_files(new)
    }

    /// Plans the record of what the node has in the files that differ between nodes.
    fn node_files(&mut self, new: &NodeConfig) -> Result<(), PlanError> {
        let path = RootedPath::new(paths::NODE_FILES).map_err(FsError::from)?;
        let stored = crate::node_files::recorded(self.root()).ok().flatten();
        let Some(files) = new.node_files.as_ref().filter(|files| !files.is_empty()) else {
            if self.root().entry(&path)?.is_some() {
                let action = PlanAction::Remove;
                self.state.push(PlanStep { path, action });
            }
            return Ok(());
        };
        let bytes = files.to_bytes().map_err(PlanError::Encode)?;
        let is_stored = stored.is_some_and(|stored| stored.to_bytes().is_ok_and(|stored| stored == bytes));
        if !is_stored {
            let action = PlanAction::Write {
                contents: NewContents::Bytes(bytes),
                attributes: STATE_ATTRIBUTES,
            };
            self.state.push(PlanStep { path, action });
        }
        Ok(())
    }

    fn finish(mut self, wanted: &BTreeSet<RootedPath>) -> Result<ApplyPlan<'a>, PlanError> {
        let leaving = self.leave_directories(wanted)?;
        let mut planned: BTreeSet<RootedPath> =
            self.directories.iter().map(|step| step.path.clone()).collect();
        let mut parents = BTreeMap::new();
        let state_directory = RootedPath::new(paths::STATE_DIRECTORY).map_err(FsError::from)?;
        let creating = self
            .steps
            .iter()
            .filter(|(_, action)| !matches!(action, PlanAction::Remove))
            .map(|(path, _)| path);
        let state = self.state.iter().map(|step| &step.path);
        for path in creating
            .chain(state)
            .chain(self.directories.iter().map(|step| &step.path))
        {
            let Some(parent) = path.parent() else {
                continue;
            };
            for missing in self.machine.root.missing_directories(&parent)? {
                // The journal is written first and creates its own directory.
                if state_directory.is_within(missing.as_str()) {
                    continue;
                }
                if self
                    .steps
                    .get(&missing)
                    .is_some_and(|action| !matches!(action, PlanAction::Remove))
                {
                    return Err(PlanError::FileAsDirectory {
                        path: missing.to_string(),
                        below: path.to_string(),
                    });
                }
                if planned.insert(missing.clone()) {
                    let special = self
                        .parents
                        .iter()
                        .find(|(above, _)| missing.is_within(above) && missing.as_str() != above);
                    let attributes = special.map_or(PARENT_ATTRIBUTES, |(_, attributes)| *attributes);
                    parents.insert(missing, PlanAction::CreateDirectory { attributes });
                }
            }
        }
        for path in parents.keys() {
            self.record_directory(path, None);
        }
        self.directories.extend(
            parents
                .into_iter()
                .map(|(path, action)| PlanStep { path, action }),
        );
        // A parent sorts before its children.
        self.directories.sort_by(|left, right| left.path.cmp(&right.path));
        let record = self.record_step()?;
        let mut steps = self.directories;
        steps.extend(
            self.steps
                .into_iter()
                .map(|(path, action)| PlanStep { path, action }),
        );
        steps.extend(self.others);
        steps.extend(self.state);
        steps.extend(record);
        steps.extend(leaving);
        Ok(ApplyPlan { steps })
    }
}

/// Returns where the original of a path is kept, and where it is recorded that there was none.
pub(crate) fn backups(path: &RootedPath) -> Result<[RootedPath; 2], FsError> {
    let backup = |directory: &str, suffix: &str| RootedPath::new(&format!("{directory}{path}{suffix}"));
    Ok([
        backup(paths::ORIGINALS, paths::ORIGINAL_SUFFIX)?,
        backup(paths::NO_ORIGINALS, paths::NO_ORIGINAL_SUFFIX)?,
    ])
}

/// Returns whether a file of an installed machine stays when no config contains it any more, because other components
/// rely on it.
fn is_kept_for_good(path: &RootedPath) -> bool {
    [paths::USER_CA, paths::KUBELET_CA, paths::CLOUD_CA].contains(&path.as_str())
        || path.is_within(paths::REGISTRY_CAS)
}

/// Returns whether a path already is this file.
fn is_file(
    root: &Root,
    path: &RootedPath,
    entry: Option<FileEntry>,
    contents: Contents<'_>,
    attributes: Attributes,
) -> Result<bool, PlanError> {
    let decode = || {
        contents.bytes().map_err(|source| TargetError::Contents {
            path: path.to_string(),
            source,
        })
    };
    if let Contents::Secret(secret) = contents {
        let is_right = |entry: FileEntry| {
            entry.kind == FileKind::File
                && entry.mode == attributes.mode
                && same_owner(root, &entry, attributes)
        };
        if entry.is_some_and(is_right) && secret.is_in(root, path)? {
            return Ok(true);
        }
    }
    let Some(entry) = entry.filter(|entry| {
        entry.kind == FileKind::File && entry.mode == attributes.mode && same_owner(root, entry, attributes)
    }) else {
        // Contents that cannot be decoded must fail the plan, not the transaction.
        decode()?;
        return Ok(false);
    };
    let bytes = decode()?;
    if entry.size != bytes.len() as u64 {
        return Ok(false);
    }
    Ok(root.read(path, entry.size)?.is_some_and(|found| found == bytes))
}

fn same_owner(root: &Root, entry: &FileEntry, attributes: Attributes) -> bool {
    entry.owner == attributes.owner || !root.records_owners()
}
