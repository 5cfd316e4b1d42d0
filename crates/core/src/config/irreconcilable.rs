//! Differences that a running node cannot apply: disks, filesystems, encryption and arrays that differ between the
//! config a node was provisioned with and its current one. They take effect on new nodes only.
//!
//! Reported in the format and within the limits of a MachineConfigNode's status, without key material.

use std::collections::BTreeSet;

use mco_api::machine_config_node::IrreconcilableChange;
use mco_ignition::Config;
use serde_json::{Map, Value};

/// The feature gate that enables this.
pub const FEATURE_GATE: &str = "IrreconcilableMachineConfig";

/// The sections of Ignition's `storage` that only take effect when a node is provisioned.
const SECTIONS: [&str; 4] = ["disks", "filesystems", "luks", "raid"];
/// Everything below this field unlocks a disk, or refers to the key that does.
const KEY_FILE: &str = "keyFile";
const HIDDEN: &str = "(hidden)";

/// Limits of the status field.
const MOST_CHANGES: usize = 32;
const LONGEST_PATH: usize = 70;
const LONGEST_DIFF: usize = 4096;

/// Returns the changes from `installed` to `current` that only new nodes apply.
pub fn changes(installed: &Config, current: &Config) -> Vec<IrreconcilableChange> {
    let (old, new) = (storage(installed), storage(current));
    let mut found = Vec::new();
    for section in SECTIONS {
        let (old, new) = (list(&old, section), list(&new, section));
        compare(&path(section), Some(&old), Some(&new), Secrecy::None, &mut found);
    }
    let fits = |change: &IrreconcilableChange| change.field_path.len() <= LONGEST_PATH;
    if found.len() > MOST_CHANGES || !found.iter().all(fits) {
        found = by_section(&old, &new);
    }
    found
}

/// Returns one change per section, for configs with more changes than the status can hold.
fn by_section(old: &Value, new: &Value) -> Vec<IrreconcilableChange> {
    SECTIONS
        .into_iter()
        .filter_map(|section| {
            let (old, new) = (list(old, section), list(new, section));
            (old != new).then(|| change(&path(section), Some(&old), Some(&new), Secrecy::None))
        })
        .collect()
}

fn path(section: &str) -> String {
    format!("spec.config.storage.{section}")
}

fn storage(config: &Config) -> Value {
    serde_json::to_value(&config.storage).unwrap_or_default()
}

fn list(storage: &Value, section: &str) -> Value {
    let found = storage.get(section).cloned();
    found.unwrap_or_else(|| Value::Array(Vec::new()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    None,
    Key,
}

impl Secrecy {
    fn below(self, member: &str) -> Self {
        if member == KEY_FILE { Self::Key } else { self }
    }
}

fn compare(
    path: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    secrecy: Secrecy,
    found: &mut Vec<IrreconcilableChange>,
) {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let below = format!("{path}.{name}");
                compare(&below, old.get(name), new.get(name), secrecy.below(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                let below = format!("{path}[{index}]");
                compare(&below, old.get(index), new.get(index), secrecy, found);
            }
        }
        (old, new) if old != new => found.push(change(path, old, new, secrecy)),
        _ => {}
    }
}

fn change(path: &str, old: Option<&Value>, new: Option<&Value>, secrecy: Secrecy) -> IrreconcilableChange {
    let line = |sign: char, value: &Value| format!("{sign} {}", without_keys(value, secrecy));
    let before = old.map(|value| line('-', value));
    let after = new.map(|value| line('+', value));
    let lines: Vec<String> = before.into_iter().chain(after).collect();
    IrreconcilableChange {
        field_path: path.to_owned(),
        diff: shortened(lines.join("\n")),
    }
}

fn without_keys(value: &Value, secrecy: Secrecy) -> Value {
    match value {
        Value::String(_) if secrecy == Secrecy::Key => Value::from(HIDDEN),
        Value::Array(items) => items.iter().map(|item| without_keys(item, secrecy)).collect(),
        Value::Object(members) => {
            let shown = members.iter().map(|(name, value)| {
                let value = without_keys(value, secrecy.below(name));
                (name.clone(), value)
            });
            Value::Object(shown.collect::<Map<String, Value>>())
        }
        other => other.clone(),
    }
}

fn shortened(text: String) -> String {
    if text.chars().count() <= LONGEST_DIFF {
        return text;
    }
    let kept: String = text.chars().take(LONGEST_DIFF - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(storage: &Value) -> Config {
        let value = json!({"ignition": {"version": "3.5.0"}, "storage": storage});
        mco_ignition::parse(&value).unwrap().config
    }

    fn field_diffs(old: &Value, new: &Value) -> Vec<(String, String)> {
        let changes = changes(&config(old), &config(new));
        changes
            .into_iter()
            .map(|change| (change.field_path, change.diff))
            .collect()
    }

    fn pair(path: &str, diff: &str) -> (String, String) {
        (format!("spec.config.storage.{path}"), diff.to_owned())
    }

    #[test]
    fn irreconcilable_changes_are_reported_field_by_field() {
        let disk = |device: &str| json!({"device": device, "wipeTable": true});
        let luks = |source: &str| json!({"luks": [{"name": "data", "device": "/dev/sdb", "keyFile": {"source": source}}]});
        let cases = [
            (
                "nothing",
                json!({"disks": [disk("/dev/sda")]}),
                json!({"disks": [disk("/dev/sda")]}),
                vec![],
            ),
            (
                "what daemons take care of",
                json!({}),
                json!({"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]}),
                vec![],
            ),
            (
                "another device",
                json!({"disks": [disk("/dev/sda")]}),
                json!({"disks": [disk("/dev/sdb")]}),
                vec![pair("disks[0].device", "- \"/dev/sda\"\n+ \"/dev/sdb\"")],
            ),
            (
                "a field more, and one less",
                json!({"filesystems": [{"device": "/dev/sda1", "format": "xfs", "path": "/x"}]}),
                json!({"filesystems": [{"device": "/dev/sda1", "format": "xfs", "label": "x"}]}),
                vec![
                    pair("filesystems[0].label", "+ \"x\""),
                    pair("filesystems[0].path", "- \"/x\""),
                ],
            ),
            (
                "a disk more, and an array less",
                json!({"disks": [disk("/dev/sda")], "raid": [{"name": "md0", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}]}),
                json!({"disks": [disk("/dev/sda"), {"device": "/dev/sdc"}]}),
                vec![
                    pair("disks[1]", "+ {\"device\":\"/dev/sdc\"}"),
                    pair(
                        "raid[0]",
                        "- {\"devices\":[\"/dev/sda\",\"/dev/sdb\"],\"level\":\"raid1\",\"name\":\"md0\"}",
                    ),
                ],
            ),
            (
                "a key is not shown",
                luks("data:,old-key"),
                luks("data:,new-key"),
                vec![pair("luks[0].keyFile.source", "- \"(hidden)\"\n+ \"(hidden)\"")],
            ),
            (
                "nor is it within a volume",
                json!({}),
                luks("data:,new-key"),
                vec![pair(
                    "luks[0]",
                    "+ {\"device\":\"/dev/sdb\",\"keyFile\":{\"source\":\"(hidden)\"},\"name\":\"data\"}",
                )],
            ),
        ];
        for (name, old, new, expected) in cases {
            assert_eq!(field_diffs(&old, &new), expected, "{name}");
        }
    }

    #[test]
    fn a_status_never_gets_more_than_it_takes() {
        let disks = |count: usize, suffix: &str| -> Value {
            let disk = |number| json!({"device": format!("/dev/disk/by-id/{number:0100}{suffix}")});
            json!({"disks": (0..count).map(disk).collect::<Value>()})
        };
        let few = field_diffs(&disks(MOST_CHANGES, "a"), &disks(MOST_CHANGES, "b"));
        assert_eq!(few.len(), MOST_CHANGES);
        let many = field_diffs(&disks(MOST_CHANGES + 1, "a"), &disks(MOST_CHANGES + 1, "b"));
        let [(path, diff)] = many.as_slice() else {
            panic!("{many:?}");
        };
        assert_eq!(path, "spec.config.storage.disks");
        assert_eq!(diff.chars().count(), LONGEST_DIFF);
        assert!(
            diff.starts_with("- [{\"device\":") && diff.ends_with('…'),
            "{diff}"
        );
    }
}
