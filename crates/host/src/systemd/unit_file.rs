//! Finds unit files and parses their `[Install]` section. The other sections are ignored.

use crate::path::RootedPath;
use crate::root::{FileKind, FsError, Root};

/// The unit search path; the first match wins.
const SEARCH_PATH: [&str; 5] = [
    super::UNIT_DIRECTORY,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const LARGEST_UNIT: u64 = 1 << 20;

/// A unit file: its path (present or planned) and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    pub path: String,
    pub text: String,
}

/// A source of unit files, so that a plan can include files that are not written yet.
pub trait UnitSource {
    /// Returns the file of exactly this name; `None` for a mask.
    fn fragment(&self, name: &str) -> Result<Option<Fragment>, FsError>;

    /// Returns the file that defines a unit: its own, or the template of an instance.
    fn definition(&self, name: &str) -> Result<Option<Fragment>, FsError> {
        match (self.fragment(name)?, template(name)) {
            (Some(fragment), _) => Ok(Some(fragment)),
            (None, Some(template)) => self.fragment(&template),
            (None, None) => Ok(None),
        }
    }
}

/// The unit files on a machine.
#[derive(Debug, Clone, Copy)]
pub struct RootUnits<'a>(pub &'a Root);

impl RootUnits<'_> {
    /// Returns the unit file of the distribution: searches all directories except [`super::UNIT_DIRECTORY`].
    pub fn vendor_fragment(&self, name: &str) -> Result<Option<Fragment>, FsError> {
        self.find(name, SEARCH_PATH.get(1..).unwrap_or_default())
    }

    fn find(self, name: &str, directories: &[&str]) -> Result<Option<Fragment>, FsError> {
        for directory in directories {
            let path = RootedPath::new(directory)?.join(name)?;
            let Some(entry) = self.0.entry(&path)? else {
                continue;
            };
            if entry.kind == FileKind::Symlink && self.0.read_link(&path)?.as_deref() == Some(super::MASK) {
                return Ok(None);
            }
            if let Some(text) = self.0.read_text(&path, LARGEST_UNIT)? {
                return Ok(Some(Fragment {
                    path: path.to_string(),
                    text,
                }));
            }
        }
        Ok(None)
    }
}

impl UnitSource for RootUnits<'_> {
    fn fragment(&self, name: &str) -> Result<Option<Fragment>, FsError> {
        self.find(name, &SEARCH_PATH)
    }
}

/// Returns the template of an instance: `getty@.service` for `getty@tty1.service`.
pub(super) fn template(name: &str) -> Option<String> {
    let (prefix, rest) = name.split_once('@')?;
    let suffix = rest.rfind('.').map(|at| &rest[at..])?;
    (rest != suffix).then(|| format!("{prefix}@{suffix}"))
}

/// The parsed `[Install]` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallSection {
    pub alias: Vec<String>,
    pub wanted_by: Vec<String>,
    pub required_by: Vec<String>,
    pub upheld_by: Vec<String>,
    pub also: Vec<String>,
    pub default_instance: Option<String>,
}

impl InstallSection {
    pub fn parse(text: &str) -> Self {
        let mut install = Self::default();
        let mut inside = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line == "[Install]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| inside) else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "Alias" => assign(&mut install.alias, value),
                "WantedBy" => assign(&mut install.wanted_by, value),
                "RequiredBy" => assign(&mut install.required_by, value),
                "UpheldBy" => assign(&mut install.upheld_by, value),
                "Also" => assign(&mut install.also, value),
                "DefaultInstance" => {
                    install.default_instance = Some(value.to_owned()).filter(|value| !value.is_empty());
                }
                _ => {}
            }
        }
        install
    }

    /// Returns whether enabling the unit itself has any effect.
    pub fn makes_links(&self) -> bool {
        !(self.alias.is_empty()
            && self.wanted_by.is_empty()
            && self.required_by.is_empty()
            && self.upheld_by.is_empty())
    }
}

/// Assigns a value; as everywhere in unit files, an empty one resets the list.
fn assign(list: &mut Vec<String>, value: &str) {
    if value.is_empty() {
        list.clear();
    }
    list.extend(
        value
            .split_whitespace()
            .map(|word| word.trim_matches('"').to_owned()),
    );
}

/// Returns the lines with continuations joined and comments removed, including those between continued lines.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', ';']))
    {
        if let Some(start) = line.strip_suffix('\\') {
            current.push_str(start);
            current.push(' ');
        } else {
            current.push_str(line);
            lines.push(std::mem::take(&mut current));
        }
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_install_section_is_read_with_resets_comments_and_continuations() {
        let text = "[Unit]\nWantedBy=wrong.target\n[Install]\nWantedBy=a.target\nWantedBy=\nWantedBy=b.target \\\n\
                    # not this one\n  c.target\n; nor this\nAlias = x.service\nAlso=y.socket\nDefaultInstance=tty1\n";
        let install = InstallSection::parse(text);
        assert_eq!(install.wanted_by, ["b.target", "c.target"]);
        assert_eq!(
            (install.alias[0].as_str(), install.also[0].as_str()),
            ("x.service", "y.socket")
        );
        assert_eq!(install.default_instance.as_deref(), Some("tty1"));
    }

    #[test]
    fn an_instance_knows_its_template() {
        assert_eq!(template("getty@tty1.service").as_deref(), Some("getty@.service"));
        assert_eq!(template("getty@.service"), None);
        assert_eq!(template("crio.service"), None);
    }
}
