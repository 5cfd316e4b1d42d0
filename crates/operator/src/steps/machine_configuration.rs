//! The MachineConfiguration: exists, and shows the disruption policies in force.

use kube::api::{Patch, PatchParams};
use mco_api::MachineConfiguration;
use mco_api::machine_configuration::{
    MACHINE_CONFIGURATION_NAME, MachineConfigurationSpec, MachineConfigurationStatus,
    NodeDisruptionPolicyStatus,
};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status as condition_status};
use mco_core::disruption::Policy;
use serde_json::json;
use thiserror::Error;

use crate::cluster::{Cluster, ClusterError, failed, written_by_us};

#[derive(Debug, Error)]
pub enum MachineConfigurationError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("error while updating boot images: {0}")]
    BootImages(String),
}

pub async fn machine_configuration(cluster: &Cluster) -> Result<(), MachineConfigurationError> {
    let object = match cluster
        .find::<MachineConfiguration>(MACHINE_CONFIGURATION_NAME)
        .await?
    {
        Some(found) => found,
        None => create(cluster).await?,
    };
    if let Some(status) = outdated(&object) {
        let patch = Patch::Merge(json!({"status": status}));
        let api = cluster.all::<MachineConfiguration>();
        let manager = PatchParams {
            field_manager: written_by_us().field_manager,
            ..PatchParams::default()
        };
        let answer = api
            .patch_status(MACHINE_CONFIGURATION_NAME, &manager, &patch)
            .await;
        answer.map_err(failed("updating", || {
            format!("the status of MachineConfiguration {MACHINE_CONFIGURATION_NAME}")
        }))?;
    }
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    match conditions.find(|one| {
        one.type_ == condition::BOOT_IMAGE_UPDATE_DEGRADED && one.status == condition_status::TRUE
    }) {
        Some(degraded) => Err(MachineConfigurationError::BootImages(degraded.message.clone())),
        None => Ok(()),
    }
}

async fn create(cluster: &Cluster) -> Result<MachineConfiguration, ClusterError> {
    let spec = MachineConfigurationSpec {
        management_state: "Managed".to_owned(),
        ..MachineConfigurationSpec::default()
    };
    let object = MachineConfiguration::new(MACHINE_CONFIGURATION_NAME, spec);
    let answer = cluster.all().create(&written_by_us(), &object).await;
    answer.map_err(failed("creating", || {
        format!("MachineConfiguration {MACHINE_CONFIGURATION_NAME}")
    }))
}

/// The part of the status that has to be written; none if it says all that already.
fn outdated(object: &MachineConfiguration) -> Option<MachineConfigurationStatus> {
    let own = object.spec.node_disruption_policy.as_ref();
    let policy = match own {
        Some(own) => Policy::default().with_cluster_policies(own),
        None => Policy::default(),
    };
    let wanted = MachineConfigurationStatus {
        node_disruption_policy_status: Some(NodeDisruptionPolicyStatus {
            cluster_policies: policy.cluster_policies(),
        }),
        observed_generation: object.metadata.generation.unwrap_or_default(),
        ..MachineConfigurationStatus::default()
    };
    let is_current = object.status.as_ref().is_some_and(|status| {
        status.node_disruption_policy_status == wanted.node_disruption_policy_status
            && status.observed_generation == wanted.observed_generation
    });
    (!is_current).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(policy: &serde_json::Value) -> MachineConfiguration {
        serde_json::from_value(json!({
            "metadata": {"name": "cluster", "generation": 3},
            "spec": {"nodeDisruptionPolicy": policy},
        }))
        .unwrap()
    }

    #[test]
    fn the_users_policies_replace_the_defaults_for_the_same_path() {
        let mut object = object(&json!({"files": [
            {"path": "/etc/containers/policy.json", "actions": [{"type": "Reboot"}]},
            {"path": "/etc/mine", "actions": [{"type": "Restart", "restart": {"serviceName": "mine.service"}}]},
        ]}));
        let status = outdated(&object).unwrap();
        assert_eq!(status.observed_generation, 3);
        let policies = status
            .node_disruption_policy_status
            .clone()
            .unwrap()
            .cluster_policies;
        let actions = |path: &str| {
            let found = policies.files.iter().filter(|file| file.path == path);
            serde_json::to_value(found.map(|file| &file.actions).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(
            actions("/etc/containers/policy.json"),
            json!([[{"type": "Reboot"}]])
        );
        assert_eq!(
            actions("/etc/mine"),
            json!([[{"type": "Restart", "restart": {"serviceName": "mine.service"}}]])
        );
        assert_eq!(
            actions("/etc/containers/registries.conf"),
            json!([[{"type": "Special"}]])
        );
        object.status = Some(status);
        assert_eq!(outdated(&object), None, "nothing more to write");
    }
}
