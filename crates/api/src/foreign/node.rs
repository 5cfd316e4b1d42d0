//! Node of config.openshift.io: settings that all machines share. Not the Node that Kubernetes itself has.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// Settings that all machines share. A cluster has one, named `cluster`.
    Node, ClusterResourceScope, "config.openshift.io" / "v1", "nodes",
    spec: NodeSpec,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// `v2`, or empty for the default.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub cgroup_mode: String,
    /// `Default`, `MediumUpdateAverageReaction`, `LowUpdateSlowReaction`, or empty.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub worker_latency_profile: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub minimum_kubelet_version: String,
    #[serde(flatten)]
    pub extra: Extra,
}
