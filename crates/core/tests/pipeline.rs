//! The render pipeline's two functions, on a cluster's objects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::{MachineConfig, MachineConfigPool, OSImageStream};
use mco_core::config::feature_gates::FeatureGates;
use mco_core::config::parsed_config::{ParsedConfig, SourceConfig};
use mco_core::config::reconcilable::Overrides;
use mco_core::config::render::RenderIdentity;
use mco_core::config::skew::ControllerVersions;
use mco_core::generators::generated::Generator;
use mco_core::generators::generated::condition::GenerationOutcome;
use mco_core::generators::os_streams::ReleaseStreams;
use mco_core::generators::templates::TemplateTree;
use mco_core::pipeline::bootstrap::default_controller_config;
use mco_core::pipeline::offline::built_in_pools;
use mco_core::pipeline::{
    self, BaseConfigs, BaseSettings, ClusterObjects, ClusterStage, GenerationError, GenerationResult,
    GeneratorInputs, PoolInputs, RenderFailure,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn kubelet_config<T: DeserializeOwned>(name: &str, created: &str, settings: &Value) -> T {
    object(json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": created},
        "spec": {"kubeletConfig": settings, "machineConfigPoolSelector":
            {"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}}},
    }))
}

fn objects() -> ClusterObjects {
    ClusterObjects {
        pools: built_in_pools().into(),
        controller_config: Some(Arc::new(default_controller_config())),
        ..ClusterObjects::default()
    }
}

fn generated(
    objects: &ClusterObjects,
    stage: ClusterStage,
    existing: &BTreeMap<String, Arc<MachineConfig>>,
) -> GenerationResult {
    let tree = TemplateTree::embedded();
    let settings = BaseSettings {
        templates: &tree,
        pull_secret: "",
        version: "v",
        payload_version: None,
    };
    let base = BaseConfigs::render(objects, objects.controller_config.as_ref().unwrap(), &settings).unwrap();
    let inputs = GeneratorInputs {
        objects,
        base: &base,
        version: "v",
        stage,
    };
    pipeline::generate(&inputs, existing)
}

fn names(result: &GenerationResult, part: &str) -> Vec<String> {
    let names = result.configs.iter().map(|config| config.name().to_owned());
    names.filter(|name| name.contains(part)).collect()
}

#[test]
fn several_kubelet_configs_of_a_pool_are_an_error_at_installation_only() {
    let mut objects = objects();
    objects.kubelet_configs = vec![
        kubelet_config("b", "2026-01-01T00:00:01Z", &json!({"maxPods": 11})),
        kubelet_config("a", "2026-01-01T00:00:02Z", &json!({"maxPods": 12})),
    ];
    let in_cluster = generated(&objects, ClusterStage::Cluster, &BTreeMap::new());
    assert_eq!(
        names(&in_cluster, "99-worker-generated-kubelet"),
        ["99-worker-generated-kubelet-1", "99-worker-generated-kubelet-2"],
        "in the order of their creation"
    );
    let reports: Vec<(&str, &GenerationOutcome)> = in_cluster
        .reports
        .iter()
        .map(|one| (one.name.as_str(), &one.outcome))
        .collect();
    assert_eq!(
        reports,
        [
            ("b", &GenerationOutcome::Success),
            ("a", &GenerationOutcome::Success)
        ]
    );
    assert!(in_cluster.failures.is_empty());

    let at_installation = generated(&objects, ClusterStage::Installation, &BTreeMap::new());
    let errors: Vec<&GenerationError> = at_installation
        .failures
        .iter()
        .map(|failure| &failure.error)
        .collect();
    assert!(
        matches!(errors[..], [GenerationError::Multiple { .. }]),
        "{errors:?}"
    );
}

#[test]
fn a_kubelet_config_that_becomes_invalid_leaves_its_pool_what_it_has() {
    let mut objects = objects();
    objects.kubelet_configs = vec![kubelet_config(
        "a",
        "2026-01-01T00:00:01Z",
        &json!({"maxPods": 11}),
    )];
    let valid = generated(&objects, ClusterStage::Cluster, &BTreeMap::new());
    let name = "99-worker-generated-kubelet";
    let present = valid.configs.iter().find(|config| config.name() == name).unwrap();
    let existing = BTreeMap::from([(name.to_owned(), Arc::clone(&present.object))]);
    objects.kubelet_configs = vec![kubelet_config(
        "a",
        "2026-01-01T00:00:01Z",
        &json!({"featureGates": {"A": true}}),
    )];
    let invalid = generated(&objects, ClusterStage::Cluster, &existing);
    let kept = invalid
        .configs
        .iter()
        .find(|config| config.name() == name)
        .unwrap();
    assert!(Arc::ptr_eq(&kept.object, &present.object));
    assert!(kept.origin.is_none());
    assert!(
        matches!(&invalid.reports[0].outcome, GenerationOutcome::Failure { message } if message.contains("featureGates"))
    );
}

#[test]
fn a_pool_does_not_keep_the_config_of_a_deleted_object_because_the_next_one_cannot_be_used() {
    let mut objects = objects();
    objects.kubelet_configs = vec![kubelet_config(
        "a",
        "2026-01-01T00:00:01Z",
        &json!({"maxPods": 11}),
    )];
    let name = "99-worker-generated-kubelet";
    let first = generated(&objects, ClusterStage::Cluster, &BTreeMap::new());
    let of_a = first.configs.iter().find(|config| config.name() == name).unwrap();
    let existing = BTreeMap::from([(name.to_owned(), Arc::clone(&of_a.object))]);
    objects.kubelet_configs = vec![kubelet_config(
        "b",
        "2026-01-01T00:00:02Z",
        &json!({"featureGates": {"A": true}}),
    )];
    let second = generated(&objects, ClusterStage::Cluster, &existing);
    assert_eq!(names(&second, name), Vec::<String>::new());
}

#[test]
fn a_custom_pool_keeps_the_kernel_arguments_that_it_has_or_lacks() {
    let mut objects = objects();
    let infra: MachineConfigPool = object(json!({"metadata": {"name": "infra"}, "spec": {}}));
    objects.pools.push(infra);
    let name = "97-infra-generated-kubelet";
    let config = |result: &GenerationResult| {
        let mut configs = result.configs.iter();
        let found = configs.find(|config| config.name() == name).unwrap();
        MachineConfig::clone(&found.object)
    };
    let new = config(&generated(&objects, ClusterStage::Cluster, &BTreeMap::new()));
    assert!(
        !new.spec.kernel_arguments.is_empty(),
        "as an installation gives it"
    );
    let mut of_reference = new.clone();
    of_reference.spec.kernel_arguments.clear();
    for present in [new, of_reference] {
        let existing = BTreeMap::from([(name.to_owned(), Arc::new(present.clone()))]);
        let later = config(&generated(&objects, ClusterStage::Cluster, &existing));
        assert_eq!(later.spec, present.spec, "no machine reboots");
    }
}

#[test]
fn one_bad_mirror_set_is_left_out_and_a_broken_image_keeps_what_is_in_force() {
    let mirrors = |name: &str, mirror: &str| {
        object(
            json!({"metadata": {"name": name}, "spec": {"imageDigestMirrors": [
            {"source": format!("{name}.example.com"), "mirrors": [mirror]}]}}),
        )
    };
    let mut objects = objects();
    objects.digest_mirrors = vec![mirrors("good", "mirror.local"), mirrors("bad", "not a mirror")];
    let first = generated(&objects, ClusterStage::Cluster, &BTreeMap::new());
    let skipped: Vec<&str> = first.skipped.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(skipped, ["bad"]);
    assert_eq!(names(&first, "-registries").len(), 2, "for the built-in pools");

    let own = first
        .configs
        .iter()
        .filter(|config| config.name().contains("-registries"));
    let existing: BTreeMap<_, _> = own
        .map(|config| (config.name().to_owned(), Arc::clone(&config.object)))
        .collect();
    objects.image = Some(object(
        json!({"metadata": {"name": "cluster"}, "spec": {"registrySources":
        {"allowedRegistries": ["a.example.com"], "blockedRegistries": ["b.example.com"]}}}),
    ));
    let second = generated(&objects, ClusterStage::Cluster, &existing);
    let kept = second
        .configs
        .iter()
        .filter(|config| config.name().contains("-registries"));
    let kept: Vec<bool> = kept
        .map(|config| Arc::ptr_eq(&config.object, &existing[config.name()]) && config.origin.is_none())
        .collect();
    assert_eq!(kept, [true, true]);
    assert!(matches!(second.failures[0].error, GenerationError::Registries(_)));
}

fn source(name: &str, spec: &Value) -> Arc<SourceConfig> {
    let config: MachineConfig = object(json!({
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec,
    }));
    Arc::new(SourceConfig::new(config))
}

fn file(size: usize) -> Value {
    json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": format!("/etc/{size}"), "contents": {"source": format!("data:,{}", "x".repeat(size))}}]}}})
}

#[test]
fn every_reason_not_to_render_has_its_own_variant_and_message() {
    let directory = json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"directories": [{"path": "/etc/d"}]}}});
    let devel = json!({"kernelType": "realtime", "extensions": ["kernel-devel"],
        "config": {"ignition": {"version": "3.5.0"}}});
    let mut foreign = SourceConfig::clone(&source("99-made", &json!({})));
    Arc::make_mut(&mut foreign.object).metadata.annotations = Some(
        [(
            "machineconfiguration.openshift.io/generated-by-controller-version".to_owned(),
            "v0".to_owned(),
        )]
        .into(),
    );
    let cases: Vec<(&str, Vec<Arc<SourceConfig>>, &str)> = vec![
        ("nothing selected", vec![], "couldn't find any MachineConfigs"),
        (
            "another version's config",
            vec![Arc::new(foreign)],
            "ignoring MC 99-made generated by older version v0",
        ),
        (
            "an invalid config",
            vec![source("50-a", &json!({"kernelType": "turbo"}))],
            "could not generate rendered MachineConfig: MachineConfig \"50-a\": spec.kernelType",
        ),
        (
            "contradicting configs",
            vec![source("50-a", &devel)],
            "could not generate rendered MachineConfig: installing kernel-devel",
        ),
        (
            "too large",
            vec![source("50-a", &file(900_000)), source("50-b", &file(900_001))],
            "size validation failed: rendered MachineConfig rendered-worker-",
        ),
        (
            "machines cannot follow",
            vec![source("50-a", &directory)],
            "reconciliation failed between current config \"rendered-worker-now\" and base config \"50-a\"",
        ),
    ];
    let [_, worker] = built_in_pools();
    let current: MachineConfig = object(json!({"metadata": {"name": "rendered-worker-now"}, "spec": {}}));
    let current = ParsedConfig::applicable(current).unwrap();
    let streams = ReleaseStreams::default();
    for (name, sources, message) in cases {
        let failure = pipeline::render_pool(&PoolInputs {
            pool: &worker,
            worker: None,
            controller_config: None,
            sources: &sources,
            streams: &streams,
            os_image_stream: None,
            current: Some(&current),
            overrides: Overrides::default(),
            identity: RenderIdentity::default(),
            versions: Some(ControllerVersions { raw: "v", hash: "v" }),
        })
        .unwrap_err();
        assert!(failure.to_string().contains(message), "{name}: {failure}");
        let matches = match name {
            "nothing selected" => matches!(failure, RenderFailure::Select(_)),
            "another version's config" => matches!(failure, RenderFailure::Skew(_)),
            "an invalid config" => matches!(failure, RenderFailure::Invalid(_)),
            "contradicting configs" => matches!(failure, RenderFailure::Merge(_)),
            "too large" => matches!(failure, RenderFailure::Size(_)),
            _ => matches!(failure, RenderFailure::Transition(_)),
        };
        assert!(matches, "{name}: {failure:?}");
    }
}

#[test]
fn all_generators_have_a_place_in_the_pipeline() {
    let result = generated(&objects(), ClusterStage::Cluster, &BTreeMap::new());
    assert!(
        names(&result, "00-").len() + names(&result, "01-").len() >= 4,
        "templates"
    );
    assert_eq!(Generator::ALL.len(), 5, "a new generator needs a test here");
}

#[test]
fn an_overridden_image_was_checked_for_runc_as_if_it_were_the_pools_stream() {
    let stream = |name: &str| json!({"name": name, "osImage": format!("r.example.com/os@sha256:{name}"), "osExtensionsImage": "e"});
    let offered = |default: &str| -> OSImageStream {
        object(json!({
            "metadata": {"name": "cluster"}, "spec": {},
            "status": {"defaultStream": default, "availableStreams": [stream("rhel-9"), stream("rhel-10")]},
        }))
    };
    let runc = json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "/etc/crio/crio.conf.d/50-runc", "contents": {
            "source": "data:,%5Bcrio.runtime%5D%0Adefault_runtime%20%3D%20%22runc%22%0A"}}]}}});
    let [_, worker] = built_in_pools();
    for (name, default, image, passes) in [
        ("the pool's own stream, without runc", "rhel-10", None, false),
        ("the pool's own stream, with runc", "rhel-9", None, true),
        (
            "an older image",
            "rhel-10",
            Some("mirror.example.com/os@sha256:rhel-9"),
            true,
        ),
        (
            "a newer image",
            "rhel-9",
            Some("mirror.example.com/os@sha256:rhel-10"),
            false,
        ),
        (
            "an image of no stream",
            "rhel-10",
            Some("example.com/own@sha256:00"),
            true,
        ),
    ] {
        let streams = ReleaseStreams::of(Some(&offered(default)), &FeatureGates::default());
        let mut sources = vec![source("50-runc", &runc)];
        sources.extend(image.map(|image| source("60-image", &json!({"osImageURL": image}))));
        let rendered = pipeline::render_pool(&PoolInputs {
            pool: &worker,
            worker: None,
            controller_config: None,
            sources: &sources,
            streams: &streams,
            os_image_stream: None,
            current: None,
            overrides: Overrides::default(),
            identity: RenderIdentity::default(),
            versions: None,
        });
        match rendered {
            Ok(_) => assert!(passes, "{name}"),
            Err(failure) => {
                let failure = failure.to_string();
                assert!(
                    !passes && failure.contains("runc is not available"),
                    "{name}: {failure}"
                );
            }
        }
    }
}
