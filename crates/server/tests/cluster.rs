//! Serving the objects of a cluster, with a minimal API server that lists and watches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use mco_http::ListenerTransport;
use mco_server::cluster::ClusterBackend;
use mco_server::http::{DEFAULT_LIMITS, IgnitionApp};
use serde_json::{Value, json};
use support::{DEADLINE, Server};
use tokio::sync::watch;

/// All changes so far: the plural, the event and the object, whose index is its revision.
#[derive(Clone, Default)]
struct History(Vec<(String, &'static str, Value)>);

#[derive(Clone)]
struct FakeApi {
    history: watch::Sender<History>,
}

impl FakeApi {
    fn new() -> Self {
        Self {
            history: watch::Sender::new(History::default()),
        }
    }

    fn put(&self, plural: &str, object: Value) {
        self.change("MODIFIED", plural, object);
    }

    fn delete(&self, plural: &str, name: &str) {
        self.change("DELETED", plural, json!({"metadata": {"name": name}}));
    }

    fn change(&self, event: &'static str, plural: &str, mut object: Value) {
        self.history.send_modify(|History(all)| {
            object["metadata"]["resourceVersion"] = json!((all.len() + 1).to_string());
            all.push((plural.to_owned(), event, object));
        });
    }

    fn objects(&self, plural: &str) -> (usize, Vec<Value>) {
        let history = self.history.borrow().0.clone();
        let mut objects: Vec<Value> = Vec::new();
        for (of, event, object) in &history {
            if of == plural {
                objects.retain(|other| other["metadata"]["name"] != object["metadata"]["name"]);
                if *event != "DELETED" {
                    objects.push(object.clone());
                }
            }
        }
        (history.len(), objects)
    }

    async fn answer(self, request: Request<Body>) -> Response<Full<bytes::Bytes>> {
        let path = request.uri().path().to_owned();
        let query: HashMap<String, String> = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let after_version = if parts[0] == "api" { 2 } else { 3 };
        let rest = &parts[after_version..];
        let rest = if rest[0] == "namespaces" { &rest[2..] } else { rest };
        let (plural, name) = (rest[0], rest.get(1));
        if plural == "routes" {
            return status(404);
        }
        if let Some(name) = name {
            let (_, objects) = self.objects(plural);
            return match objects
                .into_iter()
                .find(|object| object["metadata"]["name"] == **name)
            {
                Some(object) => Response::new(Full::from(object.to_string())),
                None => status(404),
            };
        }
        if query.contains_key("watch") {
            let after: usize = query["resourceVersion"].parse().unwrap();
            return self.watch(plural, after).await;
        }
        let (revision, items) = self.objects(plural);
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": revision.to_string()}, "items": items});
        Response::new(Full::from(list.to_string()))
    }

    /// Returns the events after a revision and ends; the client resumes the watch from there.
    async fn watch(&self, plural: &str, after: usize) -> Response<Full<bytes::Bytes>> {
        let mut history = self.history.subscribe();
        loop {
            let lines: String = history.borrow_and_update().0[after..]
                .iter()
                .filter(|(of, ..)| of == plural)
                .map(|(_, event, object)| json!({"type": event, "object": object}).to_string() + "\n")
                .collect();
            if !lines.is_empty() {
                return Response::new(Full::from(lines));
            }
            history.changed().await.unwrap();
        }
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }
}

fn status(code: u16) -> Response<Full<bytes::Bytes>> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
        "message": "not found", "code": code});
    Response::builder()
        .status(code)
        .body(Full::from(body.to_string()))
        .unwrap()
}

fn rendered(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"osImageURL": "base", "config": {"ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": format!("/etc/{name}"), "contents": {"source": "data:,x"}}]}}}})
}

fn pool(updated: u32) -> Value {
    json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-new"}},
        "status": {"configuration": {"name": "rendered-worker-old"}, "updatedMachineCount": updated}})
}

struct Scene {
    api: FakeApi,
    server: Server,
    following: tokio::task::JoinHandle<()>,
    token_directory: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let api = FakeApi::new();
        let token_directory = tempfile::tempdir().unwrap();
        std::fs::write(token_directory.path().join("token"), "bootstrap-token").unwrap();
        std::fs::write(token_directory.path().join("ca.crt"), "file ca").unwrap();
        let server = Server::start(IgnitionApp::default(), ListenerTransport::Plain, DEFAULT_LIMITS).await;
        let cluster = ClusterBackend {
            client: api.client(),
            api_server_url: "https://api-int.example.com:6443".to_owned(),
            token_directory: token_directory.path().to_owned(),
        };
        let following = tokio::spawn(cluster.follow(server.app.clone()));
        Self {
            api,
            server,
            following,
            token_directory,
        }
    }

    async fn document(&self) -> Result<Value, u16> {
        let accept = "application/vnd.coreos.ignition+json;version=3.4.0";
        let reply = self.server.get("/config/worker", &[("Accept", accept)]).await;
        if reply.status == 200 {
            Ok(serde_json::from_slice(&reply.body).unwrap())
        } else {
            Err(reply.status)
        }
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Result<Value, u16>) -> bool) -> Result<Value, u16> {
        let waiting = async {
            loop {
                let document = self.document().await;
                if wanted(&document) {
                    return document;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .unwrap_or_else(|_| panic!("never happened: {what}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.following.abort();
    }
}

fn contents(document: &Value, path: &str) -> Option<String> {
    let files = document["storage"]["files"].as_array()?;
    let file = files.iter().find(|file| file["path"] == path)?;
    let bytes = mco_ignition::resource::decode(file["contents"]["source"].as_str(), None, 1 << 20).ok()?;
    String::from_utf8(bytes).ok()
}

fn has(document: &Result<Value, u16>, path: &str) -> bool {
    document
        .as_ref()
        .is_ok_and(|document| contents(document, path).is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_follows_its_pool_through_a_rollout() {
    let scene = Scene::start().await;
    scene
        .until("nothing is there yet", |got| *got == Err(503))
        .await
        .unwrap_err();

    scene.api.put("machineconfigs", rendered("rendered-worker-old"));
    scene.api.put("machineconfigpools", pool(0));
    scene.api.put(
        "controllerconfigs",
        json!({"metadata": {"name": "machine-config-controller"}, "spec": {"kubeAPIServerServingCAData": "Y2E="}}),
    );
    let old = scene
        .until("the proven config", |got| has(got, "/etc/rendered-worker-old"))
        .await
        .unwrap();
    let kubeconfig = contents(&old, "/etc/kubernetes/kubeconfig").unwrap();
    assert!(kubeconfig.contains("token: bootstrap-token"), "{kubeconfig}");
    assert!(
        kubeconfig.contains("ZmlsZSBjYQ=="),
        "the CA next to the token: {kubeconfig}"
    );
    let encapsulated = contents(&old, "/etc/ignition-machine-config-encapsulated.json").unwrap();
    assert!(encapsulated.starts_with("{\"metadata\":"), "{encapsulated}");
    assert!(
        encapsulated.contains("{\"ignition\":{\"version\":\"3.4.0\"}}"),
        "{encapsulated}"
    );

    scene.api.put("machineconfigs", rendered("rendered-worker-new"));
    scene.api.put("machineconfigpools", pool(1));
    scene
        .until("one machine has proven the new config", |got| {
            has(got, "/etc/rendered-worker-new")
        })
        .await
        .unwrap();

    scene.api.put(
        "configmaps",
        json!({"metadata": {"name": "kubeconfig-data"}, "binaryData": {"ca-bundle.crt": "bWFwIGNh"}}),
    );
    let is_published = |got: &Result<Value, u16>| {
        let document = got.as_ref().unwrap();
        contents(document, "/etc/kubernetes/kubeconfig")
            .unwrap()
            .contains("bWFwIGNh")
    };
    scene.until("the published CA", is_published).await.unwrap();

    scene.api.delete("machineconfigpools", "worker");
    scene
        .until("the pool is gone", |got| *got == Err(503))
        .await
        .unwrap_err();
    assert_eq!(scene.server.get("/healthz", &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layered_image_saves_a_reboot_once_it_is_certain() {
    let scene = Scene::start().await;
    for name in ["rendered-worker-old", "rendered-worker-new"] {
        scene.api.put("machineconfigs", rendered(name));
    }
    scene.api.put("machineconfigpools", pool(1));
    scene.api.put(
        "controllerconfigs",
        json!({"metadata": {"name": "machine-config-controller"}, "spec": {}}),
    );
    let image = "registry.example.com/os@sha256:1";
    let annotations =
        |document: &Value| contents(document, "/etc/machine-config-daemon/node-annotations.json").unwrap();
    let without = scene.until("served", std::result::Result::is_ok).await.unwrap();
    assert!(!annotations(&without).contains("currentImage"));

    scene.api.put(
        "machineosconfigs",
        json!({"metadata": {"name": "layered"}, "spec": {"machineConfigPool": {"name": "worker"}},
            "status": {"currentImagePullSpec": image}}),
    );
    scene.api.put(
        "machineosbuilds",
        json!({"metadata": {"name": "b"},
            "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": "rendered-worker-new"}},
            "status": {"digestedImagePushSpec": image, "conditions": [{"type": "Succeeded", "status": "True", "reason": "R",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    );
    let with = scene
        .until("the image", |got| {
            annotations(got.as_ref().unwrap()).contains(image)
        })
        .await
        .unwrap();
    let encapsulated = contents(&with, "/etc/ignition-machine-config-encapsulated.json").unwrap();
    assert!(
        encapsulated.contains(&format!("\"osImageURL\":\"{image}\"")),
        "{encapsulated}"
    );

    scene.api.put(
        "services",
        json!({"metadata": {"name": "registry"}, "spec": {"ports": [{"port": 5000}]}}),
    );
    std::fs::remove_file(scene.token_directory.path().join("token")).unwrap();
    scene.api.put("machineconfigpools", pool(2));
    scene
        .until("without a token no machine can join", |got| *got == Err(503))
        .await
        .unwrap_err();
}
