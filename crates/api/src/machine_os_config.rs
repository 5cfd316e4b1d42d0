//! MachineOSConfig: how the operating system image of one pool is built in the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::machine_config_node::ObjectName;
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::wire::{is_default, null_is_default};

resource! {
    /// How the operating system image of a pool is built, and which image that gave.
    MachineOSConfig, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "machineosconfigs",
    spec: MachineOSConfigSpec,
    status: MachineOSConfigStatus
}

impl Installable for MachineOSConfig {
    fn crd() -> CustomResourceDefinition {
        let one_per_pool = json!({
            "rule": "self.metadata.name == self.spec.machineConfigPool.name || oldSelf.hasValue() && \
                     oldSelf.spec.machineConfigPool.name.value() == self.spec.machineConfigPool.name",
            "message": "MachineOSConfig name must match the referenced MachineConfigPool name; can only have one \
                        MachineOSConfig per MachineConfigPool",
            "optionalOldSelf": true,
        });
        CrdDefinition::of::<Self>(
            "How the operating system image of a pool is built, and which image that gave.",
        )
        .operator_managed()
        .spec::<MachineOSConfigSpec>("How the image is built.")
        .status::<MachineOSConfigStatus>("Which image that gave.")
        .rule(one_per_pool)
        .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = [
    "imageBuilder",
    "machineConfigPool",
    "renderedImagePushSecret",
    "renderedImagePushSpec",
]))]
pub struct MachineOSConfigSpec {
    /// The secret with the credentials for the image that the build starts from. By default the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<ObjectName>,

    /// What is added to the image, for every architecture or for one.
    // The names of builds distinguish an absent list from an empty one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 0, max = 4),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["containerfileArch"])
    )]
    pub container_file: Option<Vec<MachineOSContainerfile>>,

    /// What builds the image.
    #[serde(deserialize_with = "null_is_default")]
    pub image_builder: MachineOSImageBuilder,

    /// The pool whose machines run the image.
    #[serde(deserialize_with = "null_is_default")]
    pub machine_config_pool: ObjectName,

    /// The secret with the credentials for pushing the image.
    #[serde(deserialize_with = "null_is_default")]
    pub rendered_image_push_secret: ObjectName,

    /// Where the image is pushed, with a tag that the build replaces.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::tagged_image_rules()))]
    pub rendered_image_push_spec: String,
}

/// A piece of a Containerfile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["content"]))]
pub struct MachineOSContainerfile {
    /// The architecture it is for.
    #[serde(deserialize_with = "null_is_every_architecture")]
    #[schemars(extend("x-default" = EVERY_ARCHITECTURE, "enum" = ["ARM64", "AMD64", "PPC64LE", "S390X", "NoArch"]))]
    pub containerfile_arch: String,

    /// The instructions.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 4096))]
    pub content: String,
}

/// For every architecture, as the API server fills it in.
impl Default for MachineOSContainerfile {
    fn default() -> Self {
        Self {
            containerfile_arch: EVERY_ARCHITECTURE.to_owned(),
            content: String::new(),
        }
    }
}

/// The value of [`MachineOSContainerfile::containerfile_arch`] for a piece that goes into every image.
pub const EVERY_ARCHITECTURE: &str = "NoArch";

fn null_is_every_architecture<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(|| EVERY_ARCHITECTURE.to_owned()))
}

/// The builder of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["imageBuilderType"]))]
pub struct MachineOSImageBuilder {
    /// Job, the only one.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("enum" = ["Job"]))]
    pub image_builder_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineOSConfigStatus {
    /// The observed conditions, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The latest image, by digest.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::digested_image_rules()))]
    pub current_image_pull_spec: String,

    /// The build that gave it.
    #[serde(rename = "machineOSBuild", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::group_resource_reference")]
    pub machine_os_build: Option<GroupResourceReference>,

    /// The generation of the spec that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        range(min = 0),
        extend("x-kubernetes-validations" = [rule("self >= oldSelf", "observedGeneration must not move backwards")])
    )]
    pub observed_generation: i64,
}

/// A reference to an object by group, resource and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupResourceReference {
    #[serde(deserialize_with = "null_is_default")]
    pub group: String,
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub namespace: String,
    #[serde(deserialize_with = "null_is_default")]
    pub resource: String,
}
