//! JSON in the format of Go's encoder.
//!
//! Two files of a document contain a whole MachineConfig, and other tools compare their bytes. So fields have the order
//! of the Go types, empty metadata is omitted, and `<`, `>`, `&` and the two Unicode line separators are escaped.

use mco_api::MachineConfig;
use mco_core::generators::generated::json_text::GoEscapes;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use serde_json::{Map, Value};

/// Whether an object has `kind` and `apiVersion`: objects from files do, those from a typed cache do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeMeta {
    Present,
    Absent,
}

/// Returns a MachineConfig as compact JSON.
pub fn compact(config: &MachineConfig, type_meta: TypeMeta) -> serde_json::Result<Vec<u8>> {
    write(&OrderedJson::machine_config(config, type_meta)?, CompactFormatter)
}

/// Returns a MachineConfig as JSON indented by four spaces.
pub fn indented(config: &MachineConfig, type_meta: TypeMeta) -> serde_json::Result<Vec<u8>> {
    let formatter = PrettyFormatter::with_indent(b"    ");
    write(&OrderedJson::machine_config(config, type_meta)?, formatter)
}

/// Returns a map of strings with sorted keys.
pub fn strings(entries: &[(&str, &str)]) -> serde_json::Result<Vec<u8>> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    let object = OrderedJson::Object(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), OrderedJson::Leaf(Value::from(value))))
            .collect(),
    );
    write(&object, CompactFormatter)
}

fn write(value: &OrderedJson, formatter: impl Formatter) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut text,
        GoEscapes(formatter),
    ))?;
    Ok(text)
}

const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const OWNER: &[&str] = &[
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
const MANAGED: &[&str] = &[
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];
const SPEC: &[&str] = &[
    "osImageURL",
    "baseOSExtensionsContainerImage",
    "config",
    "kernelArguments",
    "extensions",
    "fips",
    "kernelType",
];

/// A JSON value whose objects keep the order of their keys.
enum OrderedJson {
    Leaf(Value),
    List(Vec<OrderedJson>),
    Object(Vec<(String, OrderedJson)>),
}

impl OrderedJson {
    fn machine_config(config: &MachineConfig, type_meta: TypeMeta) -> serde_json::Result<Self> {
        let Value::Object(mut object) = serde_json::to_value(config)? else {
            return Ok(Self::Object(Vec::new()));
        };
        let mut fields = Vec::new();
        if type_meta == TypeMeta::Present {
            for key in ["kind", "apiVersion"] {
                fields.extend(
                    object
                        .remove(key)
                        .map(|value| (key.to_owned(), Self::Leaf(value))),
                );
            }
        }
        let metadata = object.remove("metadata").unwrap_or_default();
        fields.push(("metadata".to_owned(), Self::metadata(metadata)));
        let spec = object.remove("spec").unwrap_or_default();
        fields.push(("spec".to_owned(), Self::record(spec, SPEC, Self::sorted)));
        Ok(Self::Object(fields))
    }

    fn metadata(value: Value) -> Self {
        let value = match value {
            Value::Object(map) => {
                Value::Object(map.into_iter().filter(|(_, value)| !is_empty(value)).collect())
            }
            other => other,
        };
        let Value::Object(map) = value else {
            return Self::Leaf(value);
        };
        Self::Object(
            in_order(map, METADATA)
                .map(|(key, value)| {
                    let value = match key.as_str() {
                        "ownerReferences" => Self::records(value, OWNER),
                        "managedFields" => Self::records(value, MANAGED),
                        _ => Self::sorted(value),
                    };
                    (key, value)
                })
                .collect(),
        )
    }

    fn records(value: Value, order: &[&str]) -> Self {
        match value {
            Value::Array(items) => Self::List(
                items
                    .into_iter()
                    .map(|item| Self::record(item, order, Self::sorted))
                    .collect(),
            ),
            other => Self::sorted(other),
        }
    }

    fn record(value: Value, order: &[&str], inner: fn(Value) -> Self) -> Self {
        match value {
            Value::Object(map) => Self::Object(
                in_order(map, order)
                    .map(|(key, value)| (key, inner(value)))
                    .collect(),
            ),
            other => Self::Leaf(other),
        }
    }

    /// Returns a value with sorted keys, as YAML and the API server produce them.
    fn sorted(value: Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.into_iter().map(Self::sorted).collect()),
            Value::Object(map) => Self::Object(
                in_order(map, &[])
                    .map(|(key, value)| (key, Self::sorted(value)))
                    .collect(),
            ),
            leaf => Self::Leaf(leaf),
        }
    }
}

/// Returns the entries in `order` first, in that order, and the others sorted after them.
fn in_order(map: Map<String, Value>, order: &[&str]) -> impl Iterator<Item = (String, Value)> {
    let mut entries: Vec<_> = map.into_iter().collect();
    let rank = |key: &str| order.iter().position(|name| *name == key).unwrap_or(order.len());
    entries.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    entries.into_iter()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

impl Serialize for OrderedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leaf(value) => value.serialize(serializer),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_is_written_field_by_field_as_go_does() {
        let config: MachineConfig = serde_json::from_value(json!({
            "metadata": {
                "name": "rendered-worker-1",
                "labels": {},
                "annotations": {"b": "<&>", "a": "\u{2028}"},
                "ownerReferences": [{"apiVersion": "v1", "blockOwnerDeletion": true, "controller": true, "kind": "K", "name": "n", "uid": ""}],
            },
            "spec": {"config": {"storage": {}, "ignition": {"version": "3.5.0"}}, "kernelType": "default"},
        }))
        .unwrap();
        let text = String::from_utf8(compact(&config, TypeMeta::Present).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"rendered-worker-1","annotations":{"a":"\u2028","b":"\u003c\u0026\u003e"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"","controller":true,"blockOwnerDeletion":true}]},"spec":{"osImageURL":"","baseOSExtensionsContainerImage":"","config":{"ignition":{"version":"3.5.0"},"storage":{}},"kernelArguments":[],"extensions":[],"fips":false,"kernelType":"default"}}"#
        );
        let text = String::from_utf8(indented(&config, TypeMeta::Absent).unwrap()).unwrap();
        assert!(
            text.starts_with("{\n    \"metadata\": {\n        \"name\": \"rendered-worker-1\",\n"),
            "{text}"
        );
        assert!(text.contains("\"kernelArguments\": [],\n"), "{text}");
    }
}
