//! The MachineConfiguration: created if missing. Its spec belongs to the user; its status is written by us and the
//! controllers.

use kube::api::Patch;
use mco_api::crd::CompanionKinds;
use mco_api::machine_configuration::{
    BootImageSkewEnforcementStatus, MACHINE_CONFIGURATION_NAME, MachineConfigurationSpec,
};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status};
use mco_api::{MachineConfiguration, plain};
use mco_core::config::feature_gates::FeatureGates;
use mco_core::generators::boot_images::{self, BootImageContext, BootImageGate, FEATURE_GATE};
use serde_json::json;
use thiserror::Error;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed};
use crate::facts::ObservedFacts;
use crate::steps::user_data::Upgrade;

#[derive(Debug, Error)]
pub enum MachineConfigurationError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("error while updating boot images: {0}")]
    BootImages(String),
}

/// Returns the MachineConfiguration, creating it if there is none.
pub async fn present(
    cluster: &OperatorClient,
    kinds: CompanionKinds,
) -> Result<MachineConfiguration, ClusterError> {
    let name = MACHINE_CONFIGURATION_NAME;
    let found = match kinds {
        CompanionKinds::OpenShift => cluster.find::<MachineConfiguration>(name).await?,
        CompanionKinds::Plain => {
            let found = cluster.find::<plain::MachineConfiguration>(name).await?;
            found.map(MachineConfiguration::from)
        }
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let spec = MachineConfigurationSpec {
        management_state: "Managed".to_owned(),
        ..MachineConfigurationSpec::default()
    };
    let object = MachineConfiguration::new(name, spec.clone());
    match kinds {
        CompanionKinds::OpenShift => cluster.create_if_absent(&object).await?,
        CompanionKinds::Plain => {
            let plain = plain::MachineConfiguration::new(name, spec);
            cluster.create_if_absent(&plain).await?;
        }
    }
    Ok(object)
}

/// Writes the status about boot images: the enforcement in effect, and whether they can be updated.
pub async fn boot_images(
    cluster: &OperatorClient,
    facts: &ObservedFacts,
    release: &str,
    settings: &mut MachineConfiguration,
) -> Result<(), MachineConfigurationError> {
    let enforced = boot_images::enforcement(settings, &surroundings(facts, release));
    let reported = settings.status.get_or_insert_default();
    if reported.boot_image_skew_enforcement_status != enforced {
        write(cluster, enforced.as_ref()).await?;
        reported.boot_image_skew_enforcement_status = enforced;
    }
    match updates_failing(settings) {
        Some(why) => Err(MachineConfigurationError::BootImages(why.to_owned())),
        None => Ok(()),
    }
}

/// Returns why boot images block an upgrade.
pub fn obstacle(settings: &MachineConfiguration) -> Option<String> {
    let status = settings.status.as_ref()?;
    boot_images::obstacle(
        status.boot_image_skew_enforcement_status.as_ref(),
        &status.conditions,
    )
}

/// Returns whether new machines support the current version of pointer configs, which requires updated boot images.
pub fn upgrade(settings: &MachineConfiguration) -> Upgrade {
    let status = settings.status.as_ref();
    let enforced = status.and_then(|status| status.boot_image_skew_enforcement_status.as_ref());
    if boot_images::are_kept_current(enforced) {
        Upgrade::ToPresent
    } else {
        Upgrade::Never
    }
}

fn surroundings<'a>(facts: &'a ObservedFacts, release: &str) -> BootImageContext<'a> {
    let gates = facts.feature_gate.as_ref().map(|object| {
        FeatureGates::of_version(object, release)
            .ok()
            .or_else(|| FeatureGates::of_only_version(object))
    });
    let gate = match gates {
        None => BootImageGate::Absent,
        Some(Some(gates)) if gates.is_enabled(FEATURE_GATE) => BootImageGate::On,
        Some(_) => BootImageGate::Off,
    };
    let version = facts.cluster_version.as_ref();
    let history = version.and_then(|version| version.status.as_ref());
    let installed = history.and_then(|status| status.history.last());
    BootImageContext {
        gate,
        infrastructure: facts.infrastructure.as_ref(),
        installed: installed.map(|entry| entry.version.as_str()),
    }
}

async fn write(
    cluster: &OperatorClient,
    enforced: Option<&BootImageSkewEnforcementStatus>,
) -> Result<(), ClusterError> {
    // A merge patch keeps absent fields, so those of another mode are removed explicitly.
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
