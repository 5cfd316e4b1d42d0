//! Validates objects as an API server does: structural schema, list types, pruning, defaulting and CEL rules.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use base64::Engine;
use kube_cel::{CompiledSchema, ErrorKind};
use serde_json::{Map, Value, json};

/// One definition's schema, compiled for validation.
pub struct Judge {
    pub schema: Value,
    structure: jsonschema::Validator,
    rules: OnceCell<CompiledSchema>,
}

impl Judge {
    pub fn new(schema: Value) -> Self {
        let structure = compile(&json_schema(&schema));
        Self {
            schema,
            structure,
            rules: OnceCell::new(),
        }
    }

    /// Returns whether the object is structurally valid. CEL rules are not evaluated.
    pub fn accepts_structure(&self, object: &Value) -> bool {
        self.structure.is_valid(object) && lists_hold(&self.schema, object)
    }

    /// Returns the structural violations, for the message of a failed test.
    pub fn complaints(&self, object: &Value) -> Vec<String> {
        self.structure
            .iter_errors(object)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }

    /// Returns the messages of the CEL rules that the object, or its change from `old`, violates.
    pub fn broken_rules(&self, object: &Value, old: Option<&Value>) -> BTreeSet<String> {
        let rules = self.rules.get_or_init(|| {
            let rules = kube_cel::compile_schema(&with_evaluated_rules(&self.schema));
            assert!(
                !rules.has_errors(),
                "CEL rules that do not compile: {:?}",
                rules.compilation_errors()
            );
            rules
        });
        let Err(errors) = kube_cel::Validator::new().validate_compiled(rules, object, old) else {
            return BTreeSet::new();
        };
        for error in errors.as_slice() {
            assert!(
                matches!(error.kind, ErrorKind::ValidationFailure),
                "cannot evaluate a rule at {}: {error}",
                error.field_path
            );
        }
        errors.into_vec().into_iter().map(|error| error.message).collect()
    }

    /// Returns the object as stored: without unknown fields.
    pub fn prune(&self, object: &Value) -> Value {
        prune(&self.schema, object)
    }

    /// Returns the object as stored: with defaults.
    pub fn fill_in(&self, object: &Value) -> Value {
        kube_cel::apply_defaults(&self.schema, object)
    }
}

/// Returns whether our evaluator supports a rule: it does not support optional field access, an optional old object, or
/// the conversion of a point in time to itself. The comparison of all keywords ensures that the other rules match the
/// reference.
pub fn can_be_evaluated(rule: &Value) -> bool {
    let text = rule["rule"].as_str().unwrap();
    !text.contains(".?") && !text.contains("timestamp(") && rule["optionalOldSelf"] != true
}

/// Returns the schema without the rules that our evaluator does not support.
fn with_evaluated_rules(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => keywords
            .iter()
            .map(|(keyword, value)| {
                let mut value = with_evaluated_rules(value);
                if let ("x-kubernetes-validations", Some(rules)) = (keyword.as_str(), value.as_array_mut()) {
                    rules.retain(can_be_evaluated);
                }
                (keyword.clone(), value)
            })
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Compiles a plain JSON schema with the formats that Kubernetes checks.
pub fn compile(schema: &Value) -> jsonschema::Validator {
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft7)
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_format("byte", |text: &str| {
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        })
        .build(schema)
        .unwrap()
}

/// Converts a Kubernetes structural schema to a JSON schema with the same meaning.
pub fn json_schema(structural: &Value) -> Value {
    let mut plain = Map::new();
    for (keyword, value) in structural.as_object().unwrap() {
        let value = match keyword.as_str() {
            "description" | "default" | "nullable" => continue,
            extension if extension.starts_with("x-kubernetes-") => continue,
            "properties" => each_value(value, json_schema),
            "items" | "additionalProperties" => json_schema(value),
            _ => value.clone(),
        };
        plain.insert(keyword.clone(), value);
    }
    let is = |extension: &str| structural[extension] == true;
    if is("x-kubernetes-int-or-string") {
        plain.insert("type".to_owned(), json!(["integer", "string"]));
    }
    if is("x-kubernetes-embedded-resource") {
        let required = plain
            .entry("required")
            .or_insert_with(|| json!([]))
            .as_array_mut()
            .unwrap();
        required.extend(["apiVersion", "kind", "metadata"].map(Value::from));
    }
    if let Some(bits) = structural["format"]
        .as_str()
        .and_then(|format| format.strip_prefix("int"))
    {
        let limit = 2f64.powi(bits.parse::<i32>().unwrap() - 1);
        plain.entry("minimum").or_insert(json!(-limit));
        plain.entry("maximum").or_insert(json!(limit - 1.0));
    }
    if structural["nullable"] == true {
        return json!({"anyOf": [{"type": "null"}, plain]});
    }
    plain.into()
}

fn each_value(object: &Value, change: fn(&Value) -> Value) -> Value {
    object
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), change(value)))
        .collect::<Map<_, _>>()
        .into()
}

/// Checks list types: sets have no duplicates, and map lists have no two items with the same keys.
fn lists_hold(schema: &Value, value: &Value) -> bool {
    match value {
        Value::Array(items) => {
            let identity = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Some(item.to_string()),
                Some("map") => Some(key_of(schema, item)),
                _ => None,
            };
            let identities: Vec<String> = items.iter().filter_map(identity).collect();
            let distinct: HashSet<&String> = identities.iter().collect();
            distinct.len() == identities.len() && items.iter().all(|item| lists_hold(&schema["items"], item))
        }
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| field_schema(schema, name).is_none_or(|schema| lists_hold(schema, value))),
        _ => true,
    }
}

/// Returns the values of an item's keys, with the API server's defaults.
fn key_of(schema: &Value, item: &Value) -> String {
    let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap();
    let values: Vec<&Value> = keys
        .iter()
        .map(|key| {
            item.get(key.as_str().unwrap())
                .unwrap_or(&schema["items"]["properties"][key.as_str().unwrap()]["default"])
        })
        .collect();
    json!(values).to_string()
}

fn field_schema<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"]
        .get(name)
        .or_else(|| schema.get("additionalProperties"))
}

fn prune(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| prune(&schema["items"], item)).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), prune_field(schema, name, value)?)))
            .collect::<Map<_, _>>()
            .into(),
        scalar => scalar.clone(),
    }
}

fn prune_field(schema: &Value, name: &str, value: &Value) -> Option<Value> {
    let has_standard_fields = schema["x-kubernetes-embedded-resource"] == true;
    match field_schema(schema, name) {
        _ if name == "metadata" => Some(value.clone()),
        Some(schema) => Some(prune(schema, value)),
        None if has_standard_fields && matches!(name, "apiVersion" | "kind") => Some(value.clone()),
        None if schema["x-kubernetes-preserve-unknown-fields"] == true => Some(value.clone()),
        None => None,
    }
}
