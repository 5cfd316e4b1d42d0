//! Validation of values against a compiled schema, with the messages and the ratcheting of Kubernetes.
//!
//! On update, an invalid value that has not changed is accepted ("ratcheting"), so that a stricter schema does not
//! block unrelated changes. CEL rules are validated separately, by [`super::rules`].

use serde_json::{Map, Value};

use super::checks::{NumericBound, ValueChecks};
use super::correlate::{OldItems, old_member};
use super::formats;
use super::model::{AdditionalMembers, JsonType, NodeId, Schema, SchemaNode};
use crate::cpu;
use crate::field_error::{FieldError, FieldReason};
use crate::go_text;

/// Validates a value against the root of a schema.
///
/// `prefix` is the path of the value inside its object (empty for the object itself); `old` is the old value on update.
pub fn validate(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let walk = ValidationWalk { schema, prefix };
    walk.ratcheted(schema.root(), value, old, "").errors
}

/// Errors, and a score: of several alternatives the one with the highest score is reported.
#[derive(Default)]
struct ValidationOutcome {
    errors: Vec<FieldError>,
    right: usize,
}

impl ValidationOutcome {
    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.right += other.right;
    }
}

struct ValidationWalk<'s> {
    schema: &'s Schema,
    prefix: &'s str,
}

impl ValidationWalk<'_> {
    /// Validates a value with its old value, and ignores errors of what has not changed.
    fn ratcheted(
        &self,
        node: &SchemaNode,
        value: &Value,
        old: Option<&Value>,
        name: &str,
    ) -> ValidationOutcome {
        let mut outcome = self.check(node, value, old, name);
        if !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn check(&self, node: &SchemaNode, value: &Value, old: Option<&Value>, name: &str) -> ValidationOutcome {
        let mut outcome = ValidationOutcome::default();
        // The result is then incomplete; the registry checks the time again before it stores anything.
        if cpu::is_out_of_time() {
            return outcome;
        }
        match self.type_error(node, value, name) {
            Some(error) => outcome.errors.push(error),
            None => outcome.right += 1,
        }
        let checks = node.checks.as_deref();
        if value.is_null() {
            outcome
                .errors
                .extend(checks.and_then(|checks| self.enumeration_error(checks, value, name)));
            return outcome;
        }
        if let Some(checks) = checks {
            outcome.merge(self.alternatives(checks, value, old, name));
            match value {
                Value::String(text) => outcome
                    .errors
                    .extend(self.string_errors(checks, text, value, name)),
                Value::Number(_) => outcome.errors.extend(self.number_errors(checks, value, name)),
                _ => {}
            }
        }
        if let Value::Number(number) = value {
            outcome.errors.extend(self.range_error(node, number, name));
            outcome.right += 1;
        }
        if let Value::Array(items) = value {
            outcome.merge(self.list(node, items, old, name));
        }
        outcome
            .errors
            .extend(checks.and_then(|checks| self.enumeration_error(checks, value, name)));
        if let Value::Object(fields) = value {
            outcome.merge(self.object(node, fields, old, name));
        }
        outcome.right += 1;
        outcome
    }

    fn type_error(&self, node: &SchemaNode, value: &Value, name: &str) -> Option<FieldError> {
        let found = match value {
            Value::Null if node.nullable || node.json_type == JsonType::Any => return None,
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = match node.json_type {
            JsonType::Any => true,
            JsonType::IntOrString => matches!(found, "integer" | "string"),
            JsonType::Number => matches!(found, "integer" | "number"),
            other => other.name() == found,
        };
        if fits {
            return None;
        }
        let wanted = if node.json_type == JsonType::IntOrString {
            "integer,string"
        } else {
            node.json_type.name()
        };
        Some(self.wrong_type(name, wanted, found))
    }

    /// Returns the value in an error: the name of its type, or the text with the wrong format.
    fn wrong_type(&self, name: &str, wanted: &str, shown: &str) -> FieldError {
        let detail = format!(
            "{name} in body must be of type {wanted}: {}",
            go_text::quote(shown)
        );
        FieldError::type_invalid(self.field(name), &Value::from(shown), &detail)
    }

    fn string_errors(&self, checks: &ValueChecks, text: &str, value: &Value, name: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let length = text.chars().count();
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            errors.push(FieldError::too_long(self.field(name), max));
        } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
            errors.push(self.invalid(name, value, &format!("should be at least {min} chars long")));
        } else if let Some(pattern) = &checks.pattern {
            match pattern.is_match(text) {
                Ok(true) => {}
                Ok(false) => {
                    errors.push(self.invalid(name, value, &format!("should match '{}'", pattern.source())));
                }
                Err(error) => {
                    // The text itself is too long for a message.
                    let detail = format!(
                        "{name} in body cannot be matched with '{}': {error}",
                        pattern.source()
                    );
                    errors.push(FieldError::invalid(
                        self.field(name),
                        &Value::from(text.len()),
                        &detail,
                    ));
                }
            }
        }
        if let Some(format) = checks
            .format
            .as_deref()
            .filter(|format| !formats::satisfies(format, text))
        {
            errors.push(self.wrong_type(name, format, text));
        }
        errors
    }

    fn number_errors(&self, checks: &ValueChecks, value: &Value, name: &str) -> Vec<FieldError> {
        let Some(number) = value.as_f64() else {
            return Vec::new();
        };
        // Integers are compared with the integral part of a bound, and the message shows that part.
        let bound_of = |bound: f64| if value.is_f64() { bound } else { bound.trunc() };
        let mut errors = Vec::new();
        if let Some(factor) = checks.multiple_of
            && (number / factor).fract() != 0.0
        {
            let detail = format!("should be a multiple of {}", go_text::float(factor));
            errors.push(self.invalid(name, value, &detail));
        }
        if let Some(NumericBound {
            value: bound,
            exclusive,
        }) = checks.minimum
        {
            let bound = bound_of(bound);
            if number < bound || (exclusive && number <= bound) {
                let relation = if exclusive {
                    "greater than"
                } else {
                    "greater than or equal to"
                };
                let detail = format!("should be {relation} {}", go_text::float(bound));
                errors.push(self.invalid(name, value, &detail));
            }
        }
        if let Some(NumericBound {
            value: bound,
            exclusive,
        }) = checks.maximum
        {
            let bound = bound_of(bound);
            if number > bound || (exclusive && number >= bound) {
                let relation = if exclusive {
                    "less than"
                } else {
                    "less than or equal to"
                };
                let detail = format!("should be {relation} {}", go_text::float(bound));
                errors.push(self.invalid(name, value, &detail));
            }
        }
        errors
    }

    /// Returns the error for a number that the schema's machine type cannot hold.
    fn range_error(&self, node: &SchemaNode, number: &serde_json::Number, name: &str) -> Option<FieldError> {
        let format = node.checks.as_ref().and_then(|checks| checks.format.as_deref());
        let (kind, format) = match (node.json_type, format) {
            (JsonType::Integer, Some(format @ ("int32" | "int64"))) => ("integer", Some(format)),
            (JsonType::Integer, _) => ("integer", None),
            (JsonType::Number, Some("float")) => ("number", Some("float")),
            _ => return None,
        };
        let fits = match (kind, format) {
            ("integer", Some("int32")) => number.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
            ("integer", _) => number.as_i64().is_some(),
            _ => number
                .as_f64()
                .is_some_and(|value| value.abs() <= f64::from(f32::MAX)),
        };
        let format = format.map_or("(default format)".to_owned(), |format| {
            format!("with format {format}")
        });
        (!fits).then(|| {
            self.unexplained(&format!(
                "Checked value must be of type {kind} {format} in {name}"
            ))
        })
    }

    fn enumeration_error(&self, checks: &ValueChecks, value: &Value, name: &str) -> Option<FieldError> {
        if checks.enumeration.is_empty() || checks.enumeration.iter().any(|allowed| same(allowed, value)) {
            return None;
        }
        let allowed: Vec<String> = checks
            .enumeration
            .iter()
            .map(|allowed| {
                allowed
                    .as_str()
                    .map_or_else(|| go_text::json(allowed), str::to_owned)
            })
            .collect();
        Some(FieldError::not_supported(self.field(name), value, &allowed))
    }

    fn list(&self, node: &SchemaNode, items: &[Value], old: Option<&Value>, name: &str) -> ValidationOutcome {
        let mut outcome = ValidationOutcome {
            right: 1,
            ..ValidationOutcome::default()
        };
        if let Some(child) = self.schema.items(node) {
            let old_items = OldItems::new(old, node);
            for (index, item) in items.iter().enumerate() {
                let old = old_items.of(item);
                outcome.merge(self.ratcheted(child, item, old, &format!("{name}[{index}]")));
            }
        }
        let Some(checks) = &node.checks else {
            return outcome;
        };
        if let Some(min) = checks.min_items.filter(|min| items.len() < *min) {
            let detail = format!("should have at least {min} items");
            outcome
                .errors
                .push(self.invalid(name, &Value::from(items.len()), &detail));
        }
        if let Some(max) = checks.max_items.filter(|max| items.len() > *max) {
            outcome
                .errors
                .push(FieldError::too_many(self.field(name), items.len(), max));
        }
        outcome
    }

    fn object(
        &self,
        node: &SchemaNode,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        name: &str,
    ) -> ValidationOutcome {
        let mut outcome = ValidationOutcome::default();
        let checks = node.checks.as_deref();
        if let Some(min) = checks
            .and_then(|checks| checks.min_properties)
            .filter(|min| fields.len() < *min)
        {
            let detail = format!("should have at least {min} properties");
            outcome
                .errors
                .push(self.invalid(name, &Value::from(fields.len()), &detail));
        }
        if let Some(max) = checks
            .and_then(|checks| checks.max_properties)
            .filter(|max| fields.len() > *max)
        {
            outcome
                .errors
                .push(FieldError::too_many(self.field(name), fields.len(), max));
        }
        for (key, value) in fields {
            let child = match (node.property(key), node.additional) {
                (Some(property), _) => self.schema.node(property.node),
                (None, AdditionalMembers::Schema(id)) => self.schema.node(id),
                (None, _) => continue,
            };
            // The type of the object itself is the same before and after, so that ratcheting never applies.
            let is_type =
                name.is_empty() && self.prefix.is_empty() && matches!(key.as_str(), "apiVersion" | "kind");
            let old = if is_type { None } else { old_member(old, key) };
            outcome.merge(self.ratcheted(child, value, old, &member_name(name, key)));
        }
        for required in checks.into_iter().flat_map(|checks| &checks.required) {
            if !fields.contains_key(required.as_ref()) {
                outcome
                    .errors
                    .push(FieldError::required(self.field(&member_name(name, required)), ""));
            }
        }
        outcome
    }

    fn alternatives(
        &self,
        checks: &ValueChecks,
        value: &Value,
        old: Option<&Value>,
        name: &str,
    ) -> ValidationOutcome {
        let mut outcome = ValidationOutcome {
            right: 1,
            ..ValidationOutcome::default()
        };
        let attempt = |id: &NodeId| self.check(self.schema.node(*id), value, old, name);
        if !checks.any_of.is_empty() {
            let (valid, best) = best_of(&checks.any_of, &attempt);
            if valid == 0 {
                outcome.errors.push(self.unexplained(&format!(
                    "{} must validate at least one schema (anyOf)",
                    go_text::quote(name)
                )));
            }
            outcome.merge(best);
        }
        if !checks.one_of.is_empty() {
            let (valid, best) = best_of(&checks.one_of, &attempt);
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                outcome.errors.push(self.unexplained(&format!(
                    "{} must validate one and only one schema (oneOf). {found}",
                    go_text::quote(name)
                )));
            }
            if valid <= 1 {
                outcome.merge(best);
            }
        }
        if !checks.all_of.is_empty() {
            let results: Vec<ValidationOutcome> = checks.all_of.iter().map(attempt).collect();
            let valid = results.iter().filter(|result| result.errors.is_empty()).count();
            let total = results.len();
            for result in results {
                outcome.merge(result);
            }
            if valid != total {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.errors.push(self.unexplained(&format!(
                    "{} must validate all the schemas (allOf){none}",
                    go_text::quote(name)
                )));
            }
        }
        if let Some(not) = &checks.not
            && attempt(not).errors.is_empty()
        {
            let text = format!("{} must not validate the schema (not)", go_text::quote(name));
            outcome.errors.push(self.unexplained(&text));
        }
        outcome
    }

    fn invalid(&self, name: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::invalid(self.field(name), value, &format!("{name} in body {detail}"))
    }

    /// Kubernetes reports failed junctors without a value and on the whole object.
    fn unexplained(&self, detail: &str) -> FieldError {
        let field = if self.prefix.is_empty() {
            "<nil>"
        } else {
            self.prefix
        };
        FieldError::with_value(FieldReason::Invalid, field, &Value::from(""), detail)
    }

    fn field(&self, name: &str) -> String {
        match (self.prefix, name.strip_prefix('.').unwrap_or(name)) {
            ("", "") => "<nil>".to_owned(),
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }
}

/// Returns how many alternatives match, and the first of them or the closest one.
fn best_of(
    alternatives: &[NodeId],
    attempt: &impl Fn(&NodeId) -> ValidationOutcome,
) -> (usize, ValidationOutcome) {
    let mut valid = 0;
    let mut best: Option<ValidationOutcome> = None;
    for alternative in alternatives {
        let outcome = attempt(alternative);
        if outcome.errors.is_empty() {
            valid += 1;
            if valid == 1 {
                best = Some(outcome);
            }
        } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.right > best.right) {
            best = Some(outcome);
        }
    }
    (valid, best.unwrap_or_default())
}

fn member_name(name: &str, key: &str) -> String {
    if name.is_empty() {
        key.to_owned()
    } else {
        format!("{name}.{key}")
    }
}

/// Compares values; numbers are equal if they have the same value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
