//! Validation of the extensions of a CRD's schema: list and map types, and rules.

use serde_json::Value;

use super::cel::{CelPosition, CelProgram, undefined_reference};
use super::compile::compile;
use super::go_struct;
use super::model::{AdditionalMembers, Schema, SchemaNode};
use super::raw::{flag, items, members, text};
use crate::field_error::FieldError;

/// The reasons that a rule may set for its errors.
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Returns the errors of the extensions of a schema. Rules are compiled only on request.
pub(super) fn extension_errors(schema: &Value, path: &str, compile_rules: bool) -> Vec<FieldError> {
    let compiled = compile(schema);
    let mut walk = Extensions {
        errors: Vec::new(),
        schema: &compiled,
        compile_rules,
    };
    let around = Around {
        is_root: true,
        uncorrelatable: None,
        top: None,
    };
    walk.visit(schema, Some(compiled.root()), path, &around);
    walk.errors
}

/// The context of a node that its rules and defaults depend on.
#[derive(Clone)]
struct Around {
    is_root: bool,
    /// The innermost list or map whose items cannot be correlated in an update.
    uncorrelatable: Option<String>,
    /// The member of the root above this node, if it is one whose defaults the server owns.
    top: Option<&'static str>,
}

struct Extensions<'s> {
    errors: Vec<FieldError>,
    schema: &'s Schema,
    compile_rules: bool,
}

impl<'s> Extensions<'s> {
    fn visit(&mut self, schema: &Value, node: Option<&'s SchemaNode>, path: &str, around: &Around) {
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors
                .push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
        }
        if let (Some(top), Some(_)) = (around.top, schema.get("default")) {
            let detail = format!("must not be set in top-level {top}");
            self.errors
                .push(FieldError::forbidden(format!("{path}.default"), &detail));
        }
        let has_members = members(schema, "properties").next().is_some();
        let additional = schema.get("additionalProperties");
        if has_members && additional.is_some_and(|values| *values != Value::Bool(true)) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.errors.push(FieldError::forbidden(
                format!("{path}.additionalProperties"),
                detail,
            ));
        }
        if let Some(values) = additional.filter(|values| values.is_object()) {
            let child = node.and_then(|node| match node.additional {
                AdditionalMembers::Schema(id) => Some(self.schema.node(id)),
                _ => None,
            });
            let inside = Around {
                is_root: false,
                ..around.clone()
            };
            self.visit(values, child, &format!("{path}.additionalProperties"), &inside);
        }
        for (name, member) in members(schema, "properties") {
            let child = node
                .and_then(|node| node.property(name))
                .map(|property| self.schema.node(property.node));
            let top = ["apiVersion", "kind", "metadata"]
                .into_iter()
                .find(|known| *known == name);
            let inside = Around {
                is_root: false,
                top: around.top.or(top.filter(|_| around.is_root)),
                ..around.clone()
            };
            self.visit(member, child, &format!("{path}.properties[{name}]"), &inside);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let child = node.and_then(|node| self.schema.items(node));
            let is_keyed = text(schema, "x-kubernetes-list-type") == "map";
            let uncorrelatable = if is_keyed {
                around.uncorrelatable.clone()
            } else {
                Some(path.to_owned())
            };
            let inside = Around {
                is_root: false,
                uncorrelatable,
                ..around.clone()
            };
            self.visit(items, child, &format!("{path}.items"), &inside);
        }
        self.list_and_map_types(schema, path);
        self.rules(schema, node, path, around);
    }

    fn list_and_map_types(&mut self, schema: &Value, path: &str) {
        let kind = text(schema, "type");
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(
                path,
                &Value::Bool(false),
                "must be true or undefined",
            ));
        }
        for (extension, wanted, known) in [
            ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
            ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
        ] {
            let given = text(schema, extension);
            if given.is_empty() {
                continue;
            }
            let detail = format!("must be {wanted} if {extension} is specified");
            if kind.is_empty() {
                self.errors
                    .push(FieldError::required(format!("{path}.type"), &detail));
            } else if kind != wanted {
                self.errors.push(FieldError::invalid(
                    format!("{path}.type"),
                    &Value::from(kind),
                    &detail,
                ));
            }
            if !known.contains(&given) {
                self.errors.push(FieldError::not_supported(
                    format!("{path}.{extension}"),
                    &Value::from(given),
                    known,
                ));
            }
        }
        let list_type = text(schema, "x-kubernetes-list-type");
        let keys = items(schema, "x-kubernetes-list-map-keys");
        if list_type == "set" {
            self.set_items(schema, path);
        }
        if !keys.is_empty() && list_type != "map" {
            let path = format!("{path}.x-kubernetes-list-type");
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(if list_type.is_empty() {
                FieldError::required(path, detail)
            } else {
                FieldError::invalid(path, &Value::from(list_type), detail)
            });
        }
        if list_type == "map" {
            self.keyed_items(schema, keys, path);
        }
    }

    fn set_items(&mut self, schema: &Value, path: &str) {
        let Some(inner) = schema.get("items") else { return };
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (extension, is_wrong) = match text(inner, "type") {
            "array" => {
                let list_type = text(inner, "x-kubernetes-list-type");
                (
                    "x-kubernetes-list-type",
                    !list_type.is_empty() && list_type != "atomic",
                )
            }
            "object" => (
                "x-kubernetes-map-type",
                text(inner, "x-kubernetes-map-type") != "atomic",
            ),
            _ => return,
        };
        if is_wrong {
            let value = inner.get("x-kubernetes-list-type").cloned().unwrap_or_default();
            self.errors.push(FieldError::invalid(
                format!("{path}.items.{extension}"),
                &value,
                detail,
            ));
        }
    }

    fn keyed_items(&mut self, schema: &Value, keys: &[Value], path: &str) {
        let keys_path = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(keys_path.as_str(), detail));
        }
        let Some(inner) = schema.get("items") else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            self.errors
                .push(FieldError::required(format!("{path}.items"), detail));
            return;
        };
        if text(inner, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            let value = Value::from(text(inner, "type"));
            self.errors
                .push(FieldError::invalid(format!("{path}.items.type"), &value, detail));
            return;
        }
        let all = Value::from(keys.to_vec());
        let required: Vec<&str> = items(inner, "required")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for (index, key) in keys.iter().enumerate() {
            let name = key.as_str().unwrap_or_default();
            let Some(member) = inner
                .get("properties")
                .and_then(|properties| properties.get(name))
            else {
                let detail = "entries must all be names of item properties";
                self.errors
                    .push(FieldError::invalid(keys_path.as_str(), &all, detail));
                continue;
            };
            let member_path = format!("{path}.items.properties[{name}]");
            if matches!(text(member, "type"), "array" | "object") {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let value = Value::from(text(inner, "type"));
                self.errors
                    .push(FieldError::invalid(format!("{member_path}.type"), &value, detail));
            }
            if keys[..index].contains(key) {
                self.errors.push(FieldError::invalid(
                    keys_path.as_str(),
                    &all,
                    "must not contain duplicate entries",
                ));
            }
            if flag(member, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.errors
                    .push(FieldError::forbidden(format!("{member_path}.nullable"), detail));
            }
            if !required.contains(&name) && member.get("default").is_none() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors
                    .push(FieldError::required(format!("{member_path}.default"), detail));
            }
        }
    }

    fn rules(&mut self, schema: &Value, node: Option<&'s SchemaNode>, path: &str, around: &Around) {
        let schema_is_fine = self.errors.is_empty();
        for (index, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{index}]");
            let source = text(rule, "rule").trim();
            if source.is_empty() {
                self.errors.push(FieldError::required(
                    format!("{path}.rule"),
                    "rule is not specified",
                ));
                continue;
            }
            self.rule_texts(rule, source, &path);
            if schema_is_fine && self.compile_rules {
                self.rule_program(rule, source, node, &path, around);
            }
        }
    }

    fn rule_texts(&mut self, rule: &Value, source: &str, path: &str) {
        let message = text(rule, "message");
        let trimmed = message.trim();
        if !message.is_empty() && trimmed.is_empty() {
            let value = Value::from(message);
            self.errors.push(FieldError::invalid(
                format!("{path}.message"),
                &value,
                "must be non-empty if specified",
            ));
        } else if trimmed.contains('\n') {
            let value = Value::from(message);
            self.errors.push(FieldError::invalid(
                format!("{path}.message"),
                &value,
                "must not contain line breaks",
            ));
        } else if source.contains('\n') && trimmed.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            self.errors
                .push(FieldError::required(format!("{path}.message"), detail));
        }
        let reason = text(rule, "reason");
        if rule.get("reason").is_some() && !REASONS.contains(&reason) {
            let value = Value::from(reason);
            self.errors.push(FieldError::not_supported(
                format!("{path}.reason"),
                &value,
                &REASONS,
            ));
        }
    }

    fn rule_program(
        &mut self,
        rule: &Value,
        source: &str,
        node: Option<&'s SchemaNode>,
        path: &str,
        around: &Around,
    ) {
        let shown = go_struct::rule(rule);
        let place = CelPosition {
            schema: self.schema,
            node,
        };
        let compiled = CelProgram::compile(source);
        let problem = match &compiled {
            Err(error) => Some(error.clone()),
            Ok(program) => undefined_reference(program.expression(), place, around.is_root)
                .map(|problem| problem.located_in(source)),
        };
        if let Some(problem) = problem {
            let detail = format!("compilation failed: {problem}");
            self.errors.push(FieldError::with_shown_value(
                format!("{path}.rule"),
                &shown,
                &detail,
            ));
        }
        let message = text(rule, "messageExpression").trim();
        if !message.is_empty()
            && let Err(error) = CelProgram::compile(message)
        {
            let detail = format!("messageExpression compilation failed: {error}");
            self.errors.push(FieldError::with_shown_value(
                format!("{path}.messageExpression"),
                &shown,
                &detail,
            ));
        }
        let uses_old_self = compiled.as_ref().is_ok_and(CelProgram::uses_old_self);
        if let (true, Some(place)) = (uses_old_self, &around.uncorrelatable) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {place}");
            self.errors.push(FieldError::invalid(
                format!("{path}.rule"),
                &rule["rule"],
                &detail,
            ));
        }
        if !uses_old_self
            && compiled.is_ok()
            && let Some(optional) = rule.get("optionalOldSelf")
        {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(
                format!("{path}.optionalOldSelf"),
                optional,
                detail,
            ));
        }
    }
}
