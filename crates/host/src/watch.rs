//! Watches directories with inotify. What changed, and whether it matters, is determined by the caller.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::path::RootedPath;
use crate::root::{FsError, Root};

/// The watched directories of one root.
#[derive(Debug)]
pub struct Watcher {
    fd: OwnedFd,
    directories: BTreeMap<i32, RootedPath>,
}

/// The events received in one wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchedState {
    /// Changed paths.
    pub paths: Vec<RootedPath>,
    /// Events were lost, or a watched directory itself was removed: the caller must check everything.
    pub everything: bool,
}

impl WatchedState {
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.everything
    }
}

impl Watcher {
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self {
            fd,
            directories: BTreeMap::new(),
        })
    }

    /// Watches a directory or, if it does not exist yet, its closest existing parent.
    pub fn add(&mut self, root: &Root, directory: &RootedPath) -> Result<(), FsError> {
        let mut next = Some(directory.clone());
        while let Some(path) = next {
            match root.open_for_watching(&path)? {
                Some(fd) => return self.watch(&fd, path),
                None => next = path.parent(),
            }
        }
        Ok(())
    }

    fn watch(&mut self, fd: &OwnedFd, path: RootedPath) -> Result<(), FsError> {
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        // The open directory is addressed through `/proc/self/fd`, so that no link can redirect it.
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let watch = inotify::add_watch(&self.fd, name, flags).map_err(|errno| FsError::Failed {
            attempted: "watch directory",
            path: path.to_string(),
            source: errno.into(),
        })?;
        self.directories.insert(watch, path);
        Ok(())
    }

    /// Waits for events until the timeout, then returns all pending ones.
    pub fn wait(&mut self, longest: Duration) -> io::Result<WatchedState> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(WatchedState::default()),
            Ok(_) => self.take(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns all pending events without waiting.
    pub fn take(&mut self) -> io::Result<WatchedState> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut seen = WatchedState::default();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(errno) => return Err(errno.into()),
            };
            let itself = ReadFlags::QUEUE_OVERFLOW
                | ReadFlags::DELETE_SELF
                | ReadFlags::MOVE_SELF
                | ReadFlags::IGNORED;
            if event.events().intersects(itself) {
                seen.everything = true;
            }
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            if let (Some(directory), Some(name)) = (self.directories.get(&event.wd()), name)
                && let Ok(path) = directory.join(&name)
            {
                seen.paths.push(path);
            }
        }
        seen.paths.sort();
        seen.paths.dedup();
        Ok(seen)
    }
}

/// Becomes readable when events are pending, for event loops.
impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    const LONG: Duration = Duration::from_secs(10);

    fn path(text: &str) -> RootedPath {
        RootedPath::new(text).unwrap()
    }

    #[test]
    fn changes_in_a_directory_wake_and_silence_does_not() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let mut watcher = Watcher::new().unwrap();
        watcher.add(&root, &path("/etc")).unwrap();
        assert!(watcher.wait(Duration::from_millis(10)).unwrap().is_empty());
        std::fs::write(directory.path().join("etc/a"), "x").unwrap();
        assert_eq!(watcher.wait(LONG).unwrap().paths, [path("/etc/a")]);
    }

    #[test]
    fn a_directory_that_does_not_exist_is_awaited_where_it_would_appear() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let mut watcher = Watcher::new().unwrap();
        watcher.add(&root, &path("/etc/later/deeper")).unwrap();
        std::fs::create_dir(directory.path().join("etc/later")).unwrap();
        assert_eq!(watcher.wait(LONG).unwrap().paths, [path("/etc/later")]);
    }
}
