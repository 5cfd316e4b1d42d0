//! RolloutPolicy: when, in which order and how far the nodes of some pools are updated.
//!
//! A kind of our own, so that MachineConfigPool stays the reference's. Without one nothing changes.

mod gates;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use gates::{
    ConditionGate, ControlPlaneGate, GateEndpoint, PrometheusGate, RolloutGate, SecretKey, UnreachableGate,
    WebhookGate,
};
pub use status::{
    CompletedWave, GateResult, NodeChange, NodeNote, PoolRolloutStatus, RevertedRollout, RolloutPhase,
    RolloutPolicyStatus, SettledRollout,
};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::schema;
use crate::wire::{int_or_string, is_default, null_is_default};

resource! {
    /// When, in which order and how far the nodes of some pools are updated.
    RolloutPolicy, ClusterResourceScope, "mco.dev" / "v1alpha1", "rolloutpolicies",
    spec: RolloutPolicySpec,
    status: RolloutPolicyStatus
}

impl Installable for RolloutPolicy {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("When, in which order and how far the nodes of some pools are updated.")
            .column(column::text(
                "Phase",
                ".status.phase",
                "The state of the rollout.",
            ))
            .column(column::text(
                "Message",
                ".status.message",
                "What the rollout does or waits for.",
            ))
            .column(column::age())
            .spec::<RolloutPolicySpec>("The rules.")
            .status::<RolloutPolicyStatus>("The state of the rollouts under these rules.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["poolSelector"]))]
pub struct RolloutPolicySpec {
    /// The MachineConfigPools under this policy, by their labels. A pool that several policies select is held.
    #[schemars(schema_with = "schema::label_selector")]
    pub pool_selector: Option<LabelSelector>,

    /// Groups of nodes that are updated one after the other. The nodes in none of them are the last wave.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub waves: Vec<RolloutWave>,

    /// When failed nodes stop the rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<MaxFailures>,

    /// Checks that must pass before any further node is updated.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(
        length(max = 20),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub gates: Vec<RolloutGate>,

    /// When nodes may be updated; without any, always. Updates that are under way are completed, and changes that
    /// interrupt nothing are never held.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<MaintenanceWindow>,

    /// Limits of unavailable nodes, of all pools of this policy together. Each of them, and the pool's own
    /// maxUnavailable, must leave room.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub budgets: Vec<DisruptionBudget>,

    /// Other RolloutPolicies whose pools must be updated first.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "set"))]
    pub after: Vec<String>,

    /// When an updated node counts as failed because it is not ready again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirmation>,

    /// What happens to drains that do not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainRules>,

    /// Webhooks that receive the events of the rollout, as CloudEvents.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub notify: Vec<Notification>,
}

/// Nodes that are updated before those of the next wave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutWave {
    /// How messages call the wave.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 63))]
    pub name: String,

    /// The nodes, by their labels; all nodes that are left without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,

    /// How many of them, as a number or a percentage of the pool; all of them without one.
    #[serde(deserialize_with = "int_or_string", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub limit: Option<IntOrString>,

    /// How long the rollout waits after the wave, such as 30m.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32))]
    pub soak: String,
}

/// When failed nodes stop the rollout. No more nodes are under way than may still fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["count"]))]
pub struct MaxFailures {
    /// How many nodes of a pool may fail on one config, as a number or a percentage of the pool.
    #[serde(deserialize_with = "int_or_string", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub count: Option<IntOrString>,

    /// What happens then.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-default" = "Halt"))]
    pub action: FailureAction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    /// No further node is updated.
    #[default]
    Halt,
    /// All nodes of the pool go back to the config that the pool had before.
    Revert,
}

/// A period in which nodes may be updated: `at` and `for`, or `from` and `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MaintenanceWindow {
    /// When the window opens: minute, hour, day of month, month and day of week, as in cron.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 128))]
    pub at: String,

    /// How long a window with `at` is open, such as 6h.
    #[serde(
        rename = "for",
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32))]
    pub duration: String,

    /// The time of day at which the window opens, such as 22:00.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 5))]
    pub from: String,

    /// The time of day at which it closes; on the next day if it is not after `from`.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 5))]
    pub to: String,

    /// The days on which a window with `from` opens, such as Sat; every day without any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    #[schemars(length(max = 7), extend("x-kubernetes-list-type" = "atomic"))]
    pub days: Vec<String>,

    /// The IANA time zone of all times, such as Europe/Madrid.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 64), extend("x-default" = "UTC"))]
    pub time_zone: String,
}

/// A limit of unavailable nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["maxUnavailable"]))]
pub struct DisruptionBudget {
    /// How many nodes may be unavailable at once, as a number or a percentage.
    #[serde(deserialize_with = "int_or_string", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,

    /// A node label; the limit is for the nodes with the same value of it. Nodes without the label are one group.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 317))]
    pub group_by: String,

    /// The changes that the limit is for, by what they interrupt; all of them without any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Vec<DisruptionReason>,
}

/// What a change interrupts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionReason {
    Reload,
    Restart,
    Drain,
    Reboot,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["deadline"]))]
pub struct Confirmation {
    /// A node that was sent to the config and is not ready for longer than this has failed, such as 15m. The node itself
    /// reverts the config if it is not healthy with it for as long.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 32))]
    pub deadline: String,

    /// What an updated node must pass before it counts as updated; all of it without any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub checks: Vec<ConfirmationCheck>,
}

/// A check of an updated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConfirmationCheck {
    /// The kubelet reports the node as ready.
    NodeReady,
    /// The node has no taint `readiness.k8s.io/...`.
    ReadinessTaints,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainRules {
    /// How long a drain may take, such as 30m.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32))]
    pub timeout: String,

    /// What happens to a node whose drain takes longer.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-default" = "Wait"))]
    pub on_timeout: DrainTimeoutAction,

    /// Take nodes out of external load balancers while they are cordoned, and wait this long before the first
    /// eviction, such as 30s.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    #[schemars(length(max = 32))]
    pub exclude_from_load_balancers: String,

    /// Keep the cluster autoscaler from removing nodes while they are cordoned.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub protect_from_autoscaler: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DrainTimeoutAction {
    /// The drain is retried, and the node holds its place in the budgets.
    #[default]
    Wait,
    /// The drain is retried, the node stays cordoned and counts as failed, and others are updated in its place.
    Quarantine,
    /// The node keeps its config and becomes schedulable; it is updated with the next config.
    Skip,
}

/// A webhook that receives events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["secretRef"]))]
pub struct Notification {
    /// The Secret with the URL, in the namespace of the operator.
    #[serde(deserialize_with = "null_is_default")]
    pub secret_ref: SecretKey,

    /// The events; all of them without any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    #[schemars(length(max = 6), extend("x-kubernetes-list-type" = "set"))]
    pub on: Vec<NotificationEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NotificationEvent {
    Started,
    WaveCompleted,
    Halted,
    Reverted,
    Resumed,
    Done,
}
