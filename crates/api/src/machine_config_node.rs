//! MachineConfigNode: the progress of one node's update, for users.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::vocabulary::conditions::machine_config_node as condition;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The current and desired configuration of one node, and the steps of the update between them.
    MachineConfigNode, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "machineconfignodes",
    spec: MachineConfigNodeSpec,
    status: MachineConfigNodeStatus
}

/// The placeholder for a pool or a configuration that is not set yet.
pub const NOT_YET_SET: &str = "not-yet-set";

impl Installable for MachineConfigNode {
    fn crd() -> CustomResourceDefinition {
        let columns = [
            column::text("PoolName", ".spec.pool.name", "The node's pool."),
            column::text(
                "DesiredConfig",
                ".spec.configVersion.desired",
                "The configuration to reach.",
            ),
            column::text(
                "CurrentConfig",
                ".status.configVersion.current",
                "The configuration in force.",
            ),
            column::condition("Updated", condition::UPDATED, "Whether no update is pending."),
            column::age(),
        ];
        let steps =
            STEPS.map(|(name, type_, description)| column::wide(column::condition(name, type_, description)));
        columns
            .into_iter()
            .chain(steps)
            .fold(
                CrdDefinition::of::<Self>(
                    "The current and desired configuration of one node, and the steps of the update between them.",
                ),
                CrdDefinition::column,
            )
            .operator_managed()
            .spec::<MachineConfigNodeSpec>("What the node should run.")
            .status::<MachineConfigNodeStatus>("What the node runs and does.")
            .rule(rule(
                "self.metadata.name == self.spec.node.name",
                "spec.node.name should match metadata.name",
            ))
            .build()
    }
}

/// The steps of an update, as columns of `kubectl get -o wide`: name, condition type, description.
const STEPS: [(&str, &str, &str); 10] = [
    (
        "UpdatePrepared",
        condition::UPDATE_PREPARED,
        "Whether the update is possible.",
    ),
    (
        "UpdateExecuted",
        condition::UPDATE_EXECUTED,
        "Whether the update is in place.",
    ),
    (
        "UpdatePostActionComplete",
        condition::UPDATE_POST_ACTION_COMPLETE,
        "Whether services were reloaded.",
    ),
    (
        "UpdateComplete",
        condition::UPDATE_COMPLETE,
        "Whether the node takes work again.",
    ),
    ("Resumed", condition::RESUMED, "Whether the daemon works again."),
    (
        "UpdatedFilesAndOS",
        condition::APPLIED_FILES_AND_OS,
        "Whether files and operating system are in place.",
    ),
    (
        "CordonedNode",
        condition::CORDONED,
        "Whether new work is kept away.",
    ),
    (
        "DrainedNode",
        condition::DRAINED,
        "Whether running work was moved away.",
    ),
    (
        "RebootedNode",
        condition::REBOOTED_NODE,
        "Whether the machine has booted again.",
    ),
    (
        "UncordonedNode",
        condition::UNCORDONED,
        "Whether new work is let in again.",
    ),
];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["configVersion", "node", "pool"]))]
pub struct MachineConfigNodeSpec {
    /// The image that the node should run. Only definitions of clusters with the feature gate
    /// `ImageModeStatusReporting` have it.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<DesiredConfigImage>,

    /// The configuration that the node should run.
    #[serde(deserialize_with = "null_is_default")]
    pub config_version: DesiredConfigVersion,

    /// The node.
    #[serde(deserialize_with = "null_is_default")]
    pub node: ObjectName,

    /// The node's pool.
    #[serde(deserialize_with = "null_is_default")]
    pub pool: ObjectName,
}

/// The image that a node should run, by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DesiredConfigImage {
    #[serde(deserialize_with = "null_is_default")]
    pub desired_image: String,
}

/// Names another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct ObjectName {
    /// Name of the object.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub name: String,
}

/// Names the rendered MachineConfig that a node should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["desired"]))]
pub struct DesiredConfigVersion {
    /// The rendered MachineConfig that the node should run.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub desired: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigNodeStatus {
    /// The steps of the current change, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::conditions", extend("maxItems" = 20))]
    pub conditions: Vec<Condition>,

    /// The images of the node. Only definitions of clusters with the feature gate `ImageModeStatusReporting` have it.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<ConfigImageStatus>,

    /// The configuration of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersionStatus>,

    /// The release images that the node serves itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_release_image: Option<InternalReleaseImageStatus>,

    /// What in the configuration the node can no longer follow without being installed again.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["fieldPath"])
    )]
    pub irreconcilable_changes: Vec<IrreconcilableChange>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = [rule("self >= oldSelf", "observedGeneration must not decrease")])
    )]
    pub observed_generation: Option<i64>,

    /// The image sets that the node keeps.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_image_sets: Vec<PinnedImageSetStatus>,
}

/// The current and the desired rendered MachineConfig of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["desired"]))]
pub struct ConfigVersionStatus {
    /// The rendered MachineConfig that the node has.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub current: String,

    /// The rendered MachineConfig that the node is on the way to.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub desired: String,
}

/// The current and the desired image of a node, by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigImageStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_image: Option<String>,
}

/// The release images that a node serves itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["releases"]))]
pub struct InternalReleaseImageStatus {
    /// One entry per release.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub releases: Vec<InternalRelease>,
}

/// A release that a node serves itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct InternalRelease {
    /// Whether the release is there and usable, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::conditions", extend("minItems" = 1, "maxItems" = 5))]
    pub conditions: Vec<Condition>,

    /// The release's image, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = release_image_rules()))]
    pub image: Option<String>,

    /// Name of the release bundle.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-validations" = [rule(
            r"self.matches('^ocp-release-bundle-[0-9]+\\.[0-9]+\\.[0-9]+-[A-Za-z0-9._-]+$')",
            "must be ocp-release-bundle-<version>-<arch|stream> and <= 64 chars"
        )])
    )]
    pub name: String,
}

/// Something in the configuration that a node cannot follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["diff", "fieldPath"]))]
pub struct IrreconcilableChange {
    /// What the configuration has and what the node was installed with.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 4096))]
    pub diff: String,

    /// Where in the MachineConfig it is.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 70),
        extend("x-kubernetes-validations" = [
            rule("self.startsWith('spec.')", "The fieldPath must start with `spec.`"),
            rule(
                r"self.matches('^[\\da-zA-Z\\.\\[\\]]+$')",
                "The fieldPath must consist only of alphanumeric characters, brackets [] and dots ('.')."
            ),
        ])
    )]
    pub field_path: String,
}

/// How far a node has come with one image set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["name"],
    "x-kubernetes-validations" = [
        rule(
            "has(self.desiredGeneration) && has(self.currentGeneration) ? self.desiredGeneration >= self.currentGeneration : true",
            "desired generation must be greater than or equal to the current generation"
        ),
        rule(
            "has(self.lastFailedGeneration) && has(self.desiredGeneration) ? self.desiredGeneration >= self.lastFailedGeneration : true",
            "desired generation must be greater than or equal to the last failed generation"
        ),
        rule(
            "has(self.lastFailedGeneration) ? has(self.lastFailedGenerationError) : true",
            "last failed generation error must be defined on image pull and pin failure"
        ),
    ]
))]
pub struct PinnedImageSetStatus {
    /// The generation of the set that the node keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = [rule("self >= oldSelf", "currentGeneration must not decrease")])
    )]
    pub current_generation: Option<i32>,

    /// The generation of the set that the node should keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = [rule("self >= oldSelf", "desiredGeneration must not decrease")])
    )]
    pub desired_generation: Option<i32>,

    /// The latest generation of the set that the node could not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = [rule("self >= oldSelf", "lastFailedGeneration must not decrease")])
    )]
    pub last_failed_generation: Option<i32>,

    /// Why the node could not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub last_failed_generation_error: Option<String>,

    /// Name of the PinnedImageSet.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [schema::subdomain_rule()]))]
    pub name: String,
}

/// Unlike other images, a release's may be served by the node itself.
fn release_image_rules() -> serde_json::Value {
    json!([
        schema::digest_rule(),
        rule(
            r"(self.split('@')[0].matches('^(localhost|([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+)(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without \
             the scheme; host must be either 'localhost' or a dot-qualified domain name",
        ),
    ])
}
