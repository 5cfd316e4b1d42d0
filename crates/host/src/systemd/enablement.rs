//! Computes the links that enabling a unit creates, and interprets existing ones. A test compares the results with
//! `systemctl`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::unit_file::{InstallSection, RootUnits, UnitSource};
use super::{MASK, UNIT_DIRECTORY};
use crate::path::RootedPath;
use crate::root::{FileKind, FsError, Root};

const DEPENDENCY_DIRECTORIES: [&str; 3] = [".wants", ".requires", ".upholds"];
const RUNTIME_DIRECTORY: &str = "/run/systemd/system";

/// The output of `systemctl is-enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enablement {
    Enabled,
    EnabledRuntime,
    Disabled,
    /// Enabling it only enables other units.
    Indirect,
    /// The unit has no install section.
    Static,
    Masked,
    MaskedRuntime,
    NotFound,
}

impl Enablement {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::EnabledRuntime => "enabled-runtime",
            Self::Disabled => "disabled",
            Self::Indirect => "indirect",
            Self::Static => "static",
            Self::Masked => "masked",
            Self::MaskedRuntime => "masked-runtime",
            Self::NotFound => "not-found",
        }
    }
}

/// Returns the links that enable a unit, with their targets. Empty for an unknown unit or one without an install
/// section.
pub fn links(name: &str, units: &dyn UnitSource) -> Result<BTreeMap<RootedPath, String>, FsError> {
    let mut links = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![name.to_owned()];
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(fragment) = units.definition(&name)? else {
            continue;
        };
        let install = InstallSection::parse(&fragment.text);
        own_links(&name, &fragment.path, &install, &mut links)?;
        waiting.extend(install.also.iter().map(|also| expand(also, &name)));
    }
    Ok(links)
}

fn own_links(
    name: &str,
    fragment: &str,
    install: &InstallSection,
    links: &mut BTreeMap<RootedPath, String>,
) -> Result<(), FsError> {
    let directory = RootedPath::new(UNIT_DIRECTORY)?;
    // A template is enabled as its default instance, or not at all.
    let instance = match (name.contains("@."), &install.default_instance) {
        (true, Some(default)) => Some(name.replacen("@.", &format!("@{}.", expand(default, name)), 1)),
        (true, None) => None,
        (false, _) => Some(name.to_owned()),
    };
    for alias in &install.alias {
        let alias = expand(alias, name);
        if alias != name && may_alias(name, &alias) {
            links.insert(directory.join(&alias)?, fragment.to_owned());
        }
    }
    let Some(instance) = instance else {
        return Ok(());
    };
    let dependencies = [&install.wanted_by, &install.required_by, &install.upheld_by];
    for (suffix, targets) in DEPENDENCY_DIRECTORIES.iter().zip(dependencies) {
        for target in targets {
            let target = expand(target, name);
            links.insert(
                directory.join(&format!("{target}{suffix}/{instance}"))?,
                fragment.to_owned(),
            );
        }
    }
    Ok(())
}

/// Returns whether a unit may have this alias: same type, and an instance only for an instance.
fn may_alias(name: &str, alias: &str) -> bool {
    let shape = |unit: &str| -> Option<(String, Option<String>)> {
        let (stem, kind) = unit.rsplit_once('.')?;
        Some((
            kind.to_owned(),
            stem.split_once('@').map(|(_, instance)| instance.to_owned()),
        ))
    };
    match (shape(name), shape(alias)) {
        (Some((kind, None)), Some((alias_kind, None))) => kind == alias_kind,
        (Some((kind, Some(instance))), Some((alias_kind, Some(alias_instance)))) => {
            kind == alias_kind && (instance.is_empty() || instance == alias_instance)
        }
        _ => false,
    }
}

/// Returns all links in the administrator's directory that enable or alias a unit. A mask is not included.
pub fn existing_links(root: &Root, name: &str) -> Result<Vec<RootedPath>, FsError> {
    links_in(root, UNIT_DIRECTORY, name)
}

fn links_in(root: &Root, directory: &str, name: &str) -> Result<Vec<RootedPath>, FsError> {
    let directory = RootedPath::new(directory)?;
    let mut found = Vec::new();
    for entry in visible(root, &directory)? {
        let path = directory.join(&entry)?;
        if DEPENDENCY_DIRECTORIES
            .iter()
            .any(|suffix| entry.ends_with(suffix))
        {
            for link in visible(root, &path)? {
                let link_path = path.join(&link)?;
                if let Some(target) = root.read_link(&link_path)?
                    && (link == name || last_name(&target) == name)
                {
                    found.push(link_path);
                }
            }
        } else if entry != name
            && root
                .entry(&path)?
                .is_some_and(|entry| entry.kind == FileKind::Symlink)
            && root
                .read_link(&path)?
                .is_some_and(|target| last_name(&target) == name)
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// Lists a directory without hidden names, which systemd ignores as well.
fn visible(root: &Root, directory: &RootedPath) -> Result<Vec<String>, FsError> {
    let mut names = root.list(directory)?;
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

/// Returns the enablement state of a unit.
pub fn state(root: &Root, name: &str) -> Result<Enablement, FsError> {
    let masked = |directory: &str| -> Result<bool, FsError> {
        let path = RootedPath::new(directory)?.join(name)?;
        Ok(root.read_link(&path)?.as_deref() == Some(MASK))
    };
    if masked(UNIT_DIRECTORY)? {
        return Ok(Enablement::Masked);
    }
    if masked(RUNTIME_DIRECTORY)? {
        return Ok(Enablement::MaskedRuntime);
    }
    let Some(fragment) = RootUnits(root).definition(name)? else {
        return Ok(Enablement::NotFound);
    };
    if !existing_links(root, name)?.is_empty() {
        return Ok(Enablement::Enabled);
    }
    if !links_in(root, RUNTIME_DIRECTORY, name)?.is_empty() {
        return Ok(Enablement::EnabledRuntime);
    }
    let install = InstallSection::parse(&fragment.text);
    Ok(if install.makes_links() {
        Enablement::Disabled
    } else if install.also.is_empty() {
        Enablement::Static
    } else {
        Enablement::Indirect
    })
}

/// Expands the specifiers that unit files use in their install section.
fn expand(text: &str, name: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let stem = name.rfind('.').map_or(name, |at| &name[..at]);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut expanded = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, if character == '%' { characters.next() } else { None }) {
            ('%', Some('p')) => expanded.push_str(prefix),
            ('%', Some('i' | 'I')) => expanded.push_str(instance),
            ('%', Some('n')) => expanded.push_str(name),
            ('%', Some('N')) => expanded.push_str(stem),
            ('%', Some('j')) => expanded.push_str(prefix.rsplit('-').next().unwrap_or(prefix)),
            ('%', Some('%')) => expanded.push('%'),
            ('%', Some(other)) => expanded.extend(['%', other]),
            (other, _) => expanded.push(other),
        }
    }
    expanded
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systemd::Fragment;

    struct Units(&'static [(&'static str, &'static str)]);

    impl UnitSource for Units {
        fn fragment(&self, name: &str) -> Result<Option<Fragment>, FsError> {
            let found = self.0.iter().find(|(unit, _)| *unit == name);
            Ok(found.map(|(unit, text)| Fragment {
                path: format!("/usr/lib/{unit}"),
                text: (*text).to_owned(),
            }))
        }
    }

    fn check(name: &str, units: &'static [(&'static str, &'static str)], expected: &[(&str, &str)]) {
        let links = links(name, &Units(units)).unwrap();
        let got: Vec<(String, String)> = links
            .iter()
            .map(|(path, target)| {
                (
                    path.as_str().replacen("/etc/systemd/system/", "", 1),
                    target.replacen("/usr/lib/", "", 1),
                )
            })
            .collect();
        let got: Vec<(&str, &str)> = got.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(got, expected, "{name}");
    }

    #[test]
    fn links_follow_the_install_section() {
        check(
            "a.service",
            &[(
                "a.service",
                "[Install]\nWantedBy=multi-user.target\nAlias=b.service a.service\n",
            )],
            &[
                ("b.service", "a.service"),
                ("multi-user.target.wants/a.service", "a.service"),
            ],
        );
        check("static.service", &[("static.service", "[Service]\n")], &[]);
        check("nobody.service", &[], &[]);
        check(
            "one.service",
            &[
                ("one.service", "[Install]\nAlso=two.socket\n"),
                (
                    "two.socket",
                    "[Install]\nRequiredBy=sockets.target\nAlso=one.service\n",
                ),
            ],
            &[("sockets.target.requires/two.socket", "two.socket")],
        );
        check(
            "getty@tty1.service",
            &[("getty@.service", "[Install]\nWantedBy=%i.target\n")],
            &[("tty1.target.wants/getty@tty1.service", "getty@.service")],
        );
        check(
            "getty@.service",
            &[(
                "getty@.service",
                "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
            )],
            &[("getty.target.wants/getty@tty1.service", "getty@.service")],
        );
    }
}
