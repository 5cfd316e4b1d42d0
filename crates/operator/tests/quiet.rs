//! A sync reads and writes only what changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{DEADLINE, Running, eventually};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use mco_api::ControllerConfig;
use mco_api::foreign::image::Image;
use mco_operator::OperatorOptions;
use parking_lot::Mutex;
use serde_json::json;

const NAMESPACE: &str = "openshift-machine-config-operator";
const CONFIG_NAMESPACE: &str = "openshift-config";
const ROLE: &str = "machine-config-daemon";
/// A fact, which every full sync reads.
const READ_BY_EVERY_SYNC: &str = "/configmaps/machine-config-operator-images";

/// The paths of all requests but watches and events, in their order.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    fn recording(&self, client: Client) -> Client {
        let requests = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, requests) = (client.clone(), requests.clone());
            async move {
                let is_watch = request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("watch="));
                if !is_watch && request.method() == Method::GET {
                    requests.0.lock().push(request.uri().path().to_owned());
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }

    fn count(&self, part: &str) -> usize {
        let requests = self.0.lock();
        requests.iter().filter(|path| path.contains(part)).count()
    }
}

/// Changes a ConfigMap that may be an input, which triggers a full sync, and waits for it.
async fn sync_again(running: &Running, requests: &Requests, round: u32) {
    let before = requests.count(READ_BY_EVERY_SYNC);
    let maps: Api<ConfigMap> = Api::namespaced(running.client(), NAMESPACE);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "input"}, "data": {"round": round.to_string()},
    });
    let patch = Patch::Apply(map);
    maps.patch("input", &PatchParams::apply("test").force(), &patch)
        .await
        .unwrap();
    eventually("a full sync", || {
        std::future::ready((requests.count(READ_BY_EVERY_SYNC) > before).then_some(()))
    })
    .await;
    running.play_controllers().await;
}

/// Syncs again until nothing is read that did not change: nothing is remembered before the watches have their first
/// list.
async fn until_quiet(running: &Running, requests: &Requests) {
    let quiet = async {
        for round in 0.. {
            let read = || {
                (
                    requests.count("/customresourcedefinitions/"),
                    requests.count("/clusterroles/"),
                )
            };
            let before = read();
            sync_again(running, requests, round).await;
            if read() == before {
                return;
            }
        }
    };
    let quiet = tokio::time::timeout(DEADLINE, quiet).await;
    quiet.expect("a full sync that reads no definition and no role");
}

#[tokio::test]
async fn an_image_that_was_created_later_was_noticed_only_by_the_resync() {
    let requests = Requests::default();
    let recording = requests.clone();
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": CONFIG_NAMESPACE}})).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let map = json!({"metadata": {"name": "mine"}, "data": {"registry.example.com..5000": "mine"}});
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), CONFIG_NAMESPACE);
        let map = serde_json::from_value(map).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        recording.recording(client)
    })
    .await;
    running.play_controllers().await;
    until_quiet(&running, &requests).await;

    let image = json!({"metadata": {"name": "cluster"}, "spec": {"additionalTrustedCA": {"name": "mine"}}});
    let images: Api<Image> = Api::all(running.client());
    let image = serde_json::from_value(image).unwrap();
    images.create(&PostParams::default(), &image).await.unwrap();
    let configs: Api<ControllerConfig> = Api::all(running.client());
    eventually("the authorities of the registry", || async {
        let config = configs.get("machine-config-controller").await.ok()?;
        (!config.spec.image_registry_bundle_user_data.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_full_sync_read_all_definitions_and_roles() {
    let requests = Requests::default();
    let recording = requests.clone();
    let options = OperatorOptions::new("0.1.0");
    let running = Running::behind(options, async |client| recording.recording(client)).await;
    running.play_controllers().await;
    until_quiet(&running, &requests).await;

    let roles: Api<ClusterRole> = Api::all(running.client());
    let patch = Patch::Merge(json!({"rules": []}));
    roles.patch(ROLE, &PatchParams::default(), &patch).await.unwrap();
    eventually("a changed role is reverted", || async {
        let role = roles.get(ROLE).await.unwrap();
        role.rules.is_some_and(|rules| !rules.is_empty()).then_some(())
    })
    .await;
    running.stop().await;
}
