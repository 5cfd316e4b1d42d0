//! Rules, selectors and conditions that policies and webhooks share.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admission::{ExpressionUse, PolicyDeclarations};
use crate::field_error::FieldError;
use crate::names;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
/// The maximum number of match conditions.
const MOST_CONDITIONS: usize = 64;

pub(super) fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

pub(super) fn text<'v>(from: &'v Value, field: &str) -> &'v str {
    from[field].as_str().unwrap_or_default()
}

/// Checks a field with a fixed set of values, which has a default.
pub(super) fn one_of(
    from: &Value,
    path: &str,
    field: &str,
    supported: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let value = &from[field];
    if value.as_str().is_some_and(|value| !supported.contains(&value)) {
        errors.push(FieldError::not_supported(
            format!("{path}.{field}"),
            value,
            supported,
        ));
    }
}

/// Checks `matchConstraints` of a policy or `matchResources` of a binding.
pub(super) fn match_resources(constraints: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(constraints, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    selector(
        &constraints["namespaceSelector"],
        &format!("{path}.namespaceSelector"),
        errors,
    );
    selector(
        &constraints["objectSelector"],
        &format!("{path}.objectSelector"),
        errors,
    );
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in super::items(constraints, &format!("/{field}")) {
            resource_rule(rule, &format!("{path}.{field}[{index}]"), errors);
        }
    }
}

/// Checks one rule.
pub(super) fn resource_rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let operations = texts(&rule["operations"]);
    if operations.is_empty() {
        errors.push(FieldError::required(format!("{path}.operations"), ""));
    }
    alone(rule, path, "operations", "operations", errors);
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            let value = Value::from(*operation);
            let field = format!("{path}.operations[{index}]");
            errors.push(FieldError::not_supported(field, &value, &OPERATIONS));
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let entries = texts(&rule[field]);
        if entries.is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
        alone(rule, path, field, what, errors);
        for (index, entry) in entries.iter().enumerate() {
            if field == "apiVersions" && entry.is_empty() {
                errors.push(FieldError::required(format!("{path}.{field}[{index}]"), ""));
            }
        }
    }
    resources(rule, path, errors);
    one_of(rule, path, "scope", &SCOPES, errors);
}

/// Checks that `*` is the only entry of a list.
fn alone(rule: &Value, path: &str, field: &str, what: &str, errors: &mut Vec<FieldError>) {
    let entries = texts(&rule[field]);
    if entries.len() > 1 && entries.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(
            format!("{path}.{field}"),
            &rule[field],
            &detail,
        ));
    }
}

fn resources(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (list, path) = (&rule["resources"], format!("{path}.resources"));
    let entries = texts(list);
    if entries.is_empty() {
        errors.push(FieldError::required(path.as_str(), ""));
    }
    let (mut whole, mut anywhere) = (BTreeSet::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if entry.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let Some((resource, subresource)) = entry.split_once('/') else {
            continue;
        };
        let present = if whole.contains(resource) {
            Some(format!("{resource}/*"))
        } else {
            anywhere.contains(subresource).then(|| format!("*/{subresource}"))
        };
        if let Some(present) = present {
            let detail = format!("if '{present}' is present, must not specify {entry}");
            errors.push(FieldError::invalid(at, &Value::from(*entry), &detail));
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            anywhere.insert(subresource);
        }
    }
    if entries.len() > 1 && entries.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path.as_str(), list, detail));
    }
    let plain = |entry: &&&str| !entry.is_empty() && !entry.contains('/') && **entry != "*";
    if entries.contains(&"*") && entries.iter().any(|entry| plain(&entry)) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path.as_str(), list, detail));
    }
}

/// Checks a label selector.
pub(super) fn selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    for (key, value) in labels {
        let field = format!("{path}.matchLabels");
        for problem in names::label_key(key) {
            errors.push(FieldError::invalid(
                field.as_str(),
                &Value::from(key.as_str()),
                &problem,
            ));
        }
        for problem in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field.as_str(), value, &problem));
        }
    }
    for (index, expression) in super::items(selector, "/matchExpressions") {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = texts(&expression["values"]);
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                &Value::from(text(expression, "operator")),
                "not a valid selector operator",
            )),
        }
        for problem in names::label_key(text(expression, "key")) {
            errors.push(FieldError::invalid(
                format!("{path}.key"),
                &expression["key"],
                &problem,
            ));
        }
        for (index, value) in values.iter().enumerate() {
            for problem in names::label_value(value) {
                let field = format!("{path}.values[{index}]");
                errors.push(FieldError::invalid(field, &Value::from(*value), &problem));
            }
        }
    }
}

/// Checks `matchConditions`.
pub(super) fn conditions(
    holder: &Value,
    path: &str,
    declarations: &PolicyDeclarations,
    errors: &mut Vec<FieldError>,
) {
    let count = holder["matchConditions"].as_array().map_or(0, Vec::len);
    if count > MOST_CONDITIONS {
        errors.push(FieldError::too_many(
            format!("{path}.matchConditions"),
            count,
            MOST_CONDITIONS,
        ));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in super::items(holder, "/matchConditions") {
        let path = format!("{path}.matchConditions[{index}]");
        let (name, source) = (text(condition, "name"), text(condition, "expression"));
        if source.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), ""));
        } else if let Err(error) = declarations.compile(source, ExpressionUse::Condition) {
            errors.push(FieldError::invalid(
                format!("{path}.expression"),
                &condition["expression"],
                &error,
            ));
        }
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
            continue;
        }
        for problem in names::label_key(name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &condition["name"],
                &problem,
            ));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &condition["name"]));
        }
    }
}
