//! The schemas of the requested platforms.

use super::{endpoint, ip_address, machine_networks, platform, power_service_endpoints, service_endpoints};
use crate::schema::build::{Node, atomic_list_of, int32, list_by, object, set_of, string};

pub(super) fn platform_spec() -> Node {
    object()
        .about("The platform that was asked for.")
        .field("alibabaCloud", object().about("Alibaba Cloud."))
        .field("aws", object().about("Amazon Web Services.").field("serviceEndpoints", service_endpoints()))
        .field("azure", object().about("Azure."))
        .field("baremetal", with_virtual_addresses(object().about("Bare metal.")))
        .field("equinixMetal", object().about("Equinix Metal."))
        .field("external", external())
        .field("gcp", object().about("Google Cloud."))
        .field("ibmcloud", object().about("IBM Cloud."))
        .field("kubevirt", object().about("KubeVirt."))
        .field("nutanix", nutanix())
        .field("openstack", with_virtual_addresses(object().about("OpenStack.")))
        .field("ovirt", object().about("oVirt."))
        .field(
            "powervs",
            object().about("Power Virtual Server.").field("serviceEndpoints", power_service_endpoints()),
        )
        .field("type", platform().about("Which platform."))
        .field("vsphere", vsphere())
        .rule(
            "!has(oldSelf.vsphere) && has(self.vsphere) ? (has(self.vsphere.vcenters) && size(self.vsphere.vcenters) < 2) : true",
            "vcenters can have at most 1 item when configured post-install",
        )
}

/// A platform whose virtual addresses move between the machines.
fn with_virtual_addresses(platform: Node) -> Node {
    let addresses = |name: &str, description: &str| {
        atomic_list_of(ip_address())
            .max_items(2)
            .rule(
                "size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true",
                &format!("{name} must contain at most one IPv4 address and at most one IPv6 address"),
            )
            .about(description)
    };
    platform
        .field(
            "apiServerInternalIPs",
            addresses(
                "apiServerInternalIPs",
                "Addresses that machines reach the API server at.",
            ),
        )
        .field(
            "ingressIPs",
            addresses("ingressIPs", "Addresses that users reach applications at."),
        )
        .field("machineNetworks", machine_networks())
        .rule(
            "!has(oldSelf.apiServerInternalIPs) || has(self.apiServerInternalIPs)",
            "apiServerInternalIPs list is required once set",
        )
        .rule(
            "!has(oldSelf.ingressIPs) || has(self.ingressIPs)",
            "ingressIPs list is required once set",
        )
}

fn external() -> Node {
    object()
        .about("A platform that brings its own components.")
        .field(
            "platformName",
            string()
                .default_to("Unknown")
                .rule(
                    "oldSelf == 'Unknown' || self == oldSelf",
                    "platform name cannot be changed once set",
                )
                .about("What the platform calls itself."),
        )
}

fn nutanix() -> Node {
    let identifier = |description: &str| {
        object()
            .about(description)
            .required(
                "type",
                string()
                    .one_of(&["UUID", "Name"])
                    .about("By which of the two it is identified."),
            )
            .field("name", string().about("Its name."))
            .field("uuid", string().about("Its UUID."))
            .rule(
                "has(self.type) && self.type == 'UUID' ?  has(self.uuid) : !has(self.uuid)",
                "uuid configuration is required when type is UUID, and forbidden otherwise",
            )
            .rule(
                "has(self.type) && self.type == 'Name' ?  has(self.name) : !has(self.name)",
                "name configuration is required when type is Name, and forbidden otherwise",
            )
    };
    let failure_domain = object()
        .about("One failure domain.")
        .required("cluster", identifier("The Prism Element cluster."))
        .required(
            "name",
            string()
                .length(1, 64)
                .pattern("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
                .about("Name of the domain."),
        )
        .required(
            "subnets",
            atomic_list_of(identifier("One subnet."))
                .min_items(1)
                .max_items(1)
                .about("The machines' subnets."),
        );
    let element = object()
        .about("One Prism Element.")
        .required("endpoint", endpoint().about("Where it is reached."))
        .required(
            "name",
            string().max_length(256).about("Name of the Prism Element."),
        );
    object()
        .about("Nutanix.")
        .field(
            "failureDomains",
            list_by(&["name"], failure_domain).about("Failure domains."),
        )
        .required(
            "prismCentral",
            endpoint().about("Where Prism Central is reached."),
        )
        .required(
            "prismElements",
            list_by(&["name"], element).about("The Prism Elements below it."),
        )
}

fn vsphere() -> Node {
    let vcenter = object()
        .about("One vCenter.")
        .required(
            "datacenters",
            set_of(string())
                .min_items(1)
                .about("Its datacenters that are used."),
        )
        .field("port", int32().range(1, 32767).about("Its port."))
        .required(
            "server",
            string().max_length(255).about("Its host name or address."),
        );
    let vcenters = atomic_list_of(vcenter)
        .min_items(1)
        .max_items(3)
        .rule(
            "self.all(x, self.exists_one(y, y.server == x.server))",
            "vcenters must have unique server values",
        )
        .about("The vCenters.");
    with_virtual_addresses(object().about("vSphere."))
        .field(
            "failureDomains",
            list_by(&["name"], vsphere_failure_domain()).about("Failure domains."),
        )
        .field("nodeNetworking", vsphere_networking())
        .field("vcenters", vcenters)
}

fn vsphere_failure_domain() -> Node {
    object()
        .about("One failure domain.")
        .required("name", string().length(1, 256).about("Name of the domain."))
        .required("region", string().length(1, 80).about("Tag of the region."))
        .field(
            "regionAffinity",
            object().about("What a region is.").required(
                "type",
                string().one_of(&["ComputeCluster", "Datacenter"]).about("A compute cluster or a datacenter."),
            ),
        )
        .required("server", string().length(1, 255).about("The vCenter."))
        .required("topology", vsphere_topology())
        .required("zone", string().length(1, 80).about("Tag of the zone."))
        .field("zoneAffinity", vsphere_zone_affinity())
        .rule(
            "has(self.zoneAffinity) && self.zoneAffinity.type == 'HostGroup' ?  has(self.regionAffinity) && self.regionAffinity.type == 'ComputeCluster' : true",
            "when zoneAffinity type is HostGroup, regionAffinity type must be ComputeCluster",
        )
        .rule(
            "has(self.zoneAffinity) && self.zoneAffinity.type == 'ComputeCluster' ?  has(self.regionAffinity) && self.regionAffinity.type == 'Datacenter' : true",
            "when zoneAffinity type is ComputeCluster, regionAffinity type must be Datacenter",
        )
}

fn vsphere_topology() -> Node {
    let path =
        |pattern: &str, description: &str| string().max_length(2048).pattern(pattern).about(description);
    object()
        .about("Where machines are created.")
        .required(
            "computeCluster",
            path("^/.*?/host/.*?", "Path of the compute cluster."),
        )
        .required(
            "datacenter",
            string().max_length(80).about("Name of the datacenter."),
        )
        .required("datastore", path("^/.*?/datastore/.*?", "Path of the datastore."))
        .field("folder", path("^/.*?/vm/.*?", "Path of the folder."))
        .required(
            "networks",
            atomic_list_of(string())
                .min_items(1)
                .max_items(10)
                .about("The machines' networks."),
        )
        .field(
            "resourcePool",
            path("^/.*?/host/.*?/Resources.*", "Path of the resource pool."),
        )
        .field(
            "template",
            path("^/.*?/vm/.*?", "Path of the template.").min_length(1),
        )
}

fn vsphere_zone_affinity() -> Node {
    let host_group = object()
        .about("For the type HostGroup.")
        .required("hostGroup", string().length(1, 80).about("Group of hosts."))
        .required(
            "vmGroup",
            string().length(1, 80).about("Group of virtual machines."),
        )
        .required(
            "vmHostRule",
            string().length(1, 80).about("Rule that binds the two."),
        );
    object()
        .about("What a zone is.")
        .field("hostGroup", host_group)
        .required(
            "type",
            string()
                .one_of(&["HostGroup", "ComputeCluster"])
                .about("A group of hosts or a compute cluster."),
        )
        .rule(
            "has(self.type) && self.type == 'HostGroup' ?  has(self.hostGroup) : !has(self.hostGroup)",
            "hostGroup is required when type is HostGroup, and forbidden otherwise",
        )
}

fn vsphere_networking() -> Node {
    let side = |description: &str| {
        object()
            .about(description)
            .field(
                "excludeNetworkSubnetCidr",
                atomic_list_of(string()).about("Networks whose addresses are not used."),
            )
            .field(
                "network",
                string().about("The virtual machine network whose address is used."),
            )
            .field(
                "networkSubnetCidr",
                set_of(string()).about("Networks whose addresses are used."),
            )
    };
    object()
        .about("Which of a machine's addresses are which.")
        .field("external", side("Addresses that the outside sees."))
        .field("internal", side("Addresses that the cluster uses."))
}
