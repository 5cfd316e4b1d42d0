//! Users, groups and password hashes, read from the machine's own files so that any root can be examined.
//!
//! Password hashes are never part of an error or a log line.

use std::time::Duration;

use rustix::fs::FlockOperation;
use thiserror::Error;

use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

/// Image-based systems keep system users in the second file and the administrator's in the first.
const PASSWD: [&str; 2] = ["/etc/passwd", "/usr/lib/passwd"];
const GROUP: [&str; 2] = ["/etc/group", "/usr/lib/group"];
const SHADOW: &str = "/etc/shadow";
/// The lock that passwd, usermod and similar tools hold while they change these files.
const LOCK: &str = "/etc/.pwd.lock";
const LARGEST: u64 = 16 << 20;
/// Lock attempts: the total wait is that of the C library.
const LOCK_ATTEMPTS: u32 = 150;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub home: String,
}

#[derive(Debug, Error)]
pub enum AccountError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("user {user:?} has no line in {SHADOW}")]
    NoShadowEntry { user: String },
    #[error("the password hash for {user:?} contains a colon or a line break")]
    NotAHash { user: String },
    #[error("{LOCK} is held by another program")]
    Busy,
}

/// The accounts of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Accounts<'a> {
    root: &'a Root,
}

impl<'a> Accounts<'a> {
    pub fn new(root: &'a Root) -> Self {
        Self { root }
    }

    pub fn user(&self, name: &str) -> Result<Option<User>, AccountError> {
        self.find(PASSWD, name, |fields| {
            Some(User {
                uid: fields.get(2)?.parse().ok()?,
                gid: fields.get(3)?.parse().ok()?,
                home: (*fields.get(5)?).to_owned(),
            })
        })
    }

    pub fn group(&self, name: &str) -> Result<Option<u32>, AccountError> {
        self.find(GROUP, name, |fields| fields.get(2)?.parse().ok())
    }

    /// Returns the hash field of a user; `None` without an entry.
    pub fn password_hash(&self, user: &str) -> Result<Option<String>, AccountError> {
        self.find([SHADOW, SHADOW], user, |fields| {
            Some((*fields.get(1)?).to_owned())
        })
    }

    /// Replaces the hash field of a user under the account lock, as other account tools do.
    pub fn set_password_hash(&self, user: &str, hash: &str) -> Result<(), AccountError> {
        if hash.contains([':', '\n']) {
            return Err(AccountError::NotAHash {
                user: user.to_owned(),
            });
        }
        let _lock = self.lock()?;
        let path = RootedPath::new(SHADOW).map_err(FsError::from)?;
        let missing = || AccountError::NoShadowEntry {
            user: user.to_owned(),
        };
        let text = self.root.read_text(&path, LARGEST)?.ok_or_else(missing)?;
        let changed = with_hash(&text, user, hash).ok_or_else(missing)?;
        if changed == text {
            return Ok(());
        }
        let attributes = self
            .root
            .entry(&path)?
            .map_or(Attributes::root(0), |entry| Attributes {
                mode: entry.mode,
                owner: entry.owner,
            });
        Ok(self
            .root
            .write_atomically(&path, attributes, changed.as_bytes())?)
    }

    fn lock(self) -> Result<Option<std::fs::File>, AccountError> {
        let path = RootedPath::new(LOCK).map_err(FsError::from)?;
        if self.root.entry(&path)?.is_none() {
            self.root.create_file(
                &path,
                Attributes::root(0o600),
                b"",
                None,
                crate::root::Durability::Later,
            )?;
        }
        let Some(file) = self.root.open_lock(&path)? else {
            return Ok(None);
        };
        for _ in 0..LOCK_ATTEMPTS {
            match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(_) => std::thread::sleep(LOCK_PAUSE),
            }
        }
        Err(AccountError::Busy)
    }

    fn find<T>(
        self,
        files: [&str; 2],
        name: &str,
        read: impl Fn(&[&str]) -> Option<T>,
    ) -> Result<Option<T>, AccountError> {
        for file in files {
            let path = RootedPath::new(file).map_err(FsError::from)?;
            let text = self.root.read_text(&path, LARGEST)?.unwrap_or_default();
            for line in text.lines() {
                let fields: Vec<&str> = line.split(':').collect();
                if fields.first() == Some(&name) {
                    return Ok(read(&fields));
                }
            }
        }
        Ok(None)
    }
}

fn with_hash(shadow: &str, user: &str, hash: &str) -> Option<String> {
    let mut found = false;
    let lines: Vec<String> = shadow
        .split('\n')
        .map(|line| {
            let mut fields: Vec<&str> = line.split(':').collect();
            if fields.first() != Some(&user) || fields.len() < 2 || found {
                return line.to_owned();
            }
            found = true;
            if let Some(field) = fields.get_mut(1) {
                *field = hash;
            }
            fields.join(":")
        })
        .collect();
    found.then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    #[test]
    fn users_are_found_in_both_files_and_the_administrators_come_first() {
        let (_guard, root) = machine(&[
            (
                "etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1001:CoreOS:/var/home/core:/bin/bash\n",
            ),
            (
                "usr/lib/passwd",
                "core:x:7:7::/:/bin/false\nchrony:x:994:992::/var/lib/chrony:/sbin/nologin\n",
            ),
            ("etc/group", "core:x:1001:\n"),
        ]);
        let accounts = Accounts::new(&root);
        let core = User {
            uid: 1000,
            gid: 1001,
            home: "/var/home/core".to_owned(),
        };
        assert_eq!(accounts.user("core").unwrap(), Some(core));
        assert_eq!(accounts.user("chrony").unwrap().map(|user| user.uid), Some(994));
        assert_eq!(accounts.user("nobody").unwrap(), None);
        assert_eq!(accounts.group("core").unwrap(), Some(1001));
    }

    #[test]
    fn a_new_password_changes_one_field_and_nothing_else() {
        let shadow = "root:!:19000::::::\ncore:$6$old:19000:0:99999:7:::\nx:*:1::::::\n";
        let (guard, root) = machine(&[("etc/shadow", shadow)]);
        let accounts = Accounts::new(&root);
        accounts.set_password_hash("core", "$y$new").unwrap();
        assert_eq!(accounts.password_hash("core").unwrap().as_deref(), Some("$y$new"));
        let text = std::fs::read_to_string(guard.path().join("etc/shadow")).unwrap();
        assert_eq!(text, shadow.replace("$6$old", "$y$new"));
        let refused = accounts.set_password_hash("core", "a:b").unwrap_err().to_string();
        assert!(!refused.contains("a:b"), "{refused}");
        assert!(matches!(
            accounts.set_password_hash("ghost", "*"),
            Err(AccountError::NoShadowEntry { .. })
        ));
    }
}
