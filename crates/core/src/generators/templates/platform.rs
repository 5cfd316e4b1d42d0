//! The cluster's platform: which layers of a template tree apply, and the template functions that depend on the
//! platform.

use mco_api::controller_config::ControllerConfigSpec;
use mco_api::foreign::infrastructure::{CloudLoadBalancerAddresses, OnPremisesStatus, PlatformStatus};
use mco_api::vocabulary::topology;

use super::TemplateError;
use crate::generators::credential_provider;

/// Platforms that a tree may have a layer for. All others use the layer of `None`.
const WITH_LAYER: [&str; 13] = [
    "AWS",
    "Azure",
    "BareMetal",
    "External",
    "GCP",
    "KubeVirt",
    "Libvirt",
    "None",
    "Nutanix",
    "OpenStack",
    "PowerVS",
    "VSphere",
    "oVirt",
];
const ON_PREMISES: [&str; 5] = ["BareMetal", "Nutanix", "OpenStack", "VSphere", "oVirt"];
const EXTERNAL_CLOUD_PROVIDER: [&str; 10] = [
    "AWS",
    "AlibabaCloud",
    "Azure",
    "GCP",
    "IBMCloud",
    "KubeVirt",
    "Nutanix",
    "OpenStack",
    "PowerVS",
    "VSphere",
];

/// The platform settings of a ControllerConfig.
#[derive(Debug, Clone)]
pub(super) struct TemplatePlatform {
    status: PlatformStatus,
    topology: String,
}

/// The load balancers of a cloud.
#[derive(Debug, Clone, Copy)]
pub(super) enum TemplateLoadBalancer {
    InternalApi,
    Api,
    Ingress,
}

impl TemplatePlatform {
    pub fn of(spec: &ControllerConfigSpec) -> Result<Self, TemplateError> {
        let infra = spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
        let status = infra
            .and_then(|status| status.platform_status.clone())
            .filter(|status| !status.type_.is_empty())
            .ok_or(TemplateError::NoPlatform)?;
        if status.type_ == "_base" {
            return Err(TemplateError::UnsupportedPlatform(status.type_));
        }
        Ok(Self {
            topology: infra
                .map(|status| status.control_plane_topology.clone())
                .unwrap_or_default(),
            status,
        })
    }

    /// Returns the platform type in the cluster's spelling.
    pub fn type_name(&self) -> &str {
        &self.status.type_
    }

    pub fn has_arbiter(&self) -> bool {
        self.topology == topology::HIGHLY_AVAILABLE_ARBITER
    }

    /// Returns the directories of a tree that apply, from the most general to the most specific.
    pub fn layers(&self) -> Vec<String> {
        let mut layers = vec!["_base".to_owned()];
        if self.is_on_premises() {
            layers.push("on-prem".to_owned());
        }
        if self.has_own_dns() {
            layers.push("cloud-platform-alt-dns".to_owned());
        }
        let own = Some(self.type_name()).filter(|name| WITH_LAYER.contains(name));
        layers.push(own.unwrap_or("None").to_lowercase());
        match self.topology.as_str() {
            topology::SINGLE_REPLICA => layers.push("sno".to_owned()),
            topology::DUAL_REPLICA => layers.push("two-node-with-fencing".to_owned()),
            _ => {}
        }
        layers
    }

    fn is_on_premises(&self) -> bool {
        ON_PREMISES.contains(&self.type_name())
    }

    /// Whether nodes resolve the names of the cloud's load balancers themselves, because the cluster hosts its own
    /// DNS.
    fn has_own_dns(&self) -> bool {
        self.cluster_hosted().is_some()
    }

    fn cluster_hosted(&self) -> Option<&CloudLoadBalancerAddresses> {
        let cloud = match self.type_name() {
            "AWS" => self.status.aws.as_ref(),
            "Azure" => self.status.azure.as_ref(),
            "GCP" => self.status.gcp.as_ref(),
            _ => None,
        };
        let config = cloud?.cloud_load_balancer_config.as_ref()?;
        config
            .cluster_hosted
            .as_ref()
            .filter(|_| config.dns_type == "ClusterHosted")
    }

    /// Returns the value of the kubelet's `--cloud-provider`.
    pub fn cloud_provider(&self) -> &'static str {
        let manager = self
            .status
            .external
            .as_ref()
            .and_then(|external| external.cloud_controller_manager.as_ref());
        let brings_manager =
            self.type_name() == "External" && manager.is_some_and(|manager| manager.state == "External");
        if brings_manager || EXTERNAL_CLOUD_PROVIDER.contains(&self.type_name()) {
            "external"
        } else {
            ""
        }
    }

    /// Returns the kubelet's flags for pulling from the cloud's own registry.
    pub fn credential_provider_flags(&self) -> String {
        credential_provider::of_platform(self.type_name())
            .map(credential_provider::flags)
            .unwrap_or_default()
    }

    pub fn on_premises_short_name(&self) -> &'static str {
        match self.type_name() {
            "BareMetal" => "kni",
            "oVirt" => "ovirt",
            "OpenStack" => "openstack",
            "VSphere" => "vsphere",
            "Nutanix" => "nutanix",
            _ => "",
        }
    }

    pub fn api_server_addresses(&self) -> Result<&[String], String> {
        self.addresses("API Server Internal IP", |status| &status.api_server_internal_ips)
    }

    pub fn ingress_addresses(&self) -> Result<&[String], String> {
        self.addresses("Ingress IP", |status| &status.ingress_ips)
    }

    /// Returns the first address. Only vSphere may have none: with user-provisioned infrastructure there are no
    /// addresses.
    pub fn first_address<'a>(&self, addresses: &'a [String]) -> Result<Option<&'a str>, String> {
        match addresses.first() {
            Some(first) => Ok(Some(first)),
            None if self.type_name() == "VSphere" => Ok(None),
            None => Err(format!("platform {} has no addresses", self.type_name())),
        }
    }

    /// Returns the addresses of the list; the single address that older writers set in addition is ignored.
    fn addresses(
        &self,
        wanted: &str,
        choose: fn(&OnPremisesStatus) -> &Vec<String>,
    ) -> Result<&[String], String> {
        match self.on_premises(wanted)? {
            Some(status) => Ok(choose(status)),
            None if self.type_name() == "VSphere" => Ok(&[]),
            None => Err(format!("platform {} has no status of its own", self.type_name())),
        }
    }

    /// Whether the cluster manages its own load balancer. True on a platform without this setting.
    pub fn manages_load_balancer(&self) -> bool {
        let Ok(status) = self.on_premises("load balancer") else {
            return true;
        };
        let Some(status) = status else {
            return false;
        };
        if self.type_name() == "VSphere" && status.api_server_internal_ips.is_empty() {
            return false;
        }
        let balancer = status.load_balancer.as_ref();
        balancer.is_none_or(|balancer| balancer.type_ == "OpenShiftManagedDefault")
    }

    pub fn dns_records_type(&self) -> &str {
        let status = self.on_premises("DNS records").ok().flatten();
        let given = status.filter(|_| self.type_name() != "oVirt");
        given.map_or("Internal", |status| &status.dns_records_type)
    }

    pub fn load_balancer_addresses(&self, which: TemplateLoadBalancer) -> Result<Vec<String>, String> {
        let hosted = self.cluster_hosted().ok_or_else(|| {
            format!(
                "platform {} has no load balancer addresses of its own",
                self.type_name()
            )
        })?;
        Ok(match which {
            TemplateLoadBalancer::InternalApi => hosted.internal_api.clone(),
            TemplateLoadBalancer::Api => hosted.api.clone(),
            TemplateLoadBalancer::Ingress => hosted.ingress.clone(),
        })
    }

    fn on_premises(&self, wanted: &str) -> Result<Option<&OnPremisesStatus>, String> {
        let status = match self.type_name() {
            "BareMetal" => &self.status.baremetal,
            "Nutanix" => &self.status.nutanix,
            "OpenStack" => &self.status.openstack,
            "VSphere" => &self.status.vsphere,
            "oVirt" => &self.status.ovirt,
            _ => return Err(format!("invalid platform for {wanted}: {}", self.type_name())),
        };
        Ok(status.as_ref())
    }
}
