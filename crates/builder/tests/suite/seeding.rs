//! Images that came with the installation.

use mco_core::generators::os_builds::BuildState;
use serde_json::json;

use crate::cluster::{Cluster, digest, eventually};

const NO_REGISTRY: &str = "127.0.0.1:19";
const PRE_BUILT: &str = "machineconfiguration.openshift.io/pre-built-image";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_the_installation_is_recorded_without_a_build() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    let image = format!("{NO_REGISTRY}/os@{}", digest(7));
    cluster.opt_in(json!({PRE_BUILT: image})).await;
    eventually("the annotation is removed", async || {
        let annotations = cluster.config().await.metadata.annotations.unwrap_or_default();
        (!annotations.contains_key(PRE_BUILT)).then_some(())
    })
    .await;
    let status = cluster.config().await.status.unwrap();
    assert_eq!(status.current_image_pull_spec, image);
    let seeded = status
        .conditions
        .iter()
        .find(|one| one.type_ == "Seeded")
        .unwrap();
    assert_eq!(
        (seeded.status.as_str(), seeded.reason.as_str()),
        ("True", "PreBuiltImageSeeded")
    );

    let build = cluster.current_build().await;
    let recorded = cluster.state(&build, BuildState::Succeeded).await;
    assert_eq!(recorded.metadata.labels.unwrap()[PRE_BUILT], "true");
    // The tag is the user's.
    assert_eq!(
        recorded.spec.rendered_image_push_spec,
        format!("{NO_REGISTRY}/os:latest")
    );
    let status = recorded.status.unwrap();
    assert_eq!(status.digested_image_push_spec, image);
    assert!(status.build_start.unwrap().0 < status.build_end.unwrap().0);
    assert!(
        status
            .conditions
            .iter()
            .all(|one| one.reason == "PreBuiltImageSeeded")
    );
    assert!(cluster.jobs().await.is_empty());
    assert!(!cluster.events().await.contains_key("JobCreated"));

    // The next change of the OS is built like any other.
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:2"}))
        .await;
    cluster.retarget("rendered-worker-2").await;
    cluster.build(&build, &digest(8)).await;
    assert!(cluster.image().await.ends_with(&digest(8)));
}
