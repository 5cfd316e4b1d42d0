//! What is recorded and restored only on adopted machines: enablement links, directories and passwords. Files have
//! originals instead, see [`super::originals`].

use std::collections::BTreeSet;

use mco_host::{Attributes, FileKind, FsError, RootedPath};

use super::{Builder, NewContents, PlanAction, PlanError, PlanStep, originals};
use crate::custody::{AdoptionRecord, RECORD_ATTRIBUTES};
use crate::paths;
use crate::target::KeyFile;

impl<'a> Builder<'_, 'a> {
    pub(super) fn is_adopted(&self) -> bool {
        self.record.is_some()
    }

    /// Records the state of an enablement link before its first change.
    pub(super) fn record_link(&mut self, unit: &str, link: &RootedPath) -> Result<(), PlanError> {
        let root = self.root();
        if let Some(record) = &mut self.record {
            let before = root.read_link(link)?;
            let links = record.links.entry(unit.to_owned()).or_default();
            links.entry(link.to_string()).or_insert(before);
        }
        Ok(())
    }

    /// Restores the enablement links of a unit that the config no longer enables or disables.
    pub(super) fn restore_links(&mut self, unit: &str) -> Result<(), PlanError> {
        let recorded = self.record.as_mut().and_then(|record| record.links.remove(unit));
        for (link, before) in recorded.unwrap_or_default() {
            let path = RootedPath::new(&link).map_err(FsError::from)?;
            match before {
                Some(target) => self.reach_link(path, target)?,
                None if self.root().read_link(&path)?.is_some() => self.add(path, PlanAction::Remove),
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the units with recorded links.
    pub(super) fn units_with_links(&self) -> Vec<String> {
        let links = self.record.iter().flat_map(|record| record.links.keys());
        links.cloned().collect()
    }

    /// Records a directory before its first change; `None` if it is created.
    pub(super) fn record_directory(&mut self, path: &RootedPath, before: Option<Attributes>) {
        if let Some(record) = &mut self.record {
            record.directories.entry(path.to_string()).or_insert(before);
        }
    }

    /// Plans to restore the recorded directories that the new config neither names nor needs.
    pub(super) fn leave_directories(
        &mut self,
        wanted: &BTreeSet<RootedPath>,
    ) -> Result<Vec<PlanStep<'a>>, PlanError> {
        let Some(record) = self.record.clone() else {
            return Ok(Vec::new());
        };
        let planned = self
            .steps
            .iter()
            .filter(|(_, action)| !matches!(action, PlanAction::Remove));
        let needed: BTreeSet<RootedPath> = wanted
            .iter()
            .chain(planned.map(|(path, _)| path))
            .cloned()
            .collect();
        let mut steps = Vec::new();
        // The innermost first.
        for (directory, before) in record.directories.iter().rev() {
            let path = RootedPath::new(directory).map_err(FsError::from)?;
            if needed.iter().any(|needed| needed.is_within(directory)) || self.holds_originals(&path)? {
                continue;
            }
            let entry = self.root().entry(&path)?;
            if let Some(record) = &mut self.record {
                record.directories.remove(directory);
            }
            let Some(entry) = entry.filter(|entry| entry.kind == FileKind::Directory) else {
                continue;
            };
            match before {
                Some(after) => {
                    let before = Attributes {
                        mode: entry.mode,
                        owner: entry.owner,
                    };
                    let action = PlanAction::ChangeAttributes {
                        before,
                        after: *after,
                    };
                    if before != *after {
                        self.others.push(PlanStep { path, action });
                    }
                }
                None => steps.push(PlanStep {
                    path,
                    action: PlanAction::RemoveDirectory,
                }),
            }
        }
        Ok(steps)
    }

    /// Returns whether a directory for originals holds one that stays. It is no path of the config, and no step either
    /// once it is there.
    fn holds_originals(&self, directory: &RootedPath) -> Result<bool, PlanError> {
        let is_ours = directory.is_within(paths::ORIGINALS) || directory.is_within(paths::NO_ORIGINALS);
        if !is_ours {
            return Ok(false);
        }
        for name in self.root().list(directory)? {
            let path = directory.join(&name).map_err(FsError::from)?;
            let is_directory = self
                .root()
                .entry(&path)?
                .is_some_and(|entry| entry.kind == FileKind::Directory);
            let stays = if is_directory {
                self.holds_originals(&path)?
            } else {
                !matches!(self.steps.get(&path), Some(PlanAction::Remove))
            };
            if stays {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Restores a key file that the config needs no more: what was there before, without what is ours. Keys that its user
    /// has added since stay.
    pub(super) fn leave_key_file(&mut self, keys: &KeyFile) -> Result<(), PlanError> {
        let Some(entry) = self.root().entry(&keys.path)? else {
            return Ok(());
        };
        if !keys.is_shared || keys.contents.is_empty() {
            return originals::give_back(self, &keys.path);
        }
        originals::forget(self, &keys.path)?;
        let present = self.root().read_text(&keys.path, entry.size)?;
        if present.as_deref() != Some(keys.contents.as_str()) {
            let contents = NewContents::Bytes(keys.contents.clone().into_bytes());
            let attributes = keys.file;
            self.add(keys.path.clone(), PlanAction::Write { contents, attributes });
        }
        Ok(())
    }

    /// Records a password before its first change, and returns the one to set: the recorded one when the config has none
    /// any more.
    pub(super) fn password_to_set(
        &mut self,
        user: &str,
        before: &str,
        after: String,
        is_set: bool,
    ) -> String {
        let Some(record) = &mut self.record else {
            return after;
        };
        if is_set {
            let known = record.passwords.entry(user.to_owned());
            known.or_insert_with(|| before.to_owned());
            return after;
        }
        // Without a record no config has changed it.
        record.passwords.remove(user).unwrap_or_else(|| before.to_owned())
    }

    /// Returns the step that writes the record, if it has changed.
    pub(super) fn record_step(&self) -> Result<Option<PlanStep<'a>>, PlanError> {
        let Some(record) = &self.record else {
            return Ok(None);
        };
        if AdoptionRecord::read(self.root())?.as_ref() == Some(record) {
            return Ok(None);
        }
        Ok(Some(PlanStep {
            path: RootedPath::new(paths::ADOPTION).map_err(FsError::from)?,
            action: PlanAction::Write {
                contents: NewContents::Bytes(record.to_bytes()),
                attributes: RECORD_ATTRIBUTES,
            },
        }))
    }
}
