//! The MachineConfiguration: created if missing. Its spec belongs to the user; its status is written by us and the
//! controllers.

use jiff::Timestamp;
use kube::api::Patch;
use mco_api::crd::CompanionKinds;
use mco_api::machine_configuration::{
    MACHINE_CONFIGURATION_NAME, MachineConfigurationSpec, MachineConfigurationStatus,
};
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::conditions::{machine_configuration as condition, status};
use mco_api::{MachineConfiguration, plain};
use mco_core::config::feature_gates::FeatureGates;
use mco_core::generators::boot_images::managed::{self, CONTROL_PLANE_GATE};
use mco_core::generators::boot_images::{self, BootImageContext, BootImageGate, FEATURE_GATE};
use mco_runtime::patch;
use serde_json::json;
use thiserror::Error;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed};
use crate::facts::ObservedFacts;

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

/// Writes the status about boot images: which machine templates are updated, the enforcement in effect, and whether they
/// can be updated.
pub async fn boot_images(
    cluster: &OperatorClient,
    facts: &ObservedFacts,
    release: &str,
    settings: &mut MachineConfiguration,
) -> Result<(), MachineConfigurationError> {
    let gates = gates(facts, release);
    let infrastructure = facts.infrastructure.as_ref();
    let control_plane = gates
        .as_ref()
        .is_some_and(|gates| gates.is_enabled(CONTROL_PLANE_GATE));
    let before = settings.status.clone().unwrap_or_default();
    if let Some(choice) = managed::status(settings, infrastructure, control_plane) {
        if choice.is_opt_in {
            record_opt_in(cluster).await?;
        }
        settings.status.get_or_insert_default().managed_boot_images_status = Some(choice.managed);
    }
    let installed = boot_images::installed_version(facts.cluster_version.as_ref());
    let context = BootImageContext {
        gate: gate(facts, gates.as_ref()),
        infrastructure,
        installed: &installed,
        downloads_os: facts.downloads_os,
    };
    let enforced = boot_images::enforcement(settings, &context);
    let status = settings.status.get_or_insert_default();
    status.boot_image_skew_enforcement_status = enforced;
    if *status != before {
        write(cluster, &before, status).await?;
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

/// Returns the feature gates of the release; `None` in a cluster without any.
fn gates(facts: &ObservedFacts, release: &str) -> Option<FeatureGates> {
    let object = facts.feature_gate.as_ref()?;
    let of_release = FeatureGates::of_version(object, release).ok();
    of_release.or_else(|| FeatureGates::of_only_version(object))
}

fn gate(facts: &ObservedFacts, gates: Option<&FeatureGates>) -> BootImageGate {
    match (&facts.feature_gate, gates) {
        (None, _) => BootImageGate::Absent,
        (Some(_), Some(gates)) if gates.is_enabled(FEATURE_GATE) => BootImageGate::On,
        (Some(_), _) => BootImageGate::Off,
    }
}

/// Records that the default of the platform has turned on the updates of boot images.
async fn record_opt_in(cluster: &OperatorClient) -> Result<(), ClusterError> {
    let now = Timestamp::now()
        .round(jiff::Unit::Second)
        .unwrap_or_default()
        .to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::BOOT_IMAGES_OPTED_IN: now}}}));
    let api = cluster.all::<MachineConfiguration>();
    let answer = api
        .patch(MACHINE_CONFIGURATION_NAME, &OPERATOR.patch_params(), &patch)
        .await;
    answer.map(|_| ()).map_err(failed("annotating", described))
}

async fn write(
    cluster: &OperatorClient,
    before: &MachineConfigurationStatus,
    after: &MachineConfigurationStatus,
) -> Result<(), ClusterError> {
    // The difference removes the fields of another mode.
    let patch = Patch::Merge(json!({"status": patch::diff(before, after)}));
    let api = cluster.all::<MachineConfiguration>();
    let answer = api
        .patch_status(MACHINE_CONFIGURATION_NAME, &OPERATOR.patch_params(), &patch)
        .await;
    answer.map(|_| ()).map_err(failed("updating", described))
}

fn described() -> String {
    format!("MachineConfiguration {MACHINE_CONFIGURATION_NAME}")
}

fn updates_failing(object: &MachineConfiguration) -> Option<&str> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .find(|one| one.type_ == condition::BOOT_IMAGE_UPDATE_DEGRADED && one.status == status::TRUE)
        .map(|one| one.message.as_str())
}
