//! A KubeletConfiguration as a tree of JSON values that follows the schema: decoding, encoding and merging, with the
//! same results as the Go implementation.

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::schema::{FieldKind, KUBELET_CONFIGURATION, KubeletFieldPresence, SchemaField};
use crate::config::go_duration;
use crate::config::goyaml;
use crate::generators::quantity::Quantity;

/// A valid, decoded KubeletConfiguration. Holds the fields that are set; a zero counts as set only where the schema
/// distinguishes it from absence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KubeletConfiguration(Map<String, Value>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {message}")]
pub struct KubeletDecodeError {
    pub path: String,
    pub message: String,
}

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

impl KubeletConfiguration {
    pub fn decode(value: &Value) -> Result<Self, KubeletDecodeError> {
        let map = decode_struct(KUBELET_CONFIGURATION, value, "")?;
        for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            if let Some(found) = map.get(key).and_then(Value::as_str)
                && found != expected
            {
                return Err(KubeletDecodeError {
                    path: key.to_owned(),
                    message: format!("expected {expected:?}, found {found:?}"),
                });
            }
        }
        Ok(Self(map))
    }

    /// Encodes all fields of the kubelet's file, zeros included.
    pub fn encode(&self) -> Value {
        let mut map = self.0.clone();
        map.insert("apiVersion".to_owned(), json!(API_VERSION));
        map.insert("kind".to_owned(), json!(KIND));
        Value::Object(encode_struct(KUBELET_CONFIGURATION, &map))
    }

    /// Merges `over` into this configuration. A zero never overrides; lists replace lists; maps merge key by key.
    pub fn merge(&mut self, over: &Self) {
        merge(KUBELET_CONFIGURATION, &mut self.0, &over.0);
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.0.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// Removes one entry from a map field, and the field itself when it becomes empty.
    pub fn remove_entry(&mut self, field: &str, key: &str) -> Option<Value> {
        let map = self.0.get_mut(field)?.as_object_mut()?;
        let value = map.remove(key);
        if map.is_empty() {
            self.0.remove(field);
        }
        value
    }
}

fn decode_struct(
    fields: &[SchemaField],
    value: &Value,
    path: &str,
) -> Result<Map<String, Value>, KubeletDecodeError> {
    let Value::Object(given) = value else {
        return Err(wrong("an object", value, path));
    };
    let mut map = Map::new();
    for field in fields {
        let Some(value) = given.get(field.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let path = join(path, field.name);
        let decoded = decode_value(field.kind, value, &path)?;
        // A zero flush frequency is written as it was read: as a string or as a number.
        let zero_text = matches!(field.kind, FieldKind::DurationOrNanos) && decoded.is_string();
        if field.presence == KubeletFieldPresence::Optional || zero_text || !is_zero(&decoded) {
            map.insert(field.name.to_owned(), decoded);
        }
    }
    Ok(map)
}

fn decode_value(kind: FieldKind, value: &Value, path: &str) -> Result<Value, KubeletDecodeError> {
    let expected = |what: &str| Err(wrong(what, value, path));
    match (kind, value) {
        (FieldKind::Text, Value::String(_))
        | (FieldKind::Flag, Value::Bool(_))
        | (FieldKind::Float, Value::Number(_)) => Ok(value.clone()),
        (FieldKind::Text, Value::Bool(_) | Value::Number(_)) => Ok(json!(goyaml::text_of(value))),
        (FieldKind::Integer, Value::Number(number)) if number.is_i64() => Ok(value.clone()),
        (FieldKind::Duration | FieldKind::DurationOrNanos, Value::String(text)) => go_duration::parse(text)
            .map_or_else(
                || expected("a duration such as 1m30s"),
                |nanos| Ok(json!(go_duration::format(nanos))),
            ),
        (FieldKind::DurationOrNanos, Value::Number(number)) if number.is_i64() => Ok(value.clone()),
        (FieldKind::BufferSize, _) => quantity(value).map_or_else(|| expected("a quantity such as 1Mi"), Ok),
        (FieldKind::Texts, Value::Array(items)) => list(items, path, |item, path| {
            decode_value(FieldKind::Text, item, path)
        }),
        (FieldKind::Integers, Value::Array(items)) => list(items, path, |item, path| {
            decode_value(FieldKind::Integer, item, path)
        }),
        (FieldKind::Structs(fields), Value::Array(items)) => list(items, path, |item, path| {
            decode_struct(fields, item, path).map(Value::Object)
        }),
        (FieldKind::TextMap, Value::Object(map)) => {
            entries(map, path, |v, p| decode_value(FieldKind::Text, v, p))
        }
        (FieldKind::FlagMap, Value::Object(map)) => {
            entries(map, path, |v, p| decode_value(FieldKind::Flag, v, p))
        }
        (FieldKind::TextsMap, Value::Object(map)) => {
            entries(map, path, |v, p| decode_value(FieldKind::Texts, v, p))
        }
        (FieldKind::QuantityMap, Value::Object(map)) => {
            entries(map, path, |v, p| decode_value(FieldKind::BufferSize, v, p))
        }
        (FieldKind::Struct(fields), _) => decode_struct(fields, value, path).map(Value::Object),
        (FieldKind::Text, _) => expected("a text; quote it if it looks like a number"),
        (FieldKind::Integer, _) => expected("a whole number"),
        (FieldKind::Flag, _) => expected("true or false"),
        (FieldKind::Float, _) => expected("a number"),
        (FieldKind::Duration | FieldKind::DurationOrNanos, _) => expected("a duration such as 1m30s"),
        (FieldKind::Texts | FieldKind::Integers | FieldKind::Structs(_), _) => expected("a list"),
        (FieldKind::TextMap | FieldKind::FlagMap | FieldKind::TextsMap | FieldKind::QuantityMap, _) => {
            expected("a map")
        }
    }
}

fn quantity(value: &Value) -> Option<Value> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Quantity::parse(&text)
        .ok()
        .map(|quantity| json!(quantity.canonical()))
}

fn list(
    items: &[Value],
    path: &str,
    mut decode: impl FnMut(&Value, &str) -> Result<Value, KubeletDecodeError>,
) -> Result<Value, KubeletDecodeError> {
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| decode(item, &format!("{path}[{index}]")))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

fn entries(
    map: &Map<String, Value>,
    path: &str,
    mut decode: impl FnMut(&Value, &str) -> Result<Value, KubeletDecodeError>,
) -> Result<Value, KubeletDecodeError> {
    let mut decoded = Map::new();
    for (key, value) in map {
        decoded.insert(key.clone(), decode(value, &join(path, key))?);
    }
    Ok(Value::Object(decoded))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn wrong(expected: &str, found: &Value, path: &str) -> KubeletDecodeError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    KubeletDecodeError {
        path: path.to_owned(),
        message: format!("expected {expected}, found {found}"),
    }
}

/// Whether the value is Go's zero value, in the form of the decoder.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn encode_struct(fields: &[SchemaField], map: &Map<String, Value>) -> Map<String, Value> {
    let mut written = Map::new();
    for field in fields {
        let value = match (map.get(field.name), field.kind) {
            (Some(value), FieldKind::Struct(inner)) => value
                .as_object()
                .map(|map| Value::Object(encode_struct(inner, map))),
            (Some(Value::Array(items)), FieldKind::Structs(inner)) => {
                let items = items.iter().filter_map(Value::as_object);
                Some(
                    items
                        .map(|map| Value::Object(encode_struct(inner, map)))
                        .collect(),
                )
            }
            (Some(value), _) => Some(value.clone()),
            (None, _) if field.presence == KubeletFieldPresence::Optional => None,
            (None, kind) => zero(kind, field.presence),
        };
        if let Some(value) = value {
            written.insert(field.name.to_owned(), value);
        }
    }
    written
}

/// Returns what is written for an unset field. Go's `omitempty` does not apply to structs, and a duration is one.
fn zero(kind: FieldKind, presence: KubeletFieldPresence) -> Option<Value> {
    match (kind, presence) {
        (FieldKind::Duration, _) => Some(json!("0s")),
        (FieldKind::BufferSize, _) => Some(json!("0")),
        (FieldKind::Struct(fields), _) => Some(Value::Object(encode_struct(fields, &Map::new()))),
        (FieldKind::Text, KubeletFieldPresence::Always) => Some(json!("")),
        (FieldKind::Integer | FieldKind::DurationOrNanos, KubeletFieldPresence::Always) => Some(json!(0)),
        (FieldKind::QuantityMap, KubeletFieldPresence::Always) => Some(Value::Null),
        _ => None,
    }
}

fn merge(fields: &[SchemaField], base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for field in fields {
        let Some(value) = over.get(field.name) else {
            continue;
        };
        let Some(existing) = base.get_mut(field.name) else {
            if !matches!(field.kind, FieldKind::BufferSize) {
                base.insert(field.name.to_owned(), merged_into_nothing(field.kind, value));
            }
            continue;
        };
        match (field.kind, existing, value) {
            (FieldKind::Struct(inner), Value::Object(base), Value::Object(over)) => merge(inner, base, over),
            (
                FieldKind::TextMap | FieldKind::FlagMap | FieldKind::TextsMap | FieldKind::QuantityMap,
                Value::Object(base),
                Value::Object(over),
            ) => base.extend(over.iter().map(|(key, value)| (key.clone(), value.clone()))),
            // The merge library of the Go implementation cannot merge quantities, so the base's value stays.
            (FieldKind::BufferSize, ..) => {}
            (FieldKind::DurationOrNanos, existing, value) => *existing = merge_nanos(existing, value),
            (_, existing, value) if !is_zero(value) => *existing = value.clone(),
            _ => {}
        }
    }
}

/// Merges into an absent struct, which still drops its quantities, unless the struct is optional as a whole.
fn merged_into_nothing(kind: FieldKind, value: &Value) -> Value {
    match (kind, value) {
        (FieldKind::Struct(inner), Value::Object(over)) => {
            let mut map = Map::new();
            merge(inner, &mut map, over);
            Value::Object(map)
        }
        _ => value.clone(),
    }
}

/// Returns the overriding duration, as a string if either of the two is one.
fn merge_nanos(base: &Value, over: &Value) -> Value {
    let nanos = |value: &Value| match value {
        Value::String(text) => go_duration::parse(text).unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    };
    let chosen = if nanos(over) == 0 {
        nanos(base)
    } else {
        nanos(over)
    };
    if base.is_string() || over.is_string() {
        json!(go_duration::format(chosen))
    } else {
        json!(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::goyaml;
    use crate::config::manifest;

    fn read(text: &str) -> KubeletConfiguration {
        KubeletConfiguration::decode(&manifest::value(text).unwrap()).unwrap()
    }

    /// Recorded from the Go type with every field set.
    #[test]
    fn every_field_is_read_and_written_in_gos_bytes() {
        let text = include_str!("testdata/every-field.yaml");
        assert_eq!(goyaml::to_string(&read(text).encode()), text);
    }

    /// Recorded from the Go type and the merge library that other implementations use.
    #[test]
    fn one_configuration_over_another_gives_gos_bytes() {
        let mut base = read(include_str!("testdata/base.yaml"));
        base.merge(&read(include_str!("testdata/over.yaml")));
        assert_eq!(
            goyaml::to_string(&base.encode()),
            include_str!("testdata/merged.yaml")
        );
    }

    #[test]
    fn a_boolean_or_a_number_in_place_of_a_text_becomes_that_text() {
        let text = "registerWithTaints:\n- {key: 1, value: y, effect: NoSchedule}\nclusterDNS: [off]\n";
        let read = read(text).encode();
        assert_eq!(
            read["registerWithTaints"],
            json!([{"key": "1", "value": "true", "effect": "NoSchedule"}])
        );
        assert_eq!(read["clusterDNS"], json!(["false"]));
        for value in [
            json!({"maxPods": "110"}),
            json!({"serializeImagePulls": "true"}),
            json!({"clusterDomain": ["a"]}),
        ] {
            assert!(
                KubeletConfiguration::decode(&value).is_err(),
                "only in that direction: {value}"
            );
        }
    }

    #[test]
    fn a_kind_or_version_that_is_another_is_refused() {
        for value in [json!({"kind": "Pod"}), json!({"apiVersion": "v1"}), json!([])] {
            assert!(KubeletConfiguration::decode(&value).is_err(), "{value}");
        }
    }
}
