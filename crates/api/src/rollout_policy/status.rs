//! The status of a RolloutPolicy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DisruptionReason;
use crate::schema;
use crate::wire::{is_default, null_is_default};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicyStatus {
    /// The generation that this status is about.
    pub observed_generation: i64,

    /// The state of the pool that needs attention most.
    #[serde(deserialize_with = "null_is_default")]
    pub phase: RolloutPhase,

    /// What that pool does or waits for.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,

    /// The pools under this policy.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pools: Vec<PoolRolloutStatus>,

    /// The last check of each gate.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub gates: Vec<GateResult>,

    /// Accepted, Halted and Settled.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The state of a rollout, from the most harmless to the one that needs attention most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPhase {
    /// All nodes are updated.
    #[default]
    Done,
    /// Nodes are being updated.
    Progressing,
    /// The time after a wave.
    Soaking,
    /// For a window, a gate, a budget or another policy.
    Waiting,
    /// Stopped with `mco rollout abort`.
    Aborted,
    /// The nodes go back to the previous config, or have it.
    Reverted,
    /// Too many nodes failed.
    Halted,
}

/// The rollout of one pool to one config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct PoolRolloutStatus {
    /// Name of the pool.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,

    /// The rendered config, and the image of a layered pool.
    #[serde(deserialize_with = "null_is_default")]
    pub target: String,

    /// The state of the rollout.
    #[serde(deserialize_with = "null_is_default")]
    pub phase: RolloutPhase,

    /// What the rollout does or waits for.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,

    /// The current wave, from 1; one more than there are waves for the nodes in none of them.
    #[serde(deserialize_with = "null_is_default")]
    pub wave: u32,

    /// The waves that are updated, in order.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub completed_waves: Vec<CompletedWave>,

    /// When no node was under way; absent while one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledRollout>,

    /// Nodes that failed, at most ten.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub failures: Vec<NodeNote>,

    /// Nodes that had failed before they were sent to the config, which is no failure of this rollout.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub recovering: Vec<NodeNote>,

    /// Nodes that keep their config because their drain took too long.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub skipped: Vec<NodeNote>,

    /// What the changes of nodes interrupt, where a window or a budget of the policy depends on it. A change that is not
    /// listed counts as a reboot.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["from"]))]
    pub changes: Vec<NodeChange>,

    /// Set once the rollout was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted: Option<RevertedRollout>,
}

/// A wave whose nodes are updated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletedWave {
    /// How many nodes it had.
    pub nodes: u32,
    /// When its last node was updated; the soak time starts then.
    #[schemars(schema_with = "schema::time")]
    pub at: Time,
}

/// A moment in which no node was under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledRollout {
    /// When the last node was done. Gates must have passed since.
    #[schemars(schema_with = "schema::time")]
    pub at: Time,
    /// How many nodes had been sent to the config.
    pub sent: u32,
}

/// A node and its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["node"]))]
pub struct NodeNote {
    /// Name of the node.
    #[serde(deserialize_with = "null_is_default")]
    pub node: String,
    /// What it reports, or why it is listed.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
}

/// The change of a node from another config to the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["from"]))]
pub struct NodeChange {
    /// The rendered config that the node has.
    #[serde(deserialize_with = "null_is_default")]
    pub from: String,
    /// What it interrupts; absent for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<DisruptionReason>,
}

/// A rollout that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevertedRollout {
    /// The config that the nodes go back to.
    pub to: String,
    /// When the rollout was given up.
    #[schemars(schema_with = "schema::time")]
    pub at: Time,
    /// Why.
    pub message: String,
}

/// The last check of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateResult {
    /// Name of the gate.
    pub name: String,
    /// Whether it lets the rollout continue.
    pub passed: bool,
    /// Whether it could be checked at all.
    pub reachable: bool,
    /// When it was checked.
    #[schemars(schema_with = "schema::time")]
    pub checked_at: Time,
    /// Since when every check had this result.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
    /// What the check found.
    pub message: String,
}
