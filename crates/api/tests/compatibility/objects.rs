//! Generates objects from a schema: valid ones, and ones with exactly one violation.

use serde_json::{Map, Value, json};

use crate::verdict::{compile, json_schema};

/// A change of the maximal object, and whether a schema must accept the result.
pub struct Change {
    pub what: String,
    pub valid: bool,
    pointer: String,
    value: Value,
}

impl Change {
    /// Applies the change, calls `look` with the object, and reverts the change.
    pub fn try_on<R>(&self, object: &mut Value, look: impl FnOnce(&Value) -> R) -> R {
        let old = std::mem::replace(object.pointer_mut(&self.pointer).unwrap(), self.value.clone());
        let seen = look(object);
        *object.pointer_mut(&self.pointer).unwrap() = old;
        seen
    }
}

/// Returns an object with only the required fields.
pub fn minimal(schema: &Value) -> Value {
    value_of(schema, "", &|schema, field| {
        let embedded = schema["x-kubernetes-embedded-resource"] == true;
        required(schema).any(|required| required == field)
            || embedded && matches!(field, "apiVersion" | "kind" | "metadata")
    })
}

/// Returns an object with every field of the schema, and one item in every list.
pub fn maximal(schema: &Value) -> Value {
    value_of(schema, "", &|_, _| true)
}

/// Returns all changes of the maximal object: every field, in every way.
pub fn changes(schema: &Value) -> Vec<Change> {
    let root = maximal(schema);
    let mut all = Vec::new();
    visit(schema, "", &mut |schema, pointer| {
        let value = root.pointer(pointer).unwrap();
        for (what, value, valid) in changes_of_value(schema, value) {
            all.push(Change {
                what: format!("{pointer}: {what}"),
                valid,
                pointer: pointer.to_owned(),
                value,
            });
        }
    });
    all
}

/// Returns a change that adds an unknown field, for every object in the maximal object.
pub fn unknown_fields(schema: &Value) -> Vec<Change> {
    let root = maximal(schema);
    let mut all = Vec::new();
    visit(schema, "", &mut |schema, pointer| {
        if schema["type"] == "object" {
            let mut value = root.pointer(pointer).unwrap().clone();
            value["aFieldThatNobodyKnows"] = json!({"a": [1]});
            all.push(Change {
                what: format!("{pointer}: unknown field"),
                valid: true,
                pointer: pointer.to_owned(),
                value,
            });
        }
    });
    all
}

/// Visits every schema in a schema, with the pointer to its value in the maximal object.
pub fn visit(schema: &Value, pointer: &str, each: &mut dyn FnMut(&Value, &str)) {
    each(schema, pointer);
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        visit(schema, &format!("{pointer}/{name}"), each);
    }
    if let Some(schema) = schema.get("items") {
        visit(schema, &format!("{pointer}/0"), each);
    }
    if let Some(schema) = schema.get("additionalProperties") {
        visit(schema, &format!("{pointer}/key"), each);
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn value_of(schema: &Value, path: &str, wanted: &dyn Fn(&Value, &str) -> bool) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values.last().unwrap().clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str().unwrap() {
        "string" => text_of(schema, path).into(),
        "boolean" => true.into(),
        "integer" => schema["minimum"]
            .as_f64()
            .map_or(json!(1), |least| json!(least as i64 + 1)),
        "array" => json!([value_of(&schema["items"], path, wanted)]),
        "object" => {
            let mut object = Map::new();
            for (name, schema_of_field) in schema["properties"].as_object().into_iter().flatten() {
                if path.is_empty() && name == "metadata" {
                    object.insert(name.clone(), json!({"name": "cluster"}));
                } else if wanted(schema, name) {
                    object.insert(
                        name.clone(),
                        value_of(schema_of_field, &format!("{path}.{name}"), wanted),
                    );
                }
            }
            if let Some(values) = schema
                .get("additionalProperties")
                .filter(|_| wanted(schema, "key"))
            {
                object.insert("key".to_owned(), value_of(values, &format!("{path}.key"), wanted));
            }
            object.into()
        }
        other => panic!("{path} is of the type {other}, which this generator does not know"),
    }
}

/// Texts in every format that some field of ours requires.
pub const TEXTS: &[&str] = &[
    "text",
    "cluster",
    "rendered-worker",
    "4.16.0",
    "9.6.20250101-0",
    "2026-01-01T00:00:00Z",
    "dGV4dA==",
    "True",
    "https://example.com/a",
    "/dir/host/x/Resources/y",
    "/dc/datastore/x",
    "/dc/vm/x",
    "10.0.0.1",
    "10.0.0.0/24",
    "spec.config.storage",
    "rg-abc",
    "abcdef",
    "crio.service",
    "Managed",
    "example.com/ns/name:tag",
    "example.com/ns/name@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "ocp-release-bundle-4.16.0-x86_64",
    "arn:aws:iam::123456789012:role/x",
    "1Gi",
];

/// Returns a text that the field accepts, its own CEL rules included.
fn text_of(schema: &Value, path: &str) -> String {
    let shape = compile(&json_schema(schema));
    let rules = kube_cel::compile_schema(schema);
    let cel = kube_cel::Validator::new();
    let fits = |text: &&&str| {
        let value = json!(text);
        shape.is_valid(&value) && cel.validate_compiled(&rules, &value, None).is_ok()
    };
    let text = TEXTS.iter().find(fits);
    text.unwrap_or_else(|| panic!("no text for {path}: {schema}"))
        .to_string()
}

/// Returns every change of one value: description, new value, and whether it is still valid.
fn changes_of_value(schema: &Value, value: &Value) -> Vec<(String, Value, bool)> {
    let mut changes = vec![("null".to_owned(), Value::Null, schema["nullable"] == true)];
    let types: Vec<&str> = if schema["x-kubernetes-int-or-string"] == true {
        vec!["integer", "string"]
    } else {
        vec![schema["type"].as_str().unwrap()]
    };
    for (name, example) in [
        ("boolean", json!(true)),
        ("integer", json!(7)),
        ("string", json!("text")),
        ("array", json!([])),
        ("object", json!({})),
    ] {
        if !types.contains(&name) {
            changes.push((format!("a {name}"), example, false));
        }
    }
    if types == ["integer"] {
        changes.push(("a fraction".to_owned(), json!(1.5), false));
    }
    for field in required(schema) {
        let mut without = value.clone();
        without.as_object_mut().unwrap().remove(field);
        changes.push((format!("without {field}"), without, false));
    }
    if schema["minProperties"].as_u64() == Some(1) {
        changes.push(("without fields".to_owned(), json!({}), false));
    }
    if schema.get("enum").is_some() {
        changes.push(("none of the choices".to_owned(), json!("NoneOfThem"), false));
        for choice in schema["enum"].as_array().unwrap() {
            changes.push((format!("the choice {choice}"), choice.clone(), true));
        }
    }
    changes.extend(text_changes(schema, value));
    changes.extend(number_changes(schema));
    changes.extend(list_changes(schema, value));
    changes
}

fn text_changes(schema: &Value, value: &Value) -> Vec<(String, Value, bool)> {
    let mut changes = Vec::new();
    if let Some(pattern) = schema["pattern"].as_str() {
        let shape = compile(&json!({"pattern": pattern}));
        let breakers = [
            "!", "", "-", "a b", "A_", "\u{e4}", "x/", "x.-", "9", "a/", "\u{0}", "1x",
        ];
        for text in breakers.iter().filter(|text| !shape.is_valid(&json!(text))) {
            changes.push((format!("{text:?} against the pattern"), json!(text), false));
        }
        assert!(!changes.is_empty(), "nothing breaks the pattern {pattern}");
    }
    if let Some(format) = schema["format"].as_str().filter(|_| schema["type"] == "string") {
        changes.push((format!("no {format}"), json!("!"), false));
    }
    if let Some(most) = schema["maxLength"].as_u64() {
        let free = schema.get("enum").is_none() && schema.get("format").is_none();
        let most = usize::try_from(most).unwrap();
        changes.push((
            "too long".to_owned(),
            stretched(schema, value, most + 1).into(),
            false,
        ));
        if free {
            let longest = stretched(schema, value, most);
            let fits = compile(&json!({"pattern": schema["pattern"].as_str().unwrap_or("")}))
                .is_valid(&json!(longest));
            changes.push(("as long as can be".to_owned(), longest.into(), fits));
        }
    }
    if let Some(least) = schema["minLength"].as_u64().filter(|least| *least > 0) {
        let short = "a".repeat(usize::try_from(least).unwrap() - 1);
        changes.push(("too short".to_owned(), short.into(), false));
    }
    changes
}

/// Returns the value at this length, still matching the pattern if possible.
fn stretched(schema: &Value, value: &Value, length: usize) -> String {
    let text = value.as_str().unwrap();
    let missing = length.saturating_sub(text.len());
    let letters = "a".repeat(missing);
    // Names in several parts have a limit on each part.
    let parts: String = letters
        .char_indices()
        .map(|(at, letter)| {
            if (missing - at).is_multiple_of(2) {
                '.'
            } else {
                letter
            }
        })
        .collect();
    filled(schema, text, &letters)
        .or_else(|| filled(schema, text, &parts))
        .unwrap_or(format!("{text}{letters}"))
}

/// Returns the text with a filler inserted, if it can still match the pattern.
fn filled(schema: &Value, text: &str, filler: &str) -> Option<String> {
    let shape = compile(&json!({"pattern": schema["pattern"].as_str().unwrap_or("")}));
    let mut ways = (0..=text.len())
        .rev()
        .map(|at| format!("{}{filler}{}", &text[..at], &text[at..]));
    ways.find(|way| shape.is_valid(&json!(way)))
}

fn number_changes(schema: &Value) -> Vec<(String, Value, bool)> {
    let mut changes = Vec::new();
    let whole = |limit: &Value| limit.as_f64().map(|limit| limit as i64);
    if let Some(least) = whole(&schema["minimum"]) {
        changes.push(("too small".to_owned(), json!(least - 1), false));
        changes.push(("as small as can be".to_owned(), json!(least), true));
    }
    if let Some(most) = whole(&schema["maximum"]) {
        changes.push(("too big".to_owned(), json!(most + 1), false));
        changes.push(("as big as can be".to_owned(), json!(most), true));
    }
    match schema["format"].as_str() {
        Some("int32") => changes.push(("more than 32 bits".to_owned(), json!(1u64 << 40), false)),
        Some("int64") => changes.push(("more than 64 bits".to_owned(), json!(1e30), false)),
        _ => {}
    }
    changes
}

fn list_changes(schema: &Value, value: &Value) -> Vec<(String, Value, bool)> {
    let Some([item]) = value.as_array().map(Vec::as_slice) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    let least = schema["minItems"].as_u64().unwrap_or(0);
    changes.push(("an empty list".to_owned(), json!([]), least == 0));
    let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
    let merged = matches!(schema["x-kubernetes-list-type"].as_str(), Some("set" | "map"));
    changes.push((
        "twice the same".to_owned(),
        json!([item, item]),
        !merged && most >= 2,
    ));
    if let Some(most) = schema["maxItems"].as_u64() {
        let many: Vec<Value> = (0..=most)
            .map(|number| distinct(schema, item, usize::try_from(number).unwrap()))
            .collect();
        changes.push(("too many items".to_owned(), many.into(), false));
    }
    changes
}

/// Returns a copy of the item with distinct keys.
fn distinct(list: &Value, item: &Value, number: usize) -> Value {
    let other = |schema: &Value, text: &str| -> Value {
        match schema["enum"].as_array() {
            Some(choices) => choices[number % choices.len()].clone(),
            None => filled(schema, text, &number.to_string())
                .unwrap_or_else(|| text.to_owned())
                .into(),
        }
    };
    let mut item = item.clone();
    match &mut item {
        Value::String(text) => other(&list["items"], text),
        Value::Object(fields) => {
            for key in list["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                let text = fields[key].as_str().unwrap().to_owned();
                fields.insert(key.to_owned(), other(&list["items"]["properties"][key], &text));
            }
            item
        }
        _ => item,
    }
}
