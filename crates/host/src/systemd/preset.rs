//! Presets: the distribution's default enablement of a unit.

use std::collections::BTreeMap;

use crate::path::RootedPath;
use crate::root::{FsError, Root};

/// A file in an earlier directory overrides the file of the same name in a later one.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
];
const LARGEST_FILE: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    Enable,
    Disable,
    /// Leave the unit as it is.
    Ignore,
}

/// Returns the preset of a unit. The first matching rule wins; without one, units are enabled.
pub fn preset(root: &Root, unit: &str) -> Result<Preset, FsError> {
    let mut files: BTreeMap<String, RootedPath> = BTreeMap::new();
    for directory in DIRECTORIES {
        let directory = RootedPath::new(directory)?;
        for name in root
            .list(&directory)?
            .into_iter()
            .filter(|name| name.ends_with(".preset"))
        {
            let path = directory.join(&name)?;
            files.entry(name).or_insert(path);
        }
    }
    for path in files.values() {
        let text = root.read_text(path, LARGEST_FILE)?.unwrap_or_default();
        if let Some(preset) = text.lines().find_map(|line| rule(line, unit)) {
            return Ok(preset);
        }
    }
    Ok(Preset::Enable)
}

fn rule(line: &str, unit: &str) -> Option<Preset> {
    let mut words = line.split_whitespace();
    let preset = match words.next()? {
        "enable" => Preset::Enable,
        "disable" => Preset::Disable,
        "ignore" => Preset::Ignore,
        _ => return None,
    };
    let pattern = words.next()?;
    matches(pattern.as_bytes(), unit.as_bytes()).then_some(preset)
}

/// Matches shell patterns: `*`, `?` and `[a-z]`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, text) || text.split_first().is_some_and(|(_, text)| matches(pattern, text))
        }
        (Some((b'?', rest)), Some((_, text))) => matches(rest, text),
        (Some((b'[', rest)), Some((byte, text))) => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => in_set(&rest[..end], *byte) && matches(&rest[end + 1..], text),
            None => *byte == b'[' && matches(rest, text),
        },
        (Some((expected, rest)), Some((byte, text))) => expected == byte && matches(rest, text),
        _ => false,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let (negated, set) = match set.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, set),
    };
    let range = set
        .windows(3)
        .any(|window| window[1] == b'-' && (window[0]..=window[2]).contains(&byte));
    (range || set.contains(&byte)) != negated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    #[test]
    fn the_first_matching_rule_of_the_first_file_by_name_decides() {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "usr/lib/systemd/system-preset/90-default.preset",
                "enable ssh*.service\ndisable *\n",
            ),
            (
                "usr/lib/systemd/system-preset/10-hidden.preset",
                "enable hidden.service\n",
            ),
            ("etc/systemd/system-preset/10-hidden.preset", "# nothing\n"),
            (
                "etc/systemd/system-preset/20-own.preset",
                "ignore x[0-9].service\ndisable sshd.service\n",
            ),
        ] {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        for (unit, expected) in [
            ("sshd.service", Preset::Disable),
            ("ssh-agent.service", Preset::Enable),
            ("hidden.service", Preset::Disable),
            ("x1.service", Preset::Ignore),
            ("xa.service", Preset::Disable),
        ] {
            assert_eq!(preset(&root, unit).unwrap(), expected, "{unit}");
        }
    }

    #[test]
    fn without_any_rule_units_are_enabled() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        assert_eq!(preset(&root, "a.service").unwrap(), Preset::Enable);
    }
}
