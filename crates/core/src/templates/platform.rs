//! What the cluster runs on, as far as templates care: which layers of a tree apply, and the answers of the
//! functions that templates ask about the platform.

use mco_api::controller_config::ControllerConfigSpec;
use mco_api::foreign::infrastructure::{CloudLoadBalancerAddresses, OnPremisesStatus, PlatformStatus};
use mco_api::vocabulary::topology;

use super::TemplateError;
use crate::credential_provider;

const KNOWN: [&str; 16] = [
    "AWS",
    "AlibabaCloud",
    "Azure",
    "BareMetal",
    "EquinixMetal",
    "External",
    "GCP",
    "IBMCloud",
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

/// A view of a ControllerConfig that answers questions about the platform.
#[derive(Debug, Clone)]
pub(super) struct Platform {
    name: String,
    status: PlatformStatus,
    topology: String,
}

/// Which of a cloud's load balancers is meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoadBalancer {
    InternalApi,
    Api,
    Ingress,
}

impl Platform {
    pub fn of(spec: &ControllerConfigSpec) -> Result<Self, TemplateError> {
        let infra = spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
        let status = infra
            .and_then(|status| status.platform_status.clone())
            .filter(|status| !status.type_.is_empty())
            .ok_or(TemplateError::NoPlatform)?;
        if status.type_ == "_base" {
            return Err(TemplateError::UnsupportedPlatform(status.type_));
        }
        // An unknown platform brings nothing of its own, which is what None stands for.
        let name = if KNOWN.contains(&status.type_.as_str()) {
            status.type_.as_str()
        } else {
            "None"
        };
        Ok(Self {
            name: name.to_owned(),
            topology: infra
                .map(|status| status.control_plane_topology.clone())
                .unwrap_or_default(),
            status,
        })
    }

    /// As the cluster names it, known or not.
    pub fn type_name(&self) -> &str {
        &self.status.type_
    }

    pub fn has_arbiter(&self) -> bool {
        self.topology == topology::HIGHLY_AVAILABLE_ARBITER
    }

    /// The directories of a tree that apply, from the most general to the most specific.
    pub fn layers(&self) -> Vec<String> {
        let mut layers = vec!["_base".to_owned()];
        if self.is_on_premises() {
            layers.push("on-prem".to_owned());
        }
        if self.has_own_dns() {
            layers.push("cloud-platform-alt-dns".to_owned());
        }
        layers.push(self.name.to_lowercase());
        match self.topology.as_str() {
            topology::SINGLE_REPLICA => layers.push("sno".to_owned()),
            topology::DUAL_REPLICA => layers.push("two-node-with-fencing".to_owned()),
            _ => {}
        }
        layers
    }

    fn is_on_premises(&self) -> bool {
        ON_PREMISES.contains(&self.name.as_str())
    }

    /// Whether machines resolve the names of the cloud's load balancers themselves, and can.
    fn has_own_dns(&self) -> bool {
        self.cluster_hosted().is_some_and(|addresses| {
            !addresses.internal_api.is_empty() && !addresses.api.is_empty() && !addresses.ingress.is_empty()
        })
    }

    fn cluster_hosted(&self) -> Option<&CloudLoadBalancerAddresses> {
        let cloud = match self.name.as_str() {
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

    /// The kubelet's `--cloud-provider`.
    pub fn cloud_provider(&self) -> &'static str {
        let manager = self
            .status
            .external
            .as_ref()
            .and_then(|external| external.cloud_controller_manager.as_ref());
        let brings_manager =
            self.name == "External" && manager.is_some_and(|manager| manager.state == "External");
        if brings_manager || EXTERNAL_CLOUD_PROVIDER.contains(&self.name.as_str()) {
            "external"
        } else {
            ""
        }
    }

    /// The kubelet's flags for pulling from the cloud's own registry.
    pub fn credential_provider_flags(&self) -> String {
        credential_provider::of_platform(&self.name)
            .map(credential_provider::flags)
            .unwrap_or_default()
    }

    pub fn on_premises_short_name(&self) -> &'static str {
        match self.name.as_str() {
            "BareMetal" => "kni",
            "oVirt" => "ovirt",
            "OpenStack" => "openstack",
            "VSphere" => "vsphere",
            "Nutanix" => "nutanix",
            _ => "",
        }
    }

    pub fn api_server_addresses(&self) -> Result<Vec<String>, String> {
        let status = self.on_premises("API Server Internal IP")?;
        Ok(status
            .map(|s| addresses(&s.api_server_internal_ips, &s.api_server_internal_ip))
            .unwrap_or_default())
    }

    pub fn ingress_addresses(&self) -> Result<Vec<String>, String> {
        let status = self.on_premises("Ingress IP")?;
        Ok(status
            .map(|s| addresses(&s.ingress_ips, &s.ingress_ip))
            .unwrap_or_default())
    }

    /// Whether the cluster balances its own load.
    pub fn manages_load_balancer(&self) -> bool {
        let Ok(Some(status)) = self.on_premises("load balancer") else {
            return false;
        };
        let has_address =
            !addresses(&status.api_server_internal_ips, &status.api_server_internal_ip).is_empty();
        if self.name == "VSphere" && !has_address {
            return false;
        }
        let kind = status
            .load_balancer
            .as_ref()
            .map_or("", |balancer| balancer.type_.as_str());
        matches!(kind, "" | "OpenShiftManagedDefault")
    }

    pub fn dns_records_type(&self) -> String {
        let status = self.on_premises("DNS records").ok().flatten();
        let given = status.map(|status| status.dns_records_type.clone());
        given
            .filter(|kind| !kind.is_empty())
            .unwrap_or_else(|| "Internal".to_owned())
    }

    pub fn load_balancer_addresses(&self, which: LoadBalancer) -> Result<Vec<String>, String> {
        let hosted = self.cluster_hosted().ok_or_else(|| {
            format!(
                "platform {} has no load balancer addresses of its own",
                self.type_name()
            )
        })?;
        Ok(match which {
            LoadBalancer::InternalApi => hosted.internal_api.clone(),
            LoadBalancer::Api => hosted.api.clone(),
            LoadBalancer::Ingress => hosted.ingress.clone(),
        })
    }

    fn on_premises(&self, wanted: &str) -> Result<Option<&OnPremisesStatus>, String> {
        let status = match self.name.as_str() {
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

/// The list, or what old writers put into the single field.
fn addresses(list: &[String], single: &str) -> Vec<String> {
    if list.is_empty() && !single.is_empty() {
        return vec![single.to_owned()];
    }
    list.to_vec()
}
