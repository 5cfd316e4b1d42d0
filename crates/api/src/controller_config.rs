//! ControllerConfig: everything about the cluster that goes into rendering. The operator writes the only one.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_base::{ClusterBase, UnknownBase};
use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::foreign::dns::DNS;
use crate::foreign::infrastructure::Infrastructure;
use crate::foreign::network::MtuMigration;
use crate::foreign::proxy::ProxyStatus;
use crate::resource::resource;
use crate::schema;
use crate::vocabulary::annotations;
use crate::wire::{is_default, null_is_default};

/// The name of the one ControllerConfig of a cluster.
pub const CONTROLLER_CONFIG_NAME: &str = "machine-config-controller";

resource! {
    /// Facts about the cluster that every machine's configuration is rendered with.
    ControllerConfig, ClusterResourceScope, "machineconfiguration.openshift.io" / "v1", "controllerconfigs",
    spec: ControllerConfigSpec,
    status: ControllerConfigStatus
}

impl ControllerConfig {
    /// Returns the base of the cluster.
    pub fn base(&self) -> Result<ClusterBase, UnknownBase> {
        ClusterBase::of_annotations(self.metadata.annotations.as_ref())
    }

    /// Sets the base of the cluster. OpenShift's is the one of a ControllerConfig without the annotation.
    pub fn set_base(&mut self, base: ClusterBase) {
        let all = self.metadata.annotations.get_or_insert_default();
        if base == ClusterBase::default() {
            all.remove(annotations::BASE);
        } else {
            all.insert(annotations::BASE.to_owned(), base.to_string());
        }
    }
}

impl Installable for ControllerConfig {
    fn crd() -> CustomResourceDefinition {
        CrdDefinition::of::<Self>(
            "Facts about the cluster that every machine's configuration is rendered with.",
        )
        .operator_managed()
        .spec::<ControllerConfigSpec>("The facts. The operator writes them, users do not.")
        .status::<ControllerConfigStatus>("How the base configuration's rendering went.")
        .build()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = [
    "additionalTrustBundle",
    "baseOSContainerImage",
    "cloudProviderCAData",
    "cloudProviderConfig",
    "clusterDNSIP",
    "dns",
    "images",
    "infra",
    "ipFamilies",
    "kubeAPIServerServingCAData",
    "network",
    "proxy",
    "releaseImage",
    "rootCAData",
]))]
pub struct ControllerConfigSpec {
    /// Certificates that the machines trust in addition to their own.
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub additional_trust_bundle: Option<ByteString>,

    /// The operating system image of every pool that does not choose another.
    #[serde(rename = "baseOSContainerImage", deserialize_with = "null_is_default")]
    pub base_os_container_image: String,

    /// The image that extensions are installed from, for every pool that does not choose another.
    #[serde(
        rename = "baseOSExtensionsContainerImage",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub base_os_extensions_container_image: String,

    /// Certificates that the cloud provider's API is checked with.
    #[serde(rename = "cloudProviderCAData")]
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub cloud_provider_ca_data: Option<ByteString>,

    /// The cloud provider's configuration file.
    #[serde(deserialize_with = "null_is_default")]
    pub cloud_provider_config: String,

    /// Address of the cluster's DNS service.
    #[serde(rename = "clusterDNSIP", deserialize_with = "null_is_default")]
    pub cluster_dns_ip: String,

    /// The cluster's DNS settings.
    #[schemars(schema_with = "schema::embedded::dns")]
    pub dns: Option<DNS>,

    /// No longer used: the domain in which etcd members are found.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub etcd_discovery_domain: String,

    /// Certificates of the image registries that the cluster uses.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_data: Vec<ImageRegistryBundle>,

    /// Certificates of the image registries that the user added.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_user_data: Vec<ImageRegistryBundle>,

    /// Images that templates refer to, by key.
    #[serde(deserialize_with = "null_is_default")]
    pub images: BTreeMap<String, String>,

    /// The cluster's infrastructure.
    #[schemars(schema_with = "schema::embedded::infrastructure")]
    pub infra: Option<Infrastructure>,

    /// Credentials for the cluster's own registry.
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub internal_registry_pull_secret: Option<ByteString>,

    /// IPv4, IPv6, DualStack or DualStackIPv6Primary.
    #[serde(deserialize_with = "null_is_default")]
    pub ip_families: String,

    /// Certificates that kubelets authenticate the API server with. The daemon delivers them, templates do not.
    #[serde(rename = "kubeAPIServerServingCAData")]
    #[schemars(schema_with = "schema::bytes")]
    pub kube_api_server_serving_ca_data: ByteString,

    /// Changes of the network that are under way.
    #[schemars(extend("nullable" = true))]
    pub network: Option<NetworkInfo>,

    /// The cluster's network plugin.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub network_type: String,

    /// No longer used: the operating system image in its old format.
    #[serde(
        rename = "osImageURL",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub os_image_url: String,

    /// No longer used: the platform. See `infra`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub platform: String,

    /// The proxy that machines reach the outside through.
    #[schemars(extend("nullable" = true))]
    pub proxy: Option<ProxyStatus>,

    /// The secret with the credentials that machines pull images with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_reference")]
    pub pull_secret: Option<ObjectReference>,

    /// The image of the release that the cluster runs.
    #[serde(deserialize_with = "null_is_default")]
    pub release_image: String,

    /// Certificates that a machine's first boot authenticates the config server with.
    #[serde(rename = "rootCAData")]
    #[schemars(schema_with = "schema::bytes")]
    pub root_ca_data: ByteString,
}

/// A certificate bundle for one image registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["data", "file"]))]
pub struct ImageRegistryBundle {
    /// The certificates.
    #[schemars(schema_with = "schema::bytes")]
    pub data: ByteString,

    /// Name of the bundle, which is the registry's host with an optional port.
    #[serde(deserialize_with = "null_is_default")]
    pub file: String,
}

/// Changes of the network that machines take part in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["mtuMigration"]))]
pub struct NetworkInfo {
    /// The change of the MTU that is under way, if there is one.
    #[schemars(schema_with = "crate::foreign::network::mtu_migration_schema")]
    pub mtu_migration: Option<MtuMigration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerConfigStatus {
    /// How the rendering of the base configuration went, one entry per type.
    #[serde(deserialize_with = "null_is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ControllerConfigCondition>,

    /// The certificates found in the spec's bundles.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub controller_certificates: Vec<ControllerCertificate>,

    /// The generation of the spec that this status describes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}

/// One condition of the ControllerConfig. See [`crate::vocabulary::conditions::controller_config`] for the types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["lastTransitionTime", "status", "type"]))]
pub struct ControllerConfigCondition {
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

/// One certificate out of the spec's bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["bundleFile", "signer", "subject"]))]
pub struct ControllerCertificate {
    /// The bundle that holds the certificate.
    #[serde(deserialize_with = "null_is_default")]
    pub bundle_file: String,

    /// The end of its validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub not_after: Option<Time>,

    /// The start of its validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub not_before: Option<Time>,

    /// Who signed it.
    #[serde(deserialize_with = "null_is_default")]
    pub signer: String,

    /// Whom it names.
    #[serde(deserialize_with = "null_is_default")]
    pub subject: String,
}
