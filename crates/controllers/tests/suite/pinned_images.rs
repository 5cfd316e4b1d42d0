//! Pinned image sets of pools, and how many nodes have pulled them.

use kube::api::{DeleteParams, Patch, PatchParams};
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use mco_simulator::Behaviour;
use serde_json::json;

use crate::cluster::{Cluster, eventually, message, target};

fn set(name: &str, role: &str) -> PinnedImageSet {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": {"pinnedImages": [{"name": format!("quay.io/test/{name}@sha256:{}", "0".repeat(64))}]},
    }))
    .unwrap()
}

fn sets(pool: &MachineConfigPool) -> Vec<&str> {
    pool.spec
        .pinned_image_sets
        .iter()
        .map(|set| set.name.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_find_their_pools_by_label_and_pools_count_their_machines() {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let infra: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
        },
    }))
    .unwrap();
    cluster.create(&infra).await;
    for object in [
        set("tools", "worker"),
        set("base", "worker"),
        set("special", "infra"),
    ] {
        cluster.create(&object).await;
    }
    cluster
        .pool_where("worker", "names its sets", |pool| sets(pool) == ["base", "tools"])
        .await;
    cluster
        .pool_where("infra", "names the workers' sets too", |pool| {
            sets(pool) == ["base", "special", "tools"]
        })
        .await;

    // The controller restores its list.
    let foreign = json!({"spec": {"pinnedImageSets": [{"name": "mine"}]}});
    let _: MachineConfigPool = cluster.patch("worker", foreign).await;
    cluster
        .pool_where("worker", "names its own sets again", |pool| {
            sets(pool) == ["base", "tools"]
        })
        .await;

    // One node has pulled everything, the other is pulling.
    let pulled = json!({"name": "tools", "desiredGeneration": 1, "currentGeneration": 1});
    let wanted = json!({"name": "tools", "desiredGeneration": 1});
    for (node, tools) in [("worker-0", pulled), ("worker-1", wanted)] {
        let reported = json!({"status": {"pinnedImageSets": [
            {"name": "base", "desiredGeneration": 1, "currentGeneration": 1},
            tools,
        ]}});
        eventually(&format!("MachineConfigNode {node}"), || async {
            let nodes = cluster.api::<MachineConfigNode>();
            let patch = Patch::Merge(&reported);
            nodes
                .patch_status(node, &PatchParams::default(), &patch)
                .await
                .ok()
        })
        .await;
    }
    cluster
        .pool_where("worker", "counts its machines", |pool| {
            let status = pool.status.clone().unwrap_or_default();
            let pins = status
                .pool_synchronizers_status
                .first()
                .cloned()
                .unwrap_or_default();
            pins.pool_synchronizer_type == "PinnedImageSets"
                && (pins.machine_count, pins.updated_machine_count) == (2, 1)
        })
        .await;

    let relabelled = json!({"metadata": {"labels": {"machineconfiguration.openshift.io/role": "master"}}});
    let _: PinnedImageSet = cluster.patch("tools", relabelled).await;
    cluster
        .pool_where("master", "has got the set", |pool| sets(pool) == ["tools"])
        .await;
    cluster
        .pool_where("worker", "has lost the set", |pool| sets(pool) == ["base"])
        .await;
    cluster
        .api::<PinnedImageSet>()
        .delete("base", &DeleteParams::default())
        .await
        .unwrap();
    let worker = cluster
        .pool_where("worker", "names no set", |pool| sets(pool).is_empty())
        .await;
    assert_eq!(
        target(&worker),
        before,
        "images are no reason to change a machine"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn more_sets_than_a_pool_can_name_are_reported_until_they_are_fewer() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    for index in 0..=mco_core::rollout::pinned_images::MOST_SETS {
        cluster.create(&set(&format!("set-{index:03}"), "worker")).await;
    }
    cluster
        .pool_where("worker", "reports that there are too many", |pool| {
            message(pool, "PinnedImageSetsDegraded").starts_with(
                "Failed to populate pinned image sets for pool worker: 101 PinnedImageSets match",
            )
        })
        .await;
    cluster
        .api::<PinnedImageSet>()
        .delete("set-007", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .pool_where("worker", "names all that are left", |pool| {
            let sets = sets(pool);
            sets.len() == mco_core::rollout::pinned_images::MOST_SETS && !sets.contains(&"set-007")
        })
        .await;
    cluster
        .pool_where("worker", "is content", |pool| {
            message(pool, "PinnedImageSetsDegraded").is_empty()
        })
        .await;
}
