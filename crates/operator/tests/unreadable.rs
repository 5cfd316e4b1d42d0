//! The operator leaves objects unchanged while it cannot read their inputs, and reports it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Running, eventually};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use mco_api::ControllerConfig;
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_operator::{OperandMode, OperatorOptions};
use serde_json::json;

const NAMESPACE: &str = "openshift-machine-config-operator";
const URL: &str = "https://api.example.com:6443";

const CLUSTER_INFO: &str = "/configmaps/cluster-info";

/// Wraps a client that may not read one object while `hidden` is set.
fn veiled(client: Client, hidden: Arc<AtomicBool>, object: &'static str) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, hidden) = (client.clone(), Arc::clone(&hidden));
        async move {
            let is_asked = request.uri().path().ends_with(object);
            if !is_asked || !hidden.load(Ordering::Acquire) {
                return client.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "reading this is forbidden",
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = StatusCode::FORBIDDEN;
            Ok(response)
        }
    });
    Client::new(service, "default")
}

/// Creates what kubeadm publishes.
async fn publish(client: &Client) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {"server": URL}}],
    });
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()},
    }))
    .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    maps.create(&PostParams::default(), &map).await.unwrap();
}

async fn start(hidden: &Arc<AtomicBool>) -> Running {
    let options = OperatorOptions {
        workloads: OperandMode::Deployed,
        image: "localhost/mco:test".to_owned(),
        ..OperatorOptions::new("0.1.0")
    };
    Running::behind(options, async |client| {
        publish(&client).await;
        veiled(client, Arc::clone(hidden), CLUSTER_INFO)
    })
    .await
}

async fn daemon_set(running: &Running, name: &str) -> Option<DaemonSet> {
    let sets: Api<DaemonSet> = Api::namespaced(running.client(), NAMESPACE);
    sets.get_opt(name).await.unwrap()
}

/// Returns the arguments and environment of the servers.
async fn servers(running: &Running) -> Option<(Vec<String>, bool)> {
    let found = daemon_set(running, "machine-config-server").await?;
    let container = found.spec?.template.spec?.containers.into_iter().next()?;
    Some((container.args?, container.env.is_some()))
}

/// Returns the reason of the ClusterOperator's Degraded condition, if it is about the unreadable object.
async fn complaint(running: &Running) -> Option<String> {
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let found = operators.get_opt("machine-config").await.unwrap()?;
    let conditions = found.status?.conditions;
    let found = conditions.into_iter().find(|one| one.type_ == "Degraded")?;
    (found.status == "True" && found.message.contains("kube-public/cluster-info")).then_some(found.reason)
}

#[tokio::test]
async fn one_failed_read_does_not_send_new_machines_elsewhere() {
    let hidden = Arc::new(AtomicBool::new(false));
    let running = start(&hidden).await;
    let address = format!("--apiserver-url={URL}");
    eventually("the servers", || async {
        let (arguments, _) = servers(&running).await?;
        arguments.contains(&address).then_some(())
    })
    .await;

    hidden.store(true, Ordering::Release);
    let settings = running.settings().await;
    let louder = json!({"spec": {"logLevel": "Trace"}});
    settings
        .patch("cluster", &PatchParams::default(), &Patch::Merge(louder))
        .await
        .unwrap();
    let (arguments, _) = eventually("servers with new arguments", || async {
        servers(&running).await.filter(|(_, is_told)| *is_told)
    })
    .await;
    assert!(arguments.contains(&address), "{arguments:?}");
    let reason = eventually("the reason", || complaint(&running)).await;
    assert_eq!(reason, "RenderConfigFailed");
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let config = configs.get("machine-config-controller").await.unwrap();
    let status = config.spec.infra.unwrap().status.unwrap();
    assert_eq!(status.api_server_internal_uri, URL);

    hidden.store(false, Ordering::Release);
    eventually("an operator that is no longer degraded", || async {
        complaint(&running).await.is_none().then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn what_is_made_from_unknown_facts_waits_and_nothing_else_does() {
    let hidden = Arc::new(AtomicBool::new(true));
    let running = start(&hidden).await;
    eventually("the daemons", || daemon_set(&running, "machine-config-daemon")).await;
    eventually("the reason", || complaint(&running)).await;
    let configs: Api<ControllerConfig> = Api::all(running.client());
    assert!(servers(&running).await.is_none(), "their address is unknown");
    assert!(
        configs
            .get_opt("machine-config-controller")
            .await
            .unwrap()
            .is_none()
    );

    hidden.store(false, Ordering::Release);
    let (arguments, _) = eventually("the servers", || servers(&running)).await;
    assert!(
        arguments.contains(&format!("--apiserver-url={URL}")),
        "{arguments:?}"
    );
    running.stop().await;
}

#[tokio::test]
async fn without_a_readable_release_the_previous_one_is_reported() {
    let hidden = Arc::new(AtomicBool::new(true));
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        veiled(client, hidden, "/clusterversions/version")
    })
    .await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let deployed = json!({"status": {"versions": [{"name": "operator", "version": "4.14.0"}]}});
    eventually("a status", || async {
        let (options, patch) = (PatchParams::default(), Patch::Merge(&deployed));
        let answer = operators.patch_status("machine-config", &options, &patch).await;
        answer.ok()
    })
    .await;
    let observed = eventually("what is reported", || async {
        let found = operators.get("machine-config").await.unwrap();
        let conditions = found.status?.conditions;
        let message = |type_: &str| {
            let found = conditions.iter().find(|one| one.type_ == type_)?;
            Some(found.message.clone())
        };
        let observed = (message("Progressing")?, message("Degraded")?);
        observed.1.contains("resync").then_some(observed)
    })
    .await;
    assert_eq!(observed.0, "Unable to apply 4.14.0", "bringing up");
    assert!(
        observed.1.starts_with("Failed to resync 4.14.0 because: "),
        "{}",
        observed.1
    );
    running.stop().await;
}
