//! OS changes against the doubles of rpm-ostree and bootc: real processes that keep deployments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/doubled.rs"]
mod doubled;
mod support;

use std::fs;

use mco_daemon::boot_proof;
use mco_daemon::config::NodeConfig;
use mco_daemon::firstboot::{self, FirstBoot};
use mco_daemon::once::{self, OnceError, OnceOutcome, RebootPolicy};
use mco_daemon::transaction::{Uninterrupted, read_journal};
use mco_daemon::{paths, validate};
use mco_host::systemd::SimulatedServices;
use mco_host::{Machine, Power as _, SimulatedPower};
use mco_testkit::os_double::{OsDouble, OsTools};
use serde_json::{Value, json};
use support::{config_with, file, files};

const OLD: &str = "quay.io/openshift/os@sha256:aa11";
const NEW: &str = "quay.io/openshift/os@sha256:bb22";
const NEW_DIGEST: &str = "sha256:bb22";

struct Host {
    directory: tempfile::TempDir,
    _state: tempfile::TempDir,
    double: OsDouble,
    machine: Machine,
}

impl Host {
    fn new(tools: OsTools) -> Self {
        let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        support::lay_out(directory.path());
        let double = OsDouble::new(directory.path(), state.path(), tools, OLD, "sha256:aa11");
        double.publish_digest(NEW, NEW_DIGEST);
        let services = Box::new(SimulatedServices::default());
        let mut machine = Machine::directory_with(directory.path(), support::ownership(), services).unwrap();
        doubled::use_double(&mut machine, &double, tools);
        Self {
            directory,
            _state: state,
            double,
            machine,
        }
    }

    fn apply(&self, config: &NodeConfig, reboots: RebootPolicy) -> Result<OnceOutcome, OnceError> {
        once::apply(&self.machine, config, reboots, &Uninterrupted)
    }

    fn cut_power(&self) {
        self.double.cut_power();
        SimulatedPower.reboot(&self.machine.root, "power cut").unwrap();
    }

    fn boot(&self) {
        self.machine.power.reboot(&self.machine.root, "test").unwrap();
    }

    fn booted(&self) -> String {
        self.double.fact("booted", "digest")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.directory.path().join(path.trim_start_matches('/'))).ok()
    }
}

fn rendered(name: &str, text: &str, spec: &Value) -> NodeConfig {
    config_with(name, &files(&[file("/etc/a", text)]), spec)
}

fn first() -> NodeConfig {
    rendered("first", "1\n", &json!({"osImageURL": OLD}))
}

fn second() -> NodeConfig {
    rendered("second", "2\n", &json!({"osImageURL": NEW}))
}

#[test]
fn an_image_by_digest_and_one_by_tag_are_proven_on_both_systems() {
    for tools in [OsTools::RpmOstree, OsTools::Bootc] {
        let host = Host::new(tools);
        host.double
            .publish_digest("quay.io/openshift/os:2", "sha256:cc33");
        host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
        host.apply(&second(), RebootPolicy::WhenNeeded).unwrap();
        assert_eq!(host.booted(), NEW_DIGEST, "{tools:?}");
        let tagged = rendered("tagged", "3\n", &json!({"osImageURL": "quay.io/openshift/os:2"}));
        let outcome = host.apply(&tagged, RebootPolicy::WhenNeeded).unwrap();
        assert!(
            matches!(outcome, OnceOutcome::Applied { .. }),
            "{tools:?}: {outcome:?}"
        );
        assert_eq!(host.booted(), "sha256:cc33");
        assert!(validate::validate(&host.machine, &tagged).unwrap().is_empty());
        assert_eq!(
            host.apply(&tagged, RebootPolicy::WhenNeeded).unwrap(),
            OnceOutcome::Unchanged
        );
    }
}

#[test]
fn a_deployment_that_a_power_cut_has_lost_is_staged_again() {
    for tools in [OsTools::RpmOstree, OsTools::Bootc] {
        let host = Host::new(tools);
        host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
        host.apply(&second(), RebootPolicy::Never).unwrap();
        host.cut_power();
        assert_eq!(host.booted(), "sha256:aa11");
        let again = host.apply(&second(), RebootPolicy::Never).unwrap();
        assert!(matches!(again, OnceOutcome::NeedsReboot { .. }), "{again:?}");
        host.boot();
        assert_eq!(
            host.apply(&second(), RebootPolicy::Never).unwrap(),
            OnceOutcome::Unchanged
        );
        assert_eq!(
            (host.booted().as_str(), host.read("/etc/a").as_deref()),
            (NEW_DIGEST, Some("2\n"))
        );
    }
}

#[test]
fn a_full_boot_partition_is_freed_and_the_deployment_staged_again() {
    let host = Host::new(OsTools::RpmOstree);
    host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
    host.double.set_fact("rollback", "checksum", "0ld\n");
    host.apply(&second(), RebootPolicy::Never).unwrap();
    host.double.write("boot-full", "");
    host.boot();
    assert_eq!(host.booted(), "sha256:aa11", "finalization has failed");
    host.apply(&second(), RebootPolicy::WhenNeeded).unwrap();
    assert_eq!(host.booted(), NEW_DIGEST);
    assert!(host.double.log().contains(&"rpm-ostree cleanup -r".to_owned()));
}

#[test]
fn an_image_that_never_boots_is_rolled_back_with_its_config() {
    let host = Host::new(OsTools::RpmOstree);
    host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
    host.apply(&second(), RebootPolicy::Never).unwrap();
    for _ in 0..2 {
        host.double.write("boot-full", "");
        host.boot();
        assert!(
            once::settle_past(&host.machine, &Uninterrupted)
                .unwrap()
                .is_some()
        );
    }
    host.double.write("boot-full", "");
    host.boot();
    assert_eq!(host.read("/etc/a").as_deref(), Some("2\n"));
    let due = once::settle_past(&host.machine, &Uninterrupted).unwrap();
    assert!(
        due.unwrap().contains("config first again"),
        "services still have the new files"
    );
    assert_eq!(host.read("/etc/a").as_deref(), Some("1\n"));
    let target = boot_proof::rolled_back(&host.machine).unwrap().unwrap();
    assert_eq!(target.config, "second");
    assert!(
        target.because.contains("No space left on device"),
        "{}",
        target.because
    );
    host.boot();
    assert_eq!(once::settle_past(&host.machine, &Uninterrupted).unwrap(), None);
    assert_eq!(host.booted(), "sha256:aa11");
    assert!(read_journal(&host.machine.root).unwrap().is_none());
    assert!(validate::validate(&host.machine, &first()).unwrap().is_empty());
}

#[test]
fn a_second_document_before_the_due_boot_keeps_the_staged_image() {
    let host = Host::new(OsTools::RpmOstree);
    host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
    host.apply(&second(), RebootPolicy::Never).unwrap();
    let third = rendered(
        "third",
        "3\n",
        &json!({"osImageURL": NEW, "kernelArguments": ["nosmt"]}),
    );
    host.apply(&third, RebootPolicy::Never).unwrap();
    let again = host.apply(&third, RebootPolicy::Never).unwrap();
    assert!(
        matches!(again, OnceOutcome::NeedsReboot { changed: 0, .. }),
        "{again:?}"
    );
    host.boot();
    assert_eq!(
        host.apply(&third, RebootPolicy::Never).unwrap(),
        OnceOutcome::Unchanged
    );
    assert_eq!(host.booted(), NEW_DIGEST);
    assert!(host.double.fact("booted", "kargs").contains("nosmt"));
}

#[test]
fn a_second_document_that_fails_before_the_due_boot_leaves_the_first_one_staged() {
    let host = Host::new(OsTools::RpmOstree);
    host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
    host.apply(&second(), RebootPolicy::Never).unwrap();
    host.double.fail(1, "rpm-ostree kargs*", "no such kernel");
    let third = rendered(
        "third",
        "3\n",
        &json!({"osImageURL": NEW, "kernelArguments": ["nosmt"]}),
    );
    let error = host.apply(&third, RebootPolicy::Never).unwrap_err().to_string();
    assert!(error.contains("no such kernel"), "{error}");
    assert_eq!(host.double.fact("staged", "digest"), NEW_DIGEST);
    host.boot();
    assert_eq!(
        host.apply(&second(), RebootPolicy::Never).unwrap(),
        OnceOutcome::Unchanged
    );
    assert_eq!(
        (host.booted().as_str(), host.read("/etc/a").as_deref()),
        (NEW_DIGEST, Some("2\n"))
    );
}

#[test]
fn a_shutdown_before_the_files_are_in_place_boots_the_old_image() {
    let host = Host::new(OsTools::RpmOstree);
    host.apply(&first(), RebootPolicy::WhenNeeded).unwrap();
    let change = mco_host::os::OsChange {
        image: Some(NEW.to_owned()),
        ..Default::default()
    };
    mco_daemon::os_stage::stage(&host.machine, &change).unwrap();
    host.double.clear_log();
    mco_daemon::os_stage::stage(&host.machine, &change).unwrap();
    assert!(
        host.double.changes_by("rpm-ostree").is_empty(),
        "it is staged already"
    );
    host.boot();
    assert_eq!(host.booted(), "sha256:aa11");
    mco_daemon::os_stage::stage(&host.machine, &change).unwrap();
    mco_daemon::os_stage::discard_unused(&host.machine).unwrap();
    assert!(!host.double.has("staged"));
}

#[test]
fn the_kernels_fips_mode_is_compared_with_the_config() {
    let fips = |name: &str, flag: bool| rendered(name, "x\n", &json!({"fips": flag, "osImageURL": OLD}));
    for (kernel, flag, allowed) in [
        ("1\n", true, true),
        ("0\n", false, true),
        ("0\n", true, false),
        ("1\n", false, false),
    ] {
        let host = Host::new(OsTools::RpmOstree);
        host.write("/proc/sys/crypto/fips_enabled", kernel);
        // The first boot compares with the kernel, not with the config itself, and also if nothing else differs.
        let config = fips("a", flag);
        host.write(
            paths::ENCAPSULATED,
            &serde_json::to_string(&*config.object).unwrap(),
        );
        let booted = firstboot::complete(&host.machine, RebootPolicy::WhenNeeded);
        assert_eq!(
            booted.is_ok(),
            allowed,
            "kernel {kernel:?}, flag {flag}: {booted:?}"
        );
        if !allowed {
            let error = booted.unwrap_err().to_string();
            assert!(error.contains("refusing to modify FIPS"), "{error}");
        }
    }
}

#[test]
fn a_first_boot_that_owes_a_reboot_does_not_let_the_kubelet_start() {
    let host = Host::new(OsTools::RpmOstree);
    let object = serde_json::to_string(&*second().object).unwrap();
    host.write(paths::ENCAPSULATED, &object);
    for _ in 0..2 {
        let result = firstboot::complete(&host.machine, RebootPolicy::Never).unwrap();
        assert_eq!(
            result,
            FirstBoot::NeedsReboot {
                config: "second".to_owned()
            }
        );
    }
    host.boot();
    let result = firstboot::complete(&host.machine, RebootPolicy::Never).unwrap();
    assert_eq!(result, FirstBoot::NotNeeded);
    assert_eq!(host.booted(), NEW_DIGEST);
}

#[test]
fn old_contents_are_not_beside_files_that_services_read() {
    let host = Host::new(OsTools::RpmOstree);
    let drop_in = "/etc/crio/crio.conf.d/10-x";
    let with = config_with(
        "with",
        &files(&[file(drop_in, "old\n")]),
        &json!({"osImageURL": OLD}),
    );
    let without = config_with(
        "without",
        &files(&[file("/etc/b", "x\n")]),
        &json!({"osImageURL": OLD}),
    );
    host.apply(&with, RebootPolicy::WhenNeeded).unwrap();
    host.apply(&without, RebootPolicy::Never).unwrap();
    let directory = host.directory.path().join("etc/crio/crio.conf.d");
    let left: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "while the boot is due: {left:?}");
    let kept = host
        .directory
        .path()
        .join(paths::OLD_CONTENTS.trim_start_matches('/'));
    assert!(fs::read_dir(&kept).unwrap().next().is_some());
    host.boot();
    host.apply(&without, RebootPolicy::Never).unwrap();
    assert!(!kept.exists());
}
