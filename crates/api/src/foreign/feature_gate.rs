//! FeatureGate: the enabled features of a release. A cluster has one, named `cluster`.

use serde::{Deserialize, Serialize};

use super::{Extra, NameReference};
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The enabled features of a release.
    FeatureGate, ClusterResourceScope, "config.openshift.io" / "v1", "featuregates",
    spec: FeatureGateSpec,
    status: FeatureGateStatus,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureGateSpec {
    /// The named set of features that the user chose, or empty for the default one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub feature_set: String,
    /// The user's own choice, for the set `CustomNoUpgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_no_upgrade: Option<CustomFeatureGates>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Features that the user turned on and off by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomFeatureGates {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub enabled: Vec<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub disabled: Vec<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FeatureGateStatus {
    /// One entry per version of the release that runs in the cluster.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub feature_gates: Vec<FeatureGateDetails>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl FeatureGateStatus {
    /// Returns the gates of this version of the release.
    pub fn of_version(&self, version: &str) -> Option<&FeatureGateDetails> {
        self.feature_gates
            .iter()
            .find(|details| details.version == version)
    }
}

/// The gates of one version of the release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeatureGateDetails {
    #[serde(deserialize_with = "null_is_default")]
    pub version: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub enabled: Vec<NameReference>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub disabled: Vec<NameReference>,
    #[serde(flatten)]
    pub extra: Extra,
}
