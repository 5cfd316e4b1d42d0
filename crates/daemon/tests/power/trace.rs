//! A recorded sequence of operations, as effects that a power failure may lose, and the syncs between them.
//!
//! The rules are weaker than those of any journaling filesystem, so that a state that ext4, XFS or btrfs can leave is
//! among those that are enumerated:
//!
//! - A change of directory entries is atomic. It is durable once a directory that it touches was synced. Until then it
//!   may be lost independently of all others, except that changes of the same name are not reordered.
//! - A directory is removed only empty: what emptied it is then durable too.
//! - Contents are durable once their file was synced. Until then a file has no contents, the first half, zeros, or all.
//! - Owner and mode are durable once the inode itself was synced: that of a directory is not part of its parent.
//!
//! Nothing orders one effect after another, so that these are also the states of several filesystems, except that
//! `syncfs` makes all of them durable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mco_daemon::paths;
use mco_host::{FsOperation, FsRecorder};
use rustix::io::Errno;

use super::disk::{Content, Disk, Inode, Node};

/// Which hard links and renames the filesystems of a machine allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystems {
    /// There is one, with hard links.
    One,
    /// The state directory, which has the journal and the old contents, is on another one than all that changes.
    StateApart,
    /// There is one, without hard links.
    WithoutLinks,
}

impl Filesystems {
    fn refuse(self, operation: &FsOperation) -> Option<Errno> {
        match (self, operation) {
            (Self::StateApart, FsOperation::HardLink { from, to } | FsOperation::Rename { from, to }) => {
                (is_state(from) != is_state(to)).then_some(Errno::XDEV)
            }
            (Self::WithoutLinks, FsOperation::HardLink { .. }) => Some(Errno::PERM),
            _ => None,
        }
    }
}

fn is_state(path: &str) -> bool {
    path.starts_with(paths::STATE_DIRECTORY)
}

/// Collects the operations of a machine's root, each with the last checkpoint before it.
#[derive(Debug)]
pub struct Recorder {
    filesystems: Filesystems,
    point: Mutex<&'static str>,
    operations: Mutex<Vec<(&'static str, FsOperation)>>,
}

impl Recorder {
    pub fn new(filesystems: Filesystems) -> Self {
        Self {
            filesystems,
            point: Mutex::default(),
            operations: Mutex::default(),
        }
    }

    pub fn reach(&self, point: &'static str) {
        *self.point.lock().unwrap() = point;
    }

    pub fn take(&self) -> Vec<(&'static str, FsOperation)> {
        std::mem::take(&mut *self.operations.lock().unwrap())
    }
}

impl FsRecorder for Recorder {
    fn record(&self, operation: FsOperation) {
        let point = *self.point.lock().unwrap();
        self.operations.lock().unwrap().push((point, operation));
    }

    fn refuse(&self, operation: &FsOperation) -> Option<Errno> {
        self.filesystems.refuse(operation)
    }
}

/// Names the place in the program that makes a sync: the checkpoint before it, and what is synced.
fn site(point: &str, operation: &FsOperation) -> String {
    let (FsOperation::SyncFile { path } | FsOperation::SyncDirectory { path }) = operation else {
        return format!("{point}: syncfs");
    };
    let is_file = matches!(operation, FsOperation::SyncFile { .. });
    let what = match path.strip_prefix("/etc/machine-config-daemon") {
        Some("") => "the state directory",
        Some("/old") => "the directory of old contents",
        Some("/.transaction.json.mco-tmp") => "the journal",
        Some("/.transaction-undo.json.mco-tmp") => "the rollback journal",
        _ if path.contains("mco-simulated-os") || path == "/var/lib" => "the simulated OS",
        _ if is_file => "a file",
        _ => "a directory",
    };
    format!("{point}: {what}")
}

#[derive(Debug, Clone)]
pub enum Effect {
    /// Entries that change together, and the inode that comes into being with them.
    Entries {
        sets: Vec<((Inode, String), Option<Inode>)>,
        creates: Option<(Inode, Node)>,
    },
    Contents {
        inode: Inode,
        bytes: Arc<Vec<u8>>,
    },
    Attributes {
        inode: Inode,
        change: AttributeChange,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum AttributeChange {
    Mode(u32),
    Owner(mco_host::FileOwner),
}

#[derive(Debug, Clone)]
pub struct Atom {
    pub effect: Effect,
    /// Effects that are not lost if this one is not.
    pub needs: Vec<usize>,
    pub label: String,
}

impl Atom {
    /// Returns whether a sync of this inode makes the effect durable.
    fn belongs_to(&self, synced: Inode) -> bool {
        match &self.effect {
            Effect::Entries { sets, .. } => sets.iter().any(|((directory, _), _)| *directory == synced),
            Effect::Contents { inode, .. } | Effect::Attributes { inode, .. } => *inode == synced,
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Atom(usize),
    /// `None` for the whole filesystem.
    Sync(Option<Inode>, String),
}

/// The effects of one recorded run on a disk.
#[derive(Debug, Clone)]
pub struct Trace {
    pub base: Disk,
    pub atoms: Vec<Atom>,
    events: Vec<Event>,
}

/// A moment at which the power may fail: which effects are durable, and how many were issued.
#[derive(Debug, Clone)]
pub struct Window {
    pub durable: Vec<bool>,
    pub issued: usize,
    /// The run was over and its result reported.
    pub is_final: bool,
}

impl Trace {
    pub fn new(base: Disk, operations: &[(&'static str, FsOperation)]) -> Self {
        let mut builder = Builder {
            live: base.clone(),
            atoms: Vec::new(),
            events: Vec::new(),
            last_of_name: BTreeMap::new(),
            last_of_inode: BTreeMap::new(),
            created_by: BTreeMap::new(),
            next: base.nodes.keys().last().map_or(1, |last| last + 1),
        };
        for (point, operation) in operations {
            builder.add(point, operation);
        }
        Self {
            base,
            atoms: builder.atoms,
            events: builder.events,
        }
    }

    /// Returns the sites of all syncs.
    pub fn syncs(&self) -> Vec<String> {
        let syncs = self.events.iter().filter_map(|event| match event {
            Event::Sync(_, label) => Some(label.clone()),
            Event::Atom(_) => None,
        });
        syncs.collect()
    }

    /// Returns the moments just before each sync that is preceded by a new effect, and the end. States in between are
    /// among those of the next moment. One sync may be left out.
    pub fn windows(&self, without: Option<usize>) -> Vec<Window> {
        let mut windows = Vec::new();
        let mut durable = vec![false; self.atoms.len()];
        let (mut issued, mut examined, mut syncs) = (0, 0, 0);
        for event in &self.events {
            match event {
                Event::Atom(index) => issued = index + 1,
                Event::Sync(inode, _) => {
                    let is_left_out = without == Some(syncs);
                    syncs += 1;
                    if is_left_out {
                        continue;
                    }
                    if issued > examined {
                        examined = issued;
                        windows.push(Window {
                            durable: durable.clone(),
                            issued,
                            is_final: false,
                        });
                    }
                    self.sync(&mut durable, issued, *inode);
                }
            }
        }
        windows.push(Window {
            durable,
            issued,
            is_final: true,
        });
        windows
    }

    fn sync(&self, durable: &mut [bool], issued: usize, inode: Option<Inode>) {
        for index in (0..issued).rev() {
            let is_synced = inode.is_none_or(|inode| self.atoms[index].belongs_to(inode));
            if is_synced || durable[index] {
                durable[index] = true;
                for need in &self.atoms[index].needs {
                    durable[*need] = true;
                }
            }
        }
    }
}

struct Builder {
    live: Disk,
    atoms: Vec<Atom>,
    events: Vec<Event>,
    last_of_name: BTreeMap<(Inode, String), usize>,
    last_of_inode: BTreeMap<Inode, usize>,
    created_by: BTreeMap<Inode, usize>,
    next: Inode,
}

impl Builder {
    fn add(&mut self, point: &str, operation: &FsOperation) {
        let label = operation.to_string();
        match operation {
            FsOperation::CreateFile { path } => {
                self.create(path, Node::new(Content::File(Arc::default()), 0o600), label);
            }
            FsOperation::CreateDirectory { path } => {
                self.create(path, Node::new(Content::Directory, 0o700), label)
            }
            FsOperation::Symlink { target, path } => {
                self.create(path, Node::new(Content::Symlink(target.clone()), 0o777), label);
            }
            FsOperation::HardLink { from, to } => {
                if let (Some(inode), Some(place)) = (self.live.lookup(from), self.live.place(to)) {
                    self.entries(vec![(place, Some(inode))], None, label);
                }
            }
            FsOperation::Rename { from, to } => self.rename(from, to, label),
            FsOperation::RemoveFile { path } => {
                if let Some(place) = self.live.place(path) {
                    self.entries(vec![(place, None)], None, label);
                }
            }
            FsOperation::RemoveDirectory { path } => self.remove_directory(path, label),
            FsOperation::Write { path, contents } => {
                if let Some(inode) = self.live.lookup(path) {
                    let bytes = Arc::new(contents.clone());
                    self.push(Effect::Contents { inode, bytes }, Vec::new(), label);
                }
            }
            FsOperation::SetMode { path, mode } => self.attributes(path, AttributeChange::Mode(*mode), label),
            FsOperation::SetOwner { path, owner } => {
                self.attributes(path, AttributeChange::Owner(*owner), label);
            }
            // Other attributes than the owner are not examined.
            FsOperation::CopyAttributes { .. } => {}
            FsOperation::SyncFile { path } | FsOperation::SyncDirectory { path } => {
                if let Some(inode) = self.live.lookup(path) {
                    self.events.push(Event::Sync(Some(inode), site(point, operation)));
                }
            }
            FsOperation::SyncFilesystem => self.events.push(Event::Sync(None, site(point, operation))),
        }
    }

    fn create(&mut self, path: &str, node: Node, label: String) {
        // Paths below /run have no place: a boot empties it.
        let Some(place) = self.live.place(path) else {
            return;
        };
        let inode = self.next;
        self.next += 1;
        self.created_by.insert(inode, self.atoms.len());
        self.entries(vec![(place, Some(inode))], Some((inode, node)), label);
    }

    /// Only an empty directory is removed: what emptied it is not lost if the removal is not.
    fn remove_directory(&mut self, path: &str, label: String) {
        let (Some(inode), Some(place)) = (self.live.lookup(path), self.live.place(path)) else {
            return;
        };
        let inside: Vec<usize> = (0..self.atoms.len())
            .filter(|index| matches!(self.atoms[*index].effect, Effect::Entries { .. }))
            .filter(|index| self.atoms[*index].belongs_to(inode))
            .collect();
        self.entries(vec![(place, None)], None, label);
        if let Some(removal) = self.atoms.last_mut() {
            removal.needs.extend(inside);
        }
    }

    fn rename(&mut self, from: &str, to: &str, label: String) {
        let (Some(inode), Some(source), Some(target)) =
            (self.live.lookup(from), self.live.place(from), self.live.place(to))
        else {
            return;
        };
        // Two links to one file: rename(2) does nothing.
        if self.live.entries.get(&target) != Some(&inode) {
            self.entries(vec![(source, None), (target, Some(inode))], None, label);
        }
    }

    fn entries(
        &mut self,
        sets: Vec<((Inode, String), Option<Inode>)>,
        creates: Option<(Inode, Node)>,
        label: String,
    ) {
        let mut needs: Vec<usize> = sets
            .iter()
            .filter_map(|(place, _)| self.last_of_name.insert(place.clone(), self.atoms.len()))
            .collect();
        let linked = sets.iter().filter_map(|(_, inode)| *inode);
        let created = linked.filter_map(|inode| self.created_by.get(&inode).copied());
        needs.extend(created.filter(|index| *index != self.atoms.len()));
        self.push(Effect::Entries { sets, creates }, needs, label);
    }

    fn attributes(&mut self, path: &str, change: AttributeChange, label: String) {
        let Some(inode) = self.live.lookup(path) else {
            return;
        };
        let before = self.live.nodes[&inode].attributes;
        let is_same = match change {
            AttributeChange::Mode(mode) => before.mode == mode,
            AttributeChange::Owner(owner) => before.owner == owner,
        };
        if !is_same {
            let previous = self.last_of_inode.insert(inode, self.atoms.len());
            self.push(
                Effect::Attributes { inode, change },
                previous.into_iter().collect(),
                label,
            );
        }
    }

    fn push(&mut self, effect: Effect, needs: Vec<usize>, label: String) {
        apply(&mut self.live, &effect, Torn::All);
        self.events.push(Event::Atom(self.atoms.len()));
        self.atoms.push(Atom { effect, needs, label });
    }
}

/// How much of a file's contents has reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    All,
    Half,
    /// The length is right, the contents are not.
    Zeros,
}

pub fn apply(disk: &mut Disk, effect: &Effect, torn: Torn) {
    match effect {
        Effect::Entries { sets, creates } => {
            if let Some((inode, node)) = creates {
                // Contents or attributes may have been applied to the inode before.
                disk.nodes.entry(*inode).or_insert_with(|| node.clone());
            }
            for (place, inode) in sets {
                match inode {
                    Some(inode) => disk.entries.insert(place.clone(), *inode),
                    None => disk.entries.remove(place),
                };
            }
        }
        Effect::Contents { inode, bytes } => {
            if let Some(node) = disk.nodes.get_mut(inode) {
                node.content = Content::File(match torn {
                    Torn::All => Arc::clone(bytes),
                    Torn::Half => Arc::new(bytes[..bytes.len() / 2].to_vec()),
                    Torn::Zeros => Arc::new(vec![0; bytes.len()]),
                });
            }
        }
        Effect::Attributes { inode, change } => {
            if let Some(node) = disk.nodes.get_mut(inode) {
                match change {
                    AttributeChange::Mode(mode) => node.attributes.mode = *mode,
                    AttributeChange::Owner(owner) => node.attributes.owner = *owner,
                }
            }
        }
    }
}
