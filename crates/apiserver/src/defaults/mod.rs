//! Defaults of the built-in kinds.
//!
//! Only absent fields are set.

mod pods;

use serde_json::{Value, json};

/// The cluster IP fields that the server allocates for a service: one IP family, and the list form of its address.
pub(crate) fn allocate(service: &mut Value) {
    within(service, "spec", |spec| {
        if spec["type"] == "ExternalName" {
            return;
        }
        set(spec, "ipFamilies", json!(["IPv4"]));
        set(spec, "ipFamilyPolicy", json!("SingleStack"));
        let address = spec
            .get("clusterIP")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if !address.is_empty() {
            set(spec, "clusterIPs", json!([address]));
        }
    });
}

/// Fills in the defaults of an object of a built-in kind.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pods::pod(object),
        ("", "Node") => node(object),
        ("", "Secret") => set(object, "type", json!("Opaque")),
        ("", "Service") => service(object),
        ("apps", "Deployment") => deployment(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ReplicaSet") => replica_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("batch", "Job") => job(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy(object),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            webhooks(object, kind);
        }
        _ => {}
    }
}

/// Sets a field that is absent or null.
fn set(object: &mut Value, field: &str, default: Value) {
    if let Some(fields) = object.as_object_mut()
        && fields.get(field).is_none_or(Value::is_null)
    {
        fields.insert(field.to_owned(), default);
    }
}

/// Calls a function on a member that exists.
fn within(object: &mut Value, field: &str, work: impl FnOnce(&mut Value)) {
    if let Some(member) = object.get_mut(field).filter(|member| member.is_object()) {
        work(member);
    }
}

/// Calls a function on every entry of a list that exists.
fn each(object: &mut Value, field: &str, work: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(field).and_then(Value::as_array_mut) {
        items.iter_mut().for_each(work);
    }
}

/// Sets allocatable to the capacity of the node if it is absent.
fn node(object: &mut Value) {
    within(object, "status", |status| {
        if let Some(capacity) = status.get("capacity").cloned() {
            set(status, "allocatable", capacity);
        }
    });
}

fn template(spec: &mut Value) {
    within(spec, "template", |template| {
        set(template, "spec", json!({}));
        within(template, "spec", pods::spec);
    });
}

fn deployment(object: &mut Value) {
    within(object, "spec", |spec| {
        set(spec, "replicas", json!(1));
        set(spec, "revisionHistoryLimit", json!(10));
        set(spec, "progressDeadlineSeconds", json!(600));
        set(spec, "strategy", json!({}));
        within(spec, "strategy", |strategy| {
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                set(strategy, "rollingUpdate", json!({}));
                within(strategy, "rollingUpdate", |rolling| {
                    set(rolling, "maxSurge", json!("25%"));
                    set(rolling, "maxUnavailable", json!("25%"));
                });
            }
        });
        template(spec);
    });
}

fn daemon_set(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata") {
        set(metadata, "annotations", json!({}));
        within(metadata, "annotations", |annotations| {
            set(
                annotations,
                "deprecated.daemonset.template.generation",
                json!("1"),
            );
        });
    }
    within(object, "spec", |spec| {
        set(spec, "revisionHistoryLimit", json!(10));
        set(spec, "updateStrategy", json!({}));
        within(spec, "updateStrategy", |strategy| {
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                set(strategy, "rollingUpdate", json!({}));
                within(strategy, "rollingUpdate", |rolling| {
                    set(rolling, "maxSurge", json!(0));
                    set(rolling, "maxUnavailable", json!(1));
                });
            }
        });
        template(spec);
    });
}

fn replica_set(object: &mut Value) {
    within(object, "spec", |spec| {
        set(spec, "replicas", json!(1));
        template(spec);
    });
}

fn stateful_set(object: &mut Value) {
    within(object, "spec", |spec| {
        set(spec, "replicas", json!(1));
        set(spec, "revisionHistoryLimit", json!(10));
        set(spec, "podManagementPolicy", json!("OrderedReady"));
        set(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
        within(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
            set(policy, "whenDeleted", json!("Retain"));
            set(policy, "whenScaled", json!("Retain"));
        });
        set(spec, "updateStrategy", json!({}));
        within(spec, "updateStrategy", |strategy| {
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                set(strategy, "rollingUpdate", json!({}));
                within(strategy, "rollingUpdate", |rolling| {
                    set(rolling, "partition", json!(0));
                });
            }
        });
        template(spec);
    });
}

fn job(object: &mut Value) {
    within(object, "spec", |spec| {
        // A job of independent workers has no number of completions.
        if spec.get("completions").is_none_or(Value::is_null)
            && spec.get("parallelism").is_none_or(Value::is_null)
        {
            set(spec, "completions", json!(1));
        }
        set(spec, "parallelism", json!(1));
        set(spec, "backoffLimit", json!(6));
        set(spec, "completionMode", json!("NonIndexed"));
        set(spec, "suspend", json!(false));
        set(spec, "manualSelector", json!(false));
        set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
        template(spec);
    });
}

fn service(object: &mut Value) {
    within(object, "spec", |spec| {
        set(spec, "type", json!("ClusterIP"));
        set(spec, "sessionAffinity", json!("None"));
        each(spec, "ports", |port| {
            set(port, "protocol", json!("TCP"));
            let number = port["port"].clone();
            if port
                .get("targetPort")
                .is_none_or(|target| target.is_null() || *target == json!(0) || *target == json!(""))
            {
                port["targetPort"] = number;
            }
        });
        if spec["type"] != "ExternalName" {
            set(spec, "internalTrafficPolicy", json!("Cluster"));
        }
    });
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    within(object, "roleRef", |role| {
        if role
            .get("apiGroup")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            role["apiGroup"] = json!(GROUP);
        }
    });
    each(object, "subjects", |subject| {
        let group = if subject["kind"] == "ServiceAccount" {
            ""
        } else {
            GROUP
        };
        if !group.is_empty()
            && subject
                .get("apiGroup")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
        {
            subject["apiGroup"] = json!(group);
        }
    });
}

fn policy(object: &mut Value) {
    within(object, "spec", |spec| {
        set(spec, "failurePolicy", json!("Fail"));
        within(spec, "matchConstraints", |constraints| {
            set(constraints, "matchPolicy", json!("Equivalent"));
            set(constraints, "namespaceSelector", json!({}));
            set(constraints, "objectSelector", json!({}));
            for rules in ["resourceRules", "excludeResourceRules"] {
                each(constraints, rules, |rule| set(rule, "scope", json!("*")));
            }
        });
    });
}

fn webhooks(object: &mut Value, kind: &str) {
    each(object, "webhooks", |webhook| {
        set(webhook, "failurePolicy", json!("Fail"));
        set(webhook, "matchPolicy", json!("Equivalent"));
        set(webhook, "namespaceSelector", json!({}));
        set(webhook, "objectSelector", json!({}));
        set(webhook, "timeoutSeconds", json!(10));
        if kind == "MutatingWebhookConfiguration" {
            set(webhook, "reinvocationPolicy", json!("Never"));
        }
        each(webhook, "rules", |rule| set(rule, "scope", json!("*")));
        within(webhook, "clientConfig", |client| {
            within(client, "service", |service| set(service, "port", json!(443)));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_completed_down_to_its_containers() {
        let mut object = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        apply("apps", "Deployment", &mut object);
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}})
        );
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(
            spec["template"]["spec"].get("enableServiceLinks"),
            None,
            "only pods themselves get this one"
        );
    }
}
