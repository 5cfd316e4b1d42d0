//! ContainerRuntimeConfig: a user's settings for the container runtime of the pools it selects.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::kubelet_config::NodeConfigCondition;
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::wire::{is_default, null_is_default};

resource! {
    /// How the container runtime of some pools is configured.
    ContainerRuntimeConfig, ClusterResourceScope,
    "machineconfiguration.openshift.io" / "v1", "containerruntimeconfigs",
    spec: ContainerRuntimeConfigSpec,
    status: ContainerRuntimeConfigStatus
}

impl Installable for ContainerRuntimeConfig {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("How the container runtime of some pools is configured.")
            .operator_managed()
            .short_name("ctrcfg")
            .spec::<ContainerRuntimeConfigSpec>("What the user wants.")
            .status::<ContainerRuntimeConfigStatus>("How far the controller has come with it.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["containerRuntimeConfig"]))]
pub struct ContainerRuntimeConfigSpec {
    /// The settings.
    #[serde(deserialize_with = "null_is_default")]
    pub container_runtime_config: ContainerRuntimeConfiguration,

    /// Chooses the pools by their labels. Absent or empty, it chooses none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,
}

/// Settings of the container runtime. Absent fields keep their default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRuntimeConfiguration {
    /// Further places where OCI artifacts are looked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(min = 1, max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [rule(UNIQUE_PATHS, "additionalArtifactStores must not contain duplicate paths")]
        )
    )]
    pub additional_artifact_stores: Vec<AdditionalStore>,

    /// Further places where images are looked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(min = 1, max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [rule(UNIQUE_PATHS, "additionalImageStores must not contain duplicate paths")]
        )
    )]
    pub additional_image_stores: Vec<AdditionalStore>,

    /// Further places where image layers are looked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(min = 1, max = 5),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [rule(UNIQUE_PATHS, "additionalLayerStores must not contain duplicate paths")]
        )
    )]
    pub additional_layer_stores: Vec<AdditionalStore>,

    /// The runtime of containers that do not choose one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("enum" = ["crun", "runc"]))]
    pub default_runtime: String,

    /// How much the runtime logs: fatal, panic, error, warn, info, debug or trace.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub log_level: String,

    /// The size at which a container's log is rotated. A negative size means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub log_size_max: Option<Quantity>,

    /// The most a container's own layer can hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub overlay_size: Option<Quantity>,

    /// The most processes a container can have; 0 means no limit of the runtime's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
}

const UNIQUE_PATHS: &str = "self.all(x, self.exists_one(y, x.path == y.path))";

/// A directory on the machines where the container runtime looks for content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["path"]))]
pub struct AdditionalStore {
    /// The directory, absolute.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 256),
        extend("x-kubernetes-validations" = [
            rule(
                "self.matches('^/[a-zA-Z0-9/._-]+$')",
                "path must be absolute and contain only alphanumeric characters, '/', '.', '_', and '-'"
            ),
            rule("!self.contains('//')", "path must not contain consecutive forward slashes"),
        ])
    )]
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRuntimeConfigStatus {
    /// The latest results, the last one at the end.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<NodeConfigCondition>,

    /// The generation of the spec that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}
