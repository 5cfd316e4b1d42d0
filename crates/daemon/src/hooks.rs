//! Hooks: executables of the node's administrators that run before and after a change.
//!
//! `/etc/mco/hooks.d/<phase>/*` run in the order of their names, each with a time limit. They are files of the machine or
//! of its config. A failure before the reboot undoes the change.

use std::time::Duration;

use mco_core::rollout::hooks::{HookPhase, HookResult};
use mco_host::{FileKind, FsError, Machine, ProgramRequest, RootedPath};

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
        let Some(mode) = executable(machine, &path)? else {
            continue;
        };
        let (failure, output) = if mode & WRITABLE_BY_OTHERS != 0 {
            let why = format!("mode {mode:04o}: others than root may change it; run chmod go-w {path}");
            (Some(why), String::new())
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

/// Returns the mode of a file that is to be run. Hidden files, directories, links and files that are not executable are
/// no hooks.
fn executable(machine: &Machine, path: &RootedPath) -> Result<Option<u32>, FsError> {
    if path.name().starts_with('.') {
        return Ok(None);
    }
    let entry = machine.root.entry(path)?;
    Ok(entry
        .filter(|entry| entry.kind == FileKind::File && entry.mode & 0o111 != 0)
        .map(|entry| entry.mode))
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

    use mco_host::{HostPrograms, ProgramError, ProgramResult, Programs};

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
}
