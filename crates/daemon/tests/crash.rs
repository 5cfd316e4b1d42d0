//! Crash tests: a change of 200 files, 20 units and 5 keys, killed at every step and at random instants. The node is in
//! the old state or in the new one, byte for byte, and the next run completes the change.
//!
//! `MCO_CRASH_POINTS=all MCO_CRASH_RANDOM=2000` runs everything; the defaults are a sample that fits into every CI run.
//! `MCO_CRASH_DIR` chooses the filesystem.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mco_daemon::config::NodeConfig;
use mco_daemon::once::{self, OnceOutcome, RebootPolicy};
use mco_daemon::transaction::{Checkpoints, Uninterrupted};
use mco_daemon::{disk, paths, validate};
use mco_host::Machine;
use serde_json::{Value, json};
use support::{Snapshot, config_with, file, snapshot};

const CHILD: &str = "MCO_CRASH_CHILD";
const KILL_AT: &str = "MCO_CRASH_KILL_AT";

/// Kills this process at the n-th checkpoint, as a power failure or the kernel would.
struct KillAt {
    left: Cell<u64>,
    reached: Cell<u64>,
}

impl Checkpoints for KillAt {
    fn at(&self, _: &'static str) -> std::io::Result<()> {
        self.reached.set(self.reached.get() + 1);
        if self.left.get() == 1 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        }
        self.left.set(self.left.get().saturating_sub(1));
        Ok(())
    }
}

/// Not a test of its own: the process that the tests below kill.
#[test]
fn child_process() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let directory = PathBuf::from(directory);
    let kill_at = std::env::var(KILL_AT).map_or(0, |at| at.parse().unwrap());
    let machine = Machine::directory(&directory.join("root")).unwrap();
    let checkpoints = KillAt {
        left: Cell::new(kill_at),
        reached: Cell::new(0),
    };
    once::apply(&machine, &new_config(), RebootPolicy::WhenNeeded, &checkpoints).unwrap();
    fs::write(directory.join("reached"), checkpoints.reached.get().to_string()).unwrap();
}

struct Bench {
    directory: tempfile::TempDir,
    old: Snapshot,
    new: Snapshot,
    points: u64,
    duration: Duration,
}

impl Bench {
    /// A node on the old config, and the result of an uninterrupted change.
    fn new() -> Self {
        let place = std::env::var("MCO_CRASH_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
        let directory = tempfile::tempdir_in(place).unwrap();
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        support::lay_out(&base);
        fs::write(base.join("etc/preexisting"), "preexisting\n").unwrap();
        let machine = Machine::directory(&base).unwrap();
        once::apply(&machine, &old_config(), RebootPolicy::WhenNeeded, &Uninterrupted).unwrap();
        let mut bench = Self {
            old: node_snapshot(&base),
            new: Snapshot::new(),
            points: 0,
            duration: Duration::ZERO,
            directory,
        };
        bench.restore();
        let started = Instant::now();
        assert!(bench.start_child(0).wait().unwrap().success());
        bench.duration = started.elapsed();
        bench.new = node_snapshot(&bench.root());
        bench.points = fs::read_to_string(bench.directory.path().join("reached"))
            .unwrap()
            .parse()
            .unwrap();
        assert_ne!(bench.old, bench.new);
        assert!(
            bench.points > 500,
            "a change this large has more steps than {}",
            bench.points
        );
        bench
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn restore(&self) {
        let _ = fs::remove_dir_all(self.root());
        let status = Command::new("cp")
            .arg("-a")
            .arg(self.directory.path().join("base"))
            .arg(self.root())
            .status();
        assert!(status.unwrap().success());
    }

    fn start_child(&self, kill_at: u64) -> std::process::Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--nocapture"])
            .env(CHILD, self.directory.path())
            .env(KILL_AT, kill_at.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Asserts that the node is in the old or the new state after a restart; returns which.
    fn assert_whole(&self, what: &str) -> &'static str {
        let machine = Machine::directory(&self.root()).unwrap();
        let mut owed = once::settle_past(&machine, &Uninterrupted).unwrap();
        if owed.is_some() {
            machine.power.reboot(&machine.root, "test").unwrap();
            owed = once::settle_past(&machine, &Uninterrupted).unwrap();
        }
        assert_eq!(owed, None, "{what}");
        let found = node_snapshot(&self.root());
        let (name, arguments) = if found == self.old {
            ("old", vec!["old=1".to_owned()])
        } else {
            // If it is neither, print the differences to the closer one.
            let (old, new) = (differences(&found, &self.old), differences(&found, &self.new));
            let closer = if old.len() < new.len() { &old } else { &new };
            assert!(
                new.is_empty(),
                "{what}: neither old nor new:\n{}",
                closer.join("\n")
            );
            ("new", vec!["new=1".to_owned()])
        };
        let current = disk::current_config(&machine.root).unwrap().unwrap();
        assert_eq!(
            current.name(),
            name,
            "{what}: the state file disagrees with the files"
        );
        assert_eq!(
            machine.os.state(&machine.root).unwrap().kernel_arguments,
            arguments,
            "{what}"
        );
        assert_eq!(validate::validate(&machine, &current).unwrap(), [], "{what}");
        name
    }

    fn assert_completes(&self, what: &str) {
        let machine = Machine::directory(&self.root()).unwrap();
        let apply =
            || once::apply(&machine, &new_config(), RebootPolicy::WhenNeeded, &Uninterrupted).unwrap();
        apply();
        assert_same(&node_snapshot(&self.root()), &self.new, what);
        assert_eq!(
            apply(),
            OnceOutcome::Unchanged,
            "{what}: a second run must have nothing to do"
        );
    }
}

fn differences(found: &Snapshot, expected: &Snapshot) -> Vec<String> {
    let paths: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differs = paths
        .into_iter()
        .filter(|path| found.get(*path) != expected.get(*path));
    differs
        .map(|path| {
            format!(
                "{path}: {:?} instead of {:?}",
                found.get(path),
                expected.get(path)
            )
        })
        .collect()
}

fn assert_same(found: &Snapshot, expected: &Snapshot, what: &str) {
    let differs = differences(found, expected);
    assert!(differs.is_empty(), "{what}:\n{}", differs.join("\n"));
}

/// The snapshot without the file in which the simulated OS stores the next boot; its meaning is compared instead.
fn node_snapshot(root: &Path) -> Snapshot {
    let mut found = snapshot(root);
    found.remove("/var/lib/mco-simulated-os.json");
    assert!(
        !found.contains_key(paths::JOURNAL) || root.ends_with("base"),
        "a journal is left"
    );
    found
}

fn old_config() -> NodeConfig {
    let files: Vec<Value> = (0..150).map(|index| text_file(index, "old")).collect();
    let units: Vec<Value> = (0..15).map(|index| unit(index, "old", index % 3 != 0)).collect();
    config_with(
        "old",
        &body(&files, &units, &["a", "b", "c"], "$y$old"),
        &json!({"kernelArguments": ["old=1"]}),
    )
}

/// Keeps files 50..100, changes 100..150, removes 0..50, adds 150..250: 200 files, of which 150 change.
fn new_config() -> NodeConfig {
    let files: Vec<Value> = (50..250)
        .map(|index| text_file(index, if index < 100 { "old" } else { "new" }))
        .chain([
            file("/etc/motd", "managed\n"),
            file("/etc/preexisting", "managed\n"),
        ])
        .collect();
    let units: Vec<Value> = (5..25).map(|index| unit(index, "new", index % 2 == 0)).collect();
    let keys = ["b", "c", "d", "e", "f"];
    config_with(
        "new",
        &body(&files, &units, &keys, "$y$new"),
        &json!({"kernelArguments": ["new=1"]}),
    )
}

fn text_file(index: usize, version: &str) -> Value {
    let text = format!("{version} {index}\n").repeat(1 + index % 40);
    let mut entry = file(&format!("/etc/app/{}/file-{index}", index % 7), &text);
    entry["mode"] = json!(if index.is_multiple_of(5) { 0o600 } else { 0o644 });
    entry
}

fn unit(index: usize, version: &str, enabled: bool) -> Value {
    let contents = format!(
        "[Unit]\nDescription={version}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={version}.target\n"
    );
    let dropins = json!([{"name": "10-x.conf", "contents": format!("[Service]\nNice={index}\n")}]);
    json!({"name": format!("unit-{index}.service"), "enabled": enabled, "contents": contents, "dropins": dropins})
}

fn body(files: &[Value], units: &[Value], keys: &[&str], hash: &str) -> Value {
    let keys: Vec<String> = keys.iter().map(|key| format!("ssh-ed25519 {key}")).collect();
    json!({
        "storage": {"files": files},
        "systemd": {"units": units},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": keys, "passwordHash": hash}]},
    })
}

fn setting(name: &str, default: u64, all: u64) -> u64 {
    match std::env::var(name).as_deref() {
        Ok("all") => all,
        Ok(number) => number.parse().expect("a number or \"all\""),
        Err(_) => default,
    }
}

fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal() == Some(9)
}

#[test]
fn killed_at_every_step_the_node_is_old_or_new() {
    let bench = Bench::new();
    let runs = setting("MCO_CRASH_POINTS", 24, bench.points).min(bench.points);
    let mut outcomes = std::collections::BTreeMap::new();
    for run in 0..runs {
        let point = 1 + run * bench.points / runs;
        bench.restore();
        assert!(
            was_killed(bench.start_child(point).wait().unwrap()),
            "no kill at point {point}"
        );
        let what = format!("killed at step {point} of {}", bench.points);
        *outcomes.entry(bench.assert_whole(&what)).or_insert(0) += 1;
        bench.assert_completes(&what);
    }
    eprintln!("{runs} of {} steps: {outcomes:?}", bench.points);
    assert_eq!(outcomes.len(), 2, "both outcomes must occur: {outcomes:?}");
}

#[test]
fn killed_at_random_instants_the_node_is_old_or_new() {
    let bench = Bench::new();
    let runs = setting("MCO_CRASH_RANDOM", 16, 2000);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut outcomes = std::collections::BTreeMap::new();
    for run in 0..runs {
        bench.restore();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let longest = u64::try_from(bench.duration.as_micros()).unwrap().max(1);
        let delay = Duration::from_micros(random % longest);
        let mut child = bench.start_child(0);
        std::thread::sleep(delay);
        let _ = child.kill();
        let killed = was_killed(child.wait().unwrap());
        let what = format!("run {run}, killed after {delay:?} ({killed})");
        *outcomes.entry(bench.assert_whole(&what)).or_insert(0) += 1;
        if run.is_multiple_of(10) {
            bench.assert_completes(&what);
        }
    }
    eprintln!("{runs} random instants: {outcomes:?}");
}

#[test]
fn killed_again_while_recovering_the_node_is_still_old_or_new() {
    let bench = Bench::new();
    let runs = setting("MCO_CRASH_POINTS", 8, bench.points / 4);
    for run in 0..runs {
        let point = 1 + run * bench.points / runs;
        bench.restore();
        assert!(was_killed(bench.start_child(point).wait().unwrap()));
        // The next process recovers first; it is killed as well, three times, each time a little later.
        for again in [1, 1 + run % 40, 1 + run * 7 % 300] {
            bench.start_child(again).wait().unwrap();
        }
        let what = format!("killed at step {point}, then while recovering");
        bench.assert_whole(&what);
        bench.assert_completes(&what);
    }
}
