//! MachineConfigPool: which machines get which MachineConfigs, the rollout settings, and the rollout status.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::vocabulary::conditions::pool as condition;
use crate::wire::{int_or_string, is_default, null_is_default};

resource! {
    /// A group of machines that share one rendered configuration.
    MachineConfigPool, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "machineconfigpools",
    spec: MachineConfigPoolSpec,
    status: MachineConfigPoolStatus
}

impl MachineConfigPool {
    /// Returns the name of the target, the rendered MachineConfig that the machines should run; empty before the first
    /// render.
    pub fn target_name(&self) -> &str {
        self.spec.configuration.name()
    }
}

impl Installable for MachineConfigPool {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("A group of machines that share one rendered configuration.")
            .operator_managed()
            .short_name("mcp")
            .column(column::text(
                "Config",
                ".status.configuration.name",
                "The configuration that every machine has reached.",
            ))
            .column(column::condition(
                "Updated",
                condition::UPDATED,
                "Whether every machine runs the target.",
            ))
            .column(column::condition(
                "Updating",
                condition::UPDATING,
                "Whether machines are on the way to the target.",
            ))
            .column(column::condition(
                "Degraded",
                condition::DEGRADED,
                "Whether something failed.",
            ))
            .column(column::number(
                "MachineCount",
                ".status.machineCount",
                "Machines in the pool.",
            ))
            .column(column::number(
                "ReadyMachineCount",
                ".status.readyMachineCount",
                "Machines that run the target and are ready.",
            ))
            .column(column::number(
                "UpdatedMachineCount",
                ".status.updatedMachineCount",
                "Machines that run the target.",
            ))
            .column(column::number(
                "DegradedMachineCount",
                ".status.degradedMachineCount",
                "Machines that report a failure.",
            ))
            .column(column::age())
            .spec::<MachineConfigPoolSpec>("Which machines, which configuration, and how fast.")
            .status::<MachineConfigPoolStatus>("How far the rollout has come.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolSpec {
    /// The rendered MachineConfig that the machines should run. Written by the controller.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub configuration: MachineConfigPoolConfiguration,

    /// Chooses the MachineConfigs of this pool by their labels. Absent, it chooses none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_selector: Option<LabelSelector>,

    /// How many machines may be unavailable at once during a rollout, as a number or a percentage. The default
    /// is 1, and so is 0.
    #[serde(deserialize_with = "int_or_string", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,

    /// Chooses the machines of this pool by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,

    /// The stream of operating system images that the machines follow, instead of the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<OSImageStreamReference>,

    /// Stops the rollout to further machines.
    #[serde(deserialize_with = "null_is_default")]
    pub paused: bool,

    /// The image sets whose images are kept on the machines.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_image_sets: Vec<PinnedImageSetReference>,
}

/// A rendered MachineConfig and what it was rendered from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = schema::with_object_reference_fields, extend("x-kubernetes-map-type" = "atomic"))]
pub struct MachineConfigPoolConfiguration {
    /// The rendered MachineConfig.
    #[serde(flatten)]
    #[schemars(skip)]
    pub reference: ObjectReference,

    /// The MachineConfigs it was rendered from, in the order they were merged.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::object_references")]
    pub source: Vec<ObjectReference>,
}

impl MachineConfigPoolConfiguration {
    /// Returns the name of the rendered MachineConfig; empty before the first render.
    pub fn name(&self) -> &str {
        self.reference.name.as_deref().unwrap_or_default()
    }
}

/// Names an OS image stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct OSImageStreamReference {
    /// Name of the stream, one of those the OSImageStream object offers.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = [schema::stream_name_rule()])
    )]
    pub name: String,
}

/// Names a PinnedImageSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct PinnedImageSetReference {
    /// Name of the PinnedImageSet.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$"
        )
    )]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolStatus {
    /// When the certificates that the machines rely on expire.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_expirys: Vec<CertificateExpiry>,

    /// The observed conditions of the pool, one entry per type.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<MachineConfigPoolCondition>,

    /// The rendered MachineConfig that every machine has reached.
    #[serde(deserialize_with = "null_is_default")]
    pub configuration: MachineConfigPoolConfiguration,

    /// Machines that report a failure.
    #[serde(deserialize_with = "null_is_default")]
    pub degraded_machine_count: i32,

    /// Machines in the pool.
    #[serde(deserialize_with = "null_is_default")]
    pub machine_count: i32,

    /// The generation of the pool that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,

    /// The stream of operating system images that every machine has reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<OSImageStreamReference>,

    /// Progress of the work that happens beside the rollout.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["poolSynchronizerType"],
    ))]
    pub pool_synchronizers_status: Vec<PoolSynchronizerStatus>,

    /// Machines that run the target configuration and are ready for work.
    #[serde(deserialize_with = "null_is_default")]
    pub ready_machine_count: i32,

    /// Machines that are not ready for work, or that are being updated.
    #[serde(deserialize_with = "null_is_default")]
    pub unavailable_machine_count: i32,

    /// Machines that run the target configuration.
    #[serde(deserialize_with = "null_is_default")]
    pub updated_machine_count: i32,
}

/// One condition of a pool. See [`crate::vocabulary::conditions::pool`] for the types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolCondition {
    /// When `status` changed last.
    #[schemars(schema_with = "schema::nullable_time")]
    pub last_transition_time: Option<Time>,

    /// What happened, for people.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,

    /// What happened, in one word for programs.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,

    /// True, False or Unknown.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,

    /// Which condition this is.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,
}

/// When one certificate of a bundle expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["bundle", "subject"]))]
pub struct CertificateExpiry {
    /// The bundle that holds the certificate.
    #[serde(deserialize_with = "null_is_default")]
    pub bundle: String,

    /// The end of its validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub expiry: Option<Time>,

    /// The subject of the certificate.
    #[serde(deserialize_with = "null_is_default")]
    pub subject: String,
}

/// How many machines of a pool have finished one kind of work that happens beside the rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = [
        "availableMachineCount",
        "machineCount",
        "poolSynchronizerType",
        "readyMachineCount",
        "unavailableMachineCount",
        "updatedMachineCount",
    ],
    "x-kubernetes-validations" = [
        rule(
            "self.machineCount >= self.updatedMachineCount",
            "machineCount must be greater than or equal to updatedMachineCount"
        ),
        rule(
            "self.machineCount >= self.availableMachineCount",
            "machineCount must be greater than or equal to availableMachineCount"
        ),
        rule(
            "self.machineCount >= self.unavailableMachineCount",
            "machineCount must be greater than or equal to unavailableMachineCount"
        ),
        rule(
            "self.machineCount >= self.readyMachineCount",
            "machineCount must be greater than or equal to readyMachineCount"
        ),
        rule(
            "self.availableMachineCount >= self.readyMachineCount",
            "availableMachineCount must be greater than or equal to readyMachineCount"
        ),
    ]
))]
pub struct PoolSynchronizerStatus {
    /// Machines that have not failed.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(range(min = 0))]
    pub available_machine_count: i64,

    /// Machines the work is for.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(range(min = 0))]
    pub machine_count: i64,

    /// The generation of the work's description that these numbers are about.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        range(min = 0),
        extend("x-kubernetes-validations" = [rule(
            "self >= oldSelf || (self == 0 && oldSelf > 0)",
            "observedGeneration must not move backwards except to zero"
        )])
    )]
    pub observed_generation: i64,

    /// The kind of work.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 256), extend("enum" = ["PinnedImageSets"]))]
    pub pool_synchronizer_type: String,

    /// Machines that can start the work.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(range(min = 0))]
    pub ready_machine_count: i64,

    /// Machines on which the work failed.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(range(min = 0))]
    pub unavailable_machine_count: i64,

    /// Machines that have finished.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(range(min = 0))]
    pub updated_machine_count: i64,
}
