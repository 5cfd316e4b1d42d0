//! Reconcilability: whether a running node can change from one config to another, or must be reprovisioned.

use mco_api::machine_configuration::{IrreconcilableValidationOverrides, StorageSection};
use mco_ignition::Config;
use mco_ignition::model::{Ignition, PasswdUser, Proxy, Resource, Security, Timeouts};

use crate::config::applicability;
use crate::config::parsed_config::ParsedConfig;
use crate::config::problem::Problem;

/// The user that exists on every node, and the only one whose keys and password may change.
const CORE_USER: &str = "core";

/// Sections whose irreconcilable changes the administrator accepts; they take effect on new nodes only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    pub disks: bool,
    pub filesystems: bool,
    pub raid: bool,
}

impl From<&IrreconcilableValidationOverrides> for Overrides {
    fn from(overrides: &IrreconcilableValidationOverrides) -> Self {
        let lifts = |section: &StorageSection| overrides.storage.contains(section);
        Self {
            disks: lifts(&StorageSection::Disks),
            filesystems: lifts(&StorageSection::FileSystems),
            raid: lifts(&StorageSection::Raid),
        }
    }
}

/// Returns all changes from `old` to `new` that a running node cannot apply; empty if it can apply all of them.
pub fn obstacles(old: &ParsedConfig, new: &ParsedConfig, overrides: Overrides) -> Vec<Problem> {
    let mut problems = Vec::new();
    passwd(&old.ignition, &new.ignition, &mut problems);
    sections(&old.ignition, &new.ignition, overrides, &mut problems);
    problems.extend(applicability::refusals(&new.ignition));
    if old.spec().fips != new.spec().fips {
        problems.push(
            Problem::new(
                "spec.fips",
                "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
            )
            .with_hint("FIPS is decided at installation; put the flag back"),
        );
    }
    problems
}

fn passwd(old: &Config, new: &Config, problems: &mut Vec<Problem>) {
    if old.passwd.groups != new.passwd.groups {
        problems.push(
            Problem::new(
                "spec.config.passwd.groups",
                "invalid passwd change(s): ignition Passwd Groups section contains changes",
            )
            .with_hint("groups are created at first boot only; put them back as they were"),
        );
    }
    if old.passwd.users == new.passwd.users {
        return;
    }
    let path = |index: usize| format!("spec.config.passwd.users[{index}]");
    for (index, user) in new
        .passwd
        .users
        .iter()
        .enumerate()
        .filter(|(_, user)| user.name != CORE_USER)
    {
        problems.push(
            Problem::new(
                path(index),
                "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user",
            )
            .about(user.name.clone())
            .with_hint("only the user core can be changed on a running node"),
        );
    }
    let Some((index, user)) = new.passwd.users.iter().enumerate().next_back() else {
        return;
    };
    if user.name != CORE_USER {
        return;
    }
    if user.ssh_authorized_keys.is_empty() && user.password_hash.is_none() {
        problems.push(
            Problem::new(
                path(index),
                "invalid passwd change(s): ignition passwd user section contains unsupported changes: \
                 user must be core and have 1 or more sshKeys",
            )
            .about(CORE_USER)
            .with_hint("set a key or a password hash for core, or remove the user entry altogether"),
        );
    }
    if !has_only_credentials(user) {
        problems.push(
            Problem::new(
                path(index),
                "invalid passwd change(s): SSH keys and password hash are not reconcilable: other fields of the user are set",
            )
            .about(CORE_USER)
            .with_hint("leave only name, sshAuthorizedKeys and passwordHash"),
        );
    }
}

fn has_only_credentials(user: &PasswdUser) -> bool {
    let credentials = PasswdUser {
        name: user.name.clone(),
        ssh_authorized_keys: user.ssh_authorized_keys.clone(),
        password_hash: user.password_hash.clone(),
        ..PasswdUser::default()
    };
    credentials == *user
}

fn sections(old: &Config, new: &Config, overrides: Overrides, problems: &mut Vec<Problem>) {
    let (before, after) = (&old.storage, &new.storage);
    let links_changed = before.links != after.links && !after.links.is_empty();
    let checks = [
        (
            "kernelArguments",
            "kargs",
            old.kernel_arguments != new.kernel_arguments,
        ),
        (
            "storage.disks",
            "disks",
            before.disks != after.disks && !overrides.disks,
        ),
        (
            "storage.filesystems",
            "filesystems",
            before.filesystems != after.filesystems && !overrides.filesystems,
        ),
        (
            "storage.raid",
            "raid",
            before.raid != after.raid && !overrides.raid,
        ),
        (
            "storage.directories",
            "directories",
            before.directories != after.directories,
        ),
        ("storage.links", "links", links_changed),
    ];
    for (path, name, _) in checks.into_iter().filter(|(_, _, changed)| *changed) {
        let hint = match name {
            "kargs" => "use the MachineConfig's own spec.kernelArguments, which running nodes can change",
            "disks" | "filesystems" | "raid" => {
                "this section takes effect at first boot only; revert it, or apply it only to new nodes by listing it \
                 in spec.irreconcilableValidationOverrides.storage of MachineConfiguration cluster"
            }
            _ => "this section takes effect at first boot only; revert it",
        };
        problems.push(
            Problem::new(
                format!("spec.config.{path}"),
                format!("ignition {name} section contains changes"),
            )
            .with_hint(hint),
        );
    }
}

/// Returns the parts of a config that take effect at the first boot only and are not among [`obstacles`]: on a node of
/// a cluster, Ignition has applied them before. Without a cluster they would have no effect at all.
pub fn first_boot_only(old: &ParsedConfig, new: &ParsedConfig) -> Vec<Problem> {
    let (before, after) = (&old.ignition, &new.ignition);
    let Ignition {
        config,
        proxy,
        security,
        timeouts,
        version: _,
    } = &after.ignition;
    let other_configs = "fetch and merge the other config yourself, and apply the result";
    let fetching = "nothing is fetched here, so remove this section";
    let checks = [
        (
            "storage.luks",
            before.storage.luks != after.storage.luks,
            "encrypted devices are created at first boot only; remove this section",
        ),
        ("ignition.config.merge", !config.merge.is_empty(), other_configs),
        (
            "ignition.config.replace",
            config.replace != Resource::default(),
            other_configs,
        ),
        ("ignition.proxy", *proxy != Proxy::default(), fetching),
        ("ignition.security", *security != Security::default(), fetching),
        ("ignition.timeouts", *timeouts != Timeouts::default(), fetching),
    ];
    let present = checks.into_iter().filter(|(_, present, _)| *present);
    present
        .map(|(path, _, hint)| {
            let message = format!("ignition {path} is applied at first boot only, not to a running machine");
            Problem::new(format!("spec.config.{path}"), message).with_hint(hint)
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(body: &Value) -> ParsedConfig {
        let mut value = json!({"ignition": {"version": "3.5.0"}});
        value
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        ParsedConfig::of_spec(json!({ "config": value }))
    }

    fn messages(old: &Value, new: &Value, overrides: Overrides) -> Vec<String> {
        obstacles(&config(old), &config(new), overrides)
            .into_iter()
            .map(|p| p.message)
            .collect()
    }

    #[test]
    fn what_may_change_and_what_may_not() {
        let disk = json!({"storage": {"disks": [{"device": "/dev/sda", "wipeTable": true}]}});
        let link = json!({"storage": {"links": [{"path": "/a", "target": "/b"}]}});
        let core = |extra: Value| {
            let mut user = json!({"name": "core"});
            user.as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            json!({"passwd": {"users": [user]}})
        };
        let with_key = core(json!({"sshAuthorizedKeys": ["a"]}));
        let cases: Vec<(&str, Value, Value, &str)> = vec![
            ("nothing", json!({}), json!({}), ""),
            (
                "files and units",
                json!({}),
                json!({"storage": {"files": [{"path": "/a"}]}, "systemd": {"units": [{"name": "a.service"}]}}),
                "",
            ),
            (
                "a disk",
                json!({}),
                disk.clone(),
                "disks section contains changes",
            ),
            (
                "a filesystem",
                json!({}),
                json!({"storage": {"filesystems": [{"device": "/dev/sda", "format": "xfs", "path": "/x"}]}}),
                "filesystems section contains changes",
            ),
            (
                "a directory",
                json!({}),
                json!({"storage": {"directories": [{"path": "/a"}]}}),
                "directories section contains changes",
            ),
            (
                "a link added",
                json!({}),
                link.clone(),
                "links section contains changes",
            ),
            ("all links removed", link, json!({}), ""),
            (
                "Ignition kernel arguments",
                json!({}),
                json!({"kernelArguments": {"shouldExist": ["a"]}}),
                "kargs section contains changes",
            ),
            ("a key for core", json!({}), with_key.clone(), ""),
            (
                "a password for core",
                json!({}),
                core(json!({"passwordHash": "x"})),
                "",
            ),
            ("users emptied", with_key.clone(), json!({}), ""),
            (
                "core without credentials",
                with_key.clone(),
                core(json!({})),
                "have 1 or more sshKeys",
            ),
            (
                "a home directory",
                with_key.clone(),
                core(json!({"sshAuthorizedKeys": ["a"], "homeDir": "/h"})),
                "not reconcilable",
            ),
            (
                "another user",
                with_key,
                json!({"passwd": {"users": [{"name": "eve"}]}}),
                "non-core user",
            ),
            (
                "a group",
                json!({}),
                json!({"passwd": {"groups": [{"name": "g"}]}}),
                "Passwd Groups section contains changes",
            ),
            (
                "append",
                json!({}),
                json!({"storage": {"files": [{"path": "/a", "append": [{"source": "data:,x"}]}]}}),
                "includes append",
            ),
            (
                "the force file",
                json!({}),
                json!({"storage": {"files": [{"path": applicability::FORCE_FILE}]}}),
                "cannot create",
            ),
        ];
        for (name, old, new, expected) in cases {
            let found = messages(&old, &new, Overrides::default());
            match expected {
                "" => assert_eq!(found, Vec::<String>::new(), "{name}"),
                text => assert!(found.len() == 1 && found[0].contains(text), "{name}: {found:?}"),
            }
        }
        assert!(
            messages(
                &json!({}),
                &disk,
                Overrides {
                    disks: true,
                    ..Overrides::default()
                }
            )
            .is_empty(),
            "overridden"
        );
    }

    #[test]
    fn fips_is_for_ever() {
        let config = |fips: bool| ParsedConfig::of_spec(json!({ "fips": fips }));
        let found = obstacles(&config(false), &config(true), Overrides::default());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "spec.fips");
    }
}
