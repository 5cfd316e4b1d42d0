//! The cluster's DNS settings.

use schemars::{Schema, SchemaGenerator};

use super::{embedded_resource, platform};
use crate::schema::build::{Node, map_of, object, string};

pub(crate) fn dns(_: &mut SchemaGenerator) -> Schema {
    let spec = object()
        .about("The settings.")
        .field(
            "baseDomain",
            string().about("The domain that the cluster's names are below."),
        )
        .field("platform", dns_platform())
        .field(
            "privateZone",
            zone("The zone that serves the names inside the cluster's network."),
        )
        .field("publicZone", zone("The zone that serves the names to everyone."));
    embedded_resource()
        .required("spec", spec)
        .field("status", object().about("Empty."))
        .into()
}

fn dns_platform() -> Node {
    let role = string()
        .rule(
            "matches(self, '^arn:(aws|aws-cn|aws-us-gov):iam::[0-9]{12}:role/.*$')",
            "privateZoneIAMRole must be a valid AWS IAM role ARN in the format: \
             arn:<partition>:iam::<account-id>:role/<role-name>",
        )
        .about("The role to assume for changing the private zone.");
    object()
        .about("What only one platform has.")
        .required(
            "type",
            platform()
                .rule("self in ['','AWS']", "allowed values are '' and 'AWS'")
                .about("The platform."),
        )
        .field(
            "aws",
            object().about("For AWS.").field("privateZoneIAMRole", role),
        )
        .rule(
            "has(self.type) && self.type == 'AWS' ?  has(self.aws) : !has(self.aws)",
            "aws configuration is required when platform is AWS, and forbidden otherwise",
        )
}

fn zone(description: &str) -> Node {
    object()
        .about(description)
        .field("id", string().about("The cloud's identifier of the zone."))
        .field("tags", map_of(string()).about("Tags that the zone is found by."))
}
