//! Hooks: executables of the node's administrators that run before and after a change.
//!
//! `/etc/mco/hooks.d/<phase>/*` run in the order of their names, each with a time limit. They are files of the machine or
//! of its config. A failure before the reboot undoes the change.

use std::time::Duration;

use mco_core::rollout::hooks::{HookPhase, HookResult};
use mco_host::{FileEntry, FileKind, FileOwner, FsError, Machine, ProgramRequest, RootedPath};

/// The directory with one subdirectory for each phase.
pub const DIRECTORY: &str = "/etc/mco/hooks.d";
/// A hook that waits for more is a condition of the rollout: a gate of a RolloutPolicy, or a hold of the node.
pub const TIMEOUT: Duration = Duration::from_mins(5);
/// What is kept of the output: it becomes part of the Node.
const OUTPUT_LIMIT: usize = 1 << 10;
/// Bits that allow others than root to change a program that root runs.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Runs the hooks of a phase until one fails, and returns the results of those that ran.
pub fn run(machine: &Machine, phase: HookPhase, from: &str, to: &str) -> Result<Vec<HookResult>, FsError> {
    run_within(machine, phase, from, to, TIMEOUT)
}

fn run_within(
    machine: &Machine,
    phase: HookPhase,
    from: &str,
    to: &str,
    timeout: Duration,
) -> Result<Vec<HookResult>, FsError> {
    let directory = RootedPath::new(&format!("{DIRECTORY}/{phase}"))?;
    let mut names = machine.root.list(&directory)?;
    names.sort();
    let phase_name = phase.to_string();
    let environment = [
        ("MCO_HOOK", phase_name.as_str()),
        ("MCO_CURRENT_CONFIG", from),
        ("MCO_DESIRED_CONFIG", to),
    ];
    let mut results = Vec::new();
    for name in names {
        let path = directory.join(&name)?;
        if !is_hook(machine, &path)? {
            continue;
        }
        let (failure, output) = if let Some(reason) = changeable_by_others(machine, &path)? {
            (Some(reason), String::new())
        } else {
            let ran = machine.programs.run(&ProgramRequest {
                program: path.as_str(),
                arguments: &[],
                environment: &environment,
                timeout,
                output_limit: OUTPUT_LIMIT,
            });
            match ran {
                Ok(ran) => (
                    (!ran.end.is_success()).then(|| ran.end.to_string()),
                    printable(&ran.output),
                ),
                Err(error) => (Some(error.to_string()), String::new()),
            }
        };
        let result = HookResult {
            phase,
            hook: name,
            config: to.to_owned(),
            failure,
            output,
        };
        tracing::info!("{result}");
        let has_failed = result.failure.is_some();
        results.push(result);
        if has_failed {
            break;
        }
    }
    Ok(results)
}

/// Returns whether a file is to be run. Hidden files, directories, links and files that are not executable are no hooks.
fn is_hook(machine: &Machine, path: &RootedPath) -> Result<bool, FsError> {
    if path.name().starts_with('.') {
        return Ok(false);
    }
    let entry = machine.root.entry(path)?;
    Ok(entry.is_some_and(|entry| entry.kind == FileKind::File && entry.mode & 0o111 != 0))
}

/// Returns why others than root may change a hook, or replace it through one of its directories.
fn changeable_by_others(machine: &Machine, hook: &RootedPath) -> Result<Option<String>, FsError> {
    let mut next = Some(hook.clone());
    while let Some(path) = next {
        let subject = if path == *hook {
            String::new()
        } else {
            format!("directory {path} of ")
        };
        let untrusted = machine.root.entry(&path)?.and_then(untrusted);
        if let Some((attribute, remedy)) = untrusted {
            let reason = format!("{subject}{attribute}: others than root may change it; run {remedy} {path}");
            return Ok(Some(reason));
        }
        next = path.parent();
    }
    Ok(None)
}

/// Returns the attribute by which others than root may change an entry, and the command that corrects it.
fn untrusted(entry: FileEntry) -> Option<(String, &'static str)> {
    let FileEntry {
        kind, mode, owner, ..
    } = entry;
    if kind == FileKind::Symlink {
        // The directories of its target are not checked.
        return Some(("type symbolic link".to_owned(), "unlink"));
    }
    if owner.uid != FileOwner::ROOT.uid {
        return Some((format!("owner {}", owner.uid), "chown root"));
    }
    (mode & WRITABLE_BY_OTHERS != 0).then(|| (format!("mode {mode:04o}"), "chmod go-w"))
}

/// Returns the text without control characters, which would reach terminals and logs.
fn printable(text: &str) -> String {
    text.chars()
        .map(|one| {
            if one == '\n' || !one.is_control() {
                one
            } else {
                ' '
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    use mco_host::{Attributes, HostPrograms, ProgramError, ProgramResult, Programs};

    use super::*;

    /// Runs the programs of a directory as they are.
    #[derive(Debug)]
    struct OfDirectory(PathBuf);

    impl Programs for OfDirectory {
        fn run(&self, request: &ProgramRequest<'_>) -> Result<ProgramResult, ProgramError> {
            let program = self.0.join(request.program.trim_start_matches('/'));
            HostPrograms::default().run(&ProgramRequest {
                program: program.to_str().unwrap(),
                ..*request
            })
        }
    }

    fn machine(directory: &Path) -> Machine {
        let mut machine = Machine::directory(directory).unwrap();
        machine.programs = Box::new(OfDirectory(directory.to_owned()));
        machine
    }

    fn hook(root: &Path, name: &str, script: &str, mode: u32) {
        let path = root.join("etc/mco/hooks.d/before-apply").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A user's umask may leave them writable by the group.
        for directory in [
            "etc",
            "etc/mco",
            "etc/mco/hooks.d",
            "etc/mco/hooks.d/before-apply",
        ] {
            fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn summaries(results: &[HookResult]) -> Vec<String> {
        results.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hooks_run_in_order_until_one_fails() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(directory.path());
        let run = |timeout| run_within(&machine, HookPhase::BeforeApply, "a", "b", timeout).unwrap();
        let long = Duration::from_mins(1);
        assert_eq!(run(long), []);
        hook(
            directory.path(),
            "20-b",
            "printf 'sorry\\033[1m\\n'; exit 3",
            0o755,
        );
        hook(
            directory.path(),
            "10-a",
            "echo $MCO_HOOK $MCO_CURRENT_CONFIG $MCO_DESIRED_CONFIG",
            0o700,
        );
        hook(directory.path(), "30-c", "echo never", 0o755);
        hook(directory.path(), "05-not-executable", "exit 1", 0o644);
        hook(directory.path(), ".hidden", "exit 1", 0o755);
        assert_eq!(
            summaries(&run(long)),
            [
                "hook before-apply/10-a succeeded: before-apply a b",
                "hook before-apply/20-b failed with exit code 3: sorry [1m",
            ]
        );
        hook(
            directory.path(),
            "00-slow",
            "echo waiting; exec sleep 1000",
            0o755,
        );
        assert_eq!(
            summaries(&run(Duration::from_millis(200))),
            ["hook before-apply/00-slow failed with no exit within 0 s: waiting"]
        );
        hook(directory.path(), "00-slow", "touch $0.ran", 0o757);
        let refused = summaries(&run(long)).join("\n");
        assert!(refused.contains("others than root may change it"), "{refused}");
        let ran = directory.path().join("etc/mco/hooks.d/before-apply/00-slow.ran");
        assert!(!ran.exists());
    }

    fn run_marked(machine: &Machine, root: &Path) -> String {
        let results = run_within(machine, HookPhase::BeforeApply, "a", "b", Duration::from_mins(1)).unwrap();
        let ran = root.join("etc/mco/hooks.d/before-apply/10-a.ran");
        assert!(!ran.exists(), "{}", summaries(&results).join("\n"));
        summaries(&results).join("\n")
    }

    #[test]
    fn a_hook_of_another_user_ran_as_root() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(directory.path());
        hook(directory.path(), "10-a", "touch $0.ran", 0o755);
        let hook = "/etc/mco/hooks.d/before-apply/10-a";
        let path = RootedPath::new(hook).unwrap();
        let contents = machine.root.read(&path, 1 << 10).unwrap().unwrap();
        let owner = FileOwner { uid: 1000, gid: 1000 };
        let attributes = Attributes { mode: 0o755, owner };
        machine
            .root
            .write_atomically(&path, attributes, &contents)
            .unwrap();
        let refused = run_marked(&machine, directory.path());
        let reason = format!("owner 1000: others than root may change it; run chown root {hook}");
        assert_eq!(refused, format!("hook before-apply/10-a failed with {reason}"));
    }

    #[test]
    fn a_hook_of_a_directory_that_others_change_ran_as_root() {
        for changeable in ["/etc/mco", "/etc/mco/hooks.d", "/etc/mco/hooks.d/before-apply"] {
            let directory = tempfile::tempdir().unwrap();
            let machine = machine(directory.path());
            hook(directory.path(), "10-a", "touch $0.ran", 0o755);
            let path = RootedPath::new(changeable).unwrap();
            let set = |attributes| machine.root.set_directory_attributes(&path, attributes).unwrap();
            set(Attributes::root(0o777));
            let refused = run_marked(&machine, directory.path());
            let reason = format!(
                "failed with directory {changeable} of mode 0777: others than root may change it; run chmod go-w \
                 {changeable}"
            );
            assert!(refused.contains(&reason), "{refused}");
            let owner = FileOwner { uid: 1000, gid: 0 };
            set(Attributes { mode: 0o755, owner });
            let refused = run_marked(&machine, directory.path());
            assert!(
                refused.contains(&format!("directory {changeable} of owner 1000:")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_hook_behind_a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(directory.path());
        hook(directory.path(), "10-a", "touch $0.ran", 0o755);
        let hooks = directory.path().join("etc/mco/hooks.d");
        fs::rename(&hooks, directory.path().join("srv")).unwrap();
        std::os::unix::fs::symlink("/srv", &hooks).unwrap();
        let refused = run_marked(&machine, directory.path());
        assert!(
            refused.contains("directory /etc/mco/hooks.d of type symbolic link:"),
            "{refused}"
        );
    }
}
