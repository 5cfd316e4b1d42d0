//! The Go types behind the built-in kinds: field numbers of their protobuf form, and which fields JSON always has.
//!
//! The table beside this file lists one message after the other: `number name type`. A name begins with `?` when JSON
//! leaves the field out while it is zero, with `!` when JSON always has it, and is `-` when the members of the field
//! belong to the message around it.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::kinds;

/// Every message a built-in kind needs, by its short name (`core.v1.Pod`).
pub(crate) static MESSAGES: LazyLock<HashMap<&'static str, GoMessage>> =
    LazyLock::new(|| read_table(include_str!("protobuf_messages.txt")));

#[derive(Debug, Default)]
pub(crate) struct GoMessage {
    pub fields: HashMap<u32, GoField>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GoField {
    pub name: &'static str,
    pub presence: FieldPresence,
    pub shape: GoShape,
    pub of: &'static str,
}

/// When JSON contains a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldPresence {
    WhenSet,
    WhenNotZero,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoShape {
    One,
    Inline,
    List,
    Map,
}

/// `policy/v1` `Eviction` is `policy.v1.Eviction`; only the first label of a group names its package.
pub(crate) fn message_name(api_version: &str, kind: &str) -> String {
    if kind == "DeleteOptions" {
        return "meta.v1.DeleteOptions".to_owned();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next().unwrap_or(group);
    format!("{package}.{version}.{kind}")
}

/// Encodes an object as Go's encoder does: zero values appear unless their field has `omitempty`.
pub(crate) fn as_encoded(object: &mut Map<String, Value>, group: &str, version: &str, kind: &str) {
    let name = message_name(&kinds::api_version(group, version), kind);
    if let Some((name, _)) = MESSAGES.get_key_value(name.as_str()) {
        complete(object, name);
    }
}

/// Returns the zero object of a type.
pub(crate) fn empty(group: &str, version: &str, kind: &str) -> Map<String, Value> {
    let mut object = Map::new();
    as_encoded(&mut object, group, version, kind);
    object
}

fn complete(object: &mut Map<String, Value>, name: &str) {
    let Some(message) = MESSAGES.get(name) else {
        return;
    };
    for field in message.fields.values() {
        if field.shape == GoShape::Inline {
            complete(object, field.of);
            continue;
        }
        match object.get_mut(field.name) {
            None | Some(Value::Null) if field.presence == FieldPresence::Always => {
                object.insert(field.name.to_owned(), zero(field));
            }
            None | Some(Value::Null) => {
                object.remove(field.name);
            }
            Some(value) if field.presence == FieldPresence::WhenNotZero && is_zero(value) => {
                object.remove(field.name);
            }
            Some(value) => complete_members(value, field),
        }
    }
}

fn complete_members(value: &mut Value, field: &GoField) {
    match (field.shape, value) {
        (GoShape::One, Value::Object(object)) => complete(object, field.of),
        (GoShape::List, Value::Array(items)) => {
            for item in items {
                complete_member(item, field);
            }
        }
        (GoShape::Map, Value::Object(members)) => {
            members
                .values_mut()
                .for_each(|member| complete_member(member, field));
        }
        _ => {}
    }
}

/// Completes one member of a list or map. Go has no null there: it decodes one as the zero value.
fn complete_member(member: &mut Value, field: &GoField) {
    match member {
        Value::Object(object) => complete(object, field.of),
        Value::Null => *member = zero_of(field.of),
        _ => {}
    }
}

fn zero(field: &GoField) -> Value {
    match field.shape {
        GoShape::List | GoShape::Map => Value::Null,
        GoShape::One | GoShape::Inline => zero_of(field.of),
    }
}

fn zero_of(type_name: &str) -> Value {
    match type_name {
        "string" | "bytes" => Value::from(""),
        "bool" => Value::from(false),
        "int32" | "int64" | "intstr.IntOrString" => Value::from(0),
        "resource.Quantity" => Value::from("0"),
        of if MESSAGES.contains_key(of) => {
            let mut object = Map::new();
            complete(&mut object, of);
            Value::Object(object)
        }
        _ => Value::Null,
    }
}

/// Returns whether Go's `omitempty` leaves the value out.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null => true,
    }
}

fn read_table(table: &'static str) -> HashMap<&'static str, GoMessage> {
    let mut messages: HashMap<&'static str, GoMessage> = HashMap::new();
    let mut current = "";
    for line in table.lines() {
        let Some(field) = line.strip_prefix(' ') else {
            current = line;
            messages.entry(current).or_default();
            continue;
        };
        let parts: Vec<&'static str> = field.split(' ').collect();
        let (number, name, shape, of) = match parts.as_slice() {
            [number, name, of] => (number, *name, GoShape::One, *of),
            [number, name, "inline", of] => (number, *name, GoShape::Inline, *of),
            [number, name, "list", of] => (number, *name, GoShape::List, *of),
            [number, name, "map", of] => (number, *name, GoShape::Map, *of),
            _ => continue,
        };
        let Ok(number) = number.parse() else {
            continue;
        };
        let presence = match name.as_bytes().first() {
            Some(b'?') => FieldPresence::WhenNotZero,
            Some(b'!') => FieldPresence::Always,
            _ => FieldPresence::WhenSet,
        };
        let field = GoField {
            name: name.trim_start_matches(['?', '!']),
            presence,
            shape,
            of,
        };
        messages.entry(current).or_default().fields.insert(number, field);
    }
    messages
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_always_has_a_status_and_never_a_false_cordon() {
        let mut node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": false}});
        as_encoded(node.as_object_mut().unwrap(), "", "v1", "Node");
        assert_eq!(node["spec"], json!({}));
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
        assert_eq!(
            node["status"]["daemonEndpoints"]["kubeletEndpoint"],
            json!({"Port": 0})
        );
    }

    #[test]
    fn an_empty_config_map_is_empty() {
        assert_eq!(
            Value::Object(empty("", "v1", "ConfigMap")),
            json!({"metadata": {}})
        );
    }

    #[test]
    fn one_null_in_a_nodes_status_made_all_nodes_unreadable() {
        let mut node = json!({
            "metadata": {"name": "n", "labels": {"a": null}, "finalizers": [null]},
            "status": {
                "addresses": [null],
                "conditions": [null],
                "capacity": {"cpu": null},
                "images": [{"names": [null], "sizeBytes": null}],
                "phase": null,
            },
        });
        as_encoded(node.as_object_mut().unwrap(), "", "v1", "Node");
        assert_eq!(node["status"]["addresses"], json!([{"type": "", "address": ""}]));
        assert_eq!(node["status"]["capacity"], json!({"cpu": "0"}));
        assert_eq!(node["status"]["images"], json!([{"names": [""]}]));
        assert_eq!(node["metadata"]["labels"], json!({"a": ""}));
        let typed: Result<k8s_openapi::api::core::v1::Node, _> = serde_json::from_value(node);
        assert!(typed.is_ok(), "{typed:?}");
    }
}
