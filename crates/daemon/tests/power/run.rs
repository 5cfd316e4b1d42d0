//! Records a change on a machine in a directory, and recovers each state that a power failure may leave of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use mco_daemon::config::NodeConfig;
use mco_daemon::once::{self, OnceOutcome, RebootPolicy};
use mco_daemon::transaction::{Checkpoints, Uninterrupted};
use mco_daemon::{disk, validate};
use mco_host::systemd::SimulatedServices;
use mco_host::{Machine, Root};

use super::disk::Disk;
use super::states::{Random, each_state};
use super::trace::{Filesystems, Recorder, Trace};
use crate::support::{self, Snapshot, snapshot};

/// How the change ends without a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Applied,
    /// The disk fails at this checkpoint, and the change is rolled back.
    RolledBackAt(&'static str),
    /// The disk is full: the journal of the rollback cannot be written either.
    RolledBackOnFullDisk,
}

/// Fails once at each of these points.
struct FailAt(RefCell<Vec<&'static str>>, Arc<Recorder>);

impl Checkpoints for FailAt {
    fn at(&self, point: &'static str) -> io::Result<()> {
        self.1.reach(point);
        let mut points = self.0.borrow_mut();
        match points.iter().position(|failing| *failing == point) {
            Some(index) => {
                points.remove(index);
                Err(io::Error::from_raw_os_error(28))
            }
            None => Ok(()),
        }
    }
}

/// A recorded change, with the only two states that may be left of it.
pub struct Change {
    pub name: String,
    pub trace: Trace,
    pub operations: usize,
    filesystems: Filesystems,
    old: Snapshot,
    new: Snapshot,
    new_config: NodeConfig,
    /// The state once the result was reported.
    reported: &'static str,
}

/// The number of states that were examined, by outcome.
#[derive(Debug, Default)]
pub struct Tally {
    pub states: usize,
    pub outcomes: BTreeMap<&'static str, usize>,
    pub sampled_windows: usize,
    pub windows: usize,
    pub cuts_while_recovering: usize,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.states += other.states;
        self.sampled_windows += other.sampled_windows;
        self.windows += other.windows;
        self.cuts_while_recovering += other.cuts_while_recovering;
        for (outcome, count) in other.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
    }
}

/// How thoroughly a change is examined.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number of states of one moment up to which all are examined.
    pub states: usize,
    /// Every so many states, the change is completed afterwards.
    pub complete: usize,
    /// Every so many states, the power fails again while recovering.
    pub again: usize,
    pub seed: u64,
}

/// A directory in memory, if there is one.
pub fn temporary() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => directory,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

fn machine(directory: &Path, recorder: Option<&Arc<Recorder>>) -> Machine {
    let services = Box::new(SimulatedServices::default());
    let mut machine = Machine::directory_with(directory, support::ownership(), services).unwrap();
    if let Some(recorder) = recorder {
        let recorder: Arc<Recorder> = Arc::clone(recorder);
        machine.root = Root::open_recorded(directory, support::ownership(), recorder).unwrap();
    }
    machine
}

fn node_snapshot(directory: &Path) -> Snapshot {
    let mut found = snapshot(directory);
    found.remove("/var/lib/mco-simulated-os.json");
    found
}

impl Change {
    /// Applies the old config, unless the machine is new, and records the change to the new one.
    pub fn record(name: &str, old: Option<&NodeConfig>, new: &NodeConfig, ending: Ending) -> Self {
        Self::record_on(name, old, new, ending, Filesystems::One, &|_| {})
    }

    pub fn record_on(
        name: &str,
        old: Option<&NodeConfig>,
        new: &NodeConfig,
        ending: Ending,
        filesystems: Filesystems,
        prepare: &dyn Fn(&Path),
    ) -> Self {
        let directory = temporary();
        let path = directory.path();
        support::lay_out(path);
        std::fs::create_dir_all(path.join("var/lib")).unwrap();
        std::fs::write(path.join("etc/preexisting"), "preexisting\n").unwrap();
        prepare(path);
        if let Some(old) = old {
            let machine = machine(path, None);
            once::apply(&machine, old, RebootPolicy::WhenNeeded, &Uninterrupted).unwrap();
        }
        let recorder = Arc::new(Recorder::new(filesystems));
        let recorded = machine(path, Some(&recorder));
        let base = Disk::read(&recorded.root);
        let old_snapshot = node_snapshot(path);
        let failing = match ending {
            Ending::Applied => Vec::new(),
            Ending::RolledBackAt(point) => vec![point],
            Ending::RolledBackOnFullDisk => vec!["put in place", "journal rolling back"],
        };
        let checkpoints = FailAt(RefCell::new(failing), Arc::clone(&recorder));
        let result = once::apply(&recorded, new, RebootPolicy::WhenNeeded, &checkpoints);
        assert_eq!(
            result.is_ok(),
            ending == Ending::Applied,
            "{name}: {ending:?}: {result:?}"
        );
        let operations = recorder.take();
        if ending != Ending::Applied {
            assert_eq!(node_snapshot(path), old_snapshot, "{name}");
            once::apply(
                &machine(path, None),
                new,
                RebootPolicy::WhenNeeded,
                &Uninterrupted,
            )
            .unwrap();
        }
        let new_snapshot = node_snapshot(path);
        assert_ne!(old_snapshot, new_snapshot, "{name}");
        Self {
            name: format!("{name}, {ending:?}, {filesystems:?}"),
            trace: Trace::new(base, &operations),
            operations: operations.len(),
            filesystems,
            old: old_snapshot,
            new: new_snapshot,
            new_config: new.clone(),
            reported: if ending == Ending::Applied { "new" } else { "old" },
        }
    }

    /// Examines all states, or a sample; returns the first that is neither old nor new.
    pub fn examine(&self, without: Option<usize>, effort: Effort) -> Result<Tally, String> {
        self.examine_trace(&self.trace, without, effort, false)
    }

    fn examine_trace(
        &self,
        trace: &Trace,
        without: Option<usize>,
        effort: Effort,
        is_recovery: bool,
    ) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let mut random = Random::new(effort.seed);
        let mut failure = None;
        let mut again = Vec::new();
        for window in trace.windows(without) {
            let is_all = each_state(trace, &window, effort.states, &mut random, &mut |state| {
                if failure.is_some() {
                    return;
                }
                tally.states += 1;
                let nested = effort.again > 0 && tally.states % effort.again == 0;
                let completes = effort.complete > 0 && tally.states % effort.complete == 0;
                match self.recover(&state.disk, &state.image, completes, nested) {
                    Ok((outcome, recovery)) => {
                        *tally.outcomes.entry(outcome).or_default() += 1;
                        again.extend(recovery);
                        // What was reported must be true; in a recovery nothing was.
                        if window.is_final && !is_recovery && outcome != self.reported {
                            let story = state.story(trace, &window);
                            failure = Some(format!(
                                "{}: reported {}, but {outcome} after a power failure:\n{story}",
                                self.name, self.reported
                            ));
                        }
                    }
                    Err(error) => {
                        let story = state.story(trace, &window);
                        failure = Some(format!("{}: {error}\nafter a power failure:\n{story}", self.name));
                    }
                }
            });
            tally.windows += 1;
            tally.sampled_windows += usize::from(!is_all);
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        for recovery in again {
            let once_more = Effort {
                states: 12,
                again: 0,
                complete: 0,
                ..effort
            };
            let nested = self
                .examine_trace(&recovery, None, once_more, true)
                .map_err(|error| format!("a second power failure, while recovering: {error}"))?;
            tally.cuts_while_recovering += nested.states;
        }
        Ok(tally)
    }

    /// Recovers one state as the daemon does after a boot. Returns what the machine is, and the trace of the recovery.
    fn recover(
        &self,
        disk: &Disk,
        image: &super::disk::Image,
        completes: bool,
        nested: bool,
    ) -> Result<(&'static str, Option<Trace>), String> {
        let directory = temporary();
        disk.materialise(image, directory.path());
        let recorder = Arc::new(Recorder::new(self.filesystems));
        let is_recorded = nested || self.filesystems != Filesystems::One;
        let machine = machine(directory.path(), is_recorded.then_some(&recorder));
        let base = nested.then(|| Disk::read(&machine.root));
        Self::settle(&machine)?;
        let outcome = self.outcome(&machine, directory.path())?;
        let trace = base.map(|base| Trace::new(base, &recorder.take()));
        if completes {
            self.complete(&machine, directory.path())?;
        }
        Ok((outcome, trace))
    }

    fn settle(machine: &Machine) -> Result<(), String> {
        for _ in 0..5 {
            let owed = once::settle_past(machine, &Uninterrupted)
                .map_err(|error| format!("the recovery failed: {error}"))?;
            match owed {
                None => return Ok(()),
                Some(because) => machine.power.reboot(&machine.root, &because).unwrap(),
            };
        }
        Err("still waiting for a reboot after five".to_owned())
    }

    fn outcome(&self, machine: &Machine, directory: &Path) -> Result<&'static str, String> {
        let found = node_snapshot(directory);
        let outcome = if found == self.old {
            "old"
        } else if found == self.new {
            "new"
        } else {
            let (old, new) = (differences(&found, &self.old), differences(&found, &self.new));
            let closer = if old.len() < new.len() { old } else { new };
            return Err(format!("neither old nor new:\n  {}", closer.join("\n  ")));
        };
        let current = disk::current_config(&machine.root).map_err(|error| error.to_string())?;
        if let Some(current) = current {
            if current.name() != outcome {
                return Err(format!(
                    "{outcome} files with the state file of {}",
                    current.name()
                ));
            }
            let mismatches = validate::validate(machine, &current).map_err(|error| error.to_string())?;
            if !mismatches.is_empty() {
                return Err(format!("{outcome}, but not valid: {mismatches:?}"));
            }
        }
        Ok(outcome)
    }

    fn complete(&self, machine: &Machine, directory: &Path) -> Result<(), String> {
        let apply = || {
            once::apply(
                machine,
                &self.new_config,
                RebootPolicy::WhenNeeded,
                &Uninterrupted,
            )
            .map_err(|error| format!("the next attempt failed: {error}"))
        };
        apply()?;
        let differs = differences(&node_snapshot(directory), &self.new);
        if !differs.is_empty() {
            return Err(format!("after the next attempt:\n  {}", differs.join("\n  ")));
        }
        match apply()? {
            OnceOutcome::Unchanged => Ok(()),
            other => Err(format!(
                "the attempt after that still changes something: {other:?}"
            )),
        }
    }
}

fn differences(found: &Snapshot, expected: &Snapshot) -> Vec<String> {
    let paths: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    paths
        .into_iter()
        .filter(|path| found.get(*path) != expected.get(*path))
        .map(|path| {
            format!(
                "{path}: {:?} instead of {:?}",
                found.get(path),
                expected.get(path)
            )
        })
        .collect()
}
