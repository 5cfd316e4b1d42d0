//! Resolves paths below a root, without following symbolic links that an unprivileged user controls.
//!
//! A link is followed only if the link and all directories that lead to it belong to trusted users. Otherwise a user
//! could plant a link in their home directory and so make a privileged process read or write any file of the machine.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Root;
use crate::path::RootedPath;

/// The kernel's own limit of links in one path.
const MOST_LINKS: usize = 40;

/// A component of a resolved path, and the user who owns it.
struct Component {
    name: String,
    owner: u32,
}

/// Why a path could not be opened.
#[derive(Debug)]
pub(super) enum ResolveError {
    Failed(Errno),
    /// A link in a directory of an unprivileged user, or a link that such a user owns.
    UntrustedLink {
        link: String,
        owner: u32,
    },
}

impl From<Errno> for ResolveError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl Root {
    /// Opens a path below the root. Links are resolved below it, and only trusted ones are followed.
    pub(super) fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ResolveError> {
        match self.open_linkless(path, flags) {
            Err(Errno::LOOP) => Ok(self.open_linkless(&self.resolve_links(path)?, flags)?),
            opened => Ok(opened?),
        }
    }

    pub(super) fn open_directory(&self, path: &str) -> Result<OwnedFd, ResolveError> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the parent directory of a path.
    pub(super) fn parent_of(&self, path: &RootedPath) -> Result<OwnedFd, ResolveError> {
        let parent = path.parent();
        self.open_directory(parent.as_ref().map_or("/", RootedPath::as_str))
    }

    /// Opens a path in which no component is a link; the kernel returns `ELOOP` otherwise.
    fn open_linkless(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Replaces every link in a path by its target. The caller opens the result without following links, so that a
    /// component that is replaced by a link in between leads to an error.
    fn resolve_links(&self, path: &str) -> Result<String, ResolveError> {
        let mut resolved: Vec<Component> = Vec::new();
        let mut pending: VecDeque<String> = components(path).collect();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            let here = format!("{}/{name}", joined(&resolved));
            let found = self.open_linkless(&here, OFlags::PATH | OFlags::NOFOLLOW)?;
            let stat = rustix::fs::fstat(&found)?;
            let component = Component {
                name,
                owner: stat.st_uid,
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {}
                FileType::Directory => {
                    resolved.push(component);
                    continue;
                }
                _ if pending.is_empty() => {
                    resolved.push(component);
                    continue;
                }
                _ => return Err(Errno::NOTDIR.into()),
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            self.require_trusted_link(&resolved, &component)?;
            let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
            let target = target.into_string().map_err(|_| Errno::ILSEQ)?;
            if target.starts_with('/') {
                resolved.clear();
            }
            for component in components(&target).rev() {
                pending.push_front(component);
            }
        }
        let path = joined(&resolved);
        Ok(if path.is_empty() { "/".to_owned() } else { path })
    }

    /// Refuses a link unless it and all directories that lead to it belong to trusted users. A user's directory in
    /// between is enough to put another link in its place.
    fn require_trusted_link(&self, directories: &[Component], link: &Component) -> Result<(), ResolveError> {
        let mut path = directories.iter().chain([link]);
        match path.find(|component| !self.is_trusted(component.owner)) {
            Some(component) => Err(ResolveError::UntrustedLink {
                link: format!("{}/{}", joined(directories), link.name),
                owner: component.owner,
            }),
            None => Ok(()),
        }
    }

    /// Returns whether links of a user are followed: those of root, of our own user, and of the owner of the root
    /// directory, who can replace everything below it anyway.
    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0
            || uid == rustix::process::geteuid().as_raw()
            || rustix::fs::fstat(&self.fd).is_ok_and(|root| root.st_uid == uid)
    }
}

fn components(path: &str) -> impl DoubleEndedIterator<Item = String> {
    path.split('/')
        .filter(|name| !name.is_empty() && *name != ".")
        .map(str::to_owned)
}

/// Returns the path of resolved components, without a slash at its end.
fn joined(components: &[Component]) -> String {
    components
        .iter()
        .fold(String::new(), |path, component| path + "/" + &component.name)
}
