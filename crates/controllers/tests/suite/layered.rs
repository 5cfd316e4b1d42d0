//! Pools with an image that another component builds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Uri};
use kube::Client;
use kube::client::Body;
use mco_api::vocabulary::annotations::build::CURRENT_MACHINE_OS_BUILD;
use mco_api::{MachineOSBuild, MachineOSConfig};
use mco_simulator::Behaviour;
use serde_json::json;

use crate::cluster::{Cluster, eventually, target};

/// An API whose watch has delivered no build yet. Counts the requests for a build by name.
fn before_the_watch_brings_builds(client: Client, asked: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, asked) = (client.clone(), Arc::clone(&asked));
        async move {
            let path = request.uri().path();
            if path.ends_with("/machineosbuilds") {
                let query = request.uri().query().unwrap_or_default();
                let hidden = format!("{path}?{query}&labelSelector=none%3Dmatches");
                *request.uri_mut() = hidden.parse::<Uri>().unwrap();
            } else if path.contains("/machineosbuilds/") {
                asked.fetch_add(1, Ordering::SeqCst);
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

async fn named_build(cluster: &Cluster) -> Option<String> {
    let config = cluster.api::<MachineOSConfig>().get("worker").await.unwrap();
    config.metadata.annotations?.remove(CURRENT_MACHINE_OS_BUILD)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_forgotten_when_it_is_gone_and_not_when_it_is_new() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let image = "registry.example.com/os:worker";
    let build: MachineOSBuild = serde_json::from_value(json!({
        "metadata": {"name": "worker-1"},
        "spec": {
            "machineConfig": {"name": target(&cluster.pool("worker").await)},
            "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": image,
        },
    }))
    .unwrap();
    cluster.create(&build).await;
    let config: MachineOSConfig = serde_json::from_value(json!({
        "metadata": {"name": "worker", "annotations": {CURRENT_MACHINE_OS_BUILD: "worker-1"}},
        "spec": {
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": image,
        },
    }))
    .unwrap();
    cluster.create(&config).await;
    let asked = Arc::default();
    let client = before_the_watch_brings_builds(cluster.counted_client(), Arc::clone(&asked));
    cluster.start_controllers_through(client, cluster.options());
    eventually("the named build is asked for", async || {
        (asked.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    cluster.at_rest().await;
    assert_eq!(named_build(&cluster).await.as_deref(), Some("worker-1"));
    let _: MachineOSConfig = cluster
        .patch(
            "worker",
            json!({"metadata": {"annotations": {CURRENT_MACHINE_OS_BUILD: "worker-0"}}}),
        )
        .await;
    eventually("a build that is gone is forgotten", async || {
        named_build(&cluster).await.is_none().then_some(())
    })
    .await;
}
