//! What the accounts may do is what the components do, on every API server that asks for more than the plain one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_operator::manifests;
use serde_json::Value;

const OWN_GROUP: &str = "machineconfiguration.openshift.io";
const CONFIG_GROUP: &str = "config.openshift.io";

/// One thing that somebody may do everywhere.
struct Request<'a> {
    group: &'a str,
    resource: &'a str,
    name: &'a str,
    verb: &'a str,
}

fn contains(rule: &Value, field: &str, value: &str) -> bool {
    let values = rule[field].as_array().into_iter().flatten();
    values.into_iter().any(|one| one == value)
}

/// Whether the ClusterRole of the component allows it.
fn may(component: &str, request: &Request<'_>) -> bool {
    let roles = manifests::access();
    let role = roles
        .iter()
        .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == component)
        .unwrap();
    let mut rules = role["rules"].as_array().unwrap().iter();
    rules.any(|rule| {
        contains(rule, "apiGroups", request.group)
            && contains(rule, "resources", request.resource)
            && contains(rule, "verbs", request.verb)
            && (rule["resourceNames"].is_null() || contains(rule, "resourceNames", request.name))
    })
}

#[test]
fn whoever_has_an_owners_deletion_wait_may_set_the_owners_finalizers() {
    for (group, resource, name) in [
        (
            OWN_GROUP,
            "controllerconfigs/finalizers",
            "machine-config-controller",
        ),
        (OWN_GROUP, "machineconfigpools/finalizers", "worker"),
        (OWN_GROUP, "kubeletconfigs/finalizers", "any"),
        (OWN_GROUP, "containerruntimeconfigs/finalizers", "any"),
        (CONFIG_GROUP, "images/finalizers", "cluster"),
        (
            CONFIG_GROUP,
            "criocredentialproviderconfigs/finalizers",
            "cluster",
        ),
    ] {
        let request = Request {
            group,
            resource,
            name,
            verb: "update",
        };
        assert!(may("machine-config-controller", &request), "{resource}");
        assert!(!may("machine-config-daemon", &request), "{resource}");
    }
}
