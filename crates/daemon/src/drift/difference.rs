//! Diffs of drifted files, for the machine's own journal only.

use mco_host::{Machine, RootedPath};
use similar::TextDiff;

use crate::config::NodeConfig;
use crate::target::{self, Wanted};

/// The size limit; larger files are reported by size and hash only.
const LARGEST: u64 = 64 << 10;
/// The limit on diff lines; the file itself is on the machine.
const LONGEST: usize = 40;
const READABLE_BY_ALL: u32 = 0o004;

/// Returns a unified diff between a file and its config, if it is text and world-readable anyway.
pub fn unified(machine: &Machine, config: &NodeConfig, path: &str) -> Option<String> {
    let managed = target::managed(config, machine.accounts()).ok()?;
    let managed = managed
        .into_iter()
        .find(|managed| managed.path.as_str() == path)?;
    let Wanted::File { contents, attributes } = managed.wanted else {
        return None;
    };
    let path = RootedPath::new(path).ok()?;
    let entry = machine.root.entry(&path).ok()??;
    if attributes.mode & entry.mode & READABLE_BY_ALL == 0 {
        return None;
    }
    let expected = String::from_utf8(contents.bytes().ok()?).ok()?;
    if expected.len() as u64 > LARGEST {
        return None;
    }
    let found = machine.root.read_text(&path, LARGEST).ok()??;
    let text = TextDiff::from_lines(&expected, &found)
        .unified_diff()
        .context_radius(1)
        .to_string();
    Some(shortened(&text))
}

fn shortened(text: &str) -> String {
    let more = text.lines().count().saturating_sub(LONGEST);
    let mut short: Vec<&str> = text.lines().take(LONGEST).collect();
    let rest = format!("[{more} more lines]");
    if more > 0 {
        short.push(&rest);
    }
    short.join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use mco_host::Ownership;
    use mco_host::systemd::SimulatedServices;
    use serde_json::json;

    use super::*;

    fn difference(mode: u32, text: &str) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("etc")).unwrap();
        fs::write(directory.path().join("etc/a"), text).unwrap();
        fs::set_permissions(directory.path().join("etc/a"), fs::Permissions::from_mode(mode)).unwrap();
        let services = Box::new(SimulatedServices::default());
        let machine = Machine::directory_with(directory.path(), Ownership::Recorded, services).unwrap();
        let object = json!({"metadata": {"name": "x"}, "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": "/etc/a", "mode": mode, "contents": {"source": "data:,one%0Atwo%0Athree%0A"}}]},
        }}});
        let config = NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap();
        unified(&machine, &config, "/etc/a")
    }

    #[test]
    fn changed_lines_are_shown_with_their_neighbours() {
        assert_eq!(
            difference(0o644, "one\n2\nthree\n").as_deref(),
            Some("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three")
        );
    }

    #[test]
    fn files_that_are_not_world_readable_are_never_shown() {
        assert_eq!(difference(0o600, "one\n2\nthree\n"), None);
    }

    #[test]
    fn a_long_difference_is_cut_and_says_so() {
        let shown = difference(0o644, &"x\n".repeat(100)).unwrap();
        assert_eq!(shown.lines().count(), LONGEST + 1);
        assert!(shown.ends_with("[64 more lines]"), "{shown}");
    }
}
