//! Boot images of machine templates.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::machine_set::MachineSet;
use mco_api::vocabulary::names;
use mco_api::{ControllerConfig, MachineConfiguration};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually};

const OLD: &str = "projects/rhcos-cloud/global/images/rhcos-old";
const NEW: &str = "projects/rhcos-cloud/global/images/rhcos-new";
const GOLDEN: &str = "projects/ours/global/images/golden";
/// A pointer config as installers before 4.6 wrote it.
const POINTER: &str = r#"{"ignition": {"version": "2.2.0", "config": {"append": [{"source": "https://api-int.example.com:22623/config/worker"}]}}}"#;

fn machine_set(name: &str, image: &str) -> MachineSet {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"providerSpec": {"value": {
            "machineType": "n2-standard-4",
            "disks": [{"boot": true, "image": image, "sizeGb": 128}],
            "userDataSecret": {"name": format!("{name}-user-data")},
        }}}}},
    }))
    .unwrap()
}

struct Machines {
    cluster: Cluster,
    sets: Api<MachineSet>,
    secrets: Api<Secret>,
}

impl Machines {
    async fn prepare() -> Self {
        let cluster = Cluster::prepare().await;
        let group = "machine.openshift.io";
        cluster
            .define_in(group, "MachineSet", "machinesets", "v1beta1", "Namespaced")
            .await;
        cluster
            .define_in(
                group,
                "ControlPlaneMachineSet",
                "controlplanemachinesets",
                "v1",
                "Namespaced",
            )
            .await;
        cluster
            .define("ClusterVersion", "clusterversions", "v1", "Cluster")
            .await;
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": names::MACHINE_API_NAMESPACE}})).unwrap();
        cluster.create(&namespace).await;
        let platform = json!({"spec": {"infra": {"status": {"platformStatus": {"type": "GCP"}}}}});
        let _: ControllerConfig = cluster.patch("machine-config-controller", platform).await;
        let settings: MachineConfiguration = serde_json::from_value(
            json!({"metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}}),
        )
        .unwrap();
        cluster.create(&settings).await;
        let architecture = json!({"images": {"gcp": {"project": "rhcos-cloud", "name": "rhcos-new"}}});
        let stream = json!({"architectures": {"x86_64": architecture, "aarch64": architecture}});
        let images: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "coreos-bootimages"},
            "data": {"stream": stream.to_string(), "releaseVersion": "4.21.3"},
        }))
        .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
        maps.create(&PostParams::default(), &images).await.unwrap();
        let sets = Api::namespaced(cluster.client.clone(), names::MACHINE_API_NAMESPACE);
        let secrets = Api::namespaced(cluster.client.clone(), names::MACHINE_API_NAMESPACE);
        Self {
            cluster,
            sets,
            secrets,
        }
    }

    async fn add(&self, name: &str, image: &str) {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-user-data")}, "stringData": {"userData": POINTER},
        }))
        .unwrap();
        self.secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
        let set = machine_set(name, image);
        self.sets.create(&PostParams::default(), &set).await.unwrap();
    }

    /// Writes that the cluster was installed with 4.12.7 and is in this state of its next update.
    async fn set_version(&self, state: &str) {
        let history =
            json!([{"state": state, "version": "4.21.3"}, {"state": "Completed", "version": "4.12.7"}]);
        let status = json!({"status": {"desired": {"version": "4.21.3"}, "history": history}});
        let versions = self.cluster.api::<ClusterVersion>();
        if versions.get_opt("version").await.unwrap().is_none() {
            let version = serde_json::from_value(json!({"metadata": {"name": "version"}})).unwrap();
            versions.create(&PostParams::default(), &version).await.unwrap();
        }
        let patch = Patch::Merge(status);
        versions
            .patch_status("version", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn image(&self, set: &str) -> String {
        let set = self.sets.get(set).await.unwrap();
        let disk = Value::Object(set.spec);
        let image = disk.pointer("/template/spec/providerSpec/value/disks/0/image");
        image.and_then(Value::as_str).unwrap().to_owned()
    }

    async fn pointer(&self, set: &str) -> (Value, bool) {
        let secret = self.secrets.get(&format!("{set}-user-data")).await.unwrap();
        let pointer: Value = serde_json::from_slice(&secret.data.unwrap()["userData"].0).unwrap();
        let annotations = secret.metadata.annotations.unwrap_or_default();
        let key = "machineconfiguration.openshift.io/stub-ignition-upgraded-to";
        (
            pointer["ignition"]["version"].clone(),
            annotations.contains_key(key),
        )
    }

    async fn settings(&self) -> MachineConfiguration {
        self.cluster.api().get("cluster").await.unwrap()
    }

    async fn condition(&self, type_: &str) -> Option<(String, String)> {
        let status = self.settings().await.status?;
        let found = status.conditions.into_iter().find(|one| one.type_ == type_)?;
        Some((found.status, found.message))
    }

    async fn record(&self) -> Option<String> {
        let status = self.settings().await.status?;
        Some(status.boot_image_skew_enforcement_status?.automatic?.ocp_version)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_templates_with_the_vendors_image_and_their_secrets_are_updated_and_not_during_an_update() {
    let mut machines = Machines::prepare().await;
    machines.add("workers", OLD).await;
    machines.add("golden", GOLDEN).await;
    machines.set_version("Partial").await;
    // As the operator writes it.
    let all = json!([{"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}}]);
    let status = json!({"status": {
        "managedBootImagesStatus": {"machineManagers": all},
        "bootImageSkewEnforcementStatus": {"mode": "Automatic", "automatic": {"ocpVersion": "4.20.1"}},
    }});
    machines
        .cluster
        .api::<MachineConfiguration>()
        .patch_status("cluster", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    machines.cluster.start_controllers();
    machines.cluster.at_rest().await;
    assert_eq!(
        machines.image("workers").await,
        OLD,
        "the cluster is being updated"
    );
    assert_eq!(machines.condition("BootImageUpdateProgressing").await, None);

    machines.set_version("Completed").await;
    eventually("the new image", || async {
        (machines.image("workers").await == NEW).then_some(())
    })
    .await;
    eventually("the report", || async {
        let (status, message) = machines.condition("BootImageUpdateProgressing").await?;
        let expected =
            "Reconciled 1 of 2 MAPI MachineSets (1 skipped) | Reconciled 0 of 0 ControlPlaneMachineSets";
        (status == "False" && message.starts_with(expected)).then_some(())
    })
    .await;
    assert_eq!(machines.pointer("workers").await, (json!("3.5.0"), true));
    assert_eq!(machines.image("golden").await, GOLDEN);
    assert_eq!(
        machines.pointer("golden").await,
        (json!("2.2.0"), false),
        "its old image would not boot with another version"
    );
    assert_eq!(
        machines.condition("BootImageUpdateDegraded").await.unwrap().0,
        "False"
    );
    eventually("the oldest image is the installation's", || async {
        (machines.record().await? == "4.12.7").then_some(())
    })
    .await;

    machines
        .sets
        .delete("golden", &DeleteParams::default())
        .await
        .unwrap();
    eventually("all images are the release's", || async {
        (machines.record().await? == "4.21.3").then_some(())
    })
    .await;
    machines.cluster.stop_controllers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_whose_pointer_config_cannot_be_converted_keeps_its_image_and_is_reported() {
    let mut machines = Machines::prepare().await;
    machines.set_version("Completed").await;
    machines.add("workers", OLD).await;
    let strange = json!({"stringData": {"userData": r#"{"ignition": {"version": "1.0.0"}}"#}});
    machines
        .secrets
        .patch(
            "workers-user-data",
            &PatchParams::default(),
            &Patch::Merge(strange),
        )
        .await
        .unwrap();
    machines.cluster.start_controllers();
    eventually("the error is reported", || async {
        let (status, message) = machines.condition("BootImageUpdateDegraded").await?;
        let expected = "1 Degraded MAPI MachineSets";
        let names_it =
            message.contains("failed to reconcile machineset workers, err: converting the Ignition config");
        (status == "True" && message.starts_with(expected) && names_it).then_some(())
    })
    .await;
    assert_eq!(machines.image("workers").await, OLD);
    let off = json!({"spec": {"managedBootImages": {"machineManagers": []}}});
    let _: MachineConfiguration = machines.cluster.patch("cluster", off).await;
    eventually("the administrator has opted out", || async {
        let (status, message) = machines.condition("BootImageUpdateDegraded").await?;
        (status == "False" && message.starts_with("0 Degraded")).then_some(())
    })
    .await;
    machines.cluster.stop_controllers().await;
}
