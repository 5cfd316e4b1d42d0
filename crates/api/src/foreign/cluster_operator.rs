//! ClusterOperator: the reported state of an operator. We write the one named `machine-config`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;
use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::schema;
use crate::vocabulary::conditions::cluster_operator as condition;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The state of an operator, and the versions it runs.
    ClusterOperator, ClusterResourceScope, "config.openshift.io" / "v1", "clusteroperators",
    spec: ClusterOperatorSpec,
    status: ClusterOperatorStatus,
    unknown fields kept in extra
}

impl Installable for ClusterOperator {
    fn crd() -> CustomResourceDefinition {
        let definition = CrdDefinition::of::<Self>("How an operator is, and which version it runs.");
        Self::define(definition.short_name("co")).build()
    }
}

impl ClusterOperator {
    /// Adds the columns and the schema, which the kind of plain clusters has too.
    pub(crate) fn define(definition: CrdDefinition) -> CrdDefinition {
        definition
            .column(column::text(
                "Version",
                r#".status.versions[?(@.name=="operator")].version"#,
                "Version of the operator.",
            ))
            .column(column::condition(
                "Available",
                condition::AVAILABLE,
                "Whether the operator does its work.",
            ))
            .column(column::condition(
                "Progressing",
                condition::PROGRESSING,
                "Whether the operator is moving to another version.",
            ))
            .column(column::condition(
                "Degraded",
                condition::DEGRADED,
                "Whether something failed.",
            ))
            .column(column::date(
                "Since",
                r#".status.conditions[?(@.type=="Available")].lastTransitionTime"#,
                "How long the operator has been available or not.",
            ))
            // Users expect this column, although not every release's definition has it.
            .column(column::text(
                "Message",
                r#".status.conditions[?(@.type=="Degraded")].message"#,
                "What failed.",
            ))
            .spec::<ClusterOperatorSpec>("Empty; users have nothing to say here.")
            .status::<ClusterOperatorStatus>("What the operator reports.")
    }
}

/// Empty: the object only has a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClusterOperatorSpec {
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterOperatorStatus {
    /// How the operator is, one entry per type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ClusterOperatorCondition>,

    /// Further data of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub extension: Option<Value>,

    /// Objects that matter to the operator, for those who collect data about it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub related_objects: Vec<RelatedObject>,

    /// The versions that the operator and its operands have reached.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub versions: Vec<OperandVersion>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// One condition of an operator. See [`crate::vocabulary::conditions::cluster_operator`] for the types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["lastTransitionTime", "status", "type"]))]
pub struct ClusterOperatorCondition {
    /// When `status` changed last.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// What happened, for people.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub message: String,

    /// What happened, in one word for programs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,

    /// True, False or Unknown.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,

    /// Which condition this is.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// An object that matters to an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["group", "name", "resource"]))]
pub struct RelatedObject {
    /// API group of the object.
    #[serde(deserialize_with = "null_is_default")]
    pub group: String,

    /// Name of the object; empty for all of the resource.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,

    /// Namespace of the object.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub namespace: String,

    /// The object's resource, in the plural.
    #[serde(deserialize_with = "null_is_default")]
    pub resource: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// The version of an operator or of something it looks after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name", "version"]))]
pub struct OperandVersion {
    /// Whose version it is; `operator` for the operator's own.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,

    /// The version.
    #[serde(deserialize_with = "null_is_default")]
    pub version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
