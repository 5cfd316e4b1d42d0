//! The operator on a cluster other than OpenShift: what it installs, and what it leaves out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Running, eventually};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use mco_api::crd::CustomResourceDefinition;
use mco_api::{ControllerConfig, MachineConfigPool, plain};
use mco_operator::OperatorOptions;
use mco_operator::profile::ProfileOptions;
use serde_json::json;

#[tokio::test]
async fn a_plain_cluster_gets_no_pool_no_group_of_openshift_and_no_server() {
    let running = Running::with(OperatorOptions {
        profile: ProfileOptions::default(),
        ..OperatorOptions::new("0.1.0")
    })
    .await;
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let config = eventually("the ControllerConfig", || async {
        configs.get_opt("machine-config-controller").await.ok().flatten()
    })
    .await;
    assert_eq!(config.metadata.annotations.unwrap()["mco.dev/base"], "none");
    assert_eq!(config.spec.root_ca_data.0, b"\n", "empty, it was refused");
    let status = json!({"status": {
        "observedGeneration": config.metadata.generation,
        "conditions": [{"type": "TemplateControllerCompleted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    let written = configs
        .patch_status(
            "machine-config-controller",
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await;
    written.unwrap();

    let operators: Api<plain::MachineConfigOperator> = Api::all(running.client());
    let status = eventually("Available", || async {
        let status = operators.get_opt("machine-config").await.ok()??.status?;
        let mut conditions = status.conditions.iter();
        let is_available = conditions.any(|one| one.type_ == "Available" && one.status == "True");
        is_available.then(|| status.clone())
    })
    .await;
    let degraded = status
        .conditions
        .iter()
        .find(|one| one.type_ == "Degraded")
        .unwrap();
    assert_eq!(degraded.status, "False", "{degraded:?}");
    let settings: Api<plain::MachineConfiguration> = Api::all(running.client());
    assert!(settings.get_opt("cluster").await.unwrap().is_some());

    let definitions: Api<CustomResourceDefinition> = Api::all(running.client());
    let found = definitions.list(&ListParams::default()).await.unwrap();
    let foreign: Vec<String> = found
        .into_iter()
        .filter(|one| {
            !matches!(
                one.spec.group.as_str(),
                "machineconfiguration.openshift.io" | "mco.dev"
            )
        })
        .filter_map(|one| one.metadata.name)
        .collect();
    assert_eq!(foreign, Vec::<String>::new());
    let pools: Api<MachineConfigPool> = Api::all(running.client());
    assert!(pools.list(&ListParams::default()).await.unwrap().items.is_empty());
    let namespaces: Api<Namespace> = Api::all(running.client());
    assert!(
        namespaces
            .get_opt("openshift-machine-api")
            .await
            .unwrap()
            .is_none()
    );
    let secrets: Api<Secret> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    for absent in ["machine-config-server-tls", "node-bootstrapper-token"] {
        assert!(secrets.get_opt(absent).await.unwrap().is_none(), "{absent}");
    }
    running.stop().await;
}
