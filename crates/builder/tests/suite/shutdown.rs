//! A stop of the builder leaves nothing of a deleted MachineOSConfig behind, and interrupts nothing else.

use kube::api::DeleteParams;
use mco_api::MachineOSConfig;
use mco_core::generators::os_builds::BuildState;
use serde_json::json;

use crate::cluster::{Cluster, digest, eventually};

const NO_REGISTRY: &str = "127.0.0.1:19";

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_completes_the_cleanup_of_a_deleted_config() {
    let mut cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let build = cluster.started("").await;
    cluster.run_job(&build).await;
    let configs = cluster.all::<MachineOSConfig>();
    configs
        .delete("worker", &DeleteParams::background())
        .await
        .unwrap();
    // The deletion has not reached the builder yet.
    cluster.stop_builder().await;
    let builds = cluster.builds().await;
    assert!(builds.iter().all(|one| one.metadata.deletion_timestamp.is_some()));
    eventually("garbage collection of the build and what it owned", async || {
        let is_clean = cluster.builds().await.is_empty()
            && cluster.jobs().await.is_empty()
            && cluster.build_objects().await.is_empty();
        is_clean.then_some(())
    })
    .await;
    for reason in ["ConfigDeleted", "BuildDeleted"] {
        cluster.has_event(reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_ends_while_no_builder_runs_is_used_by_the_next_one() {
    let mut cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let build = cluster.started("").await;
    cluster.run_job(&build).await;
    cluster.stop_builder().await;
    let job = cluster.jobs().await;
    assert_eq!(job.len(), 1, "a stop interrupts no build");
    cluster.start_builder(0);
    cluster.complete_job(&build, &digest(1)).await;
    let built = cluster.state(&build, BuildState::Succeeded).await;
    let status = built.status.unwrap();
    assert!(status.build_start.unwrap().0 < status.build_end.unwrap().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_of_a_config_that_was_deleted_while_no_builder_ran_are_deleted() {
    let mut cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    cluster.build("", &digest(1)).await;
    cluster.stop_builder().await;
    let configs = cluster.all::<MachineOSConfig>();
    // Its builds are orphaned, as when the garbage collector has not seen the deletion.
    configs
        .delete(
            "worker",
            &DeleteParams {
                propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
                ..DeleteParams::default()
            },
        )
        .await
        .unwrap();
    eventually("the deletion", async || {
        configs.get_opt("worker").await.unwrap().is_none().then_some(())
    })
    .await;
    cluster.start_builder(0);
    eventually("the builds are deleted", async || {
        (cluster.builds().await.is_empty() && cluster.build_objects().await.is_empty()).then_some(())
    })
    .await;
}
