//! NodeAdoption: how an existing node differs from the config of its pool, and whether it was adopted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable, column};
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The comparison of an existing node with the config of its pool. Written by the node's own daemon, and never with the
    /// contents of files.
    NodeAdoption, ClusterResourceScope, "mco.dev" / "v1alpha1", "nodeadoptions",
    spec: NodeAdoptionSpec,
    status: NodeAdoptionStatus
}

/// The maximum number of listed differences, so that the object stays small.
pub const MAX_DIFFERENCES: usize = 256;

impl Installable for NodeAdoption {
    fn crd() -> CustomResourceDefinition {
        [
            column::text("Pool", ".status.pool", "The node's pool."),
            column::text("Phase", ".status.phase", "What has become of the node."),
            column::text(
                "Creates",
                ".status.summary.create",
                "Files that the config would create.",
            ),
            column::text(
                "Replaces",
                ".status.summary.replace",
                "Files of others that the config would replace.",
            ),
            column::age(),
        ]
        .into_iter()
        .fold(
            CrdDefinition::of::<Self>("The comparison of an existing node with the config of its pool."),
            CrdDefinition::column,
        )
        .operator_managed()
        .spec::<NodeAdoptionSpec>("Empty: requests are annotations of the Node.")
        .status::<NodeAdoptionStatus>("What the node's daemon has found and done.")
        .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeAdoptionSpec {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAdoptionStatus {
    /// What has become of the node: Compared, Adopted, Released or Failed.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 32))]
    pub phase: String,

    /// The reason of the phase, for users.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 4096))]
    pub message: String,

    /// The request of the Node's annotation that this status answers; empty if the pool's policy has caused it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub request: String,

    /// The node's pool.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 253))]
    pub pool: String,

    /// The rendered config that the node was compared with.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 253))]
    pub config: String,

    /// The number of paths by what the config would do with them.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub summary: AdoptionSummary,

    /// What the config would change of the operating system: kernel arguments, kernel, extensions and image.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 16))]
    pub os_changes: Vec<String>,

    /// What applying the config would cost.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub cost: AdoptionCost,

    /// The paths that the config would change, in the order of their names.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub differences: Vec<AdoptionDifference>,

    /// The number of differences that are not listed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub omitted: u32,

    /// Other agents that reboot the node or write the same files.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 16))]
    pub agents: Vec<NodeAgent>,
}

/// The number of paths of a config, by what applying it would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdoptionSummary {
    /// Paths that already are as configured.
    pub equal: u32,
    /// Paths that do not exist yet.
    pub create: u32,
    /// Paths that another program or person has written.
    pub replace: u32,
    /// Paths that another program or person has written and that the config removes.
    pub remove: u32,
}

/// What applying a config would cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdoptionCost {
    /// Whether the node would be drained.
    pub drain: bool,
    /// Whether the node would be rebooted.
    pub reboot: bool,
    /// Services that would be reloaded or restarted.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 64))]
    pub actions: Vec<String>,
}

/// One path that a config would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdoptionDifference {
    /// The path.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 4096))]
    pub path: String,

    /// What the config would do: create, replace or remove.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 16))]
    pub action: String,

    /// What is there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<AdoptionFile>,

    /// What the config has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<AdoptionFile>,

    /// The package that owns the present file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub package: Option<String>,

    /// Why the path is guarded, if it is and no MachineConfig allows the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub guarded: Option<String>,
}

/// A file without its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdoptionFile {
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The hash of its contents; not of files that only root may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub sha256: Option<String>,
    /// Its mode, in octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub mode: Option<String>,
    /// The target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub target: Option<String>,
}

/// Another agent on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeAgent {
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 64))]
    pub name: String,
    /// What it does on the node, and how to stop it.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(max = 1024))]
    pub effect: String,
}
