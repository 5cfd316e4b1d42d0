//! The backend against the double of rpm-ostree, which keeps deployments.

use mco_testkit::os_double::{OsTools, PublishedImage};

use super::*;
use crate::os::testing::{BOOTED, BOOTED_DIGEST, DoubledMachine};

const IMAGE: &str = "quay.io/openshift/os@sha256:bb22";
const DIGEST: &str = "sha256:bb22";

fn machine() -> DoubledMachine {
    let machine = DoubledMachine::new(OsTools::RpmOstree);
    machine.double.publish_digest(IMAGE, DIGEST);
    machine
}

fn image(image: &str) -> OsChange {
    OsChange {
        image: Some(image.to_owned()),
        ..OsChange::default()
    }
}

fn arguments(delete: &[&str], append: &[&str]) -> OsChange {
    OsChange {
        delete_kernel_arguments: owned(delete),
        append_kernel_arguments: owned(append),
        ..OsChange::default()
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|one| (*one).to_owned()).collect()
}

#[test]
fn recorded_output_is_read() {
    let recorded: RpmOstreeStatus =
        serde_json::from_str(include_str!("../fixtures/rpm-ostree-status.json")).unwrap();
    let booted = recorded.booted().unwrap();
    assert_eq!(
        booted.image().as_deref(),
        Some("quay.io/openshift/os@sha256:aa11")
    );
    assert_eq!(booted.digest().as_deref(), Some("sha256:aa11"));
    assert_eq!(
        booted.requested_packages,
        ["kernel-rt-core", "kernel-rt-modules", "sysstat"]
    );
    let staged: RpmOstreeStatus =
        serde_json::from_str(include_str!("../fixtures/rpm-ostree-status-staged.json")).unwrap();
    assert_eq!(
        staged.pending().unwrap().image().as_deref(),
        Some("quay.io/openshift/os@sha256:bb22")
    );
}

#[test]
fn a_staged_image_boots_and_the_previous_one_can_be_rolled_back_to() {
    let machine = machine();
    let system = machine.rpm_ostree();
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    let staged = system.verify_staged(&machine.root, &image(IMAGE)).unwrap();
    assert_eq!(staged.digest.as_deref(), Some(DIGEST));
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
    machine.double.boot();
    let state = system.state(&machine.root).unwrap();
    assert!(state.runs(IMAGE) && staged.lost_digest(&state).is_none());
    assert_eq!(state.rollback.unwrap().digest.as_deref(), Some(BOOTED_DIGEST));
    system.roll_back(&machine.root, &image(IMAGE)).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
    system.remove_rollback(&machine.root).unwrap();
    assert_eq!(system.state(&machine.root).unwrap().rollback, None);
}

#[test]
fn a_lost_or_discarded_deployment_does_not_boot() {
    let machine = machine();
    let system = machine.rpm_ostree();
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    let staged = system.verify_staged(&machine.root, &image(IMAGE)).unwrap();
    machine.double.cut_power();
    let state = system.state(&machine.root).unwrap();
    assert_eq!(staged.lost_digest(&state), Some(DIGEST));
    assert!(system.verify_staged(&machine.root, &image(IMAGE)).is_err());
    assert_eq!(system.finalization_failure().unwrap(), None);

    machine.double.write("boot-full", "");
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
    let failure = system.finalization_failure().unwrap().unwrap();
    assert!(failure.contains("No space left"), "{failure}");

    machine.double.remove("boot-full");
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    system.discard(&machine.root, &image(IMAGE)).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
}

#[test]
fn a_locked_deployment_waits_for_its_release() {
    let machine = machine();
    let system = machine.rpm_ostree();
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    system.hold(&machine.root, OsHold::Locked).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    system.hold(&machine.root, OsHold::Locked).unwrap();
    system.hold(&machine.root, OsHold::Released).unwrap();
    machine.double.boot();
    assert!(system.state(&machine.root).unwrap().runs(IMAGE));
}

#[test]
fn a_registry_that_is_away_is_asked_again_with_growing_delays() {
    let machine = machine();
    machine.double.fail(3, "rpm-ostree rebase*", "connection refused");
    machine.rpm_ostree().stage(&machine.root, &image(IMAGE)).unwrap();
    assert_eq!(machine.sleeper.delays(), [10, 20, 40]);
    let rebases = machine.double.changes_by("rpm-ostree");
    assert_eq!(rebases.iter().filter(|it| it.contains(" rebase ")).count(), 4);
}

#[test]
fn a_failed_rebase_leaves_nothing_staged() {
    let machine = machine();
    let error = machine
        .rpm_ostree()
        .stage(&machine.root, &image("quay.io/none:1"))
        .unwrap_err();
    assert!(error.to_string().contains("manifest unknown"), "{error}");
    assert_eq!(machine.sleeper.delays(), [10, 20, 40, 60]);
    assert!(!machine.double.has("staged"));
    assert_eq!(machine.double.log().last().unwrap(), "rpm-ostree cleanup -p");
}

#[test]
fn a_private_image_is_pulled_with_the_clusters_credentials() {
    let machine = machine();
    machine.double.write("private", "");
    let system = machine.rpm_ostree();
    let error = system
        .stage(&machine.root, &image(IMAGE))
        .unwrap_err()
        .to_string();
    assert!(error.contains("unauthorized"), "{error}");
    machine.write("var/lib/kubelet/config.json", "{\"auths\":{}}");
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    let link = std::fs::read_link(machine.directory.path().join("run/ostree/auth.json")).unwrap();
    assert_eq!(link.to_str(), Some("/var/lib/kubelet/config.json"));
}

#[test]
fn preparation_gives_the_service_its_proxy_and_removes_leftovers() {
    let machine = machine();
    machine.write("etc/mco/proxy.env", "HTTPS_PROXY=http://p:1\n");
    machine.write("run/tmp-rpm-ostree-policy.json", "{}");
    let system = machine.rpm_ostree();
    system.prepare(&machine.root).unwrap();
    system.prepare(&machine.root).unwrap();
    assert!(!machine.exists("run/tmp-rpm-ostree-policy.json"));
    let drop_in = "run/systemd/system/rpm-ostreed.service.d/10-mco-proxy.conf";
    let text = std::fs::read_to_string(machine.directory.path().join(drop_in)).unwrap();
    assert!(
        text.ends_with("\n[Service]\nEnvironmentFile=-/etc/mco/proxy.env\n"),
        "{text}"
    );
    assert!(machine.exists("run/systemd/system/rpm-ostreed.service.d/bug2111817.conf"));
    let reloads = machine
        .double
        .log()
        .iter()
        .filter(|it| it.contains("daemon-reload"))
        .count();
    assert_eq!(reloads, 2, "the second preparation has nothing to do");
}

/// rpm-ostreed pulled through the former proxy until it had been idle for a minute.
#[test]
fn a_changed_proxy_did_not_reach_the_running_service() {
    let machine = machine();
    let system = machine.rpm_ostree();
    let drop_in = "run/systemd/system/rpm-ostreed.service.d/10-mco-proxy.conf";
    let mut restarts = Vec::new();
    for proxy in [
        None,
        Some("http://p:1"),
        Some("http://p:1"),
        Some("http://p:2"),
        None,
        None,
    ] {
        let path = machine.directory.path().join("etc/mco/proxy.env");
        match proxy {
            Some(proxy) => machine.write("etc/mco/proxy.env", &format!("HTTPS_PROXY={proxy}\n")),
            None => drop(std::fs::remove_file(path)),
        }
        system.prepare(&machine.root).unwrap();
        assert_eq!(machine.exists(drop_in), proxy.is_some());
        let log = machine.double.log();
        let is_restart = |line: &&String| line.contains("try-restart rpm-ostreed.service");
        restarts.push(log.iter().filter(is_restart).count());
    }
    assert_eq!(restarts, [0, 1, 1, 2, 3, 3]);
}

#[test]
fn a_local_image_is_used_and_a_strict_policy_accepts_it_meanwhile() {
    let machine = machine();
    machine.double.clear_registry();
    machine.double.store_locally(IMAGE, DIGEST);
    machine.double.write("storage-rejected", "");
    machine.write(
        "etc/containers/policy.json",
        "{\"default\": [{\"type\": \"reject\"}]}",
    );
    machine.rpm_ostree().stage(&machine.root, &image(IMAGE)).unwrap();
    assert_eq!(machine.double.fact("staged", "digest"), DIGEST);
    let rebase =
        format!("rpm-ostree rebase --experimental ostree-unverified-image:containers-storage:{IMAGE}");
    assert!(machine.double.log().contains(&rebase));
    assert!(!machine.exists("run/tmp-rpm-ostree-policy.json"));
    assert!(!machine.exists("run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf"));
    let own = std::fs::read_to_string(machine.directory.path().join("etc/containers/policy.json")).unwrap();
    assert_eq!(own, "{\"default\": [{\"type\": \"reject\"}]}");
}

#[test]
fn an_old_rpm_ostree_lets_the_image_deploy_itself() {
    let machine = machine();
    machine.double.write("features", "rust");
    machine.double.write("selinux", "Enforcing");
    let system = machine.rpm_ostree();
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    assert_eq!(machine.double.fact("staged", "digest"), DIGEST);
    let log = machine.double.log();
    assert!(
        log.iter()
            .any(|it| it.contains("rpm-ostree ex deploy-from-self /run/host")),
        "{log:#?}"
    );
    assert!(!log.iter().any(|it| it.starts_with("rpm-ostree rebase")));

    machine.double.fail(1, "podman run*", "exit status 1");
    assert!(system.stage(&machine.root, &image(IMAGE)).is_err());
    let modes: Vec<String> = machine.double.log();
    let modes: Vec<&String> = modes.iter().filter(|it| it.starts_with("setenforce")).collect();
    assert_eq!(
        modes,
        ["setenforce 0", "setenforce 1", "setenforce 0", "setenforce 1"]
    );
}

#[test]
fn at_a_first_boot_an_old_skopeo_counts_too() {
    for (skopeo, first_boot, self_deploys) in [
        ("1.22.2", true, false),
        ("1.14.0", true, true),
        ("1.14.0", false, false),
    ] {
        let machine = machine();
        machine.double.write("skopeo-version", skopeo);
        let change = OsChange {
            first_boot,
            ..image(IMAGE)
        };
        machine.rpm_ostree().stage(&machine.root, &change).unwrap();
        let log = machine.double.log();
        let found = log.iter().any(|it| it.contains("deploy-from-self"));
        assert_eq!(found, self_deploys, "{skopeo} {first_boot}");
    }
}

#[test]
fn kernel_arguments_are_deleted_and_appended_in_one_command() {
    let machine = machine();
    machine.write("etc/pivot/kernel-args", "ADD nosmt\n");
    let system = machine.rpm_ostree();
    let change = arguments(&["foo", "hello=world"], &["hello=world", "a=\"b c\""]);
    system.stage(&machine.root, &change).unwrap();
    assert_eq!(
        machine.double.changes_by("rpm-ostree"),
        [
            "rpm-ostree cleanup -p",
            "rpm-ostree kargs --delete-if-present=foo --delete-if-present=hello=world --append=hello=world \
             --append=a=\"b c\"",
            "rpm-ostree kargs --append=nosmt",
        ]
    );
    machine.double.boot();
    let state = system.state(&machine.root).unwrap();
    assert!(state.kernel_arguments.contains(&"a=\"b c\"".to_owned()));
    assert!(state.kernel_arguments.contains(&"nosmt".to_owned()));
}

#[test]
fn another_kernel_is_swapped_and_reset_around_a_new_image() {
    let machine = machine();
    machine.double.publish_digest("quay.io/extensions:1", "sha256:ee");
    let system = machine.rpm_ostree();
    let swap = |image: Option<&str>| OsChange {
        image: image.map(str::to_owned),
        kernel: Some(KernelSwap::Replace {
            remove: owned(&["kernel", "kernel-core"]),
            install: owned(&["kernel-rt-core"]),
        }),
        packages_image: Some("quay.io/extensions:1".to_owned()),
        ..OsChange::default()
    };
    system.stage(&machine.root, &swap(None)).unwrap();
    machine.double.boot();
    assert_eq!(
        system.state(&machine.root).unwrap().removed_packages,
        ["kernel", "kernel-core"]
    );
    machine.double.clear_log();
    system.stage(&machine.root, &swap(Some(IMAGE))).unwrap();
    assert_eq!(
        machine.double.changes_by("rpm-ostree"),
        [
            "rpm-ostree cleanup -p",
            "rpm-ostree override reset kernel kernel-core --uninstall kernel-rt-core",
            "rpm-ostree rebase --experimental ostree-unverified-registry:quay.io/openshift/os@sha256:bb22",
            "rpm-ostree override remove kernel kernel-core --install kernel-rt-core",
        ]
    );
    assert!(!machine.exists("etc/yum.repos.d/coreos-extensions.repo"));
    machine.double.boot();
    let reset = OsChange {
        kernel: Some(KernelSwap::Reset),
        ..OsChange::default()
    };
    system.stage(&machine.root, &reset).unwrap();
    machine.double.boot();
    let state = system.state(&machine.root).unwrap();
    assert!(
        state.packages.is_empty() && state.removed_packages.is_empty(),
        "{state:?}"
    );
}

#[test]
fn packages_are_verified_in_the_staged_deployment_and_after_the_boot() {
    let machine = machine();
    machine.double.publish_digest("quay.io/extensions:1", "sha256:ee");
    let system = machine.rpm_ostree();
    let change = OsChange {
        install_packages: owned(&["usbguard"]),
        packages_image: Some("quay.io/extensions:1".to_owned()),
        ..OsChange::default()
    };
    machine.double.write("drops-packages", "");
    let error = system.stage(&machine.root, &change).unwrap_err();
    assert_eq!(error.to_string(), "staged deployment is missing usbguard");
    assert!(!machine.double.has("staged"));
    machine.double.remove("drops-packages");
    system.stage(&machine.root, &change).unwrap();
    assert_eq!(
        system.absent_packages(&machine.root, &["usbguard"]).unwrap(),
        ["usbguard"]
    );
    machine.double.boot();
    assert!(
        system
            .absent_packages(&machine.root, &["usbguard"])
            .unwrap()
            .is_empty()
    );
    assert_eq!(system.state(&machine.root).unwrap().local_changes, ["usbguard"]);
}

#[test]
fn a_replaced_change_is_staged_again_when_its_successor_is_discarded() {
    let machine = machine();
    let system = machine.rpm_ostree();
    let second = OsChange {
        replaces: Some(Box::new(image(IMAGE))),
        append_kernel_arguments: owned(&["nosmt"]),
        ..image(IMAGE)
    };
    system.stage(&machine.root, &image(IMAGE)).unwrap();
    system.stage(&machine.root, &second).unwrap();
    assert!(machine.double.fact("staged", "kargs").contains("nosmt"));
    assert_eq!(machine.double.fact("staged", "digest"), DIGEST);
    system.discard(&machine.root, &second).unwrap();
    assert!(!machine.double.fact("staged", "kargs").contains("nosmt"));
    assert_eq!(machine.double.fact("staged", "digest"), DIGEST);
    let nothing = OsChange {
        replaces: Some(Box::new(image(IMAGE))),
        ..OsChange::default()
    };
    assert!(!nothing.is_empty());
    system.stage(&machine.root, &nothing).unwrap();
    assert!(!machine.double.has("staged"));
}

#[test]
fn an_image_that_cannot_boot_here_is_refused_before_it_is_pulled() {
    let machine = machine();
    let system = machine.rpm_ostree();
    system.preflight(&machine.root, &image(IMAGE)).unwrap();
    let published = |size, architecture, labels| PublishedImage {
        digest: "sha256:1",
        size,
        architecture,
        labels,
    };
    let cases = [
        ("q/arch:1", published(1, "s390x", ""), "it is for s390x"),
        ("q/app:1", published(1, "", "name=app"), "not a bootable OS image"),
        ("q/big:1", published(u64::MAX / 2, "", ""), "bytes are free"),
    ];
    for (reference, published, why) in cases {
        machine.double.publish(reference, &published);
        let error = system
            .preflight(&machine.root, &image(reference))
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = system
        .preflight(&machine.root, &image("q/none:1"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("manifest unknown"), "{error}");
    assert!(machine.double.changes_by("rpm-ostree").is_empty());
}

#[test]
fn an_ostree_system_whose_tool_fails_is_never_a_package_system() {
    let machine = machine();
    machine
        .double
        .fail(99, "rpm-ostree *", "Failed to connect to bus");
    let system = crate::os::probe(&machine.root, &machine.commands).unwrap();
    assert_eq!(system.backend(), OsBackend::RpmOstree);
    let error = system.state(&machine.root).unwrap_err().to_string();
    assert!(error.contains("Failed to connect to bus"), "{error}");
    machine.double.repair();
    assert!(system.state(&machine.root).unwrap().runs(BOOTED));

    let bare = DoubledMachine::new(OsTools::None);
    let error = crate::os::probe(&bare.root, &bare.commands).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("neither rpm-ostree nor bootc is installed"),
        "{error}"
    );
    std::fs::remove_file(bare.directory.path().join("run/ostree-booted")).unwrap();
    let system = crate::os::probe(&bare.root, &bare.commands).unwrap();
    assert_eq!(system.backend(), OsBackend::PackageMode);
}
