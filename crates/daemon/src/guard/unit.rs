//! The unit of the guard and its program on the machine.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use mco_host::systemd::{ServiceAction, ServiceError, UNIT_DIRECTORY};
use mco_host::{Attributes, FsError, Machine, ProgramRequest, Root, RootedPath};
use thiserror::Error;

use crate::paths;
use crate::plan::{NewContents, PlanAction, PlanStep};

pub const UNIT: &str = "mco-guard.service";
/// The files of earlier versions, which had a timer for new OS images only.
const FORMER: [&str; 4] = [
    "/etc/systemd/system/timers.target.wants/machine-config-daemon-rollback.timer",
    "/etc/systemd/system/machine-config-daemon-rollback.timer",
    "/etc/systemd/system/machine-config-daemon-rollback.service",
    "/etc/machine-config-daemon/roll-back-unhealthy",
];
/// A program that systemd may execute, whose SELinux label the copy gets.
const EXECUTABLE: &str = "/usr/bin/env";
/// The program prints its version at once.
const LONGEST_START: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub enum GuardProgramError {
    #[error("cannot read {path}: {source}")]
    Source { path: String, source: std::io::Error },
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("{} does not run on this machine: {why}", paths::GUARD_PROGRAM)]
    DoesNotRun { why: String },
}

/// Copies the program to the machine and starts it there once: a program that needs the libraries of its container is
/// of no use. On failure nothing is left.
pub fn install_program(machine: &Machine, source: &Path) -> Result<(), GuardProgramError> {
    let installed = copy(&machine.root, source).and_then(|()| try_out(machine));
    if installed.is_err() {
        // The first failure is the one to report.
        let _ = remove_program(&machine.root);
    }
    installed
}

fn copy(root: &Root, source: &Path) -> Result<(), GuardProgramError> {
    let unreadable = |error| GuardProgramError::Source {
        path: source.display().to_string(),
        source: error,
    };
    let mut source = File::open(source).map_err(unreadable)?;
    let path = program()?;
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    let temporary = Root::temporary_of(&path)?;
    root.remove_file(&temporary)?;
    let label = RootedPath::new(EXECUTABLE).map_err(FsError::from)?;
    root.import_file(&mut source, &temporary, Attributes::root(0o755), &label)?;
    root.rename(&temporary, &path)?;
    Ok(root.sync_parent(&path)?)
}

fn try_out(machine: &Machine) -> Result<(), GuardProgramError> {
    let tried = machine.programs.run(&ProgramRequest {
        program: paths::GUARD_PROGRAM,
        arguments: &["--version"],
        environment: &[],
        timeout: LONGEST_START,
        output_limit: 256,
    });
    let why = match tried {
        Ok(result) if result.end.is_success() => return Ok(()),
        Ok(result) => format!("{}: {}", result.end, result.output.trim()),
        Err(error) => error.to_string(),
    };
    Err(GuardProgramError::DoesNotRun { why })
}

/// Returns the steps that arm the guard: they are part of the change, so that a rollback removes them.
pub fn preparation(root: &Root) -> Result<Vec<PlanStep<'static>>, FsError> {
    // Early, and without any other unit: a config may have broken each of them.
    let unit = format!(
        "# Written by the machine-config-daemon with a new config; removed when the daemon has confirmed the config.\n\
         [Unit]\n\
         Description=Machine Config Daemon: revert a config with which this node is not healthy\n\
         DefaultDependencies=no\n\
         ConditionPathExists={journal}\n\
         RequiresMountsFor={program}\n\
         After=systemd-remount-fs.service\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={program} daemon guard\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         \n\
         [Install]\n\
         WantedBy=sysinit.target\n",
        journal = paths::JOURNAL,
        program = paths::GUARD_PROGRAM,
    );
    let link = RootedPath::new(&link())?;
    let mut steps = Vec::new();
    if let Some(wants) = link.parent() {
        let missing = root.missing_directories(&wants)?;
        steps.extend(missing.into_iter().map(|path| PlanStep {
            path,
            action: PlanAction::CreateDirectory {
                attributes: Attributes::root(0o755),
            },
        }));
    }
    steps.push(PlanStep {
        path: RootedPath::new(&path())?,
        action: PlanAction::Write {
            contents: NewContents::Bytes(unit.into_bytes()),
            attributes: Attributes::root(0o644),
        },
    });
    steps.push(PlanStep {
        path: link,
        action: PlanAction::Link { target: path() },
    });
    Ok(steps)
}

/// Returns whether the unit of the guard is in place.
pub fn is_armed(root: &Root) -> Result<bool, FsError> {
    root.exists(&RootedPath::new(&path())?)
}

/// Starts the guard for a change that restarts services.
pub fn start(machine: &Machine) -> Result<(), ServiceError> {
    machine.services.perform(&ServiceAction::DaemonReload)?;
    machine.services.perform(&ServiceAction::Restart(UNIT.to_owned()))
}

/// Removes the guard of a change that is confirmed or rolled back. One that still runs finds no change and ends.
pub fn disarm(machine: &Machine) -> Result<(), FsError> {
    for path in [link(), path()].iter().map(String::as_str).chain(FORMER) {
        machine.root.remove_file(&RootedPath::new(path)?)?;
    }
    // As systemctl disable does; one that is not empty stays.
    if let Some(wants) = RootedPath::new(&link())?.parent() {
        machine.root.remove_directory(&wants)?;
    }
    remove_program(&machine.root)
}

fn remove_program(root: &Root) -> Result<(), FsError> {
    let path = program()?;
    root.remove_file(&Root::temporary_of(&path)?)?;
    root.remove_file(&path)?;
    match path.parent() {
        Some(directory) => root.remove_directory(&directory).map(|_| ()),
        None => Ok(()),
    }
}

fn program() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::GUARD_PROGRAM)?)
}

fn path() -> String {
    format!("{UNIT_DIRECTORY}/{UNIT}")
}

fn link() -> String {
    format!("{UNIT_DIRECTORY}/sysinit.target.wants/{UNIT}")
}
