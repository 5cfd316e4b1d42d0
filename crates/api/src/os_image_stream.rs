//! OSImageStream: the streams of operating system images that a cluster offers to its pools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::resource::resource;
use crate::schema::{self, rule};
use crate::wire::null_is_default;

resource! {
    /// The streams of operating system images that a cluster offers to its pools.
    OSImageStream, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "osimagestreams",
    spec: OSImageStreamSpec,
    status: OSImageStreamStatus
}

impl Installable for OSImageStream {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>(
            "The streams of operating system images that a cluster offers to its pools.",
        )
        .operator_managed()
        .spec::<OSImageStreamSpec>("What the user wants.")
        .status::<OSImageStreamStatus>("What the cluster's release offers.")
        .rule(rule(
            "self.metadata.name == 'cluster'",
            "osimagestream is a singleton, .metadata.name must be 'cluster'",
        ))
        .rule(rule(
            "self.spec == oldSelf.spec || !has(self.status) || \
                 self.spec.defaultStream in self.status.availableStreams.map(s, s.name)",
            "spec.defaultStream must reference an existing stream name from status.availableStreams",
        ))
        .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["defaultStream"]))]
pub struct OSImageStreamSpec {
    /// The stream of every pool that does not choose one.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [schema::stream_name_rule()]))]
    pub default_stream: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["availableStreams", "defaultStream"],
    "x-kubernetes-validations" = [rule(
        "self.defaultStream in self.availableStreams.map(s, s.name)",
        "defaultStream must reference a stream name from availableStreams"
    )]
))]
pub struct OSImageStreamStatus {
    /// The streams to choose from.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub available_streams: Vec<OSImageStreamImages>,

    /// The stream of every pool that does not choose one.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [schema::stream_name_rule()]))]
    pub default_stream: String,
}

/// A stream and its images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "osExtensionsImage", "osImage"]))]
pub struct OSImageStreamImages {
    /// Name of the stream.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [schema::stream_name_rule()]))]
    pub name: String,

    /// The image that extensions are installed from, by digest.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::digested_image_rules()))]
    pub os_extensions_image: String,

    /// The operating system image, by digest.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::digested_image_rules()))]
    pub os_image: String,
}
