//! CRIOCredentialProviderConfig: the images that machines pull with a namespace's own pull secrets. A cluster has one,
//! named `cluster`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The images that machines pull with a namespace's own pull secrets.
    CRIOCredentialProviderConfig, ClusterResourceScope, "config.openshift.io" / "v1",
    "criocredentialproviderconfigs",
    spec: CRIOCredentialProviderConfigSpec,
    status: CRIOCredentialProviderConfigStatus,
    unknown fields kept in extra
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CRIOCredentialProviderConfigSpec {
    /// Patterns of the images: a host with wildcards for whole labels, perhaps a port, perhaps the beginning of a path.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub match_images: Vec<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CRIOCredentialProviderConfigStatus {
    /// See [`crate::vocabulary::conditions::credential_provider`].
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    #[serde(flatten)]
    pub extra: Extra,
}
