//! Infrastructure: the platform that the cluster runs on.

use serde::{Deserialize, Serialize};

use super::Extra;
use crate::resource::resource;
use crate::wire::{is_default, null_is_default};

resource! {
    /// The platform below the cluster, its topology and the addresses of its API.
    Infrastructure, ClusterResourceScope, "config.openshift.io" / "v1", "infrastructures",
    spec: InfrastructureSpec,
    status: InfrastructureStatus,
    unknown fields kept in extra
}

/// The platform requested at installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureSpec {
    /// The config map, and the key in it, with the cloud provider's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_config: Option<CloudConfigReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_spec: Option<PlatformSpec>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where the cloud provider's configuration is found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudConfigReference {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub name: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub key: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The requested platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlatformSpec {
    #[serde(
        rename = "type",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub type_: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The observed platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// URL that machines reach the API server at.
    #[serde(
        rename = "apiServerInternalURI",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub api_server_internal_uri: String,
    /// URL that users reach the API server at.
    #[serde(
        rename = "apiServerURL",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub api_server_url: String,
    /// See [`crate::vocabulary::topology`].
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub control_plane_topology: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub cpu_partitioning: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub etcd_discovery_domain: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub infrastructure_name: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub infrastructure_topology: String,
    /// Deprecated; see `platform_status`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub platform: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The platform, and what only it has, under the member named after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlatformStatus {
    #[serde(
        rename = "type",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub type_: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<CloudStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<CloudStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<CloudStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremisesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<OnPremisesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OnPremisesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<OnPremisesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<OnPremisesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStatus>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A cloud whose load balancers the cluster may have to serve the names of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudStatus {
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_load_balancer_config: Option<CloudLoadBalancerConfig>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The DNS of a cloud's load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudLoadBalancerConfig {
    /// `ClusterHosted` or `PlatformDefault`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub dns_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_hosted: Option<CloudLoadBalancerAddresses>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The addresses of a cloud's load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudLoadBalancerAddresses {
    #[serde(
        rename = "apiIntLoadBalancerIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub internal_api: Vec<String>,
    #[serde(
        rename = "apiLoadBalancerIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub api: Vec<String>,
    #[serde(
        rename = "ingressLoadBalancerIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub ingress: Vec<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A platform without load balancers of its own: virtual addresses move between the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnPremisesStatus {
    /// The first of `api_server_internal_ips`, kept for old readers.
    #[serde(
        rename = "apiServerInternalIP",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub api_server_internal_ip: String,
    #[serde(
        rename = "apiServerInternalIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub api_server_internal_ips: Vec<String>,
    /// The first of `ingress_ips`, kept for old readers.
    #[serde(
        rename = "ingressIP",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub ingress_ip: String,
    #[serde(
        rename = "ingressIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub ingress_ips: Vec<String>,
    #[serde(
        rename = "nodeDNSIP",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub node_dns_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub dns_records_type: String,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub machine_networks: Vec<String>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// The load balancer of a platform that does not provide one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    /// `OpenShiftManagedDefault` or `UserManaged`.
    #[serde(
        rename = "type",
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub type_: String,
    #[serde(flatten)]
    pub extra: Extra,
}

/// A platform that brings its own components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_controller_manager: Option<CloudControllerManager>,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether an external platform provides a cloud controller manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudControllerManager {
    /// `External`, `None` or empty.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub state: String,
    #[serde(flatten)]
    pub extra: Extra,
}
