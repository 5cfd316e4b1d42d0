//! Schemas of the foreign resources that a ControllerConfig carries whole. Their types name only the fields this
//! program uses; what may be in them is written here in full, so that the copy is held to the same rules as the
//! original.

mod dns;
mod infrastructure;
mod platform_spec;
mod platform_status;

pub(crate) use dns::dns;
pub(crate) use infrastructure::infrastructure;

use super::build::{Node, atomic_list_of, int32, object, string};

/// The platforms that a cluster can run on.
const PLATFORMS: &[&str] = &[
    "",
    "AWS",
    "Azure",
    "BareMetal",
    "GCP",
    "Libvirt",
    "OpenStack",
    "None",
    "VSphere",
    "oVirt",
    "IBMCloud",
    "KubeVirt",
    "EquinixMetal",
    "PowerVS",
    "AlibabaCloud",
    "Nutanix",
    "External",
];

/// A resource inside another: with its own apiVersion, kind and metadata.
fn embedded_resource() -> Node {
    object()
        .nullable()
        .with("x-kubernetes-embedded-resource", true)
        .field(
            "apiVersion",
            string().about("Group and version of the embedded object."),
        )
        .field("kind", string().about("Kind of the embedded object."))
        .field("metadata", object())
}

fn platform() -> Node {
    string().one_of(PLATFORMS)
}

/// An address that is checked.
fn ip_address() -> Node {
    string()
        .length(1, 39)
        .rule("isIP(self)", "value must be a valid IP address")
}

/// Networks that the machines are in.
fn machine_networks() -> Node {
    let network = string()
        .length(1, 43)
        .rule("isCIDR(self)", "value must be a valid CIDR network address");
    atomic_list_of(network)
        .max_items(32)
        .rule_without_message("self.all(x, self.exists_one(y, x == y))")
        .about("Networks that the machines are in.")
}

/// A host and a port.
fn endpoint() -> Node {
    object()
        .required("address", string().max_length(256).about("Host name or address."))
        .required("port", int32().range(1, 65535).about("Port."))
}

/// Another URL for one of a cloud's services, for clouds with any services.
fn service_endpoints() -> Node {
    let endpoint = object()
        .about("One service.")
        .field("name", string().pattern("^[a-z0-9-]+$").about("The service."))
        .field("url", string().pattern("^https://").about("Its URL."));
    atomic_list_of(endpoint).about("Services that are reached at other URLs.")
}

/// The same for Power VS.
fn power_service_endpoints() -> Node {
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
                    "Power",
                    "ResourceController",
                    "ResourceManager",
                    "VPC",
                ])
                .about("The service."),
        )
        .required(
            "url",
            string().format("uri").pattern("^https://").about("Its URL."),
        );
    super::build::list_by(&["name"], endpoint).about("Services that are reached at other URLs.")
}
