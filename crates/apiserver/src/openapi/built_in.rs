//! The published definitions, extended with the merge rules they lack.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{DocumentedSubresource, OpenApiFlavour};
use crate::kinds::{self, MergePatchRule, MergeShape};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The full name of a definition that all kinds share.
pub(super) fn meta(name: &str) -> String {
    format!("{META}{name}")
}

/// Returns every definition in this flavour; references have their published notation.
pub(super) fn schemas(flavour: OpenApiFlavour) -> Map<String, Value> {
    let mut definitions = kinds::definitions();
    definitions.insert(meta("ListMeta"), list_meta());
    for (name, schema) in &mut definitions {
        match name.as_str() {
            INT_OR_STRING => *schema = int_or_string(schema, flavour),
            QUANTITY => *schema = quantity(schema, flavour),
            _ => complete(name, schema, flavour),
        }
    }
    definitions
}

/// Schemas that all kinds share.
pub(super) struct CommonMembers {
    /// `apiVersion` and `kind`.
    pub(super) type_members: Map<String, Value>,
    pub(super) metadata_description: Value,
}

impl CommonMembers {
    /// Taken from one of the published definitions; they are all equal.
    pub(super) fn of(published: &Map<String, Value>) -> Self {
        let config_map = published.get("io.k8s.api.core.v1.ConfigMap");
        let description = |name: &str| {
            let pointer = format!("/properties/{name}/description");
            config_map
                .and_then(|schema| schema.pointer(&pointer))
                .cloned()
                .unwrap_or_default()
        };
        let type_members = ["apiVersion", "kind"]
            .into_iter()
            .map(|name| {
                (
                    name.to_owned(),
                    json!({"type": "string", "description": description(name)}),
                )
            })
            .collect();
        Self {
            type_members,
            metadata_description: description("metadata"),
        }
    }
}

/// Collects the names of the definitions that a schema refers to.
pub(super) fn references(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (
                    key.as_str(),
                    value
                        .as_str()
                        .and_then(|text| text.strip_prefix(kinds::REFERENCE_PREFIX)),
                ) {
                    ("$ref", Some(name)) => {
                        names.insert(name.to_owned());
                    }
                    _ => references(value, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}

/// Rewrites references to the location of schemas in a document.
pub(super) fn relocate(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = value
                    .as_str()
                    .and_then(|text| text.strip_prefix(kinds::REFERENCE_PREFIX));
                match (key.as_str(), name) {
                    ("$ref", Some(name)) => *value = Value::from(format!("{prefix}{name}")),
                    _ => relocate(value, prefix),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, prefix)),
        _ => {}
    }
}

/// Returns a reference in published notation.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{}{name}", kinds::REFERENCE_PREFIX)})
}

/// Returns the definition of a subresource's body, if it is not the parent's.
pub(super) fn body_definition(subresource: &DocumentedSubresource) -> Option<&'static str> {
    match subresource.kind.as_str() {
        "Scale" => Some("io.k8s.api.autoscaling.v1.Scale"),
        "Eviction" => Some("io.k8s.api.policy.v1.Eviction"),
        "TokenRequest" => Some("io.k8s.api.authentication.v1.TokenRequest"),
        "Binding" => Some("io.k8s.api.core.v1.Binding"),
        _ => None,
    }
}

fn complete(name: &str, schema: &mut Value, flavour: OpenApiFlavour) {
    let short = kinds::short_name(name);
    if kinds::MERGE_ATOMIC.contains(&short) {
        set(schema, "x-kubernetes-map-type", json!("atomic"));
    }
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (member, schema) in members.into_iter().flatten() {
        annotate(short, member, schema);
        restyle(schema, flavour);
    }
}

/// Adds the extensions that patches and apply need.
fn annotate(definition: &str, member: &str, schema: &mut Value) {
    let rule = kinds::MERGE_MEMBERS
        .iter()
        .find(|rule| rule.definition == definition && rule.member == member);
    let is_list = schema.get("type").and_then(Value::as_str) == Some("array");
    let shape = rule.map_or(MergeShape::Usual, |rule| rule.shape);
    match shape {
        MergeShape::Usual if is_list => set(schema, "x-kubernetes-list-type", json!("atomic")),
        MergeShape::Usual => {}
        MergeShape::Set => set(schema, "x-kubernetes-list-type", json!("set")),
        MergeShape::Keyed(keys) => {
            set(schema, "x-kubernetes-list-type", json!("map"));
            set(schema, "x-kubernetes-list-map-keys", json!(keys));
        }
        MergeShape::AtomicMap => set(schema, "x-kubernetes-map-type", json!("atomic")),
    }
    match rule.map_or(MergePatchRule::Usual, |rule| rule.patch) {
        MergePatchRule::Usual => {}
        MergePatchRule::Merged(key) => {
            set(schema, "x-kubernetes-patch-strategy", json!("merge"));
            if let Some(key) = key {
                set(schema, "x-kubernetes-patch-merge-key", json!(key));
            }
        }
        MergePatchRule::Replaced => set(schema, "x-kubernetes-patch-strategy", json!("replace")),
    }
    let default = kinds::KEY_DEFAULTS
        .iter()
        .find(|(owner, name, _)| *owner == definition && *name == member);
    if let Some((_, _, value)) = default {
        set(schema, "default", json!(value));
    }
}

/// In v3 a reference must stand alone, so its siblings move to an `allOf` around it; v2 allows both.
fn restyle(schema: &mut Value, flavour: OpenApiFlavour) {
    if flavour == OpenApiFlavour::V2 {
        return;
    }
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if let Some(reference) = fields.remove("$ref") {
        fields.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        return;
    }
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(part) {
            restyle(inner, flavour);
            if let Some(zero) = zero_of(inner) {
                set(inner, "default", zero);
            }
        }
    }
}

/// Go's zero value, which documents of Kubernetes contain as the default of list and map elements.
fn zero_of(schema: &Value) -> Option<Value> {
    if schema.get("allOf").is_some() {
        return Some(json!({}));
    }
    match schema.get("type").and_then(Value::as_str)? {
        "string" => Some(json!("")),
        "integer" | "number" => Some(json!(0)),
        "boolean" => Some(json!(false)),
        _ => None,
    }
}

fn int_or_string(schema: &Value, flavour: OpenApiFlavour) -> Value {
    let description = schema.get("description").cloned().unwrap_or_default();
    match flavour {
        OpenApiFlavour::V2 => {
            json!({"description": description, "type": "string", "format": "int-or-string"})
        }
        OpenApiFlavour::V3 => json!({"description": description, "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}]}),
    }
}

fn quantity(schema: &Value, flavour: OpenApiFlavour) -> Value {
    let description = schema.get("description").cloned().unwrap_or_default();
    match flavour {
        OpenApiFlavour::V2 => json!({"description": description, "type": "string"}),
        OpenApiFlavour::V3 => {
            json!({"description": description, "oneOf": [{"type": "string"}, {"type": "number"}]})
        }
    }
}

fn list_meta() -> Value {
    json!({
        "description": "Standard list metadata.",
        "type": "object",
        "properties": {
            "continue": {"type": "string", "description": "Where the next page begins; empty on the last."},
            "remainingItemCount": {"type": "integer", "format": "int64", "description": "How many items follow."},
            "resourceVersion": {"type": "string", "description": "The revision the list was read at."},
            "selfLink": {"type": "string", "description": "No longer filled in."},
        },
    })
}

fn set(schema: &mut Value, key: &str, value: Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}
