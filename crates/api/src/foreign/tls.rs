//! TLS settings, as the API server and a KubeletConfig name them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;
use crate::schema;
use crate::wire::{is_default, null_is_default};

/// TLS versions and ciphers: a predefined profile, or a custom one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TlsSecurityProfile {
    /// The user's own set, for the type Custom.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub custom: Option<CustomTlsProfile>,

    /// Empty, for the type Intermediate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_empty_object")]
    pub intermediate: Option<Value>,

    /// Empty, for the type Modern.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_empty_object")]
    pub modern: Option<Value>,

    /// Empty, for the type Old.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::nullable_empty_object")]
    pub old: Option<Value>,

    /// Which set. The default is Intermediate.
    #[serde(
        rename = "type",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(extend("enum" = ["Old", "Intermediate", "Modern", "Custom"]))]
    pub type_: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// The user's own TLS versions and ciphers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CustomTlsProfile {
    /// Ciphers, by their OpenSSL names.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ciphers: Vec<String>,

    /// The oldest TLS version to accept.
    #[serde(
        rename = "minTLSVersion",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    #[schemars(extend("enum" = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]))]
    pub min_tls_version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
