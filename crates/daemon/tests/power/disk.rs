//! A filesystem in memory: inodes and directory entries, read from a directory and written to one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use mco_host::{Attributes, Durability, FileKind, Root, RootedPath};

use crate::support;

pub type Inode = u64;
pub const ROOT: Inode = 0;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    File(Arc<Vec<u8>>),
    Directory,
    Symlink(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub content: Content,
    pub attributes: Attributes,
}

impl Node {
    pub fn new(content: Content, mode: u32) -> Self {
        Self {
            content,
            attributes: Attributes::root(mode),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub nodes: BTreeMap<Inode, Node>,
    pub entries: BTreeMap<(Inode, String), Inode>,
}

/// What a machine finds after a boot: each path with its inode.
pub type Image = BTreeMap<String, Inode>;

impl Disk {
    /// Reads a machine's directory, without `/run`, which a boot empties.
    pub fn read(root: &Root) -> Self {
        let mut disk = Self::default();
        disk.nodes.insert(ROOT, Node::new(Content::Directory, 0o755));
        let mut inodes = BTreeMap::new();
        let mut waiting = vec![(ROOT, String::new())];
        while let Some((parent, directory)) = waiting.pop() {
            for name in names(root, &directory) {
                let path = format!("{directory}/{name}");
                if path == "/run" {
                    continue;
                }
                let rooted = RootedPath::new(&path).unwrap();
                let entry = root.entry(&rooted).unwrap().unwrap();
                let next = inodes.len() as Inode + 1;
                let inode = *inodes.entry(entry.inode).or_insert(next);
                disk.entries.insert((parent, name), inode);
                let content = match entry.kind {
                    FileKind::Directory => {
                        waiting.push((inode, path));
                        Content::Directory
                    }
                    FileKind::Symlink => Content::Symlink(root.read_link(&rooted).unwrap().unwrap()),
                    _ => Content::File(Arc::new(root.read(&rooted, u64::MAX).unwrap().unwrap())),
                };
                let attributes = Attributes {
                    mode: entry.mode,
                    owner: entry.owner,
                };
                disk.nodes.insert(inode, Node { content, attributes });
            }
        }
        disk
    }

    pub fn lookup(&self, path: &str) -> Option<Inode> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |directory, name| {
                self.entries.get(&(directory, name.to_owned())).copied()
            })
    }

    /// Returns the directory of a path, and its last name.
    pub fn place(&self, path: &str) -> Option<(Inode, String)> {
        let (parent, name) = path.rsplit_once('/')?;
        Some((self.lookup(parent)?, name.to_owned()))
    }

    /// Returns everything that can be reached from the root.
    pub fn image(&self) -> Image {
        let mut image = Image::new();
        let mut waiting = vec![(ROOT, String::new())];
        while let Some((directory, path)) = waiting.pop() {
            let range = (directory, String::new())..(directory + 1, String::new());
            for ((_, name), inode) in self.entries.range(range) {
                let path = format!("{path}/{name}");
                if self.nodes[inode].content == Content::Directory {
                    waiting.push((*inode, path.clone()));
                }
                image.insert(path, *inode);
            }
        }
        image
    }

    /// Identifies an image; equal images recover in the same way.
    pub fn fingerprint(&self, image: &Image) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (path, inode) in image {
            let node = &self.nodes[inode];
            path.hash(&mut hasher);
            inode.hash(&mut hasher);
            node.content.hash(&mut hasher);
            node.attributes.mode.hash(&mut hasher);
            (node.attributes.owner.uid, node.attributes.owner.gid).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Writes an image to an empty directory.
    pub fn materialise(&self, image: &Image, directory: &Path) {
        let root = Root::open(directory, support::ownership()).unwrap();
        let mut first: BTreeMap<Inode, RootedPath> = BTreeMap::new();
        for (path, inode) in image {
            let path = RootedPath::new(path).unwrap();
            let node = &self.nodes[inode];
            match &node.content {
                Content::Directory => root.create_directory(&path, Attributes::root(0o700)).unwrap(),
                Content::Symlink(target) => root.symlink(target, &path).unwrap(),
                Content::File(bytes) => {
                    if let Some(other) = first.get(inode) {
                        root.hard_link(other, &path).unwrap()
                    } else {
                        let (attributes, later) = (node.attributes, Durability::Later);
                        root.create_file(&path, attributes, bytes, None, later).unwrap();
                        first.insert(*inode, path);
                    }
                }
            }
        }
        // The innermost first, because a mode may not allow to create anything.
        for (path, inode) in image.iter().rev() {
            let node = &self.nodes[inode];
            if node.content == Content::Directory {
                let path = RootedPath::new(path).unwrap();
                root.set_directory_attributes(&path, node.attributes).unwrap();
            }
        }
        std::fs::create_dir(directory.join("run")).unwrap();
    }
}

fn names(root: &Root, directory: &str) -> Vec<String> {
    match directory {
        "" => {
            let entries = std::fs::read_dir(root.path()).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect()
        }
        path => root.list(&RootedPath::new(path).unwrap()).unwrap(),
    }
}
