//! Image policies: those of the cluster override those of a namespace, which report it.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mco_api::MachineConfig;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually};

fn policy(name: &str, scopes: &[&str]) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"scopes": scopes, "policy": {"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}}},
    })
}

/// Enables the feature gate of image policies.
async fn verify_signatures(cluster: &Cluster) {
    let gate: FeatureGate = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
    cluster.create(&gate).await;
    let on = json!({"status": {"featureGates": [
        {"version": "1.0", "enabled": [{"name": "SigstoreImageVerification"}], "disabled": []},
    ]}});
    cluster
        .api::<FeatureGate>()
        .patch_status("cluster", &PatchParams::default(), &Patch::Merge(on))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_the_clusters_overrides_reports_it_until_it_no_longer_is() {
    let mut cluster = Cluster::prepare().await;
    cluster
        .define("FeatureGate", "featuregates", "v1", "Cluster")
        .await;
    cluster
        .define("ClusterImagePolicy", "clusterimagepolicies", "v1", "Cluster")
        .await;
    cluster
        .define("ImagePolicy", "imagepolicies", "v1", "Namespaced")
        .await;
    verify_signatures(&cluster).await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("shop".to_owned());
    cluster.create(&namespace).await;
    let policies: Api<ImagePolicy> = Api::namespaced(cluster.client.clone(), "shop");
    for (name, scopes) in [
        ("mixed", &["quay.example/team/app", "free.example"][..]),
        ("free", &["other.example"][..]),
    ] {
        let object: ImagePolicy = serde_json::from_value(policy(name, scopes)).unwrap();
        policies.create(&PostParams::default(), &object).await.unwrap();
    }
    let wide: ClusterImagePolicy = serde_json::from_value(policy("wide", &["quay.example/team"])).unwrap();
    cluster.create(&wide).await;
    cluster.start_controllers();

    let conditions = async |name: &str| {
        let status = policies.get(name).await.unwrap().status.unwrap_or_default();
        status.conditions
    };
    let reported = eventually("the conflict is reported", || async {
        conditions("mixed").await.into_iter().next()
    })
    .await;
    assert_eq!(
        (
            reported.type_.as_str(),
            reported.status.as_str(),
            reported.reason.as_str()
        ),
        ("Pending", "False", "ConflictScopes")
    );
    assert_eq!(
        reported.message,
        "has conflicting scope(s) [\"quay.example/team/app\"] that equal to or nest inside existing \
         clusterimagepolicy, only policy from clusterimagepolicy scope(s) will be applied"
    );
    cluster.at_rest().await;
    assert_eq!(conditions("mixed").await, [reported], "it is reported once");
    assert_eq!(conditions("free").await, [], "who has no conflict hears nothing");
    let generated: MachineConfig = cluster.api().get("99-worker-generated-registries").await.unwrap();
    let files = generated.spec.config.unwrap().to_string();
    assert!(files.contains("/etc/crio/policies/shop.json"), "{files}");

    cluster
        .api::<ClusterImagePolicy>()
        .delete("wide", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the conflict is over", || async {
        conditions("mixed").await.is_empty().then_some(())
    })
    .await;
}
