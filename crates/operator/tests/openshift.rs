//! What the operator derives from objects that only OpenShift has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Running, create, eventually, kind};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use mco_api::MachineConfiguration;
use mco_operator::{OperandMode, OperatorOptions};
use serde_json::json;

/// The resource, mode of every manager and whether a default has turned the updates on.
async fn managed(running: &Running) -> Option<(String, bool)> {
    let settings: Api<MachineConfiguration> = Api::all(running.client());
    // The operator installs the kind.
    let settings = settings.get_opt("cluster").await.ok()??;
    let managed = settings.status?.managed_boot_images_status?.machine_managers?;
    let managers: Vec<String> = managed
        .iter()
        .map(|one| format!("{}={}", one.resource, one.selection.mode))
        .collect();
    let annotations = settings.metadata.annotations.unwrap_or_default();
    let opted_in =
        annotations.contains_key("machineconfiguration.openshift.io/boot-image-updates-opted-in-at");
    Some((managers.join(" "), opted_in))
}

#[tokio::test]
async fn boot_images_are_managed_by_the_default_of_the_platform_until_the_administrator_decides() {
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        let infrastructure =
            json!({"spec": {}, "status": {"platformStatus": {"type": "GCP"}, "platform": "GCP"}});
        create(
            &client,
            &kind("Infrastructure", "infrastructures"),
            &infrastructure,
        )
        .await;
        client
    })
    .await;
    eventually("the platform's default", || async {
        (managed(&running).await? == ("machinesets=All".to_owned(), true)).then_some(())
    })
    .await;
    let settings: Api<MachineConfiguration> = Api::all(running.client());
    let off = json!({"spec": {"managedBootImages": {"machineManagers": [
        {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "None"}},
    ]}}});
    settings
        .patch("cluster", &PatchParams::default(), &Patch::Merge(off))
        .await
        .unwrap();
    eventually("the administrator's choice", || async {
        (managed(&running).await?.0 == "machinesets=None").then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn the_config_server_offered_older_versions_of_tls_than_the_api_server() {
    let options = OperatorOptions {
        workloads: OperandMode::Deployed,
        image: "localhost/mco:test".to_owned(),
        ..OperatorOptions::new("0.1.0")
    };
    let server = kind("APIServer", "apiservers");
    let running = Running::behind(options, async |client| {
        let modern = json!({"spec": {"tlsSecurityProfile": {"type": "Modern", "modern": {}}}});
        create(&client, &kind("APIServer", "apiservers"), &modern).await;
        client
    })
    .await;
    let sets: Api<DaemonSet> = Api::namespaced(running.client(), "openshift-machine-config-operator");
    let arguments = async |name: &str| -> Option<Vec<String>> {
        let set = sets.get_opt(name).await.unwrap()?;
        set.spec?.template.spec?.containers.into_iter().next()?.args
    };
    let minimum = "tls-min-version=VersionTLS13";
    eventually("TLS 1.3", || async {
        let (server, daemon) = (
            arguments("machine-config-server").await?,
            arguments("machine-config-daemon").await?,
        );
        let has = |arguments: &[String], option: String| arguments.contains(&option);
        let both = has(&server, format!("--{minimum}")) && has(&daemon, format!("--metrics-{minimum}"));
        both.then_some(())
    })
    .await;
    let servers: Api<DynamicObject> = Api::all_with(running.client(), &server);
    let intermediate = Patch::Merge(json!({"spec": {"tlsSecurityProfile": null}}));
    servers
        .patch("cluster", &PatchParams::default(), &intermediate)
        .await
        .unwrap();
    eventually("the default", || async {
        let server = arguments("machine-config-server").await?;
        (!server.iter().any(|option| option.contains("tls-min-version"))).then_some(())
    })
    .await;
    running.stop().await;
}
