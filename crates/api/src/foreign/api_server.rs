//! APIServer: settings of the cluster's API server that others follow. A cluster has one, named `cluster`.

use serde::{Deserialize, Serialize};

use super::Extra;
use super::tls::TlsSecurityProfile;
use crate::resource::resource;

resource! {
    /// Settings of the cluster's API server that others follow.
    APIServer, ClusterResourceScope, "config.openshift.io" / "v1", "apiservers",
    spec: ApiServerSpec,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiServerSpec {
    /// TLS versions and ciphers. Absent, the set Intermediate applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
    #[serde(flatten)]
    pub extra: Extra,
}
