//! MachineConfiguration: the user's settings for the operator as a whole. A cluster has one, named `cluster`.

mod boot_images;
mod disruption;
mod log_level;

pub use boot_images::*;
pub use disruption::*;
pub use log_level::LogLevel;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::resource::resource;
use crate::schema;
use crate::wire::{is_default, null_is_default};

/// The name of the one MachineConfiguration of a cluster.
pub const MACHINE_CONFIGURATION_NAME: &str = "cluster";

resource! {
    /// Settings of the operator as a whole.
    MachineConfiguration, ClusterResourceScope, "operator.openshift.io" / "v1", "machineconfigurations",
    spec: MachineConfigurationSpec,
    status: MachineConfigurationStatus
}

impl Installable for MachineConfiguration {
    fn crd() -> CustomResourceDefinition {
        define(CrdDefinition::of::<Self>("Settings of the operator as a whole."))
    }
}

/// Completes the definition of the kind, or of the one of plain clusters.
pub(crate) fn define(definition: CrdDefinition) -> CustomResourceDefinition {
    let definition = definition
        .spec::<MachineConfigurationSpec>("What the user wants.")
        .status::<MachineConfigurationStatus>("What is in force.");
    boot_images::automatic_mode_rules()
        .into_iter()
        .fold(definition, CrdDefinition::rule)
        .build()
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationSpec {
    /// What happens when machines are created from boot images that have become too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement: Option<BootImageSkewEnforcement>,

    /// Not used: how many failed revisions are kept.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub failed_revision_limit: i32,

    /// Not used: change it to deploy everything again.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub force_redeployment_reason: String,

    /// Sections of a configuration that may change although existing machines cannot follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irreconcilable_validation_overrides: Option<IrreconcilableValidationOverrides>,

    /// How much the operator's components log.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub log_level: String,

    /// Which machine templates get newer boot images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images: Option<ManagedBootImages>,

    /// Whether the operator acts: Managed, Unmanaged, Force or Removed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(regex(pattern = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: String,

    /// What a change costs the machines, instead of a reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "disruption::user_policies_schema")]
    pub node_disruption_policy: Option<NodeDisruptionPolicies>,

    /// Not used: what an operator has observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub observed_config: Option<Value>,

    /// How much the operator itself logs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub operator_log_level: String,

    /// Not used: how many successful revisions are kept.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub succeeded_revision_limit: i32,

    /// Not used: unsupported settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub unsupported_config_overrides: Option<Value>,
}

/// Sections of a configuration that may change although existing machines cannot follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("minProperties" = 1))]
pub struct IrreconcilableValidationOverrides {
    /// Sections of the storage configuration.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(min = 1, max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub storage: Vec<StorageSection>,
}

/// A section of an Ignition config's storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageSection {
    Disks,
    FileSystems,
    Raid,
    /// A section of a newer API version.
    #[serde(untagged)]
    Other(String),
}

impl JsonSchema for StorageSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StorageSection".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schema::build::string()
            .one_of(&["Disks", "FileSystems", "Raid"])
            .into()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationStatus {
    /// What is in force about boot images that have become too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement_status: Option<BootImageSkewEnforcementStatus>,

    /// The observed conditions, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Which machine templates get newer boot images, the defaults included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images_status: Option<ManagedBootImages>,

    /// What a change costs the machines, the defaults included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy_status: Option<NodeDisruptionPolicyStatus>,

    /// The generation of the spec that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}
