//! The backend against the double of bootc, which keeps deployments.

use mco_testkit::os_double::OsTools;

use super::*;
use crate::os::testing::{BOOTED, DoubledMachine};

fn machine() -> DoubledMachine {
    DoubledMachine::new(OsTools::Bootc)
}

fn image(image: &str) -> OsChange {
    OsChange {
        image: Some(image.to_owned()),
        ..OsChange::default()
    }
}

#[test]
fn recorded_output_is_read() {
    let host: BootcHost = serde_json::from_str(include_str!("../fixtures/bootc-status.json")).unwrap();
    let booted = host.status.booted.unwrap().described();
    assert_eq!(booted.image.as_deref(), Some("quay.io/fedora/fedora-bootc:42"));
    assert_eq!(
        (booted.digest.as_deref(), booted.checksum.as_str()),
        (Some("sha256:cc33"), "5d1e")
    );
}

#[test]
fn a_tag_is_proven_by_the_digest_that_was_staged() {
    let machine = machine();
    machine.double.publish_digest("quay.io/x:2", "sha256:22");
    let system = machine.bootc();
    system.stage(&machine.root, &image("quay.io/x:2")).unwrap();
    let staged = system
        .verify_staged(&machine.root, &image("quay.io/x:2"))
        .unwrap();
    assert_eq!(staged.digest.as_deref(), Some("sha256:22"));
    assert!(!system.state(&machine.root).unwrap().runs("quay.io/x:2"));
    machine.double.boot();
    let state = system.state(&machine.root).unwrap();
    assert!(state.runs("quay.io/x:2") && state.runs("mirror.example/x@sha256:22"));
    assert_eq!(staged.lost_digest(&state), None);
    // The tag moves, and the new image is lost: the name alone would not show it.
    machine.double.clear_registry();
    machine.double.publish_digest("quay.io/x:2", "sha256:23");
    system.stage(&machine.root, &image("quay.io/x:2")).unwrap();
    let staged = system
        .verify_staged(&machine.root, &image("quay.io/x:2"))
        .unwrap();
    machine.double.cut_power();
    assert_eq!(
        staged.lost_digest(&system.state(&machine.root).unwrap()),
        Some("sha256:23")
    );
}

#[test]
fn a_staged_image_is_discarded_without_touching_the_booted_one() {
    let machine = machine();
    machine.double.publish_digest("quay.io/x:2", "sha256:22");
    let system = machine.bootc();
    system.stage(&machine.root, &image("quay.io/x:2")).unwrap();
    system.discard(&machine.root, &image("quay.io/x:2")).unwrap();
    assert!(!machine.double.has("staged"));
    system.discard(&machine.root, &image("quay.io/x:2")).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
}

#[test]
fn a_booted_image_is_rolled_back_and_the_previous_one_removed() {
    let machine = machine();
    machine.double.publish_digest("quay.io/x:2", "sha256:22");
    let system = machine.bootc();
    assert!(
        system.roll_back(&machine.root, &image("quay.io/x:2")).is_err(),
        "there is no previous one"
    );
    system.stage(&machine.root, &image("quay.io/x:2")).unwrap();
    machine.double.boot();
    system.roll_back(&machine.root, &image("quay.io/x:2")).unwrap();
    machine.double.boot();
    let state = system.state(&machine.root).unwrap();
    assert!(state.runs(BOOTED) && state.rollback.is_some());
    system.remove_rollback(&machine.root).unwrap();
    assert!(system.state(&machine.root).unwrap().rollback.is_none());
}

#[test]
fn private_images_are_pulled_and_failures_retried() {
    let machine = machine();
    machine.double.publish_digest("quay.io/x:2", "sha256:22");
    machine.double.write("private", "");
    machine.write("etc/mco/internal-registry-pull-secret.json", "{\"auths\":{}}");
    machine.double.fail(1, "bootc switch*", "timeout");
    let system = machine.bootc();
    system.stage(&machine.root, &image("quay.io/x:2")).unwrap();
    assert_eq!(machine.sleeper.delays(), [10]);
    assert_eq!(machine.double.fact("staged", "digest"), "sha256:22");
}

#[test]
fn packages_and_kernel_arguments_are_refused() {
    let machine = machine();
    let system = machine.bootc();
    let arguments = OsChange {
        append_kernel_arguments: vec!["nosmt".to_owned()],
        ..OsChange::default()
    };
    let error = system.check(&machine.root, &arguments).unwrap_err().to_string();
    assert_eq!(
        error,
        "kernel arguments cannot be changed on this machine: it boots from a container image; build the change into the \
         image (a file in /usr/lib/bootc/kargs.d)"
    );
    let packages = OsChange {
        install_packages: vec!["usbguard".to_owned()],
        ..OsChange::default()
    };
    assert!(system.stage(&machine.root, &packages).is_err());
}

#[test]
fn a_system_with_bootc_only_is_one_even_if_it_fails() {
    let machine = machine();
    machine.double.fail(99, "bootc *", "error: Permission denied");
    let system = crate::os::probe(&machine.root, &machine.commands).unwrap();
    assert_eq!(system.backend(), OsBackend::Bootc);
    assert!(system.state(&machine.root).is_err());
}
