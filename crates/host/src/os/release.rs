//! The distribution and version of a machine, from `os-release`.

use std::collections::BTreeMap;

use crate::path::RootedPath;
use crate::root::{FsError, Root};

const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The fields of `os-release`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsRelease(BTreeMap<String, String>);

impl OsRelease {
    pub fn read(root: &Root) -> Result<Self, FsError> {
        for file in FILES {
            if let Some(text) = root.read_text(&RootedPath::new(file)?, 64 << 10)? {
                return Ok(Self::parse(&text));
            }
        }
        Ok(Self::default())
    }

    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| {
            let (key, value) = line.trim().split_once('=')?;
            let value = value.trim_matches(['"', '\'']);
            (!key.starts_with('#')).then(|| (key.to_owned(), value.to_owned()))
        });
        Self(fields.collect())
    }

    fn field(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub fn id(&self) -> &str {
        self.field("ID")
    }

    /// Returns whether this is an Enterprise Linux variant of CoreOS. Only those have extensions and other kernels.
    pub fn is_enterprise_coreos(&self) -> bool {
        matches!(self.id(), "rhcos" | "scos")
            || (matches!(self.id(), "rhel" | "centos") && self.field("VARIANT_ID") == "coreos")
    }

    pub fn is_coreos(&self) -> bool {
        self.field("VARIANT_ID") == "coreos" || self.is_enterprise_coreos()
    }

    /// Returns the version of the distribution that CoreOS is based on, or the plain version elsewhere.
    pub fn version(&self) -> String {
        if !self.field("RHEL_VERSION").is_empty() {
            return self.field("RHEL_VERSION").to_owned();
        }
        let cluster: String = self
            .field("OPENSHIFT_VERSION")
            .chars()
            .filter(|c| *c != '.')
            .collect();
        match self
            .field("VERSION")
            .strip_prefix(&format!("{cluster}."))
            .filter(|_| !cluster.is_empty())
        {
            Some(rest) => rest.to_owned(),
            None if self.field("VERSION").is_empty() || cluster.is_empty() => {
                self.field("VERSION_ID").to_owned()
            }
            None => self.field("VERSION").to_owned(),
        }
    }
}

impl OsRelease {
    /// Returns the version as comparable numbers; -1 stands for a missing part.
    pub fn version_numbers(&self) -> Option<(u32, i64)> {
        let version = self.version();
        let mut parts = version.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next().and_then(|minor| minor.parse().ok()).unwrap_or(-1);
        Some((major, minor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_distinguished() {
        let cases = [
            (
                "ID=\"rhcos\"\nVARIANT_ID=coreos\nRHEL_VERSION=\"8.6\"\n",
                true,
                true,
                "8.6",
            ),
            (
                "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=\"10.1\"\n",
                true,
                true,
                "10.1",
            ),
            ("ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=42\n", false, true, "42"),
            (
                "ID=fedora\nVARIANT_ID=server\nVERSION_ID=42\n",
                false,
                false,
                "42",
            ),
            ("ID=debian\nVERSION_ID=\"12\"\n", false, false, "12"),
            (
                "ID=rhcos\nVERSION=\"416.94.2024\"\nOPENSHIFT_VERSION=\"4.16\"\n",
                true,
                true,
                "94.2024",
            ),
        ];
        for (text, enterprise, coreos, version) in cases {
            let release = OsRelease::parse(text);
            assert_eq!(
                (
                    release.is_enterprise_coreos(),
                    release.is_coreos(),
                    release.version().as_str()
                ),
                (enterprise, coreos, version),
                "{text}"
            );
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        let numbers =
            |version: &str| OsRelease::parse(&format!("RHEL_VERSION={version}\n")).version_numbers();
        for (version, expected) in [
            ("9.6", Some((9, 6))),
            ("9.10", Some((9, 10))),
            ("10", Some((10, -1))),
            ("9.4.1", Some((9, 4))),
            ("rawhide", None),
        ] {
            assert_eq!(numbers(version), expected, "{version}");
        }
        assert!(numbers("9.10") > numbers("9.6") && numbers("10") > numbers("9.10"));
    }
}
