//! The gates of a RolloutPolicy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::null_is_default;

/// A check that must pass before any further node is updated. Exactly one of `prometheus`, `webhook`, `condition` and
/// `controlPlane` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct RolloutGate {
    /// How messages call the gate.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// The time between two checks, such as 30s. Gates are checked only while nodes wait for them.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32), extend("x-default" = "30s"))]
    pub interval: String,

    /// What a gate means that cannot be checked.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-default" = "Wait"))]
    pub on_unreachable: UnreachableGate,

    /// A query of Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusGate>,

    /// A webhook that answers with a status of 200 to 299 to let the rollout continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookGate>,

    /// A condition of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionGate>,

    /// Every API server is ready, and every etcd member is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneGate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnreachableGate {
    /// The rollout waits.
    #[default]
    Wait,
    /// The gate passes.
    Pass,
}

/// Where a gate is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct GateEndpoint {
    /// The URL; of Prometheus, without the path of its API.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,

    /// The Secret with a bearer token, in the namespace of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<SecretKey>,
}

/// A query of Prometheus: `expr` must have a result, or no alert that matches `noFiring` may fire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct PrometheusGate {
    /// Prometheus, without the path of the API in its URL.
    #[serde(flatten)]
    pub endpoint: GateEndpoint,

    /// An expression that has a result while the rollout may continue, such as `ceph_health_status == 0`.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 4096))]
    pub expr: String,

    /// Label matchers of alerts that must not fire, such as `severity="critical"`.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 4096))]
    pub no_firing: String,

    /// How long the gate must have passed, such as 5m.
    #[serde(
        rename = "for",
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32))]
    pub passing_for: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct WebhookGate {
    /// The webhook, which receives a POST with the policy and the pools that wait.
    #[serde(flatten)]
    pub endpoint: GateEndpoint,

    /// How long an answer may take, such as 10s.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32), extend("x-default" = "10s"))]
    pub timeout: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind", "name", "type"]))]
pub struct ConditionGate {
    /// Group and version of the object, such as ceph.rook.io/v1.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,

    /// Kind of the object.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Namespace of the object; none for cluster-scoped objects.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Name of the object.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Type of the condition.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,

    /// The status that the condition must have.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 16), extend("x-default" = "True"))]
    pub status: String,
}

/// The built-in gate of the control plane has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ControlPlaneGate {}

/// A key of a Secret in the namespace of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct SecretKey {
    /// Name of the Secret.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The key in it; `url` for a URL and `token` for a token without one.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 253))]
    pub key: String,
}
