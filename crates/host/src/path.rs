//! Paths below a root. The type excludes `..`; symbolic links are confined by [`crate::Root`].

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// NAME_MAX: the longest name of a directory entry on Linux.
const LONGEST_NAME: usize = 255;
/// The longest path the kernel accepts (PATH_MAX without the NUL byte).
const LONGEST_PATH: usize = 4095;

/// An absolute path such as `/etc/motd`: at least one name, no `.`, no `..`, no NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RootedPath(String);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path:?} is not a usable path: {why}")]
pub struct PathError {
    pub path: String,
    pub why: &'static str,
}

impl RootedPath {
    pub fn new(path: &str) -> Result<Self, PathError> {
        let refuse = |why| PathError {
            path: path.to_owned(),
            why,
        };
        if !path.starts_with('/') {
            return Err(refuse("it is not absolute"));
        }
        if path.len() > LONGEST_PATH {
            return Err(refuse("it is longer than 4095 bytes"));
        }
        let mut clean = String::with_capacity(path.len());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match name {
                "." | ".." => return Err(refuse("it contains . or ..")),
                name if name.contains('\0') => return Err(refuse("it contains a NUL byte")),
                name if name.len() > LONGEST_NAME => {
                    return Err(refuse("one of its names is longer than 255 bytes"));
                }
                name => {
                    clean.push('/');
                    clean.push_str(name);
                }
            }
        }
        if clean.is_empty() {
            return Err(refuse("it is the root itself"));
        }
        Ok(Self(clean))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last name of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the parent directory; `None` if that is the root.
    pub fn parent(&self) -> Option<Self> {
        match self.0.rfind('/') {
            Some(at) if at > 0 => Some(Self(self.0[..at].to_owned())),
            _ => None,
        }
    }

    /// Returns the path of a sibling in the same directory.
    pub fn with_name(&self, name: &str) -> Result<Self, PathError> {
        match self.parent() {
            Some(parent) => Self::new(&format!("{parent}/{name}")),
            None => Self::new(&format!("/{name}")),
        }
    }

    pub fn join(&self, below: &str) -> Result<Self, PathError> {
        Self::new(&format!("{}/{below}", self.0))
    }

    /// Returns whether this path is `other` or below it.
    pub fn is_within(&self, other: &str) -> bool {
        self.0
            .strip_prefix(other.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for RootedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RootedPath {
    type Error = PathError;

    fn try_from(path: String) -> Result<Self, PathError> {
        Self::new(&path)
    }
}

impl From<RootedPath> for String {
    fn from(path: RootedPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_path_below_a_root_is_refused() {
        let long = format!("/{}", "a".repeat(256));
        for (path, why) in [
            ("etc/motd", "it is not absolute"),
            ("", "it is not absolute"),
            ("/", "it is the root itself"),
            ("//", "it is the root itself"),
            ("/etc/../../motd", "it contains . or .."),
            ("/etc/./motd", "it contains . or .."),
            ("/etc/a\0b", "it contains a NUL byte"),
            (long.as_str(), "one of its names is longer than 255 bytes"),
        ] {
            assert_eq!(RootedPath::new(path).unwrap_err().why, why, "{path:?}");
        }
    }

    #[test]
    fn parents_and_neighbours() {
        let path = RootedPath::new("//etc///motd/").unwrap();
        assert_eq!((path.as_str(), path.name()), ("/etc/motd", "motd"));
        assert_eq!(path.parent().unwrap().as_str(), "/etc");
        assert_eq!(path.parent().unwrap().parent(), None);
        assert_eq!(path.with_name("issue").unwrap().as_str(), "/etc/issue");
        assert!(path.is_within("/etc") && path.is_within("/etc/motd") && !path.is_within("/et"));
    }
}
