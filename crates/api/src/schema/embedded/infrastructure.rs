//! The schema of Infrastructure.

use schemars::{Schema, SchemaGenerator};

use super::{embedded_resource, platform, platform_spec, platform_status};
use crate::schema::build::{Node, object, string};

pub(crate) fn infrastructure(_: &mut SchemaGenerator) -> Schema {
    embedded_resource()
        .required("spec", spec())
        .field("status", status())
        .into()
}

fn spec() -> Node {
    let cloud_config = object()
        .about("The config map with the cloud provider's configuration.")
        .field("key", string().about("The key in the config map."))
        .field("name", string().about("Name of the config map."));
    object()
        .about("What was asked for.")
        .field("cloudConfig", cloud_config)
        .field("platformSpec", platform_spec::platform_spec())
}

fn status() -> Node {
    object()
        .about("What the cluster turned out to be.")
        .field(
            "apiServerInternalURI",
            string().about("URL that machines reach the API server at."),
        )
        .field(
            "apiServerURL",
            string().about("URL that users reach the API server at."),
        )
        .field(
            "controlPlaneTopology",
            string()
                .default_to("HighlyAvailable")
                .one_of(&[
                    "HighlyAvailable",
                    "HighlyAvailableArbiter",
                    "SingleReplica",
                    "DualReplica",
                    "External",
                ])
                .about("The shape of the control plane."),
        )
        .field(
            "cpuPartitioning",
            string()
                .default_to("None")
                .one_of(&["None", "AllNodes"])
                .about("Whether CPUs are set apart."),
        )
        .field("etcdDiscoveryDomain", string().about("No longer used."))
        .field(
            "infrastructureName",
            string().about("A name that is unique among clusters."),
        )
        .field(
            "infrastructureTopology",
            string()
                .default_to("HighlyAvailable")
                .one_of(&["HighlyAvailable", "SingleReplica"])
                .about("The shape of what is not the control plane."),
        )
        .field(
            "platform",
            platform().about("No longer used. See platformStatus."),
        )
        .field("platformStatus", platform_status::platform_status())
}
