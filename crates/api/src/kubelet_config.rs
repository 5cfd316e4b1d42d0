//! KubeletConfig: a user's settings for the kubelets of the pools it selects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::foreign::tls::TlsSecurityProfile;
use crate::resource::resource;
use crate::schema;
use crate::wire::{is_default, null_is_default};

resource! {
    /// How the kubelets of some pools are configured.
    KubeletConfig, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "kubeletconfigs",
    spec: KubeletConfigSpec,
    status: KubeletConfigStatus
}

impl Installable for KubeletConfig {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>("How the kubelets of some pools are configured.")
            .operator_managed()
            .spec::<KubeletConfigSpec>("What the user wants.")
            .status::<KubeletConfigStatus>("How far the controller has come with it.")
            .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfigSpec {
    /// Whether a machine computes its own system reservations from its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_sizing_reserved: Option<bool>,

    /// Fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) to set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub kubelet_config: Option<Value>,

    /// How much the kubelet logs, from 0 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub log_level: Option<i32>,

    /// Chooses the pools by their labels. Absent or empty, it chooses none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,

    /// TLS versions and ciphers that the kubelet offers, instead of the API server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfigStatus {
    /// The latest results, the last one at the end.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<NodeConfigCondition>,

    /// The generation of the spec that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}

/// One condition of a KubeletConfig or ContainerRuntimeConfig. See [`crate::vocabulary::conditions::node_config`]
/// for the types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeConfigCondition {
    /// When `status` changed last.
    #[schemars(schema_with = "schema::nullable_time")]
    pub last_transition_time: Option<Time>,

    /// What happened, for people.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub message: String,

    /// What happened, in one word for programs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub reason: String,

    /// True, False or Unknown.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,

    /// Which condition this is.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,
}
