//! What the builder gathers for a build: subscriptions, proxies, trust.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use mco_api::ControllerConfig;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually};

const NO_REGISTRY: &str = "127.0.0.1:19";
const ENTITLED: [&str; 3] = ["etc-pki-entitlement", "etc-yum-repos-d", "etc-pki-rpm-gpg"];

/// Returns the Job of the pool's build.
async fn job(cluster: &Cluster) -> Value {
    let build = cluster.started("").await;
    let job = cluster.jobs().await.into_iter().next().unwrap();
    assert_eq!(
        job.metadata.name.as_deref(),
        Some(format!("build-{build}").as_str())
    );
    serde_json::to_value(job).unwrap()
}

fn variables(job: &Value) -> Vec<(&str, &str)> {
    let container = &job["spec"]["template"]["spec"]["initContainers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    variables
        .map(|one| {
            (
                one["name"].as_str().unwrap(),
                one["value"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

fn names(objects: &Value) -> Vec<&str> {
    let objects = objects.as_array().unwrap().iter();
    objects.map(|one| one["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_repositories_and_keys_are_mounted_where_they_exist() {
    let mut cluster = Cluster::prepare(NO_REGISTRY).await;
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"a.pem": "x"}});
    let secrets = cluster.ours::<Secret>();
    cluster
        .create(&secrets, secret("etc-pki-entitlement-worker"))
        .await;
    cluster
        .create(&secrets, secret("etc-pki-entitlement-infra"))
        .await;
    cluster.create(&secrets, secret("etc-pki-rpm-gpg")).await;
    let repositories = json!({"metadata": {"name": "etc-yum-repos-d"}, "data": {"a.repo": "[a]"}});
    cluster.create(&cluster.ours::<ConfigMap>(), repositories).await;
    cluster.start_builder(0);
    cluster.opt_in(json!({})).await;
    let job = job(&cluster).await;
    let pod = &job["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &str| volumes.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(
        volume("etc-pki-entitlement")["secret"]["secretName"],
        "etc-pki-entitlement-worker"
    );
    assert_eq!(volume("etc-yum-repos-d")["configMap"]["name"], "etc-yum-repos-d");
    assert_eq!(
        volume("etc-pki-rpm-gpg")["secret"]["secretName"],
        "etc-pki-rpm-gpg"
    );
    for name in ENTITLED {
        assert!(
            names(&pod["initContainers"][0]["volumeMounts"]).contains(&name),
            "{name}"
        );
        let annotation = format!("machineconfiguration.openshift.io/has-{name}");
        assert_eq!(job["metadata"]["annotations"][&annotation], "", "{name}");
    }
    assert!(variables(&job).contains(&("ETC_PKI_ENTITLEMENT_MOUNTPOINT", "/etc/pki/entitlement")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_has_the_proxy_and_the_trust_of_the_cluster() {
    let mut cluster = Cluster::prepare(NO_REGISTRY).await;
    let patch = json!({"spec": {
        "proxy": {"httpProxy": "http://proxy.test:1", "httpsProxy": "http://proxy.test:2", "noProxy": ".svc"},
        "additionalTrustBundle": "Y2VydGlmaWNhdGU=",
    }});
    let patched = cluster
        .all::<ControllerConfig>()
        .patch(
            "machine-config-controller",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    patched.unwrap();
    let policy = "data:,%7B%22default%22%3A%5B%7B%22type%22%3A%22reject%22%7D%5D%7D";
    let file = |path: &str, source: &str| json!({"path": path, "contents": {"source": source}});
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:1", "config": {
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [
                file("/etc/containers/policy.json", policy),
                file("/etc/containers/registries.conf", "data:,unqualified-search-registries%20%3D%20%5B%5D"),
            ]},
        }}))
        .await;
    cluster.retarget("rendered-worker-2").await;
    cluster.start_builder(0);
    cluster.opt_in(json!({})).await;
    let job = job(&cluster).await;
    for (name, value) in [
        ("HTTP_PROXY", "http://proxy.test:1"),
        ("HTTPS_PROXY", "http://proxy.test:2"),
        ("NO_PROXY", ".svc"),
    ] {
        assert!(variables(&job).contains(&(name, value)), "{name}");
    }
    let build = cluster.current_build().await;
    let text = async |name: &str, key: &str| {
        let found = cluster
            .ours::<ConfigMap>()
            .get(&format!("{name}-{build}"))
            .await
            .unwrap();
        // Certificates are binary: nothing says that a bundle is UTF-8.
        match found.binary_data {
            Some(binary) => String::from_utf8(binary[key].0.clone()).unwrap(),
            None => found.data.unwrap()[key].clone(),
        }
    };
    assert_eq!(
        text("additionaltrustbundle", "openshift-config-user-ca-bundle.crt").await,
        "certificate"
    );
    assert_eq!(
        text("etc-policy", "policy.json").await,
        r#"{"default":[{"type":"reject"}]}"#
    );
    assert_eq!(
        text("etc-registries", "registries.conf").await,
        "unqualified-search-registries = []"
    );
}

/// Waits until the only build has an obstacle with this text, and asserts that nothing else of it exists.
async fn obstructed(cluster: &Cluster, text: &str) {
    eventually(text, async || {
        let build = cluster.builds().await.into_iter().next()?;
        let annotations = build.metadata.annotations?;
        annotations
            .get("mco.dev/build-failure")?
            .contains(text)
            .then_some(())
    })
    .await;
    cluster.has_event("ConfigReconcileFailed").await;
    assert!(cluster.jobs().await.is_empty() && cluster.build_objects().await.is_empty());
}

/// Waits until the build has started, and no obstacle is left.
async fn unobstructed(cluster: &Cluster) {
    // A change enqueues it before its backoff ends.
    let touched = json!({"metadata": {"annotations": {"touched": "1"}}});
    cluster.patch_config(touched).await;
    let build = cluster.started("").await;
    let builds = cluster.builds().await;
    assert_eq!(builds.len(), 1);
    assert_eq!(builds[0].metadata.name.as_ref(), Some(&build));
    let annotations = builds[0].metadata.annotations.clone().unwrap();
    assert!(
        !annotations.contains_key("mco.dev/build-failure"),
        "{annotations:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_secret_is_missing_waited_without_a_reason() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    let secrets = cluster.ours::<Secret>();
    secrets.delete("push", &DeleteParams::default()).await.unwrap();
    cluster.opt_in(json!({})).await;
    obstructed(&cluster, "secret push from worker is not found").await;
    cluster.push_secret("builder:registry-password").await;
    unobstructed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_the_controllerconfig_waited_without_a_reason() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    let configs = cluster.all::<ControllerConfig>();
    let mut present = configs.get("machine-config-controller").await.unwrap();
    configs
        .delete("machine-config-controller", &DeleteParams::default())
        .await
        .unwrap();
    cluster.opt_in(json!({})).await;
    obstructed(&cluster, "there is no ControllerConfig machine-config-controller").await;
    present.metadata.resource_version = None;
    present.metadata.uid = None;
    let created = configs.create(&kube::api::PostParams::default(), &present).await;
    created.unwrap();
    unobstructed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_ran_in_an_image_of_the_release_that_has_no_such_program() {
    let mut cluster = Cluster::prepare(NO_REGISTRY).await;
    let images = json!({
        "metadata": {"name": "machine-config-operator-images"},
        "data": {"images.json": "{\"machineConfigOperator\": \"registry.example.com/theirs:1\"}"},
    });
    cluster.create(&cluster.ours::<ConfigMap>(), images).await;
    cluster.start_builder_in(None, 0);
    cluster.opt_in(json!({})).await;
    obstructed(&cluster, "--builder-image").await;
    cluster.stop_builder().await;
    cluster.start_builder(0);
    unobstructed(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_of_a_pool_that_became_degraded_waited_without_a_reason() {
    let cluster = Cluster::start(NO_REGISTRY).await;
    let secrets = cluster.ours::<Secret>();
    secrets.delete("push", &DeleteParams::default()).await.unwrap();
    cluster.opt_in(json!({})).await;
    obstructed(&cluster, "secret push from worker is not found").await;
    let degraded = |status: &str| {
        json!({"conditions": [{"type": "NodeDegraded", "status": status, "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    };
    cluster.patch_pool_status(degraded("True")).await;
    obstructed(
        &cluster,
        "MachineConfigPool worker is degraded due to non-build issues",
    )
    .await;
    cluster.push_secret("builder:registry-password").await;
    cluster.patch_pool_status(degraded("False")).await;
    unobstructed(&cluster).await;
}
