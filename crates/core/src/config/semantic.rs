//! Semantic equality of objects with different serializations. Other implementations write `null` or `[]` where this
//! one omits the field; rewriting their objects for that would conflict with their owner.
//!
//! Pure functions over JSON. No function depends on a particular kind except [`definition_accepts`].

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Which values are equivalent to an absent field. This depends on the kind: `{}` or `""` can be significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blank {
    /// Only `null`.
    Null,
    /// `null` and an empty list. A Kubernetes API server omits empty lists of its own kinds, but not empty strings in
    /// maps such as selectors.
    EmptyList,
    /// `null`, an empty list and an empty string: fields whose Go type is a plain slice or string.
    Empty,
}

impl Blank {
    fn is(self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => self != Self::Null && items.is_empty(),
            Value::String(text) => self == Self::Empty && text.is_empty(),
            _ => false,
        }
    }
}

/// Returns whether `found` contains everything in `wanted`. Additional fields of `found` are ignored; lists must have
/// the same length and are compared item by item.
pub fn contains(found: &Value, wanted: &Value, blank: Blank) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| match found.get(key) {
                Some(found) => contains(found, wanted, blank),
                None => blank.is(wanted),
            })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| contains(found, wanted, blank))
        }
        (found, wanted) => are_equal(found, wanted) || (blank.is(found) && blank.is(wanted)),
    }
}

/// Whether two values are equal; a number may be written as `1` or as `1.0`.
fn are_equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) if found.is_f64() != wanted.is_f64() => {
            found.as_f64() == wanted.as_f64()
        }
        _ => found == wanted,
    }
}

/// Returns `wanted` in the serialization of `found` wherever both are equivalent: a blank value stays as it is in
/// `found`, and one that `found` omits is omitted. `null` is never omitted, because a schema may require the field.
pub fn keep_spelling(found: &Value, wanted: &Value, blank: Blank) -> Value {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let mut kept = Map::new();
            for (key, wanted) in wanted {
                match found.get(key) {
                    Some(found) => kept.insert(key.clone(), keep_spelling(found, wanted, blank)),
                    None if blank.is(wanted) && !wanted.is_null() => None,
                    None => kept.insert(key.clone(), wanted.clone()),
                };
            }
            Value::Object(kept)
        }
        (Value::Array(found), Value::Array(wanted)) if found.len() == wanted.len() => found
            .iter()
            .zip(wanted)
            .map(|(found, wanted)| keep_spelling(found, wanted, blank))
            .collect(),
        (found, wanted) if are_equal(found, wanted) || (blank.is(found) && blank.is(wanted)) => found.clone(),
        (_, wanted) => wanted.clone(),
    }
}

/// Returns a value without all `null` and empty parts. Two Ignition configs with the same result are equivalent.
pub fn pruned(value: &Value) -> Value {
    let is_hollow = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(members) => {
            let kept = members.iter().map(|(key, value)| (key.clone(), pruned(value)));
            Value::Object(kept.filter(|(_, value)| !is_hollow(value)).collect())
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

/// Returns whether `fields`, a manager's `fieldsV1`, has a field that `manifest` no longer sets: applying the
/// manifest would remove it.
pub fn gives_up(fields: &Value, manifest: &Value) -> bool {
    let Some(fields) = fields.as_object() else {
        return false;
    };
    fields.iter().any(|(path, below)| {
        let Some((kind, rest)) = path.split_once(':') else {
            return false;
        };
        let owned = match kind {
            "f" => manifest.get(rest),
            "k" => item_with_keys(manifest, rest),
            "v" => item_equal_to(manifest, rest),
            _ => None,
        };
        owned.is_none_or(|owned| gives_up(below, owned))
    })
}

fn item_with_keys<'a>(list: &'a Value, keys: &str) -> Option<&'a Value> {
    let keys: Value = serde_json::from_str(keys).ok()?;
    let mut items = list.as_array()?.iter();
    items.find(|item| contains(item, &keys, Blank::Null))
}

fn item_equal_to<'a>(list: &'a Value, item: &str) -> Option<&'a Value> {
    let wanted: Value = serde_json::from_str(item).ok()?;
    list.as_array()?.iter().find(|item| **item == wanted)
}

/// Returns whether a CustomResourceDefinition serves everything that another one describes: the same names, scope and
/// versions, and schemas that only differ in descriptions, in the order of `required` and `enum`, and in additional
/// properties or enum values that `found` accepts.
pub fn definition_accepts(found: &Value, wanted: &Value) -> bool {
    let spec = |definition: &Value| definition["spec"].clone();
    let (mut found, mut wanted) = (spec(found), spec(wanted));
    for spec in [&mut found, &mut wanted] {
        let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
        for version in versions.into_iter().flatten() {
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                normalise_schema(schema);
            }
            let columns = version.get_mut("additionalPrinterColumns");
            let columns = columns.and_then(Value::as_array_mut);
            for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
                column.remove("description");
            }
        }
    }
    let found_versions = versions(&found);
    let serves = |version: &Value| {
        let name = version["name"].as_str();
        let mut same = found_versions
            .iter()
            .filter(|found| found["name"].as_str() == name);
        same.next().is_some_and(|found| accepts(found, version))
    };
    if !versions(&wanted).iter().all(serves) {
        return false;
    }
    for spec in [&mut found, &mut wanted] {
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("versions");
        }
    }
    contains(&found, &wanted, Blank::Empty)
}

fn versions(spec: &Value) -> Vec<Value> {
    spec["versions"].as_array().cloned().unwrap_or_default()
}

/// Like [`contains`], but an enum may have additional values.
fn accepts(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted
                .iter()
                .all(|(key, wanted)| match (key.as_str(), found.get(key)) {
                    ("enum", Some(Value::Array(found))) => {
                        let values = wanted.as_array().into_iter().flatten();
                        values.into_iter().all(|value| found.contains(value))
                    }
                    (_, Some(found)) => accepts(found, wanted),
                    (_, None) => Blank::Empty.is(wanted),
                })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| accepts(found, wanted))
        }
        (found, wanted) => are_equal(found, wanted),
    }
}

/// Removes descriptions and sorts sets. A property may itself be called `description` or `required`, so the traversal
/// follows the structure of a schema.
fn normalise_schema(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    members.remove("description");
    for set in ["required", "enum"] {
        if let Some(Value::Array(items)) = members.get_mut(set) {
            let sorted: BTreeSet<String> = items.iter().map(ToString::to_string).collect();
            *items = sorted
                .iter()
                .filter_map(|text| serde_json::from_str(text).ok())
                .collect();
        }
    }
    for (key, value) in members.iter_mut() {
        match key.as_str() {
            "properties" | "patternProperties" | "definitions" => {
                value
                    .as_object_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|(_, schema)| normalise_schema(schema));
            }
            "allOf" | "anyOf" | "oneOf" => {
                value
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                    .for_each(normalise_schema);
            }
            "items" | "not" | "additionalProperties" => normalise_schema(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_rewritten_although_only_its_spelling_differed() {
        // found, wanted, which values are blank, whether no write is needed, what is written otherwise
        let cases = [
            (
                "a null where there was nothing",
                (json!({"a": 1}), json!({"a": 1, "b": null})),
                Blank::Null,
                true,
                json!({"a": 1, "b": null}),
            ),
            (
                "an empty list where there was nothing",
                (json!({}), json!({"b": []})),
                Blank::Empty,
                true,
                json!({}),
            ),
            (
                "an empty list where there was null",
                (json!({"b": null}), json!({"b": []})),
                Blank::Empty,
                true,
                json!({"b": null}),
            ),
            (
                "an empty list is a statement of its own",
                (json!({}), json!({"b": []})),
                Blank::Null,
                false,
                json!({"b": []}),
            ),
            (
                "an empty object is never blank",
                (json!({}), json!({"aws": {}})),
                Blank::Empty,
                false,
                json!({"aws": {}}),
            ),
            (
                "what others added stays theirs",
                (json!({"a": {"mine": 1, "theirs": 2}}), json!({"a": {"mine": 1}})),
                Blank::Null,
                true,
                json!({"a": {"mine": 1}}),
            ),
            (
                "another value, beside a blank",
                (json!({"a": 1, "b": ""}), json!({"a": 2, "b": null, "c": ""})),
                Blank::Empty,
                false,
                json!({"a": 2, "b": ""}),
            ),
            (
                "defaults inside the items of a list",
                (json!([{"name": "x", "protocol": "TCP"}]), json!([{"name": "x"}])),
                Blank::Null,
                true,
                json!([{"name": "x"}]),
            ),
            (
                "a number in another form",
                (json!({"a": 1}), json!({"a": 1.0})),
                Blank::Null,
                true,
                json!({"a": 1}),
            ),
            (
                "false is not nothing",
                (json!({}), json!({"a": false})),
                Blank::Empty,
                false,
                json!({"a": false}),
            ),
        ];
        for (name, (found, wanted), blank, same, kept) in cases {
            assert_eq!(contains(&found, &wanted, blank), same, "{name}");
            assert_eq!(keep_spelling(&found, &wanted, blank), kept, "{name}");
        }
    }

    #[test]
    fn a_pointer_config_with_empty_objects_means_the_same_as_one_without() {
        let theirs = json!({"ignition": {
            "config": {"merge": [{"source": "https://s/config/worker", "verification": {}}],
                       "replace": {"verification": {}}},
            "proxy": {}, "timeouts": {}, "version": "3.5.0"}, "passwd": {}, "storage": {}, "systemd": {}});
        let ours = json!({"ignition": {"config": {"merge": [{"source": "https://s/config/worker"}]}, "version": "3.5.0"}});
        assert_eq!(pruned(&theirs), pruned(&ours));
    }

    #[test]
    fn a_field_that_is_no_longer_said_is_given_up() {
        let manifest = json!({"metadata": {"labels": {"a": "1"}},
            "spec": {"ports": [{"port": 1, "protocol": "TCP"}], "finalizers": ["x"]}});
        for (fields, expected) in [
            (json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}), false),
            (json!({"f:metadata": {"f:labels": {"f:b": {}}}}), true),
            (
                json!({"f:spec": {"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}),
                false,
            ),
            (json!({"f:spec": {"f:ports": {"k:{\"port\":2}": {}}}}), true),
            (json!({"f:spec": {"f:finalizers": {"v:\"x\"": {}}}}), false),
            (json!({"f:spec": {"f:finalizers": {"v:\"y\"": {}}}}), true),
            (json!({"f:spec": {"f:replicas": {}}}), true),
        ] {
            assert_eq!(gives_up(&fields, &manifest), expected, "{fields}");
        }
    }

    fn definition(schema: &Value) -> Value {
        let column = json!({"name": "Age", "jsonPath": ".x", "description": schema["description"]});
        json!({"spec": {"group": "g", "scope": "Cluster", "versions": [{"name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [column], "schema": {"openAPIV3Schema": schema}}]}})
    }

    #[test]
    fn a_definition_that_differed_only_in_descriptions_was_rewritten() {
        let ours = definition(
            &json!({"type": "object", "description": "ours", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "enum": ["x", "y"], "minLength": 1.0, "description": "ours"},
            "description": {"type": "string"}}}),
        );
        let base = json!({"type": "object", "required": ["b", "a"], "properties": {
            "a": {"type": "string", "enum": ["y", "x"], "minLength": 1, "description": "theirs"},
            "description": {"type": "string", "description": "theirs"}}});
        let with = |pointer: &str, value: Value| {
            let mut schema = base.clone();
            *schema.pointer_mut(pointer).unwrap() = value;
            definition(&schema)
        };
        let mut defaulted = definition(&base);
        defaulted["spec"]["conversion"] = json!({"strategy": "None"});
        for (name, theirs, expected) in [
            ("another order", definition(&base), true),
            ("with the server's defaults", defaulted, true),
            (
                "one value more",
                with("/properties/a/enum", json!(["z", "x", "y"])),
                true,
            ),
            ("one value less", with("/properties/a/enum", json!(["x"])), false),
            (
                "another type",
                with("/properties/a/type", json!("integer")),
                false,
            ),
            (
                "a property less",
                with("/properties", json!({"a": base["properties"]["a"]})),
                false,
            ),
            ("nothing is required", with("/required", json!([])), false),
        ] {
            assert_eq!(definition_accepts(&theirs, &ours), expected, "{name}");
        }
    }

    #[test]
    fn each_of_our_definitions_is_accepted_in_other_words() {
        fn reworded(value: &mut Value) {
            if let Some(Value::String(text)) = value.get_mut("description") {
                text.insert_str(0, "In other words: ");
            }
            match value {
                Value::Object(members) => members.values_mut().for_each(reworded),
                Value::Array(items) => items.iter_mut().for_each(reworded),
                _ => {}
            }
        }
        for definition in mco_api::crd::own_crds() {
            let ours = serde_json::to_value(&definition).unwrap();
            let mut theirs = ours.clone();
            reworded(&mut theirs);
            assert_ne!(ours, theirs);
            assert!(
                definition_accepts(&theirs, &ours),
                "{:?}",
                definition.metadata.name
            );
        }
    }
}
