//! The next step for the builds of a MachineOSConfig, in every situation.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_core::generators::os_builds::{
    BuildState, BuildStep, BuildView, ImageInputs, ImagePresence, RegistryAnswers, RenderedView, decide,
    machine_os_build, status_conditions,
};
use serde_json::{Value, json};

const IMAGE_A: &str =
    "registry.example.com/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A cluster with one MachineOSConfig, whose pool goes from one rendered config to another.
struct Cluster {
    config: MachineOSConfig,
    pool: MachineConfigPool,
    target: Value,
    reached: Option<Value>,
    builds: Vec<MachineOSBuild>,
    answers: RegistryAnswers,
    retry_interrupted: Option<Duration>,
}

fn rendered(name: &str, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {
                "machineconfiguration.openshift.io/release-image-version": "1",
                "machineconfiguration.openshift.io/generated-by-controller-version": "1",
            },
        },
        "spec": spec,
    })
}

fn pool(status: &str, spec: &str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {"configuration": {"name": spec}},
        "status": {"configuration": {"name": status}},
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

impl Cluster {
    /// The pool has reached rendered-infra-1, which is also its target.
    fn new() -> Self {
        let config = serde_json::from_value(json!({
            "metadata": {"name": "infra", "uid": "u"},
            "spec": {
                "machineConfigPool": {"name": "infra"},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": "registry.example.com/os:latest",
            },
        }))
        .unwrap();
        Self {
            config,
            pool: pool("rendered-infra-1", "rendered-infra-1"),
            target: rendered("rendered-infra-1", &json!({"osImageURL": "base:1"})),
            reached: Some(rendered("rendered-infra-1", &json!({"osImageURL": "base:1"}))),
            builds: Vec::new(),
            answers: RegistryAnswers::new(),
            retry_interrupted: None,
        }
    }

    /// The same after a build of the first config, which its nodes run.
    fn built() -> Self {
        let mut cluster = Self::new();
        let name = cluster.add_build(BuildState::Succeeded, IMAGE_A);
        cluster.point_at(&name, IMAGE_A);
        cluster
    }

    fn wanted(&self) -> MachineOSBuild {
        let rendered: MachineConfig = serde_json::from_value(self.target.clone()).unwrap();
        machine_os_build(&self.pool, &self.config, &rendered).unwrap()
    }

    fn name(&self) -> String {
        self.wanted().metadata.name.unwrap()
    }

    fn add_build(&mut self, state: BuildState, image: &str) -> String {
        let mut build = self.wanted();
        let status = build.status.get_or_insert_default();
        let time =
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-01-01T00:00:00Z".parse().unwrap());
        status.conditions = status_conditions(&[], state, &time);
        image.clone_into(&mut status.digested_image_push_spec);
        self.builds.push(build);
        self.name()
    }

    fn point_at(&mut self, build: &str, image: &str) {
        self.annotate(
            "machineconfiguration.openshift.io/current-machine-os-build",
            build,
        );
        let status = self.config.status.get_or_insert_default();
        image.clone_into(&mut status.current_image_pull_spec);
        status.machine_os_build = Some(serde_json::from_value(json!({"name": build})).unwrap());
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.config.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// The pool's target becomes another config; its nodes stay on the first one.
    fn retarget(&mut self, spec: &Value) {
        self.target = rendered("rendered-infra-2", spec);
        self.pool = pool("rendered-infra-1", "rendered-infra-2");
    }

    fn answer(&mut self, image: &str, presence: ImagePresence) {
        self.answers.insert(image.to_owned(), presence);
    }

    fn step(&self) -> BuildStep {
        let decode = |value: &Value| -> (MachineConfig, ImageInputs) {
            (
                serde_json::from_value(value.clone()).unwrap(),
                ImageInputs::of(value).unwrap(),
            )
        };
        let target = decode(&self.target);
        let reached = self.reached.as_ref().map(decode);
        let builds: Vec<&MachineOSBuild> = self.builds.iter().collect();
        let view = BuildView {
            config: &self.config,
            pool: &self.pool,
            target: RenderedView {
                object: &target.0,
                inputs: &target.1,
            },
            reached: reached
                .as_ref()
                .map(|(object, inputs)| RenderedView { object, inputs }),
            builds: &builds,
            retry_interrupted: self.retry_interrupted,
            now: now(),
        };
        decide(&view, &self.answers).unwrap()
    }
}

fn deletes(step: &BuildStep, expected: &str, why: &str) {
    match step {
        BuildStep::Delete { name, reason } => assert_eq!((name.as_str(), *reason), (expected, why)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_build_is_created_started_and_used() {
    let mut cluster = Cluster::new();
    let BuildStep::Create(build) = cluster.step() else {
        panic!("{:?}", cluster.step());
    };
    let name = build.metadata.name.clone().unwrap();
    cluster.builds.push(*build);
    assert_eq!(cluster.step(), BuildStep::Start { name: name.clone() });
    cluster.builds.clear();
    cluster.add_build(BuildState::Building, "");
    assert_eq!(cluster.step(), BuildStep::Point { name: name.clone() });
    cluster.point_at(&name, "");
    assert_eq!(cluster.step(), BuildStep::Idle);
    cluster.builds.clear();
    cluster.add_build(BuildState::Succeeded, IMAGE_A);
    assert_eq!(
        cluster.step(),
        BuildStep::Point { name: name.clone() },
        "without asking the registry"
    );
    cluster.point_at(&name, IMAGE_A);
    assert_eq!(cluster.step(), BuildStep::Idle);
}

#[test]
fn a_deleted_build_is_created_again_under_the_same_name() {
    let mut cluster = Cluster::built();
    let name = cluster.name();
    cluster.builds[0].metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(
        cluster.step(),
        BuildStep::Idle,
        "it waits until the former one is gone"
    );
    cluster.builds.clear();
    let BuildStep::Create(build) = cluster.step() else {
        panic!("{:?}", cluster.step());
    };
    assert_eq!(build.metadata.name, Some(name));
}

#[test]
fn a_change_of_files_only_reuses_the_image() {
    let mut cluster = Cluster::built();
    cluster.retarget(&json!({"osImageURL": "base:1", "config": {"storage": {}}, "fips": true}));
    assert!(matches!(cluster.step(), BuildStep::Create(_)));
    let name = cluster.add_build(BuildState::New, "");
    assert_eq!(
        cluster.step(),
        BuildStep::Inspect {
            reference: IMAGE_A.to_owned()
        }
    );
    cluster.answer(IMAGE_A, ImagePresence::Present);
    assert_eq!(
        cluster.step(),
        BuildStep::Reuse {
            name: name.clone(),
            image: IMAGE_A.to_owned()
        }
    );
    cluster.answer(IMAGE_A, ImagePresence::Missing);
    assert_eq!(
        cluster.step(),
        BuildStep::Start { name },
        "without the image it is built"
    );
    cluster.answer(IMAGE_A, ImagePresence::Unknown("503".to_owned()));
    assert!(matches!(cluster.step(), BuildStep::Blocked(why) if why.contains("503")));
}

#[test]
fn a_change_of_the_image_or_of_the_machine_os_config_is_built() {
    let mut cluster = Cluster::built();
    cluster.retarget(&json!({"osImageURL": "base:2"}));
    let name = cluster.add_build(BuildState::New, "");
    assert_eq!(cluster.step(), BuildStep::Start { name });

    let mut cluster = Cluster::built();
    cluster.retarget(&json!({"osImageURL": "base:1", "config": {}}));
    cluster.config.spec.rendered_image_push_spec = "registry.example.com/other:latest".to_owned();
    let name = cluster.add_build(BuildState::New, "");
    assert_eq!(
        cluster.step(),
        BuildStep::Start { name },
        "the former image was built for another MachineOSConfig"
    );
}

#[test]
fn going_back_to_an_earlier_config_needs_only_its_image() {
    let mut cluster = Cluster::built();
    let name = cluster.name();
    cluster.point_at("infra-another", "registry.example.com/os@sha256:b");
    assert_eq!(
        cluster.step(),
        BuildStep::Inspect {
            reference: IMAGE_A.to_owned()
        }
    );
    cluster.answer(IMAGE_A, ImagePresence::Present);
    assert_eq!(cluster.step(), BuildStep::Point { name: name.clone() });
    cluster.answer(IMAGE_A, ImagePresence::Missing);
    deletes(&cluster.step(), &name, "its image is missing from the registry");
}

#[test]
fn other_builds_are_superseded_unless_they_succeeded() {
    let mut cluster = Cluster::built();
    let first = cluster.name();
    cluster.retarget(&json!({"osImageURL": "base:2"}));
    let second = cluster.add_build(BuildState::Building, "");
    cluster.retarget(&json!({"osImageURL": "base:3"}));
    cluster.target["metadata"]["name"] = "rendered-infra-3".into();
    cluster.pool = pool("rendered-infra-1", "rendered-infra-3");
    assert!(matches!(cluster.step(), BuildStep::Create(_)));
    let third = cluster.add_build(BuildState::New, "");
    deletes(&cluster.step(), &second, "it was superseded");
    cluster
        .builds
        .retain(|build| build.metadata.name.as_ref() != Some(&second));
    assert_eq!(cluster.step(), BuildStep::Start { name: third });
    assert!(
        cluster
            .builds
            .iter()
            .any(|build| build.metadata.name.as_ref() == Some(&first))
    );
}

#[test]
fn a_rebuild_deletes_a_finished_build_and_is_satisfied_by_a_running_one() {
    for state in [BuildState::Succeeded, BuildState::Failed, BuildState::Interrupted] {
        let mut cluster = Cluster::new();
        let name = cluster.add_build(state, IMAGE_A);
        cluster.point_at(&name, IMAGE_A);
        cluster.annotate("machineconfiguration.openshift.io/rebuild", "");
        deletes(&cluster.step(), &name, "a rebuild was requested");
    }
    let mut cluster = Cluster::new();
    let name = cluster.add_build(BuildState::Building, "");
    cluster.point_at(&name, "");
    cluster.annotate("machineconfiguration.openshift.io/rebuild", "now");
    assert_eq!(
        cluster.step(),
        BuildStep::Point { name },
        "which removes the annotation"
    );
}

#[test]
fn a_failed_build_stays_and_an_interrupted_one_is_started_again_after_a_while() {
    let mut cluster = Cluster::new();
    cluster.add_build(BuildState::Failed, "");
    assert_eq!(cluster.step(), BuildStep::Idle);
    cluster.builds.clear();
    let name = cluster.add_build(BuildState::Interrupted, "");
    assert_eq!(cluster.step(), BuildStep::Idle);
    cluster.retry_interrupted = Some(Duration::from_secs(700));
    assert_eq!(cluster.step(), BuildStep::Wait(Duration::from_secs(100)));
    cluster.retry_interrupted = Some(Duration::from_mins(10));
    deletes(&cluster.step(), &name, "it was interrupted and is started again");
}

#[test]
fn a_degraded_pool_gets_no_build_unless_only_its_build_failed() {
    let degraded = |type_: &str| {
        let mut cluster = Cluster::new();
        let condition =
            json!({"type": type_, "status": "True", "lastTransitionTime": null, "reason": "", "message": ""});
        cluster.pool.status.as_mut().unwrap().conditions = vec![serde_json::from_value(condition).unwrap()];
        cluster
    };
    for type_ in ["NodeDegraded", "RenderDegraded", "PinnedImageSetsDegraded"] {
        let step = degraded(type_).step();
        assert!(
            matches!(&step, BuildStep::Blocked(why) if why.contains(type_)),
            "{step:?}"
        );
    }
    for type_ in ["ImageBuildDegraded", "Degraded", "Updating"] {
        let step = degraded(type_).step();
        assert!(matches!(step, BuildStep::Create(_)), "{step:?}");
    }
}

#[test]
fn a_requested_rebuild_deleted_the_image_of_a_pool_that_gets_no_build() {
    let mut cluster = Cluster::built();
    cluster.annotate("machineconfiguration.openshift.io/rebuild", "");
    let condition = json!({"type": "NodeDegraded", "status": "True", "lastTransitionTime": null, "reason": "", "message": ""});
    let conditions = &mut cluster.pool.status.as_mut().unwrap().conditions;
    *conditions = vec![serde_json::from_value(condition).unwrap()];
    let step = cluster.step();
    assert!(
        matches!(&step, BuildStep::Blocked(why) if why.contains("NodeDegraded")),
        "{step:?}"
    );
    cluster.pool.status.as_mut().unwrap().conditions.clear();
    deletes(&cluster.step(), &cluster.name(), "a rebuild was requested");
}

#[test]
fn an_image_of_the_installation_is_recorded_and_its_annotation_removed() {
    let mut cluster = Cluster::new();
    cluster.annotate("machineconfiguration.openshift.io/pre-built-image", IMAGE_A);
    let BuildStep::Seed { build, image } = cluster.step() else {
        panic!("{:?}", cluster.step());
    };
    assert_eq!(image, IMAGE_A);
    assert_eq!(
        build.spec.rendered_image_push_spec,
        "registry.example.com/os:latest"
    );
    let name = build.metadata.name.clone().unwrap();
    cluster.builds.push(*build);
    cluster.annotate(
        "machineconfiguration.openshift.io/current-machine-os-build",
        &name,
    );
    assert_eq!(cluster.step(), BuildStep::Idle, "such a build is never started");
    cluster.point_at(&name, IMAGE_A);
    assert_eq!(cluster.step(), BuildStep::ForgetPreBuiltImage);
}
