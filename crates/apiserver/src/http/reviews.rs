//! Kinds that are answered and not stored: access reviews, token reviews and the like.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::ApiBody;
use super::{Api, ApiCall, respond};
use crate::auth::{self, AuthorizationDecision, Identity, RequestAttributes};
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::registry::ObjectTarget;

pub(super) fn answer(
    api: &Arc<Api>,
    call: &ApiCall,
    target: &ObjectTarget,
    mut review: Value,
) -> Result<Response<ApiBody>, ApiError> {
    if !review.is_object() {
        return Err(ApiError::bad_request(format!(
            "the body of a {} must be a JSON object",
            target.definition.kind
        )));
    }
    let spec = review.get("spec").cloned().unwrap_or_default();
    if target.definition.kind.ends_with("AccessReview") {
        check_question(&spec)?;
    }
    let status = match target.definition.kind.as_str() {
        "SelfSubjectAccessReview" => access(api, &call.identity, &spec),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access(api, &subject(&spec), &spec),
        "SelfSubjectRulesReview" => rules(
            api,
            &call.identity,
            spec["namespace"].as_str().unwrap_or_default(),
        ),
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": call.identity.user, "groups": call.identity.groups}})
        }
        "TokenReview" => token_status(api, &spec),
        _ => return Err(ApiError::method_not_allowed()),
    };
    review["kind"] = Value::from(target.definition.kind.as_str());
    review["apiVersion"] = Value::from(target.definition.api_version());
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    review["status"] = status;
    Ok(respond::json(StatusCode::CREATED, &review))
}

/// Service account tokens are not supported.
pub(super) fn token(
    _api: &Arc<Api>,
    _call: &ApiCall,
    _target: &ObjectTarget,
) -> Result<Response<ApiBody>, ApiError> {
    Err(ApiError::method_not_allowed())
}

/// A review must have either resource or non-resource attributes.
fn check_question(spec: &Value) -> Result<(), ApiError> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let error = match (resource.is_object(), path.is_object()) {
        (true, false) | (false, true) => return Ok(()),
        (false, false) => FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (true, true) => {
            let shown = json!({"Path": path["path"], "Verb": path["verb"]});
            let why = "cannot be specified in combination with resourceAttributes";
            FieldError::invalid("spec.nonResourceAttributes", &shown, why)
        }
    };
    Err(ApiError::invalid("authorization.k8s.io", "", "", &[error]))
}

fn subject(spec: &Value) -> Identity {
    let groups = spec["groups"].as_array().into_iter().flatten();
    Identity {
        user: spec["user"].as_str().unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        extra: BTreeMap::new(),
        impersonated_by: None,
    }
}

fn access(api: &Arc<Api>, identity: &Identity, spec: &Value) -> Value {
    match api.authorize(identity, &wanted(spec)) {
        AuthorizationDecision::Allowed { because } if because.is_empty() => json!({"allowed": true}),
        AuthorizationDecision::Allowed { because } => json!({"allowed": true, "reason": because}),
        AuthorizationDecision::Denied { because } if because.is_empty() => json!({"allowed": false}),
        AuthorizationDecision::Denied { because } => json!({"allowed": false, "reason": because}),
    }
}

fn wanted(spec: &Value) -> RequestAttributes {
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    if resource.is_object() {
        RequestAttributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            version: text(resource, "version"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            path: String::new(),
        }
    } else {
        RequestAttributes {
            verb: text(other, "verb"),
            path: text(other, "path"),
            ..RequestAttributes::default()
        }
    }
}

fn rules(api: &Arc<Api>, identity: &Identity, namespace: &str) -> Value {
    let everything = identity.is_in(auth::MASTERS) || identity.is_in(auth::COMPONENTS);
    let found = if everything {
        vec![
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ]
    } else {
        auth::rules_for(identity, namespace, &api.registry.store)
    };
    let (paths, resources): (Vec<Value>, Vec<Value>) = found
        .into_iter()
        .partition(|rule| rule.get("nonResourceURLs").is_some());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn token_status(api: &Arc<Api>, spec: &Value) -> Value {
    match api.owner(spec["token"].as_str().unwrap_or_default()) {
        Some(identity) => {
            json!({"authenticated": true, "user": {"username": identity.user, "groups": identity.groups}})
        }
        None => json!({"authenticated": false, "error": "invalid bearer token"}),
    }
}
