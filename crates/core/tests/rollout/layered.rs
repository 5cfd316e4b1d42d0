//! Pools whose nodes boot images built in the cluster.

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_core::rollout::target::{BuildState, Layering};
use mco_core::rollout::{PoolPlan, RolloutView, plan};
use serde_json::{Value, json};

use crate::fixtures::*;

pub fn config(image: &str, build: Option<&str>) -> MachineOSConfig {
    let annotations = build.map(|build| json!({key("current-machine-os-build"): build}));
    let mut status = json!({});
    if !image.is_empty() {
        status["currentImagePullSpec"] = json!(image);
    }
    from(json!({
        "metadata": {"name": "worker", "annotations": annotations.unwrap_or(json!({}))},
        "spec": {"machineConfigPool": {"name": "worker"}},
        "status": status,
    }))
}

pub fn build(name: &str, target: &str, state: &str, image: &str) -> MachineOSBuild {
    let condition =
        json!({"type": state, "status": "True", "reason": "r", "message": "", "lastTransitionTime": time(0)});
    let conditions: Vec<Value> = (state != "New").then_some(condition).into_iter().collect();
    from(json!({
        "metadata": {"name": name},
        "spec": {"machineConfig": {"name": target}, "machineOSConfig": {"name": "worker"}},
        "status": {"conditions": conditions, "digestedImagePushSpec": image},
    }))
}

fn plan_layered(
    pool: &MachineConfigPool,
    nodes: &[Node],
    configs: &[MachineOSConfig],
    builds: &[MachineOSBuild],
) -> PoolPlan {
    let view = RolloutView::new([pool], nodes).with_images(configs, builds);
    plan(&view).pool("worker").unwrap().clone()
}

#[test]
fn nodes_wait_for_the_image() {
    let pool = pool("worker", "v1", json!({}));
    let fleet = nodes("n1 v0/v0");
    let go = Some("v1 i");
    let cases = [
        ("no image wanted", vec![], vec![], Some("v1 -"), None),
        (
            "a build left over after opting out",
            vec![],
            vec![build("b", "v1", "Succeeded", "i")],
            Some("v1 -"),
            None,
        ),
        ("no build yet", vec![config("i", None)], vec![], None, None),
        (
            "a build for another config",
            vec![config("i", None)],
            vec![build("b", "v0", "Succeeded", "i")],
            None,
            None,
        ),
        (
            "building",
            vec![config("i", None)],
            vec![build("b", "v1", "Building", "")],
            None,
            None,
        ),
        (
            "not started",
            vec![config("i", None)],
            vec![build("b", "v1", "New", "")],
            None,
            None,
        ),
        (
            "built, not taken over",
            vec![config("old", None)],
            vec![build("b", "v1", "Succeeded", "i")],
            None,
            None,
        ),
        (
            "built, first image not taken over",
            vec![config("", None)],
            vec![build("b", "v1", "Succeeded", "i")],
            None,
            None,
        ),
        (
            "built and taken over",
            vec![config("i", None)],
            vec![build("b", "v1", "Succeeded", "i")],
            go,
            None,
        ),
        (
            "interrupted",
            vec![config("i", None)],
            vec![build("b", "v1", "Interrupted", "")],
            None,
            None,
        ),
        (
            "failed",
            vec![config("i", None)],
            vec![build("b", "v1", "Failed", "")],
            None,
            Some("MachineConfigPool worker: image build b failed"),
        ),
        (
            "the named build counts",
            vec![config("i", Some("b2"))],
            vec![
                build("b1", "v1", "Failed", ""),
                build("b2", "v1", "Succeeded", "i"),
            ],
            go,
            None,
        ),
    ];
    for (name, configs, builds, expected, problem) in cases {
        let plan = plan_layered(&pool, &fleet, &configs, &builds);
        let target = plan
            .target
            .as_ref()
            .map(|target| format!("{} {}", target.config, target.image.as_deref().unwrap_or("-")));
        assert_eq!(target.as_deref(), expected, "{name}");
        assert_eq!(sent(&plan), if expected.is_some() { "n1" } else { "" }, "{name}");
        assert_eq!(plan.problem.as_deref(), problem, "{name}");
        if expected.is_none() {
            assert_eq!(plan.actions, [], "neither taint nor annotation: {name}");
            assert_eq!(held(&plan), "n1:waitingForImage", "{name}");
        }
    }
}

#[test]
fn nodes_go_to_config_and_image_together() {
    let pool = pool("worker", "v1", json!({"maxUnavailable": 2}));
    let (configs, builds) = ([config("i", None)], [build("b", "v1", "Succeeded", "i")]);
    let cases = [
        ("there", "n1 v1/v1 image=i/i", ""),
        ("the config without the image", "n1 v1/v1", "n1"),
        ("an older image", "n1 v1/v1 image=h/h", "n1"),
        ("on the way", "n1 v0/v1 image=-/i Working", ""),
        (
            "failed on an older image of the same config",
            "n1 v1/v1 image=g/h Degraded cordoned-by-us; n2 v1/v1 NotReady image=i/i",
            "n1",
        ),
    ];
    for (name, fleet, expected) in cases {
        assert_eq!(
            sent(&plan_layered(&pool, &nodes(fleet), &configs, &builds)),
            expected,
            "{name}"
        );
    }
    let plan = plan_layered(&pool, &nodes("n1 v0/v0; n2 v0/v0"), &configs, &builds);
    assert_eq!(plan.events[0].reason, "SetDesiredConfigAndOSImage");
    assert_eq!(
        plan.events[0].message,
        "Set target for 2 nodes to MachineConfig: v1 / Image: i"
    );
}

#[test]
fn a_named_build_that_is_gone_or_for_another_config_is_forgotten() {
    let pool = pool("worker", "v1", json!({}));
    let cases = [
        ("right", config("i", Some("b")), false),
        ("gone", config("i", Some("x")), true),
        ("for another config", config("i", Some("old")), true),
        ("none named", config("i", None), false),
    ];
    let builds = [
        build("b", "v1", "Building", ""),
        build("old", "v0", "Succeeded", "i"),
    ];
    for (name, config, stale) in cases {
        let configs = [config];
        let layering = Layering::of_pool(&pool, &configs, &builds);
        assert_eq!(layering.names_stale_build, stale, "{name}");
        assert_eq!(layering.build_state(), Some(BuildState::Building), "{name}");
    }
}
