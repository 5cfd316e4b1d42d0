//! Checks whether a configuration fits its schema closely enough to be merged.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_set::PathElement;
use super::typed::{FieldOwnership, TypedPosition};
use crate::go_text;
use crate::schema::JsonType;

/// Returns everything that does not fit, one line each; `None` if it fits.
pub fn misfit(value: &Value, typed: TypedPosition<'_>) -> Option<String> {
    let mut problems = Vec::new();
    visit(value, typed, "", &mut problems);
    match problems.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("errors:\n  {}", several.join("\n  "))),
    }
}

fn visit(value: &Value, typed: TypedPosition<'_>, path: &str, problems: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let form = typed.form(value);
    match (form, value) {
        (FieldOwnership::Map | FieldOwnership::AtomicMap, Value::Object(fields)) => {
            for (name, member) in fields {
                let path = format!("{path}.{name}");
                if typed.allows(name) {
                    visit(member, typed.member(name), &path, problems);
                } else {
                    problems.push(format!("{path}: field not declared in schema"));
                }
            }
        }
        (FieldOwnership::Map | FieldOwnership::AtomicMap, _) => {
            problems.push(format!("{}: expected map, got {}", at(path), shown(value)));
        }
        (FieldOwnership::AtomicList, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                visit(item, typed.item(), &format!("{path}[{index}]"), problems);
            }
        }
        (FieldOwnership::Set | FieldOwnership::Keyed(_), Value::Array(items)) => {
            let mut seen: BTreeSet<PathElement> = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                match typed.element(form, item) {
                    Err(problem) => problems.push(format!("{path}: element {index}: {problem}")),
                    Ok(element) => {
                        visit(item, typed.item(), &format!("{path}{element}"), problems);
                        if !seen.insert(element.clone()) {
                            problems.push(format!("{path}: duplicate entries for key {element}"));
                        }
                    }
                }
            }
        }
        (FieldOwnership::AtomicList | FieldOwnership::Set | FieldOwnership::Keyed(_), _) => {
            problems.push(format!("{}: expected list, got {}", at(path), shown(value)));
        }
        (FieldOwnership::Scalar, _) => problems.extend(scalar_misfit(value, typed.json_type(), path)),
    }
}

fn scalar_misfit(value: &Value, wanted: JsonType, path: &str) -> Option<String> {
    let whole = || format!("&value.valueUnstructured{{Value:{}}}", go_text::syntax(value));
    let (fits, name, found) = match wanted {
        JsonType::String => (value.is_string(), "string", whole()),
        JsonType::Integer | JsonType::Number => (
            value.is_number(),
            "numeric (int or float)",
            go_text::type_name(value).to_owned(),
        ),
        JsonType::Boolean => (value.is_boolean(), "boolean", whole()),
        _ => (!(value.is_array() || value.is_object()), "any scalar", whole()),
    };
    (!fits).then(|| format!("{}: expected {name}, got {found}", at(path)))
}

fn at(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

/// Returns a value as Go prints the wrapper around it.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", go_text::plain(value))
}
