//! The schemas of the observed platforms.

use serde_json::json;

use super::{ip_address, machine_networks, platform, power_service_endpoints, service_endpoints};
use crate::schema::build::{Node, atomic_list_of, list_by, object, set_of, string};

pub(super) fn platform_status() -> Node {
    object()
        .about("The platform, and what only it has.")
        .field("alibabaCloud", alibaba_cloud())
        .field("aws", aws())
        .field("azure", azure())
        .field(
            "baremetal",
            on_premises("Bare metal.", atomic_list_of)
                .field("machineNetworks", machine_networks())
                .field("nodeDNSIP", node_dns()),
        )
        .field(
            "equinixMetal",
            with_old_addresses(object().about("Equinix Metal.")),
        )
        .field("external", external())
        .field("gcp", gcp())
        .field("ibmcloud", ibm_cloud())
        .field("kubevirt", with_old_addresses(object().about("KubeVirt.")))
        .field("nutanix", on_premises("Nutanix.", set_of))
        .field(
            "openstack",
            on_premises("OpenStack.", atomic_list_of)
                .field(
                    "cloudName",
                    string().about("Name of the cloud in the client's configuration."),
                )
                .field("machineNetworks", machine_networks())
                .field("nodeDNSIP", node_dns()),
        )
        .field(
            "ovirt",
            on_premises("oVirt.", set_of).field("nodeDNSIP", node_dns()),
        )
        .field("powervs", power_vs())
        .field("type", platform().about("Which platform."))
        .field(
            "vsphere",
            on_premises("vSphere.", atomic_list_of)
                .field("machineNetworks", machine_networks())
                .field("nodeDNSIP", node_dns()),
        )
}

/// A platform whose virtual addresses move between the machines. `list` sets the list type of the addresses.
fn on_premises(description: &str, list: fn(Node) -> Node) -> Node {
    let addresses = |name: &str, description: &str| {
        list(string())
            .format("ip")
            .max_items(2)
            .rule(
                "self == oldSelf || (size(self) == 2 && isIP(self[0]) && isIP(self[1]) ? ip(self[0]).family() != ip(self[1]).family() : true)",
                &format!("{name} must contain at most one IPv4 address and at most one IPv6 address"),
            )
            .about(description)
    };
    let load_balancer = object()
        .about("Who balances the load.")
        .default_to(json!({"type": "OpenShiftManagedDefault"}))
        .field(
            "type",
            string()
                .default_to("OpenShiftManagedDefault")
                .one_of(&["OpenShiftManagedDefault", "UserManaged"])
                .rule("oldSelf == '' || self == oldSelf", "type is immutable once set")
                .about("The cluster itself, or the user."),
        );
    with_old_addresses(object().about(description))
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
        .field("loadBalancer", load_balancer)
}

fn with_old_addresses(platform: Node) -> Node {
    platform
        .field(
            "apiServerInternalIP",
            string().about("The address that machines reach the API server at."),
        )
        .field(
            "ingressIP",
            string().about("The address that users reach applications at."),
        )
}

fn node_dns() -> Node {
    string().about("No longer used.")
}

/// The DNS of a cloud's load balancers.
fn cloud_load_balancer() -> Node {
    let addresses = |description: &str| set_of(ip_address()).format("ip").max_items(16).about(description);
    let cluster_hosted = object()
        .about("The load balancers' addresses, for the type ClusterHosted.")
        .field(
            "apiIntLoadBalancerIPs",
            addresses("Addresses for machines that reach the API server."),
        )
        .field(
            "apiLoadBalancerIPs",
            addresses("Addresses for users who reach the API server."),
        )
        .field(
            "ingressLoadBalancerIPs",
            addresses("Addresses for users who reach applications."),
        );
    object()
        .about("Who serves the names of the load balancers.")
        .default_to(json!({"dnsType": "PlatformDefault"}))
        .field("clusterHosted", cluster_hosted)
        .field(
            "dnsType",
            string()
                .default_to("PlatformDefault")
                .one_of(&["ClusterHosted", "PlatformDefault"])
                .rule("oldSelf == '' || self == oldSelf", "dnsType is immutable")
                .about("The cluster itself, or the platform."),
        )
        .rule(
            "has(self.dnsType) && self.dnsType != 'ClusterHosted' ? !has(self.clusterHosted) : true",
            "clusterHosted is permitted only when dnsType is ClusterHosted",
        )
}

/// A tag of what the cluster creates.
fn tag(key: Node, value: Node) -> Node {
    object()
        .about("One tag.")
        .required("key", key.about("Its key."))
        .required("value", value.about("Its value."))
}

fn alibaba_cloud() -> Node {
    object()
        .about("Alibaba Cloud.")
        .required("region", string().pattern("^[0-9A-Za-z-]+$").about("The region."))
        .field(
            "resourceGroupID",
            string()
                .pattern("^(rg-[0-9A-Za-z]+)?$")
                .about("The resource group."),
        )
        .field(
            "resourceTags",
            list_by(&["key"], tag(string().length(1, 128), string().length(1, 128)))
                .max_items(20)
                .about("Tags of what the cluster creates."),
        )
}

fn aws() -> Node {
    let text = |most: u32, what: &str| {
        string().length(1, most).rule(
            "self.matches('^[0-9A-Za-z_.:/=+-@ ]+$')",
            &format!(
                "invalid AWS resource tag {what}. The string can contain only the set of alphanumeric characters, \
                 space (' '), '_', '.', '/', '=', '+', '-', ':', '@'"
            ),
        )
    };
    object()
        .about("Amazon Web Services.")
        .field("cloudLoadBalancerConfig", cloud_load_balancer().nullable())
        .field(
            "ipFamily",
            string()
                .default_to("IPv4")
                .one_of(&["IPv4", "DualStackIPv6Primary", "DualStackIPv4Primary"])
                .rule(
                    "oldSelf == '' || self == oldSelf",
                    "ipFamily is immutable once set",
                )
                .about("The kinds of addresses that machines have."),
        )
        .field("region", string().about("The region."))
        .field(
            "resourceTags",
            atomic_list_of(tag(text(128, "key"), text(256, "value")))
                .max_items(25)
                .about("Tags of what the cluster creates."),
        )
        .field("serviceEndpoints", service_endpoints())
}

fn azure() -> Node {
    let tags = atomic_list_of(tag(
        string()
            .length(1, 128)
            .pattern("^[a-zA-Z]([0-9A-Za-z_.-]*[0-9A-Za-z_])?$"),
        string().length(1, 256).pattern("^[0-9A-Za-z_.=+-@]+$"),
    ));
    object()
        .about("Azure.")
        .field(
            "armEndpoint",
            string().about("URL of the resource manager, for Azure Stack."),
        )
        .field("cloudLoadBalancerConfig", cloud_load_balancer())
        .field(
            "cloudName",
            string()
                .one_of(&[
                    "",
                    "AzurePublicCloud",
                    "AzureUSGovernmentCloud",
                    "AzureChinaCloud",
                    "AzureGermanCloud",
                    "AzureStackCloud",
                    "AzureUSSecCloud",
                ])
                .about("Which of the Azure clouds."),
        )
        .field(
            "networkResourceGroupName",
            string().about("The resource group of the network."),
        )
        .field(
            "resourceGroupName",
            string().about("The resource group of the cluster."),
        )
        .field(
            "resourceTags",
            fixed_at_installation("resourceTags", tags.max_items(10)),
        )
        .rule(
            &only_at_installation("resourceTags"),
            "resourceTags may only be configured during installation",
        )
}

fn gcp() -> Node {
    let labels = list_by(
        &["key"],
        tag(
            string().length(1, 63).pattern("^[a-z][0-9a-z_-]{0,62}$").rule(
                "!self.startsWith('openshift-io') && !self.startsWith('kubernetes-io')",
                "label keys must not start with either `openshift-io` or `kubernetes-io`",
            ),
            string().length(1, 63).pattern("^[0-9a-z_-]{1,63}$"),
        ),
    );
    let tags = list_by(
        &["key"],
        tag(
            string()
                .length(1, 63)
                .pattern("^[a-zA-Z0-9]([0-9A-Za-z_.-]{0,61}[a-zA-Z0-9])?$"),
            string()
                .length(1, 63)
                .pattern(r"^[a-zA-Z0-9]([0-9A-Za-z_.@%=+:,*#&()\[\]{}\-\s]{0,61}[a-zA-Z0-9])?$"),
        )
        .required(
            "parentID",
            string()
                .length(1, 32)
                .pattern("(^[1-9][0-9]{0,31}$)|(^[a-z][a-z0-9-]{4,28}[a-z0-9]$)")
                .about("The organisation or project that the tag belongs to."),
        ),
    );
    object()
        .about("Google Cloud.")
        .field("cloudLoadBalancerConfig", cloud_load_balancer().nullable())
        .field("projectID", string().about("The project."))
        .field("region", string().about("The region."))
        .field(
            "resourceLabels",
            fixed_at_installation("resourceLabels", labels.max_items(32)),
        )
        .field(
            "resourceTags",
            fixed_at_installation("resourceTags", tags.max_items(50)),
        )
        .rule(
            &only_at_installation("resourceLabels"),
            "resourceLabels may only be configured during installation",
        )
        .rule(
            &only_at_installation("resourceTags"),
            "resourceTags may only be configured during installation",
        )
}

/// A list that is immutable after installation.
fn fixed_at_installation(name: &str, list: Node) -> Node {
    list.rule(
        "self.all(x, x in oldSelf) && oldSelf.all(x, x in self)",
        &format!("{name} are immutable and may only be configured during installation"),
    )
    .about("Marks of what the cluster creates.")
}

/// A rule for a field that can neither be added nor removed after installation.
fn only_at_installation(name: &str) -> String {
    format!("!has(oldSelf.{name}) && !has(self.{name}) || has(oldSelf.{name}) && has(self.{name})")
}

fn external() -> Node {
    let manager = object()
        .about("The cloud controller manager that the platform brings.")
        .field(
            "state",
            string()
                .one_of(&["", "External", "None"])
                .rule("self == oldSelf", "state is immutable once set")
                .about("Whether it brings one."),
        )
        .rule(
            "(has(self.state) == has(oldSelf.state)) || (!has(oldSelf.state) && self.state != \"External\")",
            "state may not be added or removed once set",
        );
    object()
        .about("A platform that brings its own components.")
        .field("cloudControllerManager", manager)
        .rule(
            "has(self.cloudControllerManager) == has(oldSelf.cloudControllerManager)",
            "cloudControllerManager may not be added or removed once set",
        )
}

fn ibm_cloud() -> Node {
    let endpoint = object()
        .about("One service.")
        .required(
            "name",
            string()
                .one_of(&[
                    "CIS",
                    "COS",
                    "COSConfig",
                    "DNSServices",
                    "GlobalCatalog",
                    "GlobalSearch",
                    "GlobalTagging",
                    "HyperProtect",
                    "IAM",
                    "KeyProtect",
                    "ResourceController",
                    "ResourceManager",
                    "VPC",
                ])
                .about("The service."),
        )
        .required(
            "url",
            string()
                .max_length(300)
                .rule("isURL(self)", "url must be a valid absolute URL")
                .about("Its URL."),
        );
    with_dns_instances(object().about("IBM Cloud."))
        .field("location", string().about("The location."))
        .field("providerType", string().about("The kind of cluster."))
        .field("resourceGroupName", string().about("The resource group."))
        .field(
            "serviceEndpoints",
            list_by(&["name"], endpoint).about("Services that are reached at other URLs."),
        )
}

fn power_vs() -> Node {
    with_dns_instances(object().about("Power Virtual Server."))
        .field("region", string().about("The region."))
        .field(
            "resourceGroup",
            string()
                .max_length(40)
                .pattern("^[a-zA-Z0-9-_ ]+$")
                .rule(
                    "oldSelf == '' || self == oldSelf",
                    "resourceGroup is immutable once set",
                )
                .about("The resource group."),
        )
        .field("serviceEndpoints", power_service_endpoints())
        .field("zone", string().about("The zone."))
        .rule(
            "!has(oldSelf.resourceGroup) || has(self.resourceGroup)",
            "cannot unset resourceGroup once set",
        )
}

fn with_dns_instances(platform: Node) -> Node {
    platform
        .field(
            "cisInstanceCRN",
            string().about("The Internet Services instance that serves public names."),
        )
        .field(
            "dnsInstanceCRN",
            string().about("The DNS Services instance that serves private names."),
        )
}
