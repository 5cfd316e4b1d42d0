//! ImageDigestMirrorSet, ImageTagMirrorSet and ImageContentSourcePolicy: mirrors that images are pulled from.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::Extra;
use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::resource::resource;
use crate::schema::build::{object, set_of, string};
use crate::wire::{is_default, null_is_default};

resource! {
    /// Mirrors for images that are pulled by digest.
    ImageDigestMirrorSet, ClusterResourceScope, "config.openshift.io" / "v1", "imagedigestmirrorsets",
    spec: ImageDigestMirrorSetSpec,
    status: Extra,
    unknown fields kept in extra
}

resource! {
    /// Mirrors for images that are pulled by tag.
    ImageTagMirrorSet, ClusterResourceScope, "config.openshift.io" / "v1", "imagetagmirrorsets",
    spec: ImageTagMirrorSetSpec,
    status: Extra,
    unknown fields kept in extra
}

resource! {
    /// Mirrors for images that are pulled by digest, in the predecessor of ImageDigestMirrorSet.
    ImageContentSourcePolicy, ClusterResourceScope,
    "operator.openshift.io" / "v1alpha1", "imagecontentsourcepolicies",
    spec: ImageContentSourcePolicySpec,
    unknown fields kept in extra
}

impl Installable for ImageDigestMirrorSet {
    fn crd() -> CustomResourceDefinition {
        let about = "Mirrors for images that are pulled by digest.";
        define::<ImageDigestMirrorSetSpec>(CrdDefinition::of::<Self>(about).short_name("idms"))
    }
}

impl Installable for ImageTagMirrorSet {
    fn crd() -> CustomResourceDefinition {
        let about = "Mirrors for images that are pulled by tag.";
        define::<ImageTagMirrorSetSpec>(CrdDefinition::of::<Self>(about).short_name("itms"))
    }
}

impl Installable for ImageContentSourcePolicy {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>(
            "Mirrors for images that are pulled by digest. ImageDigestMirrorSet is the newer form.",
        )
        .spec::<ImageContentSourcePolicySpec>("The mirrors.")
        .status_subresource()
        .build()
    }
}

/// Completes the definition of a mirror set, or of the one of plain clusters.
pub(crate) fn define<S: JsonSchema>(definition: CrdDefinition) -> CustomResourceDefinition {
    definition
        .spec::<S>("The mirrors.")
        .status::<NoFields>("Empty.")
        .build()
}

/// The status of a mirror set, which has no fields.
struct NoFields;

impl JsonSchema for NoFields {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        object().into()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageDigestMirrorSetSpec {
    /// The mirrors, by source.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_digest_mirrors: Vec<ImageMirrors>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageTagMirrorSetSpec {
    /// The mirrors, by source.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_tag_mirrors: Vec<ImageMirrors>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A source of images and the places that they are pulled from instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["source"]))]
pub struct ImageMirrors {
    /// What happens when no mirror has the image. By default the source is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_source_policy: Option<MirrorSourcePolicy>,

    /// The mirrors, in the order they are asked.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "mirrors_schema")]
    pub mirrors: Vec<String>,

    /// What is mirrored: a registry, a repository, or all registries of a domain (`*.example.com`).
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(schema_with = "source_schema")]
    pub source: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Whether an image that no mirror has is pulled from the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorSourcePolicy {
    NeverContactSource,
    AllowContactingSource,
    /// A policy of a newer API version.
    #[serde(untagged)]
    Other(String),
}

impl JsonSchema for MirrorSourcePolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MirrorSourcePolicy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        string()
            .one_of(&["NeverContactSource", "AllowContactingSource"])
            .into()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageContentSourcePolicySpec {
    /// The mirrors, by source.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub repository_digest_mirrors: Vec<RepositoryDigestMirrors>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A source of images and the places that they are pulled from instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["source"]))]
pub struct RepositoryDigestMirrors {
    /// The mirrors, in the order they are asked.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub mirrors: Vec<String>,

    /// What is mirrored.
    #[serde(deserialize_with = "null_is_default")]
    pub source: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A registry's host with an optional port, and an optional path below it.
const REPOSITORY: &str = r"^((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(?::[0-9]+)?)(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$";

/// All registries of a domain.
const WILDCARD: &str = r"^\*(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+$";

fn mirrors_schema(_: &mut SchemaGenerator) -> Schema {
    set_of(string().pattern(REPOSITORY)).into()
}

fn source_schema(_: &mut SchemaGenerator) -> Schema {
    string().pattern(&format!("{WILDCARD}|{REPOSITORY}")).into()
}
