//! Validation of a CRD's schema.
//!
//! The schema must be *structural* (every value has a type, and alternatives only restrict it), and its extensions must
//! be consistent. The latter includes defaults and rules.

use serde_json::{Value, json};

use super::compile::compile;
use super::extensions::extension_errors;
use super::go_struct;
use super::pattern::GoPattern;
use super::prune::prune;
use super::raw::{flag, items, members, text};
use super::validate::validate;
use crate::cpu;
use crate::field_error::FieldError;

/// Returns the errors of the `openAPIV3Schema` at a path of a CRD.
pub fn validate_schema(schema: &Value, path: &str, has_status: bool) -> Vec<FieldError> {
    if let Some(error) = pattern_size_error(schema, path) {
        return vec![error];
    }
    let mut errors = root_errors(schema, path, has_status);
    let mut structural = Vec::new();
    invariants(schema, SchemaLevel::Root, path, &mut structural);
    structural.sort_by_key(ToString::to_string);
    let is_structural = structural.is_empty();
    errors.extend(structural);
    if is_structural {
        let mut defaults = Vec::new();
        default_errors(schema, path, &mut defaults);
        errors.extend(defaults);
    }
    // Errors of rules over a broken schema would only add noise.
    let evaluate_rules = errors.is_empty();
    errors.extend(extension_errors(schema, path, evaluate_rules));
    errors
}

/// The states of all patterns of a schema together. A compiled state takes about a hundred bytes, for as long as the
/// resource is served.
const MAX_PATTERN_STATES: usize = 250_000;

/// Returns the error for a schema whose patterns are too large together. Checked first, and only as far as the limit,
/// because everything else compiles them too.
fn pattern_size_error(schema: &Value, path: &str) -> Option<FieldError> {
    let mut states = 0_usize;
    let mut rest = vec![schema];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(members) => {
                if let Some(Ok(pattern)) = members
                    .get("pattern")
                    .and_then(Value::as_str)
                    .map(GoPattern::compile)
                {
                    states = states.saturating_add(pattern.states());
                }
                rest.extend(members.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
        if states > MAX_PATTERN_STATES || cpu::is_out_of_time() {
            let detail = format!(
                "the patterns of the schema are too large together: more than {MAX_PATTERN_STATES} states; \
                 use fewer patterns or smaller repetitions"
            );
            return Some(FieldError::forbidden(path, &detail));
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// The keywords that are allowed at the root with a status subresource, as `(name in JSON, name in messages)`: the
/// status is validated alone, so that nothing at the root may relate it to the rest.
const ALLOWED_AT_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

fn root_errors(schema: &Value, path: &str, has_status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_allowed = |name: &str| ALLOWED_AT_ROOT.iter().any(|(allowed, _)| *allowed == name);
    let mut names = schema.as_object().into_iter().flatten().map(|(name, _)| name);
    if has_status && names.any(|name| !is_allowed(name)) {
        let allowed: Vec<&str> = ALLOWED_AT_ROOT.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            allowed.join(" ")
        );
        errors.push(FieldError::with_shown_value(
            path,
            &go_struct::schema(schema),
            &detail,
        ));
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(
            format!("{path}.nullable"),
            "nullable cannot be true at the root",
        ));
    }
    errors
}

fn invariants(schema: &Value, level: SchemaLevel, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if kind == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = schema.get("items") {
        invariants(items, SchemaLevel::Item, &format!("{path}.items"), errors);
    }
    for (name, member) in members(schema, "properties") {
        invariants(
            member,
            SchemaLevel::Field,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    if let Some(values) = schema.get("additionalProperties") {
        let path = format!("{path}.additionalProperties");
        if level == SchemaLevel::Root {
            errors.push(FieldError::forbidden(
                path.as_str(),
                "must not be used at the root",
            ));
        }
        if values.is_object() {
            invariants(values, SchemaLevel::Field, &path, errors);
        }
    }
    extension_invariants(schema, level, path, errors);
    let skip_any_of = is_int_or_string(schema.get("anyOf"));
    let skip_first = schema
        .pointer("/allOf/0")
        .is_some_and(|first| is_int_or_string(first.get("anyOf")));
    value_validation(schema, skip_any_of, skip_first, path, errors);
    if level == SchemaLevel::Root || flag(schema, "x-kubernetes-embedded-resource") {
        metadata_invariants(schema, level, path, errors);
    }
}

fn extension_invariants(schema: &Value, level: SchemaLevel, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserve = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    for (set, name) in [
        (preserve, "x-kubernetes-preserve-unknown-fields"),
        (embedded, "x-kubernetes-embedded-resource"),
    ] {
        if set && int_or_string {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(
                format!("{path}.{name}"),
                &Value::Bool(true),
                detail,
            ));
        }
    }
    let type_path = format!("{path}.type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(type_path.as_str(), detail)
        } else {
            FieldError::invalid(type_path.as_str(), &Value::from(kind), detail)
        });
    } else if kind.is_empty() && !int_or_string && !preserve {
        let detail = match level {
            SchemaLevel::Root => "must not be empty at the root",
            SchemaLevel::Item => "must not be empty for specified array items",
            SchemaLevel::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(type_path.as_str(), detail));
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            detail,
        ));
    }
    if level == SchemaLevel::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            type_path,
            &Value::from(kind),
            "must be object at the root",
        ));
    }
    if embedded && !preserve && members(schema, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn metadata_invariants(schema: &Value, level: SchemaLevel, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["kind", "apiVersion"] {
        if let Some(member) = schema.pointer(&format!("/properties/{name}"))
            && text(member, "type") != "string"
        {
            let path = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(
                path,
                &Value::from(text(member, "type")),
                "must be string",
            ));
        }
    }
    let Some(metadata) = schema.pointer("/properties/metadata") else {
        return;
    };
    let path = format!("{path}.properties[metadata]");
    if text(metadata, "type") != "object" {
        let value = Value::from(text(metadata, "type"));
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            &value,
            "must be object",
        ));
    }
    let only_names =
        members(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let other = metadata
        .as_object()
        .into_iter()
        .flatten()
        .any(|(key, _)| !matches!(key.as_str(), "type" | "properties" | "default" | "description"));
    if level == SchemaLevel::Root && (!only_names || other) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn value_validation(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for junctor in JUNCTORS {
        if junctor == "anyOf" && skip_any_of {
            continue;
        }
        for (index, alternative) in items(schema, junctor).iter().enumerate() {
            let skip = junctor == "allOf" && index == 0 && skip_first_all_of;
            nested(alternative, skip, &format!("{path}.{junctor}[{index}]"), errors);
        }
    }
    if let Some(not) = schema.get("not") {
        nested(not, false, &format!("{path}.not"), errors);
    }
    if let Some(Err(error)) = schema
        .get("pattern")
        .and_then(Value::as_str)
        .map(GoPattern::compile)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            &schema["pattern"],
            &detail,
        ));
    }
}

/// Alternatives restrict values; they may not introduce any.
fn nested(schema: &Value, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    value_validation(schema, skip_any_of, false, path, errors);
    if let Some(items) = schema.get("items") {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, member) in members(schema, "properties") {
        nested(member, false, &format!("{path}.properties[{name}]"), errors);
    }
    for (name, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let empty = |value: &Value| value.as_str() == Some("") || *value == Value::Bool(false);
        if schema.get(name).is_some_and(|value| !empty(value)) {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if schema.pointer("/properties/metadata").is_some() {
        let path = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(
            path,
            "must not be specified in a nested context",
        ));
    }
}

/// A default must be valid under its own schema, and not be pruned.
fn default_errors(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let path = format!("{path}.default");
        let compiled = compile(schema);
        let mut pruned = default.clone();
        let dropped = if default.is_object() && !flag(schema, "x-kubernetes-embedded-resource") {
            prune(&mut pruned, &compiled)
        } else {
            Vec::new()
        };
        if dropped.is_empty() {
            errors.extend(validate(&compiled, default, None, &path));
        } else {
            errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
        }
    }
    for (name, member) in members(schema, "properties") {
        default_errors(member, &format!("{path}.properties[{name}]"), errors);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(part).filter(|inner| inner.is_object()) {
            default_errors(inner, &format!("{path}.{part}"), errors);
        }
    }
}

fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}
