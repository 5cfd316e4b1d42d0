//! An operator with its own control plane.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::future::Future;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use mco_api::crd::CustomResourceDefinition;
use mco_api::vocabulary::annotations;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineConfiguration};
use mco_apiserver::{ApiServer, ApiServerOptions};
use mco_operator::OperatorOptions;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Deadline of every wait in a test.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Deadline of a graceful shutdown.
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub struct Running {
    pub server: ApiServer,
    stop: CancellationToken,
    operator: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Running {
    pub async fn start() -> Self {
        Self::with(OperatorOptions::new("0.1.0")).await
    }

    pub async fn with(options: OperatorOptions) -> Self {
        Self::behind(options, async |client| client).await
    }

    /// Starts an operator whose client is wrapped by `prepare`.
    pub async fn behind(options: OperatorOptions, prepare: impl AsyncFnOnce(Client) -> Client) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = ApiServer::open(directory.path(), ApiServerOptions::default())
            .await
            .unwrap();
        let client = prepare(Client::new(server.service(), "default")).await;
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let operator = tokio::spawn(async move {
            mco_operator::run(client, options, stopping).await.unwrap();
        });
        Self {
            server,
            stop,
            operator,
            _directory: directory,
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.server.service(), "default")
    }

    /// Stops the operator and checks that it does so in time.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(STOP_WITHIN, self.operator)
            .await
            .expect("the operator stops in time")
            .unwrap();
        self.server.shutdown().await;
    }

    /// Writes what controllers report in a healthy cluster.
    pub async fn play_controllers(&self) {
        let configs: Api<ControllerConfig> = Api::all(self.client());
        let config = eventually("the ControllerConfig", || async {
            configs.get_opt("machine-config-controller").await.ok().flatten()
        })
        .await;
        let status = json!({"status": {
            "observedGeneration": config.metadata.generation,
            "conditions": [{"type": "TemplateControllerCompleted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        configs
            .patch_status(
                "machine-config-controller",
                &PatchParams::default(),
                &Patch::Merge(status),
            )
            .await
            .unwrap();
        for name in ["master", "worker"] {
            let pools: Api<MachineConfigPool> = Api::all(self.client());
            eventually(name, || async { pools.get_opt(name).await.ok().flatten() }).await;
            let rendered = self.rendered(name, &config).await;
            let configuration = json!({"name": rendered, "source": [{"name": rendered}]});
            let target = json!({"spec": {"configuration": configuration}});
            let pool = pools
                .patch(name, &PatchParams::default(), &Patch::Merge(target))
                .await
                .unwrap();
            let status = json!({"status": {
                "observedGeneration": pool.metadata.generation,
                "configuration": configuration,
                "machineCount": 3, "readyMachineCount": 3, "updatedMachineCount": 3, "unavailableMachineCount": 0,
                "conditions": [{"type": "Updated", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            }});
            self.patch_pool_status(name, status).await;
        }
    }

    /// Creates the config that controllers of this release render for a pool.
    async fn rendered(&self, pool: &str, controller_config: &ControllerConfig) -> String {
        let name = format!("rendered-{pool}-1");
        let annotations = controller_config.metadata.annotations.clone().unwrap_or_default();
        let of = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        let rendered: MachineConfig = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                annotations::GENERATED_BY_CONTROLLER_VERSION: of(annotations::GENERATED_BY_VERSION),
                annotations::RELEASE_IMAGE_VERSION: of(annotations::RELEASE_IMAGE_VERSION),
            }},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}},
        }))
        .unwrap();
        let configs: Api<MachineConfig> = Api::all(self.client());
        match configs.create(&PostParams::default(), &rendered).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(created.unwrap()),
        }
        name
    }

    /// Returns the MachineConfiguration API, once the object exists.
    pub async fn settings(&self) -> Api<MachineConfiguration> {
        let settings: Api<MachineConfiguration> = Api::all(self.client());
        eventually("the settings", || async {
            settings.get_opt("cluster").await.ok().flatten()
        })
        .await;
        settings
    }

    pub async fn patch_pool_status(&self, name: &str, status: Value) {
        let pools: Api<MachineConfigPool> = Api::all(self.client());
        pools
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
}

const GROUP: &str = "config.openshift.io";

pub fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural)
}

/// Creates a kind of OpenShift, and the only object of it.
pub async fn create(client: &Client, kind: &ApiResource, object: &Value) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{GROUP}", kind.plural)},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind.kind, "listKind": format!("{}List", kind.kind), "plural": kind.plural,
                "singular": kind.kind.to_lowercase()},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let mut value = object.clone();
    value["metadata"] = json!({"name": "cluster"});
    let object: DynamicObject =
        serde_json::from_value(json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind.kind,
        "metadata": value["metadata"], "spec": value["spec"], "status": value["status"]}))
        .unwrap();
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    eventually(&kind.kind, || async {
        objects.create(&PostParams::default(), &object).await.ok()
    })
    .await;
}

/// Polls until there is a result.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = tokio::time::timeout(DEADLINE, asking).await;
    answer.unwrap_or_else(|_| panic!("timeout while waiting for: {what}"))
}

/// Wraps a client so that every change of one object is rejected, as when it would get too large.
pub fn refusing(client: Client, object: &'static str) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if request.method() != Method::PATCH || !request.uri().path().ends_with(object) {
                return client.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "it is too large",
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
            Ok(response)
        }
    });
    Client::new(service, "default")
}
