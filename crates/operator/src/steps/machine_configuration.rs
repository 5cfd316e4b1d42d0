//! The MachineConfiguration: it exists. What it says is the user's; what is in force, we and the controllers tell.

use kube::api::Patch;
use mco_api::MachineConfiguration;
use mco_api::machine_configuration::{
    BootImageSkewEnforcementStatus, MACHINE_CONFIGURATION_NAME, MachineConfigurationSpec,
};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status};
use mco_core::generators::boot_images::{self, FEATURE_GATE, Gate, Surroundings};
use mco_core::generators::feature_gates::FeatureGates;
use serde_json::json;
use thiserror::Error;

use crate::cluster::{Cluster, ClusterError, OPERATOR, failed};
use crate::facts::Facts;
use crate::steps::user_data::Upgrade;

#[derive(Debug, Error)]
pub enum MachineConfigurationError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("error while updating boot images: {0}")]
    BootImages(String),
}

/// The MachineConfiguration, made if there was none.
pub async fn present(cluster: &Cluster) -> Result<MachineConfiguration, ClusterError> {
    let found = cluster
        .find::<MachineConfiguration>(MACHINE_CONFIGURATION_NAME)
        .await?;
    if let Some(found) = found {
        return Ok(found);
    }
    let spec = MachineConfigurationSpec {
        management_state: "Managed".to_owned(),
        ..MachineConfigurationSpec::default()
    };
    let object = MachineConfiguration::new(MACHINE_CONFIGURATION_NAME, spec);
    cluster.create_if_absent(&object).await?;
    Ok(object)
}

/// Tells what is enforced about boot images, and whether they can be kept current.
pub async fn boot_images(
    cluster: &Cluster,
    facts: &Facts,
    release: &str,
    settings: &mut MachineConfiguration,
) -> Result<(), MachineConfigurationError> {
    let enforced = boot_images::enforcement(settings, &surroundings(facts, release));
    let told = settings.status.get_or_insert_default();
    if told.boot_image_skew_enforcement_status != enforced {
        write(cluster, enforced.as_ref()).await?;
        told.boot_image_skew_enforcement_status = enforced;
    }
    match updates_failing(settings) {
        Some(why) => Err(MachineConfigurationError::BootImages(why.to_owned())),
        None => Ok(()),
    }
}

/// Why the cluster should not be upgraded, as far as its boot images go.
pub fn obstacle(settings: &MachineConfiguration) -> Option<String> {
    let status = settings.status.as_ref()?;
    boot_images::obstacle(
        status.boot_image_skew_enforcement_status.as_ref(),
        &status.conditions,
    )
}

/// Whether new machines understand the present version of pointer configs: only if their boot images are kept current.
pub fn upgrade(settings: &MachineConfiguration) -> Upgrade {
    let status = settings.status.as_ref();
    let enforced = status.and_then(|status| status.boot_image_skew_enforcement_status.as_ref());
    if boot_images::are_kept_current(enforced) {
        Upgrade::ToPresent
    } else {
        Upgrade::Never
    }
}

fn surroundings<'a>(facts: &'a Facts, release: &str) -> Surroundings<'a> {
    let gates = facts.feature_gate.as_ref().map(|object| {
        FeatureGates::of_version(object, release)
            .ok()
            .or_else(|| FeatureGates::of_only_version(object))
    });
    let gate = match gates {
        None => Gate::Absent,
        Some(Some(gates)) if gates.is_enabled(FEATURE_GATE) => Gate::On,
        Some(_) => Gate::Off,
    };
    let version = facts.cluster_version.as_ref();
    let history = version.and_then(|version| version.status.as_ref());
    let installed = history.and_then(|status| status.history.last());
    Surroundings {
        gate,
        infrastructure: facts.infrastructure.as_ref(),
        installed: installed.map(|entry| entry.version.as_str()),
    }
}

async fn write(
    cluster: &Cluster,
    enforced: Option<&BootImageSkewEnforcementStatus>,
) -> Result<(), ClusterError> {
    // A merge leaves in place what is not named, and a mode must not keep another mode's version.
    let enforced = enforced.map(
        |enforced| json!({"mode": enforced.mode, "manual": enforced.manual, "automatic": enforced.automatic}),
    );
    let patch = Patch::Merge(json!({"status": {"bootImageSkewEnforcementStatus": enforced}}));
    let api = cluster.all::<MachineConfiguration>();
    let answer = api
        .patch_status(MACHINE_CONFIGURATION_NAME, &OPERATOR.patch_params(), &patch)
        .await;
    let described = || format!("MachineConfiguration {MACHINE_CONFIGURATION_NAME}");
    answer.map(|_| ()).map_err(failed("updating", described))
}

fn updates_failing(object: &MachineConfiguration) -> Option<&str> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .find(|one| one.type_ == condition::BOOT_IMAGE_UPDATE_DEGRADED && one.status == status::TRUE)
        .map(|one| one.message.as_str())
}
