//! The MachineConfiguration: it exists. What it says is the user's, and what is in force the controllers tell.

use mco_api::MachineConfiguration;
use mco_api::machine_configuration::{MACHINE_CONFIGURATION_NAME, MachineConfigurationSpec};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status};
use thiserror::Error;

use crate::cluster::{Cluster, ClusterError};

#[derive(Debug, Error)]
pub enum MachineConfigurationError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("error while updating boot images: {0}")]
    BootImages(String),
}

pub async fn machine_configuration(cluster: &Cluster) -> Result<(), MachineConfigurationError> {
    let found = cluster
        .find::<MachineConfiguration>(MACHINE_CONFIGURATION_NAME)
        .await?;
    let Some(found) = found else {
        let spec = MachineConfigurationSpec {
            management_state: "Managed".to_owned(),
            ..MachineConfigurationSpec::default()
        };
        let object = MachineConfiguration::new(MACHINE_CONFIGURATION_NAME, spec);
        return Ok(cluster.create_if_absent(&object).await?);
    };
    match boot_images_failing(&found) {
        Some(why) => Err(MachineConfigurationError::BootImages(why.to_owned())),
        None => Ok(()),
    }
}

fn boot_images_failing(object: &MachineConfiguration) -> Option<&str> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .find(|one| one.type_ == condition::BOOT_IMAGE_UPDATE_DEGRADED && one.status == status::TRUE)
        .map(|one| one.message.as_str())
}
