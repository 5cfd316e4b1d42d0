//! Stored RBAC rules, for callers that are neither administrators nor components nor nodes.

use std::sync::Arc;

use serde_json::Value;

use super::Identity;
use super::authorize::{AuthorizationDecision, RequestAttributes};
use crate::store::{ObjectKey, ObjectStore, StoredObject};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn authorize(
    identity: &Identity,
    wanted: &RequestAttributes,
    store: &ObjectStore,
) -> AuthorizationDecision {
    let rules = rules_for(identity, &wanted.namespace, store);
    if rules.iter().any(|rule| allows(rule, wanted)) {
        return AuthorizationDecision::allow("RBAC");
    }
    AuthorizationDecision::deny("")
}

/// Returns every rule that applies to a caller: cluster-wide ones, and those of the namespace if there is one.
pub fn rules_for(identity: &Identity, namespace: &str, store: &ObjectStore) -> Vec<Value> {
    let mut rules = Vec::new();
    for binding in store.list(&format!("clusterrolebindings.{GROUP}"), "").objects {
        collect(&binding, identity, store, &mut rules);
    }
    if !namespace.is_empty() {
        for binding in store.list(&format!("rolebindings.{GROUP}"), namespace).objects {
            collect(&binding, identity, store, &mut rules);
        }
    }
    rules
}

fn collect(binding: &StoredObject, identity: &Identity, store: &ObjectStore, rules: &mut Vec<Value>) {
    let Ok(object) = binding.value() else {
        return;
    };
    let subjects = object.get("subjects").and_then(Value::as_array);
    let namespace = binding.key.namespace();
    if !subjects
        .into_iter()
        .flatten()
        .any(|subject| is_subject(subject, identity, namespace))
    {
        return;
    }
    let Some(role) = object.get("roleRef") else {
        return;
    };
    let name = role["name"].as_str().unwrap_or_default();
    let key = if role["kind"] == "ClusterRole" {
        ObjectKey::new(&Arc::from(format!("clusterroles.{GROUP}")), "", name)
    } else {
        ObjectKey::new(&Arc::from(format!("roles.{GROUP}")), namespace, name)
    };
    let found = store.get(&key).and_then(|role| role.value().ok());
    if let Some(Value::Array(found)) = found.and_then(|mut role| role.remove("rules")) {
        rules.extend(found);
    }
}

fn is_subject(subject: &Value, identity: &Identity, binding_namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => name == identity.user,
        Some("Group") => identity.is_in(name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            identity.user == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn allows(rule: &Value, wanted: &RequestAttributes) -> bool {
    let has = |field: &str, value: &str| {
        let list = rule[field].as_array();
        list.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|entry| entry == "*" || entry == value)
    };
    if !has("verbs", &wanted.verb) {
        return false;
    }
    if wanted.resource.is_empty() {
        let paths = rule["nonResourceURLs"].as_array();
        return paths
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => wanted.path.starts_with(prefix),
                None => wanted.path == pattern,
            });
    }
    let resource = match wanted.subresource.as_str() {
        "" => wanted.resource.clone(),
        sub => format!("{}/{sub}", wanted.resource),
    };
    let any_parent = format!("*/{}", wanted.subresource);
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    has("apiGroups", &wanted.group)
        && (has("resources", &resource) || (!wanted.subresource.is_empty() && has("resources", &any_parent)))
        && names.is_none_or(|names| names.iter().any(|name| name == wanted.name.as_str()))
}
