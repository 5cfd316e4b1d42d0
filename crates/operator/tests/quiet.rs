//! A sync reads and writes only what changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{DEADLINE, Running, eventually};
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client};
use mco_operator::OperatorOptions;
use parking_lot::Mutex;
use serde_json::json;

const NAMESPACE: &str = "openshift-machine-config-operator";
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

#[tokio::test]
async fn every_full_sync_read_all_definitions_and_roles() {
    let requests = Requests::default();
    let recording = requests.clone();
    let options = OperatorOptions::new("0.1.0");
    let running = Running::behind(options, async |client| recording.recording(client)).await;
    running.play_controllers().await;
    // Nothing is remembered before the watches have their first list.
    let quiet = async {
        for round in 0.. {
            let read = || {
                (
                    requests.count("/customresourcedefinitions/"),
                    requests.count("/clusterroles/"),
                )
            };
            let before = read();
            sync_again(&running, &requests, round).await;
            if read() == before {
                return;
            }
        }
    };
    let quiet = tokio::time::timeout(DEADLINE, quiet).await;
    quiet.expect("a full sync that reads no definition and no role");

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
