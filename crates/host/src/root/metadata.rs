//! File metadata, and attributes to set.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Ownership;

/// The extended attribute that records an owner that cannot be set.
const OWNER_NOTE: &str = "user.mco.owner";
pub(super) const SELINUX_LABEL: &str = "security.selinux";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    pub uid: u32,
    pub gid: u32,
}

impl FileOwner {
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

impl fmt::Display for FileOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// The attributes of a file or directory besides its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits only.
    pub mode: u32,
    pub owner: FileOwner,
}

impl Attributes {
    pub const fn root(mode: u32) -> Self {
        Self {
            mode,
            owner: FileOwner::ROOT,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// A device, socket or pipe, which is never touched.
    Special,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Special => "a device, socket or pipe",
        })
    }
}

/// A directory entry, links not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    pub kind: FileKind,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// File type and permission bits as returned by the kernel.
    pub raw_mode: u32,
    pub owner: FileOwner,
    pub size: u64,
    pub inode: u64,
}

impl FileEntry {
    pub(super) fn new(stat: &Stat, owner: FileOwner) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Special,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            raw_mode: stat.st_mode,
            owner,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            inode: stat.st_ino,
        }
    }
}

pub(super) fn owner_of(stat: &Stat) -> FileOwner {
    FileOwner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

/// Returns the effective owner: the stored one, or the recorded one.
pub(super) fn effective_owner(
    ownership: Ownership,
    stat: &Stat,
    note: impl FnOnce() -> Option<FileOwner>,
) -> FileOwner {
    let stored = owner_of(stat);
    match ownership {
        Ownership::Recorded if stored.uid == rustix::process::geteuid().as_raw() => {
            note().unwrap_or(FileOwner::ROOT)
        }
        Ownership::Enforced | Ownership::Recorded => stored,
    }
}

pub(super) fn owner_note(fd: impl AsFd) -> Option<FileOwner> {
    let mut buffer = [0_u8; 32];
    let length = rustix::fs::fgetxattr(fd, OWNER_NOTE, &mut buffer[..]).ok()?;
    let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
    let (uid, gid) = text.split_once(':')?;
    Some(FileOwner {
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
    })
}

/// Sets the owner of an open file or directory.
pub(super) fn set_owner(fd: impl AsFd, ownership: Ownership, owner: FileOwner) -> Result<(), Errno> {
    match ownership {
        Ownership::Enforced => rustix::fs::fchown(
            fd,
            Some(rustix::fs::Uid::from_raw(owner.uid)),
            Some(rustix::fs::Gid::from_raw(owner.gid)),
        ),
        Ownership::Recorded if owner == FileOwner::ROOT => match rustix::fs::fremovexattr(fd, OWNER_NOTE) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) | Ok(()) => Ok(()),
            Err(errno) => Err(errno),
        },
        Ownership::Recorded => {
            rustix::fs::fsetxattr(fd, OWNER_NOTE, owner.to_string().as_bytes(), XattrFlags::empty())
        }
    }
}

/// Returns the names of all extended attributes of an open file; empty on filesystems without them.
pub(super) fn attribute_names(fd: impl AsFd) -> Vec<Vec<u8>> {
    let mut buffer = vec![0_u8; 64 << 10];
    let Ok(length) = rustix::fs::flistxattr(fd, &mut buffer[..]) else {
        return Vec::new();
    };
    buffer
        .get(..length)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Copies extended attributes from one open file to another. A label that the SELinux policy does not allow us to set
/// is left to the kernel, which has already applied that of the directory.
pub(super) fn copy_attributes(
    from: impl AsFd,
    to: impl AsFd,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(), Errno> {
    let mut value = vec![0_u8; 64 << 10];
    for name in attribute_names(&from).into_iter().filter(|name| wanted(name)) {
        let length = match rustix::fs::fgetxattr(&from, name.as_slice(), &mut value[..]) {
            Ok(length) => length,
            Err(Errno::NODATA) => continue,
            Err(errno) => return Err(errno),
        };
        match rustix::fs::fsetxattr(
            &to,
            name.as_slice(),
            value.get(..length).unwrap_or_default(),
            XattrFlags::empty(),
        ) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
