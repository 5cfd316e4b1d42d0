//! Metrics over HTTP, and events with their documented reasons.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use mco_api::machine_configuration::MachineConfigurationSpec;
use mco_api::vocabulary::names;
use mco_api::{MachineConfigPool, MachineConfiguration};
use mco_simulator::Behaviour;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{Cluster, eventually, file_config, target};

async fn get(address: std::net::SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_answered_where_an_option_says_and_events_tell_the_story() {
    let mut cluster = Cluster::start(2, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let options = mco_controllers::Options {
        metrics_address: Some(address),
        ..cluster.options()
    };
    cluster.start_controllers_with(options);
    let before = target(&cluster.pool("worker").await);
    let mut config = file_config("99-worker-a", "worker", "/etc/a", "a");
    config["spec"]["osImageURL"] = json!("registry.example/os@sha256:0123");
    cluster.create_config(config).await;
    let new = cluster.retargeted("worker", &before).await;
    cluster.updated("worker").await;
    let text = eventually("the metrics show the pool", || async {
        let text = get(address, "/metrics").await?;
        text.contains("mco_updated_machine_count{pool=\"worker\"} 2")
            .then_some(text)
    })
    .await;
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    for name in [
        "mco_machine_count{pool=\"master\"} 3",
        "mco_degraded_machine_count{pool=\"worker\"} 0",
        "mco_unavailable_machine_count{pool=\"worker\"} 0",
        "mco_state{",
        "mcc_sub_controller_state{",
        "os_image_url_override{pool=\"worker\"} 1",
        "os_image_url_override{pool=\"master\"} 0",
        "# TYPE mcc_drain_err gauge",
        "# TYPE mcc_pool_alert gauge",
    ] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
    assert!(get(address, "/other").await.unwrap().starts_with("HTTP/1.1 404"));
    let overridden = format!("OSImageURL was overridden via machineconfig in {new}");
    cluster.event(&new, "OSImageURLOverridden", &overridden).await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    let expected: BTreeSet<String> = [
        "RenderedConfigGenerated",
        "SetDesiredConfig",
        "Completed",
        "Updating",
        "AnnotationChange",
    ]
    .map(str::to_owned)
    .into();
    eventually("all reasons appear", || async {
        let events = events.list(&ListParams::default()).await.unwrap();
        let reasons: BTreeSet<String> = events
            .items
            .into_iter()
            .filter_map(|event| event.reason)
            .collect();
        expected.is_subset(&reasons).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_enforcement_of_boot_images_is_a_metric() {
    let cluster = Cluster::start(0, Behaviour::default()).await;
    let settings = MachineConfiguration::new("cluster", MachineConfigurationSpec::default());
    cluster.create(&settings).await;
    let old = json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.12.0"}});
    for (enforced, expected) in [
        (json!({"mode": "None"}), 1),
        (old, 0),
        (json!({"mode": "None", "manual": null}), 1),
    ] {
        let patch = Patch::Merge(json!({"status": {"bootImageSkewEnforcementStatus": enforced}}));
        cluster
            .api::<MachineConfiguration>()
            .patch_status("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let line = format!("mcc_boot_image_skew_enforcement_none {expected}\n");
        eventually(&line, || async {
            let text = cluster.metrics.encode().unwrap();
            text.contains(&line).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_selects_everything_reports_it() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let greedy: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "greedy"}, "spec": {"machineConfigSelector": {}, "nodeSelector": {}},
    }))
    .unwrap();
    cluster.create(&greedy).await;
    for everything in [
        "This machineconfigpool is selecting all machineconfigs.",
        "MachineConfigPool \"greedy\" is selecting all nodes.",
    ] {
        cluster.event("greedy", "SelectingAll", everything).await;
    }
    assert_eq!(target(&cluster.pool("greedy").await), "");
}
