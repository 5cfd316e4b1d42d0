//! MachineOSBuild: one build of an operating system image.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::machine_os_config::GroupResourceReference;
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::vocabulary::conditions::machine_os_build as condition;
use crate::wire::{is_default, null_is_default};

resource! {
    /// One build of an operating system image.
    MachineOSBuild, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "machineosbuilds",
    spec: MachineOSBuildSpec,
    status: MachineOSBuildStatus
}

impl Installable for MachineOSBuild {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("One build of an operating system image.")
            .operator_managed()
            .column(column::condition(
                "Prepared",
                condition::PREPARED,
                "Whether the build is about to start.",
            ))
            .column(column::condition(
                "Building",
                condition::BUILDING,
                "Whether the build runs.",
            ))
            .column(column::condition(
                "Succeeded",
                condition::SUCCEEDED,
                "Whether the image was built.",
            ))
            .column(column::condition(
                "Interrupted",
                condition::INTERRUPTED,
                "Whether the build was stopped.",
            ))
            .column(column::condition(
                "Failed",
                condition::FAILED,
                "Whether the build failed.",
            ))
            .column(column::age())
            .spec::<MachineOSBuildSpec>("What is built. It never changes.")
            .status::<MachineOSBuildStatus>("How the build goes, and what it gave.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["machineConfig", "machineOSConfig", "renderedImagePushSpec"],
    "x-kubernetes-validations" = [rule("self == oldSelf", "machineOSBuildSpec is immutable once set")]
))]
pub struct MachineOSBuildSpec {
    /// The rendered MachineConfig that goes into the image.
    #[serde(deserialize_with = "null_is_default")]
    pub machine_config: RenderedConfigName,

    /// The MachineOSConfig that the build is for.
    #[serde(rename = "machineOSConfig", deserialize_with = "null_is_default")]
    pub machine_os_config: MachineOSConfigName,

    /// Where the image is pushed, with its tag.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::tagged_image_rules()))]
    pub rendered_image_push_spec: String,
}

/// Names a rendered MachineConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct RenderedConfigName {
    /// Name of the rendered MachineConfig.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 10, max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub name: String,
}

/// Names a MachineOSConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct MachineOSConfigName {
    /// Name of the MachineOSConfig.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.buildEnd) ? has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd) : true",
    "buildEnd must be after buildStart"
)]))]
pub struct MachineOSBuildStatus {
    /// When the build ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::time",
        extend("x-kubernetes-validations" = [rule("self == oldSelf", "buildEnd is immutable once set")])
    )]
    pub build_end: Option<Time>,

    /// When the build began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::time",
        extend("x-kubernetes-validations" = [rule("self == oldSelf", "buildStart is immutable once set")])
    )]
    pub build_start: Option<Time>,

    /// What builds the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<MachineOSBuilderReference>,

    /// The phases of the build, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        schema_with = "schema::conditions",
        extend(
            "maxItems" = 8,
            "x-kubernetes-validations" = [
                rule(
                    "oldSelf.exists(x, x.type=='Failed' && x.status=='True') ? self==oldSelf : true",
                    "once a Failed condition is set, conditions are immutable"
                ),
                rule(
                    "oldSelf.exists(x, x.type=='Interrupted' && x.status=='True') ? self==oldSelf : true",
                    "once an Interrupted condition is set, conditions are immutable"
                ),
                rule(
                    "oldSelf.exists(x, x.type=='Succeeded' && x.status=='True') ? self==oldSelf : true",
                    "once an Succeeded condition is set, conditions are immutable"
                ),
            ]
        )
    )]
    pub conditions: Vec<Condition>,

    /// The image, by digest.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::digested_image_rules()))]
    pub digested_image_push_spec: String,

    /// Objects made for the build.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::group_resource_references", extend("maxItems" = 10))]
    pub related_objects: Vec<GroupResourceReference>,
}

/// The builder of an image, and a reference to its object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["imageBuilderType"],
    "x-kubernetes-validations" = [rule(
        "has(self.imageBuilderType) && self.imageBuilderType == 'Job' ?  has(self.job) : !has(self.job)",
        "job is required when imageBuilderType is Job, and forbidden otherwise"
    )]
))]
pub struct MachineOSBuilderReference {
    /// Job, the only one.
    #[serde(deserialize_with = "null_is_default")]
    pub image_builder_type: String,

    /// The Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::group_resource_reference")]
    pub job: Option<GroupResourceReference>,
}
