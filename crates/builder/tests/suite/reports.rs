//! What a build reports: status, events, metrics, and the recovery from failures.

use mco_core::generators::os_builds::BuildState;
use serde_json::json;

use crate::cluster::{Cluster, digest, eventually};

/// Nothing answers there.
const NO_REGISTRY: &str = "127.0.0.1:19";

#[tokio::test(flavor = "multi_thread")]
async fn a_build_reports_its_progress_by_events_and_metrics() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let build = cluster.started("").await;
    cluster.run_job(&build).await;
    cluster
        .has_metric("ocl_build_state{pool=\"worker\",state=\"building\"} 1")
        .await;
    cluster.has_metric("ocl_active_builds{pool=\"worker\"} 1").await;
    cluster
        .has_metric("ocl_image_push_state{pool=\"worker\",state=\"pushing\"} 1")
        .await;
    cluster.complete_job(&build, &digest(1)).await;
    assert_eq!(cluster.image().await, format!("{NO_REGISTRY}/os@{}", digest(1)));
    for reason in [
        "ConfigReconciled",
        "BuildStarted",
        "BuildPreparing",
        "JobCreated",
        "JobStarted",
        "BuildBuilding",
        "JobCompleted",
        "BuildCompleted",
    ] {
        cluster.has_event(reason).await;
    }
    for line in [
        "ocl_build_state{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_build_total{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_build_duration_seconds_count{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_build_queue_duration_seconds_count{pool=\"worker\"} 1",
        "ocl_build_job_state{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_image_push_state{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_image_push_total{pool=\"worker\",state=\"succeeded\"} 1",
        "ocl_active_builds{pool=\"worker\"} 0",
        "ocl_rollout_updated_nodes{pool=\"worker\"} 2",
        "ocl_rollout_total_nodes{pool=\"worker\"} 2",
        "mco_mosc_count 1",
    ] {
        cluster.has_metric(line).await;
    }
    // The inputs of a completed build are deleted; its digest stays.
    eventually("only the digest is left", async || {
        (cluster.jobs().await.is_empty() && cluster.build_objects().await == [format!("digest-{build}")])
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_counted_once_and_a_later_build_recovers() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let build = cluster.started("").await;
    cluster.run_job(&build).await;
    cluster.fail_job(&build).await;
    for reason in ["JobFailed", "BuildFailed", "BuildDegraded"] {
        cluster.has_event(reason).await;
    }
    let failed = "ocl_build_total{pool=\"worker\",state=\"failed\"} 1";
    cluster.has_metric(failed).await;
    cluster
        .has_metric("ocl_image_push_total{pool=\"worker\",state=\"failed\"} 1")
        .await;
    cluster
        .has_metric("ocl_build_retries_total{pool=\"worker\"} 3")
        .await;

    // A change that starts no build: the failure is neither retried nor counted again.
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:1"}))
        .await;
    cluster
        .patch_config(json!({"metadata": {"annotations": {"touched": "1"}}}))
        .await;
    cluster.patch_pool_status(json!({"updatedMachineCount": 1})).await;
    cluster
        .has_metric("ocl_rollout_updated_nodes{pool=\"worker\"} 1")
        .await;
    cluster.has_metric(failed).await;
    assert_eq!(cluster.jobs().await.len(), 1);

    // What the pool's controller reports of the failure does not keep the next build from being started.
    let degraded = json!({"type": "ImageBuildDegraded", "status": "True", "reason": "BuildFailed",
        "message": "failed", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    cluster.patch_pool_status(json!({"conditions": [degraded]})).await;
    cluster
        .set_containerfile("FROM configs AS final\nLABEL fixed=1\n")
        .await;
    let next = cluster.build(&build, &digest(2)).await;
    cluster.has_event("BuildRecovered").await;
    let names: Vec<_> = cluster
        .builds()
        .await
        .into_iter()
        .filter_map(|one| one.metadata.name)
        .collect();
    assert_eq!(names, [next]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_the_containerfile_fails_without_a_job() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let good = cluster.build("", &digest(1)).await;
    cluster
        .set_containerfile("FROM configs AS final\nENV BROKEN\n")
        .await;
    let failed = eventually("a failed build", async || {
        let builds = cluster.builds().await.into_iter();
        let mut failed =
            builds.filter(|one| mco_core::generators::os_builds::build_state(one) == BuildState::Failed);
        failed.next()
    })
    .await;
    let why = &failed.metadata.annotations.unwrap()["mco.dev/build-failure"];
    assert!(
        why.contains("line 2: ENV instruction must use key=value form"),
        "{why}"
    );
    cluster.has_event("BuildDegraded").await;
    cluster
        .has_metric("ocl_build_state{pool=\"worker\",state=\"failed\"} 1")
        .await;
    assert!(cluster.jobs().await.is_empty());
    assert!(
        !cluster
            .metrics
            .encode()
            .unwrap()
            .contains("ocl_image_push_total{pool=\"worker\",state=\"failed\"}")
    );
    // The nodes keep the image that they have.
    assert!(cluster.image().await.ends_with(&digest(1)));
    assert_ne!(cluster.current_build().await, good);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_job_interrupts_its_build_and_a_rebuild_starts_it_again() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    cluster.opt_in(json!({})).await;
    let build = cluster.started("").await;
    cluster.run_job(&build).await;
    let jobs = cluster.ours::<k8s_openapi::api::batch::v1::Job>();
    let name = format!("build-{build}");
    jobs.delete(&name, &kube::api::DeleteParams::background())
        .await
        .unwrap();
    let interrupted = cluster.state(&build, BuildState::Interrupted).await;
    for reason in ["JobDeleted", "BuildInterrupted"] {
        cluster.has_event(reason).await;
    }
    cluster
        .has_metric("ocl_build_total{pool=\"worker\",state=\"interrupted\"} 1")
        .await;
    let rebuild = json!({"machineconfiguration.openshift.io/rebuild": ""});
    cluster
        .patch_config(json!({"metadata": {"annotations": rebuild}}))
        .await;
    eventually("another build of the same name", async || {
        let found = cluster
            .all::<mco_api::MachineOSBuild>()
            .get_opt(&build)
            .await
            .unwrap()?;
        (found.metadata.uid != interrupted.metadata.uid).then_some(())
    })
    .await;
    cluster.has_event("RebuildRequested").await;
    cluster.started("").await;
    cluster.run_job(&build).await;
    cluster.complete_job(&build, &digest(3)).await;
    let annotations = cluster.config().await.metadata.annotations.unwrap();
    assert!(!annotations.contains_key("machineconfiguration.openshift.io/rebuild"));
}
