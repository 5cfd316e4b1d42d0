//! PinnedImageSet: images that the machines of some pools pre-pull and pin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::resource::resource;
use crate::schema;
use crate::wire::null_is_default;

resource! {
    /// Images that machines pre-pull and pin.
    PinnedImageSet, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "pinnedimagesets",
    spec: PinnedImageSetSpec
}

impl Installable for PinnedImageSet {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("Images that machines pull in advance and keep.")
            .operator_managed()
            .spec::<PinnedImageSetSpec>("The images.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["pinnedImages"]))]
pub struct PinnedImageSetSpec {
    /// The images.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(
        length(min = 1, max = 500),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_images: Vec<PinnedImage>,
}

/// An image that machines keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct PinnedImage {
    /// The image, by digest.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(length(min = 1, max = 447), extend("x-kubernetes-validations" = schema::digested_image_rules()))]
    pub name: String,
}
