//! Converts Rust types to the structural schemas that Kubernetes requires in a CustomResourceDefinition.
//!
//! The validation rules are those in `#[schemars(...)]`, not serde's leniency: a field with a serde default is still
//! required if the type lists it under `required`, and an `Option` is not nullable unless the type has
//! `extend("nullable" = true)`.

pub(crate) mod build;
pub(crate) mod embedded;
mod pieces;

pub(crate) use pieces::*;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The keyword in our types for a default that the API server fills in. `default` itself is taken: schemars derives it
/// from serde's defaults, which only describe how this program reads absent fields.
const SERVER_SIDE_DEFAULT: &str = "x-default";

/// Returns the self-contained structural schema of a type.
pub(crate) fn structural<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .with_transform(Structural)
        .into_generator()
        .into_root_schema_for::<T>()
}

/// Rewrites what schemars derives into what Kubernetes accepts.
#[derive(Clone, Debug)]
struct Structural;

impl Transform for Structural {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(keywords) = schema.as_object_mut() else {
            return;
        };
        keywords.remove("title");
        keywords.remove("default");
        if let Some(default) = keywords.remove(SERVER_SIDE_DEFAULT) {
            keywords.insert("default".to_owned(), default);
        }
        drop_null_type(keywords);
        drop_null_alternative(keywords);
        hoist_documented_variants(keywords);
        unwrap_lines(keywords);
    }
}

/// `Option<String>` is `type: [string, null]` to schemars.
fn drop_null_type(keywords: &mut serde_json::Map<String, Value>) {
    if let Some(Value::Array(types)) = keywords.get_mut("type") {
        types.retain(|one| one != "null");
        if let [single] = types.as_slice() {
            let single = single.clone();
            keywords.insert("type".to_owned(), single);
        }
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        values.retain(|one| !one.is_null());
    }
}

/// `Option<Struct>` is `anyOf: [struct, null]` to schemars.
fn drop_null_alternative(keywords: &mut serde_json::Map<String, Value>) {
    let Some(Value::Array(alternatives)) = keywords.get("anyOf") else {
        return;
    };
    let [Value::Object(inner), Value::Object(null)] = alternatives.as_slice() else {
        return;
    };
    if null.get("type").is_none_or(|of| of != "null") {
        return;
    }
    let inner = inner.clone();
    keywords.remove("anyOf");
    for (keyword, value) in inner {
        keywords.entry(keyword).or_insert(value);
    }
}

/// An enum whose variants have doc comments is `oneOf` one-valued enums to schemars.
fn hoist_documented_variants(keywords: &mut serde_json::Map<String, Value>) {
    let Some(Value::Array(variants)) = keywords.get("oneOf") else {
        return;
    };
    let values: Option<Vec<Value>> = variants
        .iter()
        .map(|variant| variant.get("const").cloned())
        .collect();
    if let Some(values) = values {
        keywords.remove("oneOf");
        keywords.insert("type".to_owned(), "string".into());
        keywords.insert("enum".to_owned(), values.into());
    }
}

/// Doc comments are wrapped at the width of our source; descriptions are not.
fn unwrap_lines(keywords: &mut serde_json::Map<String, Value>) {
    if let Some(Value::String(description)) = keywords.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}
