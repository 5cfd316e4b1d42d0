//! ClusterVersion: the release that the cluster runs. A cluster has one, named `version`.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The release that the cluster runs and the ones it ran before.
    ClusterVersion, ClusterResourceScope, "config.openshift.io" / "v1", "clusterversions",
    spec: Extra,
    status: ClusterVersionStatus,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterVersionStatus {
    #[serde(deserialize_with = "null_is_default")]
    pub desired: Release,
    /// Newest first.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub history: Vec<UpdateHistory>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A release: its version and the image it comes in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Release {
    #[serde(deserialize_with = "null_is_default")]
    pub version: String,
    #[serde(deserialize_with = "null_is_default")]
    pub image: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A release that the cluster went to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateHistory {
    /// `Completed` or `Partial`.
    #[serde(deserialize_with = "null_is_default")]
    pub state: String,
    #[serde(deserialize_with = "null_is_default")]
    pub version: String,
    #[serde(deserialize_with = "null_is_default")]
    pub image: String,
    #[serde(flatten)]
    pub extra: Extra,
}
