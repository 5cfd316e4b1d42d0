//! Validation of `metadata`, for all kinds.
//!
//! The caller passes the name rule of the kind, and sets the fields that the server owns.

use serde_json::Value;

use crate::field_error::FieldError;
use crate::go_text;
use crate::kinds::{KindScope, split_api_version};
use crate::names;

/// The rule for the names of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Most kinds.
    Subdomain,
    /// Namespaces.
    Label,
    /// Services.
    Label1035,
    /// RBAC objects, whose names may contain colons.
    PathSegment,
}

/// Kubernetes' limit for all annotations of an object, keys and values together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

const IMMUTABLE: &str = "field is immutable";
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

impl NameRule {
    /// Returns the errors of a name.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => names::dns1123_subdomain(name),
            Self::Label => names::dns1123_label(name),
            Self::Label1035 => names::dns1035_label(name),
            Self::PathSegment => names::path_segment(name),
        }
    }

    /// Returns the errors of a `generateName` prefix.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match prefix.strip_suffix('-') {
            Some(stem) if self != Self::PathSegment => self.check(&format!("{stem}a")),
            _ => self.check(prefix),
        }
    }
}

/// Validates the metadata of an object to create.
pub fn validate_create(object: &Value, scope: KindScope, rule: NameRule) -> Vec<FieldError> {
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let mut errors = Vec::new();
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        errors.extend(invalid_each("metadata.name", name, &rule.check(name)));
    }
    errors.extend(namespace_errors(text(meta, "namespace"), scope, "metadata"));
    errors.extend(common_errors(meta, "metadata"));
    errors.extend(finalizer_errors(meta, "metadata"));
    errors
}

/// Validates the metadata of an embedded resource, whose name may be missing.
pub fn validate_embedded(meta: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, problems) in [
        (
            "generateName",
            names::path_segment_prefix(text(meta, "generateName")),
        ),
        ("name", names::path_segment(text(meta, "name"))),
    ] {
        errors.extend(invalid_each(
            &format!("{path}.{field}"),
            text(meta, field),
            &problems,
        ));
    }
    let namespace = text(meta, "namespace");
    if !namespace.is_empty() {
        errors.extend(namespace_errors(namespace, KindScope::Namespaced, path));
    }
    errors.extend(common_errors(meta, path));
    errors.extend(finalizer_errors(meta, path));
    errors
}

/// Validates the metadata of an object that replaces another.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let empty = Value::Null;
    let (new, old) = (
        new.get("metadata").unwrap_or(&empty),
        old.get("metadata").unwrap_or(&empty),
    );
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        errors.extend(new_finalizers_error(new, old));
    }
    if text(new, "resourceVersion").is_empty() {
        let detail = "must be specified for an update";
        errors.push(FieldError::invalid(
            "metadata.resourceVersion",
            &Value::from(""),
            detail,
        ));
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        let value = Value::from(generation(new));
        errors.push(FieldError::invalid(
            "metadata.generation",
            &value,
            "must not be decremented",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let absent = |value: &Value| value.is_null() || value.as_str() == Some("");
        let (new, old) = (new.get(field).unwrap_or(&empty), old.get(field).unwrap_or(&empty));
        if new != old && !(absent(new) && absent(old)) {
            let shown = if new.is_null() && old.is_string() && !field.ends_with("Timestamp") {
                Value::from("")
            } else {
                new.clone()
            };
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                &shown,
                IMMUTABLE,
            ));
        }
    }
    errors.extend(common_errors(new, "metadata"));
    errors
}

/// Returns an owner reference with its fields in the order of the Go type.
fn owner_as_go_shows(owner: &Value) -> String {
    let order = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let fields = order.iter().filter_map(|field| Some((field, owner.get(*field)?)));
    let shown: Vec<String> = fields
        .map(|(field, value)| format!("{}:{value}", Value::from(*field)))
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// The stricter rule of core kinds: a finalizer without a domain must be a standard one.
pub fn unqualified_finalizers(object: &Value) -> Vec<FieldError> {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let names = finalizers
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .enumerate();
    names
        .filter(|(_, name)| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|(index, name)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                &Value::from(name),
                detail,
            )
        })
        .collect()
}

/// Returns warnings about finalizers that may collide with others.
pub fn finalizer_warnings(object: &Value) -> Vec<String> {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
    names
        .filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|name| {
            let what = if name.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer name{what} to avoid accidental conflicts with other finalizer writers",
                go_text::quote(name)
            )
        })
        .collect()
}

fn namespace_errors(namespace: &str, scope: KindScope, path: &str) -> Vec<FieldError> {
    let field = format!("{path}.namespace");
    match scope {
        KindScope::Namespaced if namespace.is_empty() => vec![FieldError::required(field, "")],
        KindScope::Namespaced => invalid_each(&field, namespace, &names::dns1123_label(namespace)),
        KindScope::Cluster if namespace.is_empty() => Vec::new(),
        KindScope::Cluster => vec![FieldError::forbidden(field, "not allowed on this type")],
    }
}

fn common_errors(meta: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let members = |field: &str| meta.get(field).and_then(Value::as_object).into_iter().flatten();
    for (key, value) in members("labels") {
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid_each(
            &format!("{path}.labels"),
            key,
            &names::label_key(key),
        ));
        errors.extend(invalid_each(
            &format!("{path}.labels"),
            value,
            &names::label_value(value),
        ));
    }
    let mut weight = 0;
    for (key, value) in members("annotations") {
        let problems = names::label_key(&key.to_lowercase());
        errors.extend(invalid_each(&format!("{path}.annotations"), key, &problems));
        weight += key.len() + value.as_str().map_or(0, str::len);
    }
    if weight > MAX_ANNOTATION_BYTES {
        errors.push(FieldError::too_long(
            format!("{path}.annotations"),
            MAX_ANNOTATION_BYTES,
        ));
    }
    errors.extend(owner_errors(meta, path));
    errors
}

fn owner_errors(meta: &Value, path: &str) -> Vec<FieldError> {
    let Some(owners) = meta.get("ownerReferences").and_then(Value::as_array) else {
        return Vec::new();
    };
    let path = format!("{path}.ownerReferences");
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners {
        let (group, version) = split_api_version(text(owner, "apiVersion"));
        let empty = Value::from("");
        for (field, detail, missing) in [
            ("apiVersion", "version must not be empty", version.is_empty()),
            ("kind", "must not be empty", text(owner, "kind").is_empty()),
            ("name", "must not be empty", text(owner, "name").is_empty()),
            ("uid", "must not be empty", text(owner, "uid").is_empty()),
        ] {
            if missing {
                errors.push(FieldError::invalid(format!("{path}.{field}"), &empty, detail));
            }
        }
        if group.is_empty() && version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path.as_str(), owner, detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    let mut error = FieldError::invalid(path.as_str(), &Value::Null, &detail);
                    let shown: Vec<String> = owners.iter().map(owner_as_go_shows).collect();
                    error.body = error.body.replacen("null", &format!("[{}]", shown.join(",")), 1);
                    errors.push(error);
                }
                None => controller = Some(name),
            }
        }
    }
    errors
}

fn finalizer_errors(meta: &Value, path: &str) -> Vec<FieldError> {
    let Some(finalizers) = meta.get("finalizers").and_then(Value::as_array) else {
        return Vec::new();
    };
    let path = format!("{path}.finalizers");
    let mut errors = Vec::new();
    for name in finalizers.iter().filter_map(Value::as_str) {
        errors.extend(invalid_each(&path, name, &names::label_key(name)));
    }
    let has = |wanted: &str| finalizers.iter().any(|name| name.as_str() == Some(wanted));
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(
            path,
            &Value::from(finalizers.clone()),
            detail,
        ));
    }
    errors
}

fn new_finalizers_error(new: &Value, old: &Value) -> Option<FieldError> {
    let list = |meta: &Value| -> Vec<String> {
        let items = meta
            .get("finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = list(old);
    let mut added: Vec<String> = list(new)
        .into_iter()
        .filter(|name| !before.contains(name))
        .collect();
    added.sort_unstable();
    if added.is_empty() {
        return None;
    }
    let shown: Vec<String> = added.iter().map(|name| go_text::quote(name)).collect();
    Some(FieldError::forbidden(
        "metadata.finalizers",
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            shown.join(", ")
        ),
    ))
}

fn invalid_each(field: &str, value: &str, problems: &[String]) -> Vec<FieldError> {
    problems
        .iter()
        .map(|problem| FieldError::invalid(field, &Value::from(value), problem))
        .collect()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_metadata_passes() {
        let meta = json!({"metadata": {"name": "a.b", "namespace": "shop",
            "labels": {"a": "", "x/y": "1.2"}, "annotations": {"Big.Case/Key": "any text"},
            "finalizers": ["example.com/f", "orphan"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1", "controller": true}]}});
        assert_eq!(
            validate_create(&meta, KindScope::Namespaced, NameRule::Subdomain),
            []
        );
    }

    #[test]
    fn every_broken_rule_is_reported_in_kubernetes_words() {
        let meta = json!({"metadata": {"name": "A", "namespace": "x",
            "labels": {"x y": "b c"}, "annotations": {"q q": "1"}, "finalizers": ["foregroundDeletion", "orphan"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Event", "name": "b", "uid": "1", "controller": true},
                {}]}});
        let found = texts(&validate_create(&meta, KindScope::Cluster, NameRule::Subdomain));
        let starts = [
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist",
            "metadata.namespace: Forbidden: not allowed on this type",
            "metadata.labels: Invalid value: \"x y\": name part must consist of",
            "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or",
            "metadata.annotations: Invalid value: \"q q\": name part must consist of",
            "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"controller\":true,\"kind\":\"Event\",\"name\":\"b\",\"uid\":\"1\"}: /v1, Kind=Event is disallowed from being an owner",
            "metadata.ownerReferences: Invalid value: [{",
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            "metadata.finalizers: Invalid value: [\"foregroundDeletion\",\"orphan\"]: finalizer orphan and foregroundDeletion cannot be both set",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found} does not start with {start}");
        }
    }

    #[test]
    fn a_missing_name_or_namespace_is_required() {
        assert_eq!(
            texts(&validate_create(
                &json!({}),
                KindScope::Namespaced,
                NameRule::Subdomain
            )),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value"
            ]
        );
    }

    #[test]
    fn each_kind_of_name_follows_its_rule() {
        for (rule, name, fine) in [
            (NameRule::Subdomain, "a.b", true),
            (NameRule::Label, "a.b", false),
            (NameRule::Label1035, "1a", false),
            (NameRule::PathSegment, "system:node", true),
            (NameRule::PathSegment, "a/b", false),
        ] {
            assert_eq!(rule.check(name).is_empty(), fine, "{rule:?} {name}");
        }
        assert!(NameRule::Subdomain.check_prefix("worker-").is_empty());
        assert!(!NameRule::Subdomain.check_prefix("worker_").is_empty());
    }

    #[test]
    fn an_update_may_not_change_identity() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(validate_update(&old, &old), []);
        let new = json!({"metadata": {"name": "b", "uid": "2", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(
            texts(&validate_update(&new, &old)),
            [
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }

    #[test]
    fn an_object_that_is_being_deleted_takes_no_new_finalizer() {
        let old = json!({"metadata": {"name": "a", "resourceVersion": "5", "finalizers": ["x/y"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["x/y", "x/z", "x/a"]);
        assert_eq!(
            texts(&validate_update(&new, &old)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/a\", \"x/z\"}"
            ]
        );
    }

    #[test]
    fn unqualified_finalizers_are_an_error_for_core_kinds_and_a_warning_elsewhere() {
        let object = json!({"metadata": {"finalizers": ["foo", "kubernetes", "a/b", "a.b"]}});
        assert_eq!(
            texts(&unqualified_finalizers(&object))[0],
            "metadata.finalizers[0]: Invalid value: \"foo\": name is neither a standard finalizer name nor is it fully qualified"
        );
        assert_eq!(
            finalizer_warnings(&object),
            [
                "metadata.finalizers: \"foo\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
                "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            ]
        );
    }
}
