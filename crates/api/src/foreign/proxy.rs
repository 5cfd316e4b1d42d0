//! The cluster's proxy settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The proxy that the cluster uses for outbound traffic.
    Proxy, ClusterResourceScope, "config.openshift.io" / "v1", "proxies",
    spec: ProxySpec,
    status: ProxyStatus,
    unknown fields kept in extra
}

/// The proxy as configured by the user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySpec {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub http_proxy: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub https_proxy: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub no_proxy: String,
    /// The config map with the certificates to trust in addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "trustedCA")]
    pub trusted_ca: Option<super::NameReference>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The proxy in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatus {
    /// URL of the proxy for HTTP requests.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub http_proxy: String,

    /// URL of the proxy for HTTPS requests.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub https_proxy: String,

    /// Names, domains and networks that are reached without the proxy, separated by commas.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub no_proxy: String,

    /// Unknown fields.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
