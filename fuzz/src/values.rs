//! JSON values with the keys of Kubernetes objects.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value};

/// The keys of Nodes and Pods, the directives of patches, and keys that a JSON pointer, YAML or a sort may treat
/// specially.
pub const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "uid",
    "spec",
    "taints",
    "key",
    "effect",
    "value",
    "containers",
    "env",
    "ports",
    "containerPort",
    "protocol",
    "resources",
    "limits",
    "cpu",
    "status",
    "addresses",
    "conditions",
    "type",
    "reason",
    "data",
    "rules",
    "$patch",
    "$retainKeys",
    "$setElementOrder/conditions",
    "$setElementOrder/finalizers",
    "$deleteFromPrimitiveList/finalizers",
    "",
    "~",
    "/",
    "~1",
    "-",
    "0",
    "10a",
    "90.",
    "101-",
    "a",
    "b",
    "y",
    "<<",
    "null",
    "0644",
];

/// Strings that parsers treat specially.
pub const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "Ready",
    "True",
    "merge",
    "replace",
    "delete",
    "500m",
    "1Gi",
    "2026-01-01T00:00:00Z",
    "0644",
    "1e3",
    "null",
    "yes",
    "~",
    "- x",
    "a: b",
    " #",
    "|\n  x",
    "\u{feff}",
    "\t",
];

/// Returns any value with at most `depth` levels below it.
pub fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let containers = if depth == 0 { 0 } else { 5 };
    Ok(match input.int_in_range(0..=5 + containers)? {
        0 => Value::Null,
        1 => Value::from(input.arbitrary::<bool>()?),
        2 => Value::from(input.arbitrary::<i8>()?),
        3 => number(input)?,
        4 | 5 => Value::from(text(input)?),
        6 | 7 => list(input, depth - 1)?,
        _ => Value::Object(object(input, depth - 1)?),
    })
}

/// Returns an object with at most six members.
pub fn object(input: &mut Unstructured<'_>, depth: usize) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    for _ in 0..input.int_in_range(0..=6)? {
        let key = key(input)?;
        fields.insert(key, value(input, depth)?);
    }
    Ok(fields)
}

fn list(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let length = input.int_in_range(0..=4)?;
    let items: Result<Vec<Value>> = (0..length).map(|_| value(input, depth)).collect();
    Ok(Value::Array(items?))
}

pub fn key(input: &mut Unstructured<'_>) -> Result<String> {
    if input.ratio(7, 8)? {
        return Ok((*input.choose(KEYS)?).to_owned());
    }
    Ok(input.arbitrary::<&str>()?.chars().take(20).collect())
}

pub fn text(input: &mut Unstructured<'_>) -> Result<String> {
    if input.ratio(3, 4)? {
        return Ok((*input.choose(TEXTS)?).to_owned());
    }
    Ok(input.arbitrary::<&str>()?.chars().take(40).collect())
}

fn number(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=2)? {
        0 => Value::from(input.arbitrary::<i64>()?),
        1 => Value::from(input.arbitrary::<u64>()?),
        // Not finite numbers become null, as JSON has none.
        _ => Value::from(input.arbitrary::<f64>()?),
    })
}

/// Returns the number of nested containers.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the JSON pointers of at most 64 values below and including this one.
pub fn pointers(value: &Value) -> Vec<String> {
    const MANY: usize = 64;
    let mut found = vec![(String::new(), value)];
    let mut at = 0;
    while let Some((path, value)) = found.get(at).cloned() {
        match value {
            Value::Object(fields) => found.extend(fields.iter().map(|(name, value)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                (format!("{path}/{name}"), value)
            })),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                found.extend(items.map(|(index, value)| (format!("{path}/{index}"), value)));
            }
            _ => {}
        }
        at += 1;
        if found.len() > MANY {
            break;
        }
    }
    found.into_iter().take(MANY).map(|(path, _)| path).collect()
}

/// Returns whether a value is or contains null.
pub fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

/// Returns whether a value is or contains a number with a fraction or an exponent.
pub fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(fields) => fields.values().any(has_float),
        _ => false,
    }
}
