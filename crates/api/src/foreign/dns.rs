//! The cluster's DNS settings.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The domain that the cluster's names are below, and the zones that serve it.
    DNS, ClusterResourceScope, "config.openshift.io" / "v1", "dnses",
    spec: DnsSpec,
    unknown fields kept in extra
}

/// The cluster's domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsSpec {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub base_domain: String,
    #[serde(flatten)]
    pub extra: Extra,
}
