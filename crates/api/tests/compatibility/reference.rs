//! Pairs of reference definitions and ours, and their differences.

use std::fs;

use mco_api::crds;
use serde_json::{Map, Value};

use crate::verdict::Judge;

/// A reference definition and ours of the same name.
pub struct Pair {
    pub name: String,
    pub established: Value,
    pub ours: Value,
    pub established_judge: Judge,
    pub our_judge: Judge,
}

impl Pair {
    /// The name of the resource.
    pub fn plural(&self) -> &str {
        self.ours["spec"]["names"]["plural"].as_str().unwrap()
    }
}

pub fn pairs() -> Vec<Pair> {
    let ours: Vec<(String, Value)> = our_definitions();
    established()
        .into_iter()
        .filter_map(|(name, established)| {
            let (_, ours) = ours.iter().find(|(ours, _)| *ours == name)?;
            Some(Pair {
                established_judge: Judge::new(schema_of(&established)),
                our_judge: Judge::new(schema_of(ours)),
                ours: ours.clone(),
                established,
                name,
            })
        })
        .collect()
}

/// Returns the reference definitions by name; ours where those are absent.
pub fn established() -> Vec<(String, Value)> {
    let Some(directory) = mco_testkit::reference_data("crds") else {
        let ours = our_definitions().into_iter();
        // Kinds that only this implementation has are compared with nothing.
        return ours
            .filter(|(_, crd)| crd["spec"]["group"] != "mco.dev")
            .collect();
    };
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the reference data has definitions");
    files
        .iter()
        .map(|file| {
            let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            (crd["metadata"]["name"].as_str().unwrap().to_owned(), crd)
        })
        .collect()
}

fn our_definitions() -> Vec<(String, Value)> {
    crds()
        .into_iter()
        .map(|crd| {
            (
                crd.metadata.name.clone().unwrap(),
                serde_json::to_value(crd).unwrap(),
            )
        })
        .collect()
}

/// Returns the schema of our definition of this resource.
pub fn our_schema(plural: &str) -> Value {
    let definitions = our_definitions();
    let (_, crd) = definitions
        .iter()
        .find(|(_, crd)| crd["spec"]["names"]["plural"] == plural)
        .unwrap();
    schema_of(crd)
}

fn schema_of(crd: &Value) -> Value {
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Returns the schema without descriptions, with limits as plain numbers and required fields in order.
pub fn without_words(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, value)| *name != "description" || !value.is_string())
            .map(|(name, value)| {
                let mut value = without_words(value);
                if let (true, Some(fields)) = (name == "required", value.as_array_mut()) {
                    fields.sort_by_key(ToString::to_string);
                }
                (name.clone(), value)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_words).collect(),
        Value::Number(number) => number.as_f64().into(),
        other => other.clone(),
    }
}

/// Returns the differences of two documents.
pub fn differences(established: &Value, ours: &Value, pointer: &str) -> Vec<String> {
    match (established, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            names
                .into_iter()
                .flat_map(|name| differences(&established[name], &ours[name], &format!("{pointer}/{name}")))
                .collect()
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => left
            .iter()
            .zip(right)
            .enumerate()
            .flat_map(|(index, (left, right))| differences(left, right, &format!("{pointer}/{index}")))
            .collect(),
        _ if established == ours => Vec::new(),
        _ => vec![format!("{pointer}: established {established}, ours {ours}")],
    }
}

/// Visits pointers to every schema in a schema.
pub fn schema_pointers(schema: &Value, pointer: &str, each: &mut dyn FnMut(&str)) {
    each(pointer);
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        schema_pointers(schema, &format!("{pointer}/properties/{name}"), each);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(keyword) {
            schema_pointers(schema, &format!("{pointer}/{keyword}"), each);
        }
    }
}
