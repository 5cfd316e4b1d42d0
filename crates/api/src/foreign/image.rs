//! Image: which registries the cluster may use, and how. A cluster has one, named `cluster`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::Extra;
use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::resource::resource;
use crate::schema::build::{atomic_list_of, string};
use crate::schema::rule;
use crate::wire::{is_default, null_is_default};

resource! {
    /// Which registries the cluster may use, and how.
    Image, ClusterResourceScope, "config.openshift.io" / "v1", "images",
    spec: ImageSpec,
    status: ImageStatus,
    unknown fields kept in extra
}

impl Installable for Image {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("Which registries the cluster may use, and how.")
            .spec::<ImageSpec>("What the user wants.")
            .status::<ImageStatus>("What the cluster has.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSpec {
    /// The config map with certificates of further registries.
    #[serde(rename = "additionalTrustedCA", skip_serializing_if = "Option::is_none")]
    pub additional_trusted_ca: Option<super::NameReference>,

    /// Registries that ordinary users may import images from.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_registries_for_import: Vec<RegistryLocation>,

    /// Names under which the cluster's own registry is reached from outside.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub external_registry_hostnames: Vec<String>,

    /// How manifest lists are imported.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("enum" = ["", "Legacy", "PreserveOriginal"]))]
    pub image_stream_import_mode: String,

    /// How the container runtime treats registries.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub registry_sources: RegistrySources,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A registry that images may be imported from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryLocation {
    /// The registry's host, with an optional port.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub domain_name: String,

    /// Whether the registry is reached without TLS, or without checking its certificate.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub insecure: bool,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// How the container runtime treats registries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.blockedRegistries) ? !has(self.allowedRegistries) : true",
    "Only one of blockedRegistries or allowedRegistries may be set"
)]))]
pub struct RegistrySources {
    /// The only registries that images are pulled from.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "registry_scopes_schema")]
    pub allowed_registries: Vec<String>,

    /// Registries that images are not pulled from.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "registry_scopes_schema")]
    pub blocked_registries: Vec<String>,

    /// Registries that are searched for an image named without one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(length(min = 1), extend("format" = "hostname", "x-kubernetes-list-type" = "set"))]
    pub container_runtime_search_registries: Vec<String>,

    /// Registries that are reached without TLS, or without checking their certificate.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(schema_with = "registry_scopes_schema")]
    pub insecure_registries: Vec<String>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageStatus {
    /// Names under which the cluster's own registry is reached from outside.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub external_registry_hostnames: Vec<String>,

    /// How manifest lists are imported.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("enum" = ["", "Legacy", "PreserveOriginal"]))]
    pub image_stream_import_mode: String,

    /// The name under which the cluster's own registry is reached from inside.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub internal_registry_hostname: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn registry_scopes_schema(_: &mut SchemaGenerator) -> Schema {
    let scope = string().length(1, 256).rule(
        r"self.matches('^\\*(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+$|^((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(?::[0-9]+)?)(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$')",
        "each registry must be a valid hostname[:port][/path] or wildcard *.hostname format without tags or digests",
    );
    atomic_list_of(scope).max_items(1024).into()
}
