//! Validates files, directories and links, and conflicts between them.

use std::collections::{HashMap, HashSet};

use super::rule::{self, ValidationRule};
use super::{Checker, duplicates, resources};
use crate::model::{Config, File, Link, NodeGroup, NodeUser, Storage};
use crate::version::SpecVersion;

/// The directory to which Ignition writes units and drop-ins.
const UNIT_DIRECTORY: &str = "/etc/systemd/system/";

/// More than any path of a drop-in has; without a limit, a hostile path would be compared piece by piece.
const MOST_SEPARATORS: usize = 8;

/// Permission bits proper, without setuid, setgid and sticky.
const PERMISSIONS: i64 = 0o777;
const SPECIAL_BITS: i64 = 0o7000;

pub(super) fn nodes(storage: &Storage, check: &mut Checker) {
    duplicates::paths(storage, check);
    let links = PathTree::of(storage.links.iter().map(|link| link.path.as_str()));
    let directories: HashSet<&str> = storage
        .directories
        .iter()
        .map(|directory| directory.path.as_str())
        .collect();
    check.each("directories", &storage.directories, |directory, check| {
        node(&directory.path, &directory.user, &directory.group, check);
        mode(directory.mode, check);
        below_link(&directory.path, &links, rule::DIRECTORY_BELOW_LINK, check);
    });
    check.each("files", &storage.files, |file, check| {
        node(&file.path, &file.user, &file.group, check);
        self::file(file, check);
        below_link(&file.path, &links, rule::FILE_BELOW_LINK, check);
    });
    check.each("links", &storage.links, |link, check| {
        node(&link.path, &link.user, &link.group, check);
        self::link(link, &directories, check);
        below_link(&link.path, &links, rule::LINK_BELOW_LINK, check);
    });
}

/// Reports units and files with the same path, which would overwrite each other.
pub(super) fn conflicts_with_units(config: &Config, check: &mut Checker) {
    let is_written =
        |contents: &Option<String>| contents.as_deref().is_some_and(|contents| !contents.is_empty());
    let mut units = HashSet::new();
    let mut dropins: HashMap<&str, HashSet<&str>> = HashMap::new();
    for unit in &config.systemd.units {
        if is_written(&unit.contents) {
            units.insert(unit.name.as_str());
        }
        let written = unit.dropins.iter().filter(|dropin| is_written(&dropin.contents));
        dropins
            .entry(&unit.name)
            .or_default()
            .extend(written.map(|dropin| dropin.name.as_str()));
    }
    let report = |path: &str, check: &mut Checker| {
        let Some(name) = path.strip_prefix(UNIT_DIRECTORY) else {
            return;
        };
        // Unit names may contain the separator, though real ones never do.
        let is_dropin = name
            .match_indices(".d/")
            .take(MOST_SEPARATORS)
            .any(|(at, separator)| {
                let of_unit = dropins.get(&name[..at]);
                of_unit.is_some_and(|names| names.contains(&name[at + separator.len()..]))
            });
        if is_dropin || units.contains(name) {
            check.error_at("path", rule::PATH_OF_UNIT);
        }
    };
    check.field("storage", |check| {
        check.each("directories", &config.storage.directories, |node, check| {
            report(&node.path, check);
        });
        check.each("files", &config.storage.files, |node, check| {
            report(&node.path, check);
        });
        check.each("links", &config.storage.links, |node, check| {
            report(&node.path, check);
        });
    });
}

/// Returns what is wrong with an absolute path, if anything.
pub(super) fn path_fault(path: &str) -> Option<ValidationRule> {
    if path.is_empty() {
        return Some(rule::PATH_MISSING);
    }
    let Some(inside) = path.strip_prefix('/') else {
        return Some(rule::PATH_RELATIVE);
    };
    let is_simple = |segment: &str| !matches!(segment, "" | "." | "..");
    if inside.is_empty() || inside.split('/').all(is_simple) {
        None
    } else {
        Some(rule::PATH_DIRTY)
    }
}

fn node(path: &str, user: &NodeUser, group: &NodeGroup, check: &mut Checker) {
    if let Some(fault) = path_fault(path) {
        check.error_at("path", fault);
    }
    for (name, owner_id, owner_name) in [("user", user.id, &user.name), ("group", group.id, &group.name)] {
        if owner_id.is_some() && owner_name.as_deref().is_some_and(|name| !name.is_empty()) {
            check.error_at(name, rule::ID_AND_NAME);
        }
    }
}

fn mode(mode: Option<i64>, check: &mut Checker) {
    let Some(mode) = mode else { return };
    if !(0..=PERMISSIONS | SPECIAL_BITS).contains(&mode) {
        check.error_at("mode", rule::MODE_ILLEGAL);
    }
    if mode & SPECIAL_BITS != 0 {
        check.warn_at("mode", rule::MODE_SPECIAL);
    }
}

fn file(file: &File, check: &mut Checker) {
    mode(file.mode, check);
    if file.overwrite == Some(true) && file.contents.source.is_none() {
        check.error_at("overwrite", rule::OVERWRITE_WITHOUT_SOURCE);
    }
    check.field("contents", |check| resources::resource(&file.contents, check));
    check.each("append", &file.append, resources::resource);
}

fn link(link: &Link, directories: &HashSet<&str>, check: &mut Checker) {
    let target = link.target.as_deref().unwrap_or_default();
    if target.is_empty() && check.at_least(SpecVersion::V3_3) {
        check.error_at("target", rule::LINK_TARGET_MISSING);
        return;
    }
    if link.hard != Some(true) {
        return;
    }
    if directories.contains(hard_link_target(&link.path, target).as_str()) {
        check.error(rule::HARD_LINK_TO_DIRECTORY);
    }
    let owner = [
        ("user", "id", link.user.id.is_some()),
        ("user", "name", link.user.name.is_some()),
        ("group", "id", link.group.id.is_some()),
        ("group", "name", link.group.name.is_some()),
    ];
    for (object, name, _) in owner.into_iter().filter(|(_, _, given)| *given) {
        check.field(object, |check| check.warn_at(name, rule::HARD_LINK_OWNER));
    }
}

fn below_link(path: &str, links: &PathTree<'_>, fault: ValidationRule, check: &mut Checker) {
    if links.has_above(path) {
        check.error(fault);
    }
}

/// Paths by their segments, so that all paths above a given one are found in a single walk.
struct PathTree<'a> {
    /// From a node and a segment to the node below; the root is 0.
    children: HashMap<(usize, &'a str), usize>,
    /// Nodes at which a path ends.
    ends: HashSet<usize>,
}

impl<'a> PathTree<'a> {
    fn of(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut tree = Self {
            children: HashMap::new(),
            ends: HashSet::new(),
        };
        for path in paths {
            let mut node = 0;
            for segment in path.split('/') {
                let next = tree.children.len() + 1;
                node = *tree.children.entry((node, segment)).or_insert(next);
            }
            tree.ends.insert(node);
        }
        tree
    }

    /// Returns whether a path of the tree is an ancestor of `path`.
    fn has_above(&self, path: &str) -> bool {
        let mut node = 0;
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            match self.children.get(&(node, segment)) {
                Some(next) if segments.peek().is_some() => node = *next,
                _ => return false,
            }
            if self.ends.contains(&node) {
                return true;
            }
        }
        false
    }
}

/// Ignition resolves a relative target below the link itself.
fn hard_link_target(link: &str, target: &str) -> String {
    if target.starts_with('/') {
        simplified(target)
    } else {
        simplified(&format!("{link}/{target}"))
    }
}

/// The path without `.`, `..` and superfluous slashes.
pub(crate) fn simplified(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => {
                segments.pop();
            }
            ".." if rooted => {}
            other => segments.push(other),
        }
    }
    let joined = segments.join("/");
    if rooted { format!("/{joined}") } else { joined }
}
