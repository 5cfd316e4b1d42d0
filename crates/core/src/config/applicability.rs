//! What a node refuses to apply, regardless of its current config. Validation, admission, rendering and the daemon use
//! the same functions, so that a config that is accepted is not refused by the first node.

use mco_ignition::Config;
use mco_ignition::model::{File, Resource, Unit};
use mco_ignition::resource;

use crate::config::node_files;
use crate::config::problem::Problem;

/// This file makes the daemon skip its validation, so no config may create it.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// The limit for decoded files, because a few bytes of gzip can expand to any size. Larger files belong in an image.
pub const LARGEST_CONTENTS: usize = 512 << 20;

/// NAME_MAX: the longest name of a directory entry on Linux.
const LONGEST_NAME: usize = 255;
/// The longest path the kernel accepts (PATH_MAX without the NUL byte).
const LONGEST_PATH: usize = 4095;
/// The suffix of the directory with a unit's drop-ins.
const DROPIN_DIRECTORY: &str = ".d";

/// Filesystems of the kernel, where files cannot be created or do not persist.
const KERNEL_FILESYSTEMS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The daemon's own state, which no config may overwrite.
const DAEMON_STATE: [&str; 13] = [
    "/etc/machine-config-daemon/currentconfig",
    "/etc/machine-config-daemon/currentimage",
    "/etc/machine-config-daemon/transaction.json",
    "/etc/machine-config-daemon/transaction-undo.json",
    "/etc/machine-config-daemon/orig",
    "/etc/machine-config-daemon/noorig",
    "/etc/machine-config-daemon/adoption.json",
    "/etc/machine-config-daemon/live.json",
    "/etc/machine-config-daemon/node-files.json",
    "/etc/machine-config-daemon/released",
    "/etc/machine-config-daemon/membership.json",
    "/etc/machine-config-daemon/kubeconfig",
    "/run/machine-config-daemon",
];

/// Why a node refuses a path or a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub why: &'static str,
    pub hint: &'static str,
}

/// Checks the path of a file, directory or link.
pub fn check_path(path: &str) -> Result<(), Refusal> {
    let refuse = |why, hint| Err(Refusal { why, hint });
    if path.contains('\0') {
        return refuse("it contains a NUL byte", "remove the NUL byte");
    }
    if path.len() > LONGEST_PATH {
        return refuse("it is longer than 4095 bytes", "use a shorter path");
    }
    if path.split('/').any(|name| name.len() > LONGEST_NAME) {
        return refuse("one of its names is longer than 255 bytes", "use shorter names");
    }
    if KERNEL_FILESYSTEMS
        .iter()
        .any(|directory| is_within(path, directory))
    {
        return refuse(
            "the kernel provides this directory; use a sysctl file or a unit instead",
            "use a file in /etc/sysctl.d, /etc/udev/rules.d or /etc/tmpfiles.d, or a unit",
        );
    }
    if DAEMON_STATE.iter().any(|own| is_within(path, own)) {
        return refuse("it belongs to the daemon itself", "use another path");
    }
    if path == FORCE_FILE {
        return refuse(
            "cannot create /run/machine-config-daemon-force via Ignition",
            "create that file by hand on the node that needs it",
        );
    }
    Ok(())
}

/// Checks the name of a unit.
pub fn check_unit_name(name: &str) -> Result<(), Refusal> {
    check_name(name, LONGEST_NAME)
}

/// Checks the names of a unit and one of its drop-ins.
pub fn check_dropin_name(unit: &str, dropin: &str) -> Result<(), Refusal> {
    check_name(unit, LONGEST_NAME - DROPIN_DIRECTORY.len())?;
    check_name(dropin, LONGEST_NAME)
}

fn check_name(name: &str, longest: usize) -> Result<(), Refusal> {
    let refuse = |why, hint| Err(Refusal { why, hint });
    if name.contains('/') {
        return refuse(
            "the name contains a slash",
            "use the name alone, without a directory",
        );
    }
    if name.chars().any(char::is_control) {
        return refuse(
            "the name contains a line break, a NUL byte or another control character",
            "remove the control characters",
        );
    }
    if name.len() > longest {
        return refuse(
            "the name is longer than 255 bytes, or 253 for a unit with drop-ins",
            "use a shorter name",
        );
    }
    Ok(())
}

/// Returns all parts of a config that a running node refuses.
pub fn refusals(config: &Config) -> Vec<Problem> {
    let mut problems = remote_files(config);
    problems.extend(refusals_of_embedded(config));
    problems
}

fn remote_files(config: &Config) -> Vec<Problem> {
    let files = config.storage.files.iter().enumerate();
    files
        .filter(|(_, file)| is_remote(&file.contents) && node_files::secret_version(file).is_none())
        .map(|(index, file)| {
            Problem::new(
                format!("spec.config.storage.files[{index}].contents.source"),
                "a running node cannot fetch remote contents",
            )
            .with_hint("embed the contents as a data URL (\"data:,...\" or \"data:;base64,...\")")
            .about(file.path.clone())
        })
        .collect()
}

/// Returns all parts of a config that a running node refuses, except remote contents, which are embedded before a node
/// has the config ([`crate::config::remote`]).
pub fn refusals_of_embedded(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, file) in config.storage.files.iter().enumerate() {
        refused_file(index, file, &mut problems);
    }
    let storage = &config.storage;
    let directories = storage.directories.iter().map(|directory| &directory.path);
    let links = storage.links.iter().map(|link| &link.path);
    let others = directories
        .enumerate()
        .map(|(index, path)| ("directories", index, path))
        .chain(links.enumerate().map(|(index, path)| ("links", index, path)));
    for (section, index, path) in others {
        problems.extend(refused_path(section, index, path));
    }
    for (index, unit) in config.systemd.units.iter().enumerate() {
        refused_unit(index, unit, &mut problems);
    }
    problems
}

fn refused_path(section: &str, index: usize, path: &str) -> Option<Problem> {
    let refusal = check_path(path).err()?;
    let message = if path == FORCE_FILE {
        refusal.why.to_owned()
    } else {
        format!("{} cannot be managed: {}", path.escape_debug(), refusal.why)
    };
    let field = format!("spec.config.storage.{section}[{index}].path");
    Some(Problem::new(field, message).with_hint(refusal.hint))
}

fn refused_file(index: usize, file: &File, problems: &mut Vec<Problem>) {
    let field = format!("spec.config.storage.files[{index}]");
    let about = |problem: Problem| problem.about(file.path.clone());
    if !file.append.is_empty() {
        problems.push(about(
            Problem::new(
                format!("{field}.append"),
                format!("ignition file {} includes append", file.path),
            )
            .with_hint("a running node cannot append; set the whole contents in contents.source"),
        ));
    }
    problems.extend(refused_path("files", index, &file.path));
    if let Err(error) = resource::verify(&file.contents, LARGEST_CONTENTS) {
        problems.push(about(
            Problem::new(format!("{field}.contents.verification.hash"), error.to_string()).with_hint(
                "correct the contents or the hash; the hash is that of the contents after decompression",
            ),
        ));
    }
}

fn refused_unit(index: usize, unit: &Unit, problems: &mut Vec<Problem>) {
    let field = format!("spec.config.systemd.units[{index}]");
    let problem = |field: String, name: &str, refusal: Refusal| {
        let message = format!("{} cannot be managed: {}", name.escape_debug(), refusal.why);
        Problem::new(field, message).with_hint(refusal.hint)
    };
    if let Err(refusal) = check_unit_name(&unit.name) {
        problems.push(problem(format!("{field}.name"), &unit.name, refusal));
        return;
    }
    for (number, dropin) in unit.dropins.iter().enumerate() {
        if let Err(refusal) = check_dropin_name(&unit.name, &dropin.name) {
            let field = format!("{field}.dropins[{number}].name");
            problems.push(problem(field, &dropin.name, refusal));
        }
    }
}

fn is_remote(resource: &Resource) -> bool {
    resource
        .source
        .as_deref()
        .is_some_and(|source| !source.is_empty() && !source.starts_with("data:"))
}

/// Returns whether a path is a directory or below it.
fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(body: &Value) -> Vec<(String, String)> {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let parsed = mco_ignition::parse(&config).unwrap();
        refusals(&parsed.config)
            .into_iter()
            .map(|problem| (problem.path, problem.message))
            .collect()
    }

    #[test]
    fn a_path_that_the_first_node_would_refuse_is_a_problem_of_the_config() {
        let long = format!("/etc/{}", "a".repeat(256));
        for (path, why) in [
            ("/proc/sys/kernel/panic", "the kernel provides this directory"),
            ("/sys/x", "the kernel provides this directory"),
            ("/dev/shm/x", "the kernel provides this directory"),
            (
                "/etc/machine-config-daemon/currentconfig",
                "it belongs to the daemon itself",
            ),
            (
                "/etc/machine-config-daemon/orig/x",
                "it belongs to the daemon itself",
            ),
            (
                "/run/machine-config-daemon/lock",
                "it belongs to the daemon itself",
            ),
            ("/etc/a\0b", "it contains a NUL byte"),
            (long.as_str(), "one of its names is longer than 255 bytes"),
        ] {
            for section in ["files", "directories", "links"] {
                let mut entry = json!({ "path": path });
                if section == "links" {
                    entry["target"] = json!("/etc/target");
                }
                let found = refused(&json!({"storage": {section: [entry]}}));
                assert_eq!(found.len(), 1, "{path} {found:?}");
                assert_eq!(found[0].0, format!("spec.config.storage.{section}[0].path"));
                assert!(found[0].1.contains(why), "{path}: {found:?}");
            }
        }
        let fine = [
            "/device",
            "/etc/machine-config-daemon/mine",
            "/run/x",
            "/process/x",
        ];
        for path in fine {
            assert_eq!(
                refused(&json!({"storage": {"files": [{"path": path}]}})),
                [],
                "{path}"
            );
        }
    }

    #[test]
    fn a_unit_name_that_the_first_node_would_refuse_is_a_problem_of_the_config() {
        let long = format!("{}.service", "a".repeat(250));
        for (name, why) in [
            ("a/b.service", "the name contains a slash"),
            ("a\nb.service", "control character"),
            ("a\0b.service", "control character"),
            ("a\u{7f}.service", "control character"),
            (long.as_str(), "longer than 255 bytes"),
        ] {
            let found = refused(&json!({"systemd": {"units": [{"name": name}]}}));
            assert_eq!(found.len(), 1, "{name:?}: {found:?}");
            assert_eq!(found[0].0, "spec.config.systemd.units[0].name");
            assert!(found[0].1.contains(why), "{found:?}");
            assert!(!found[0].1.contains(char::is_control), "{found:?}");
        }
        for dropin in ["a/b.conf", "a\nb.conf"] {
            let unit = json!({"name": "a.service", "dropins": [{"name": "10.conf"}, {"name": dropin}]});
            let found = refused(&json!({"systemd": {"units": [unit]}}));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].0, "spec.config.systemd.units[0].dropins[1].name");
        }
        let unit = json!({"name": "serial-getty@tty\\x2d1.service", "dropins": [{"name": "10 a.conf"}]});
        assert_eq!(refused(&json!({"systemd": {"units": [unit]}})), []);
    }

    #[test]
    fn contents_with_another_hash_are_a_problem_of_the_config() {
        let hash = format!("sha256-{}", "0".repeat(64));
        let contents = json!({"source": "data:,a", "verification": {"hash": hash}});
        let found = refused(&json!({"storage": {"files": [{"path": "/a", "contents": contents}]}}));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].0,
            "spec.config.storage.files[0].contents.verification.hash"
        );
    }
}
