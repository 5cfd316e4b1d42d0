//! Privilege escalation prevention of RBAC, as in Kubernetes: a caller grants only permissions that it has itself.
//!
//! A role needs every rule that it contains, or the verb `escalate` on it. A binding needs every rule of the role that
//! it refers to, or the verb `bind` on that role.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::policy_rule::PolicyRule;
use super::rbac::{self, GROUP};
use super::{Identity, MASTERS, RequestAttributes, authorize};
use crate::admission::{Admission, AdmissionOperation, AdmissionRequest, Rejection};
use crate::meta::{self, JsonObject};
use crate::store::{ObjectKey, ObjectStore};

/// Rejects roles and bindings that grant more than their author has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RbacEscalation;

impl Admission for RbacEscalation {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection> {
        let Some(object) = request.object.filter(|_| request.definition.group == GROUP) else {
            return Ok(None);
        };
        if request.groups.iter().any(|group| group == MASTERS) || only_garbage_collection(request) {
            return Ok(None);
        }
        let groups: Vec<&str> = request.groups.iter().map(String::as_str).collect();
        let author = Author {
            identity: Identity::new(request.user, &groups),
            namespace: request.namespace,
            store: request.store,
        };
        match request.definition.plural.as_str() {
            "roles" | "clusterroles" => check_role(&author, request, object)?,
            "rolebindings" | "clusterrolebindings" => check_binding(&author, object)?,
            _ => {}
        }
        Ok(None)
    }
}

/// The caller that writes a role or binding.
struct Author<'a> {
    identity: Identity,
    /// The namespace of the object; empty for cluster-wide ones.
    namespace: &'a str,
    store: &'a ObjectStore,
}

impl Author<'_> {
    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let wanted = RequestAttributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            ..RequestAttributes::default()
        };
        authorize(&self.identity, &wanted, self.store, &[]).is_allowed()
    }

    /// Checks that the caller has all permissions of these rules.
    fn require(&self, granted: &[PolicyRule]) -> Result<(), Rejection> {
        let own: Vec<PolicyRule> = rbac::rules_for(&self.identity, self.namespace, self.store)
            .iter()
            .map(PolicyRule::of)
            .collect();
        let single = granted.iter().flat_map(PolicyRule::breakdown);
        let missing: Vec<PolicyRule> = single
            .filter(|wanted| !own.iter().any(|rule| rule.covers(wanted)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing: BTreeSet<String> = PolicyRule::compact(missing)
            .iter()
            .map(ToString::to_string)
            .collect();
        let missing: Vec<String> = missing.into_iter().collect();
        Err(Rejection::new(format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            self.identity.user,
            quoted(&self.identity.groups),
            missing.join("\n")
        )))
    }
}

/// Returns strings as Go prints a slice with `%q`.
pub(super) fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.join(" ")
}

fn check_role(
    author: &Author<'_>,
    request: &AdmissionRequest<'_>,
    role: &JsonObject,
) -> Result<(), Rejection> {
    if author.may("escalate", &request.definition.plural, request.name) {
        return Ok(());
    }
    // The rules of an aggregated role come from other roles, of any content.
    let is_aggregated = |role: &JsonObject| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    if (is_aggregated(role) || request.old.is_some_and(is_aggregated))
        && author.require(&PolicyRule::everything()).is_err()
    {
        return Err(Rejection::new(
            "must have cluster-admin privileges to use the aggregationRule",
        ));
    }
    author.require(&rules_of(role))
}

fn check_binding(author: &Author<'_>, binding: &JsonObject) -> Result<(), Rejection> {
    let role = binding.get("roleRef").unwrap_or(&Value::Null);
    let name = role["name"].as_str().unwrap_or_default();
    let (plural, namespace) = match role["kind"].as_str() {
        Some("ClusterRole") => ("clusterroles", ""),
        Some("Role") => ("roles", author.namespace),
        // Validation reports it.
        _ => return Ok(()),
    };
    if author.may("bind", plural, name) {
        return Ok(());
    }
    let key = ObjectKey::new(&Arc::from(format!("{plural}.{GROUP}")), namespace, name);
    let found = author.store.get(&key).and_then(|role| role.value().ok());
    let Some(role) = found else {
        return Err(Rejection {
            code: StatusCode::NOT_FOUND,
            message: format!("{plural}.{GROUP} {name:?} not found"),
        });
    };
    author.require(&rules_of(&role))
}

fn rules_of(role: &JsonObject) -> Vec<PolicyRule> {
    let rules = role.get("rules").and_then(Value::as_array);
    rules.into_iter().flatten().map(PolicyRule::of).collect()
}

/// Returns whether an update changes only what garbage collection changes.
fn only_garbage_collection(request: &AdmissionRequest<'_>) -> bool {
    let (AdmissionOperation::Update, Some(old), Some(new)) = (request.operation, request.old, request.object)
    else {
        return false;
    };
    let remaining = |object: &JsonObject| {
        let mut object = object.clone();
        let metadata = meta::metadata_mut(&mut object);
        for field in [
            "finalizers",
            "ownerReferences",
            "managedFields",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        object
    };
    remaining(old) == remaining(new)
}
