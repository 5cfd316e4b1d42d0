//! The permissions of the service accounts match what the components do, also on API servers with stricter checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_api::machine_configuration::LogLevel;
use mco_operator::IgnitionTokens;
use mco_operator::manifests::{self, ManifestSettings, ParameterKinds};
use mco_operator::profile::ClusterProfile;
use serde_json::Value;

const OWN_GROUP: &str = "machineconfiguration.openshift.io";
const CONFIG_GROUP: &str = "config.openshift.io";

/// A cluster-wide request.
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

/// Returns whether the ClusterRole of the component allows it.
fn may(component: &str, request: &Request<'_>) -> bool {
    let roles = manifests::access(&ClusterProfile::default());
    let role = roles
        .iter()
        .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == component)
        .unwrap();
    let mut rules = role["rules"].as_array().unwrap().iter();
    rules.any(|rule| allows(rule, request))
}

fn allows(rule: &Value, request: &Request<'_>) -> bool {
    contains(rule, "apiGroups", request.group)
        && contains(rule, "resources", request.resource)
        && contains(rule, "verbs", request.verb)
        && (rule["resourceNames"].is_null() || contains(rule, "resourceNames", request.name))
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

#[test]
fn nobody_may_what_it_never_does() {
    let (daemon, controller) = ("machine-config-daemon", "machine-config-controller");
    for (component, group, resource, verb, expected) in [
        (daemon, "", "nodes", "patch", true),
        (daemon, "", "nodes", "update", false),
        (daemon, OWN_GROUP, "machineconfignodes", "get", true),
        (daemon, OWN_GROUP, "machineconfignodes", "create", false),
        (daemon, OWN_GROUP, "machineconfignodes", "patch", false),
        (daemon, OWN_GROUP, "machineconfignodes/status", "patch", true),
        (daemon, "mco.dev", "nodeadoptions", "create", true),
        (daemon, "mco.dev", "nodeadoptions/status", "patch", true),
        (daemon, "mco.dev", "nodeadoptions", "delete", false),
        (daemon, "mco.dev", "nodeadoptions", "patch", false),
        (controller, "mco.dev", "nodeadoptions", "create", false),
        (controller, OWN_GROUP, "machineconfignodes", "create", true),
        (controller, CONFIG_GROUP, "infrastructures", "get", false),
    ] {
        let request = Request {
            group,
            resource,
            name: "any",
            verb,
        };
        assert_eq!(
            may(component, &request),
            expected,
            "{component}: {verb} {resource}"
        );
    }
}

#[test]
fn the_operator_may_delete_the_machineconfig_of_an_image_whose_pool_has_opted_out() {
    let may_do = |component: &str, verb: &str| {
        let request = Request {
            group: OWN_GROUP,
            resource: "machineconfigs",
            name: "10-prebuiltimage-osimageurl-worker",
            verb,
        };
        may(component, &request)
    };
    for verb in ["list", "create", "delete"] {
        assert!(may_do("machine-config-operator", verb), "{verb}");
    }
    assert!(!may_do("machine-config-daemon", "delete"));
    assert!(!may_do("machine-os-builder", "delete"));
}

/// Returns whether a rule of the operator's ClusterRole, or of its Role in the namespace, allows it.
fn operator_may(namespace: &str, request: &Request<'_>) -> bool {
    let objects = manifests::access(&ClusterProfile::default());
    let rules = objects.iter().filter(|object| {
        let is_role = match object["kind"].as_str() {
            Some("ClusterRole") => true,
            Some("Role") => object["metadata"]["namespace"] == namespace,
            _ => false,
        };
        is_role && object["metadata"]["name"] == "machine-config-operator"
    });
    let mut rules = rules.flat_map(|role| role["rules"].as_array().unwrap());
    rules.any(|rule| allows(rule, request))
}

#[test]
fn the_operator_was_not_allowed_to_read_a_role_that_it_applies() {
    let profile = ClusterProfile::default();
    let settings = ManifestSettings {
        image: "localhost/mco:1".to_owned(),
        api_server_url: String::new(),
        templates_image: String::new(),
        builder_image: String::new(),
        keep_builds: None,
        ignition_tokens: IgnitionTokens::Required,
        log_level: LogLevel::default(),
        profile: profile.clone(),
        chosen_base: None,
        tls: None,
    };
    let applied = [
        manifests::operands_access(&profile),
        manifests::guards(&profile, ParameterKinds::default()),
        manifests::network_policies(),
        manifests::controller(&settings),
        manifests::daemon(&settings),
        manifests::server(&settings),
        manifests::builder(&settings),
    ];
    for object in applied.iter().flatten() {
        let (kind, name) = (
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap(),
        );
        let group = object["apiVersion"].as_str().unwrap().split_once('/');
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let kind = kind.to_lowercase();
        let resource = kind
            .strip_suffix('y')
            .map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        for verb in ["get", "create", "patch"] {
            let request = Request {
                group: group.map_or("", |(group, _)| group),
                resource: &resource,
                name,
                verb,
            };
            assert!(
                operator_may(namespace, &request),
                "{verb} {resource} {namespace}/{name}"
            );
        }
    }
}

#[test]
fn only_the_operator_and_the_image_builder_read_all_objects_of_the_namespace() {
    // Secrets of a MachineOSConfig are named by users, and those of a build after the build.
    let unrestricted = ["machine-config-operator", "machine-os-builder"];
    let objects = manifests::access(&ClusterProfile::default());
    let mut roles = Vec::new();
    let own = |object: &&Value| object["metadata"]["namespace"] == "openshift-machine-config-operator";
    for role in objects
        .iter()
        .filter(|object| object["kind"] == "Role")
        .filter(own)
    {
        let name = role["metadata"]["name"].as_str().unwrap();
        roles.push(name);
        for rule in role["rules"].as_array().unwrap() {
            // The ConfigMaps with fetched contents are named after their hashes, so that their names are not listed.
            let lies_there = contains(rule, "resources", "secrets")
                || (contains(rule, "resources", "configmaps") && contains(rule, "verbs", "list"));
            let is_named = rule["resourceNames"].is_array();
            assert!(!lies_there || is_named || unrestricted.contains(&name), "{role}");
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let expected = [
        "machine-config-controller",
        "machine-config-daemon",
        "machine-config-operator",
        "machine-config-server",
        "machine-os-builder",
    ];
    assert_eq!(roles, expected);
}

#[test]
fn openshift_lets_every_pod_be_what_it_is() {
    let settings = ManifestSettings {
        image: "localhost/mco".to_owned(),
        api_server_url: String::new(),
        templates_image: "localhost/templates".to_owned(),
        builder_image: String::new(),
        keep_builds: None,
        ignition_tokens: IgnitionTokens::Required,
        log_level: LogLevel::default(),
        profile: ClusterProfile::default(),
        chosen_base: None,
        tls: None,
    };
    let mut seen = 0;
    for object in manifests::installation(&settings) {
        let pod = &object["spec"]["template"]["spec"];
        let Some(account) = pod["serviceAccountName"].as_str() else {
            continue;
        };
        seen += 1;
        let of = |field: &str| pod[field].as_array().into_iter().flatten();
        let containers: Vec<&Value> = of("containers").chain(of("initContainers")).collect();
        let is = |field: &str, value: bool| {
            let mut all = containers.iter();
            all.all(|container| container["securityContext"][field] == value)
        };
        let on_host = of("volumes").any(|volume| volume["hostPath"].is_object()) || pod["hostPID"] == true;
        let needed = if on_host || is("privileged", true) {
            "privileged"
        } else {
            // Required by both of the others.
            assert!(is("runAsNonRoot", true) && is("allowPrivilegeEscalation", false));
            for container in &containers {
                let security = &container["securityContext"];
                assert_eq!(security["capabilities"]["drop"][0], "ALL");
                assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
            }
            if pod["hostNetwork"] == true {
                let has_user = |container: &&Value| !container["securityContext"]["runAsUser"].is_null();
                assert!(!containers.iter().any(has_user), "the namespace has others");
                "hostnetwork-v2"
            } else {
                "nonroot-v2"
            }
        };
        for constraints in ["privileged", "hostnetwork-v2", "nonroot-v2"] {
            let request = Request {
                group: "security.openshift.io",
                resource: "securitycontextconstraints",
                name: constraints,
                verb: "use",
            };
            assert_eq!(
                may(account, &request),
                constraints == needed,
                "{account} and {constraints}"
            );
        }
    }
    assert_eq!(seen, 4);
}
