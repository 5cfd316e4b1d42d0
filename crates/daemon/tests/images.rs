//! Images are pulled with the right credentials if they fit, and pinned by a file that is written on a change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/runtime.rs"]
mod runtime;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mco_core::generators::registries::REGISTRIES_CONF;
use mco_core::rollout::pinned_images_on_node::{CRIO_DROP_IN, ImageSet, PULL_SECRET};
use mco_daemon::images::{self, ImagesError, Terms};
use mco_daemon::paths;
use mco_host::Machine;
use mco_host::systemd::{ServiceAction, SimulatedServices};
use runtime::{Registry, image};
use serde_json::json;

const GI: u64 = 1 << 30;
const TERMS: Terms = Terms {
    allocatable: None,
    at_once: 3,
};

struct Host {
    directory: tempfile::TempDir,
    registry: Arc<Registry>,
    services: Arc<SimulatedServices>,
    machine: Machine,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        support::lay_out(directory.path());
        let services = Arc::new(SimulatedServices::default());
        let registry = Arc::new(Registry::default());
        let mut machine = Machine::directory_with(
            directory.path(),
            support::ownership(),
            Box::new(Arc::clone(&services)),
        )
        .unwrap();
        machine.runtime = Box::new(Arc::clone(&registry));
        Self {
            directory,
            registry,
            services,
            machine,
        }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn fetch(&self, images: &[&str], terms: Terms) -> Result<images::FetchResult, ImagesError> {
        images::fetch(&self.machine, &names(images), terms, &AtomicBool::new(false))
    }

    fn reloads(&self) -> usize {
        let reload = ServiceAction::Reload("crio.service".to_owned());
        self.services
            .performed()
            .iter()
            .filter(|action| **action == reload)
            .count()
    }
}

fn names(images: &[&str]) -> BTreeSet<String> {
    images.iter().map(|name| image(name)).collect()
}

#[test]
fn images_are_pulled_with_the_credentials_of_their_mirror_and_a_port_has_its_own() {
    let host = Host::new();
    let auth = |user: &str| {
        use base64::Engine as _;
        json!({"auth": base64::engine::general_purpose::STANDARD.encode(user)})
    };
    let secret = json!({"auths": {
        "quay.example": auth("quay"), "mirror.example": auth("mirror"), "mirror.example:5000": auth("port"),
    }});
    host.write(PULL_SECRET, &secret.to_string());
    host.write(
        REGISTRIES_CONF,
        "[[registry]]\nlocation = \"quay.example/team\"\n[[registry.mirror]]\nlocation = \"mirror.example:5000/team\"\n",
    );
    let asked = [
        "quay.example/team/a",
        "quay.example/b",
        "mirror.example/c",
        "else.example/d",
    ];
    assert_eq!(host.fetch(&asked, TERMS).unwrap(), images::FetchResult::default());
    let mut pulls = host.registry.pulls();
    pulls.sort();
    let with = |name: &str, user: Option<&str>| (image(name), user.map(str::to_owned));
    assert_eq!(
        pulls,
        [
            with("else.example/d", None),
            with("mirror.example/c", Some("mirror")),
            with("quay.example/b", Some("quay")),
            with("quay.example/team/a", Some("port")),
        ]
    );
}

#[test]
fn images_that_do_not_fit_are_not_begun() {
    let room = |gigabytes: u64| Terms {
        allocatable: Some(gigabytes * GI),
        at_once: 2,
    };
    // Each image has a layer of its own and a shared one: three layers, twice that with their files.
    for (allocatable, size, fits) in [(31, GI * 2, true), (27, GI * 2, false), (15, 0, false)] {
        let host = Host::new();
        host.registry.set_size(size);
        let fetched = host.fetch(&["a.example/a", "a.example/b"], room(allocatable));
        assert_eq!(fetched.is_ok(), fits, "{allocatable} {size}: {fetched:?}");
        assert_eq!(host.registry.pulls().len(), if fits { 2 } else { 0 });
        if let Err(error) = fetched {
            let text = error.to_string();
            assert!(
                text.starts_with("storage available is less than minimum required"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_failing_image_stops_no_other_unless_the_disk_is_full() {
    let alone = Terms { at_once: 1, ..TERMS };
    let all = ["a.example/a", "a.example/b", "a.example/c"];
    for (why, pulled) in [("manifest unknown", 3), ("no space left on device", 2)] {
        let host = Host::new();
        host.registry.refuse(&image("a.example/b"), Some(why));
        let failures = host.fetch(&all, alone).unwrap().failures;
        assert_eq!(failures.len(), 1, "{why}");
        assert!(failures[&image("a.example/b")].contains(why));
        assert_eq!(host.registry.pulls().len(), pulled, "{why}");
    }
    let host = Host::new();
    let given_up = AtomicBool::new(true);
    images::fetch(&host.machine, &names(&all), alone, &given_up).unwrap();
    assert_eq!(host.registry.pulls(), []);
}

#[test]
fn an_unreadable_pull_secret_is_reported_and_not_quoted() {
    let host = Host::new();
    host.write(PULL_SECRET, "{\"auths\": hunter2");
    let failures = host.fetch(&["a.example/a"], TERMS).unwrap().failures;
    let text = &failures[&image("a.example/a")];
    assert!(
        text.contains("pull secret") && !text.contains("hunter2"),
        "{text}"
    );
}

#[test]
fn only_what_is_missing_is_asked_for() {
    let host = Host::new();
    host.registry.store(&image("a.example/a"));
    let sets = ["a.example/a", "a.example/b"].map(|name| ImageSet {
        name: name.to_owned(),
        generation: 1,
        images: names(&["a.example/a", name]),
    });
    let survey = images::survey(&host.machine, &sets).unwrap();
    assert_eq!(survey.present, names(&["a.example/a"]));
    assert_eq!(survey.missing, names(&["a.example/b"]));
    host.registry.set_absent(Some("crictl is not installed"));
    let error = images::survey(&host.machine, &sets).unwrap_err();
    assert!(error.to_string().contains("crictl is not installed"));
    images::survey(&host.machine, &[]).expect("nothing to keep needs no runtime");
}

#[test]
fn the_runtime_is_reloaded_when_the_file_changes_and_not_otherwise() {
    let host = Host::new();
    let (one, two) = (names(&["a.example/a"]), names(&["a.example/b", "a.example/a"]));
    let inode = || fs::metadata(host.path(CRIO_DROP_IN)).unwrap().ino();
    assert!(
        !images::pin(&host.machine, &BTreeSet::new()).unwrap(),
        "nothing to do"
    );
    assert_eq!(host.reloads(), 0);
    assert!(images::pin(&host.machine, &one).unwrap());
    assert_eq!(host.reloads(), 1);
    let before = inode();
    assert!(!images::pin(&host.machine, &one).unwrap(), "already equal");
    assert_eq!((host.reloads(), inode()), (1, before));
    assert!(images::pin(&host.machine, &two).unwrap());
    let text = fs::read_to_string(host.path(CRIO_DROP_IN)).unwrap();
    let (a, b) = (image("a.example/a"), image("a.example/b"));
    assert_eq!(
        text,
        format!("[crio]\n  [crio.image]\n    pinned_images = [\"{a}\", \"{b}\"]\n")
    );
    assert!(images::pin(&host.machine, &BTreeSet::new()).unwrap());
    assert!(!host.path(CRIO_DROP_IN).exists());
    assert_eq!(host.reloads(), 3);
}

#[test]
fn a_reload_that_failed_or_was_cut_off_is_made_up_for() {
    let host = Host::new();
    let one = names(&["a.example/a"]);
    host.services.set_failing("crio.service", true);
    let error = images::pin(&host.machine, &one).unwrap_err();
    assert!(matches!(error, ImagesError::Reload(_)), "{error}");
    assert!(host.path(paths::CRIO_RELOAD_OWED).exists());
    host.services.set_failing("crio.service", false);
    assert!(images::pin(&host.machine, &one).unwrap());
    assert!(!host.path(paths::CRIO_RELOAD_OWED).exists());
    assert!(!images::pin(&host.machine, &one).unwrap());
    assert_eq!(host.reloads(), 2);
}
