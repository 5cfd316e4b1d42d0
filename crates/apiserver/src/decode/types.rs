//! Values of the wrong type in a built-in object, reported as Go's decoder reports them.
//!
//! Only the first one is reported, because Go stops there. Custom resources are validated against their schema instead,
//! which reports every error at once.

use serde_json::Value;

use super::scalars;
use crate::schema::{AdditionalMembers, JsonType, MemberSchema, Schema, SchemaNode};

/// Returns the first value that cannot be decoded into the Go type behind the schema.
pub fn type_error(value: &Value, schema: &Schema) -> Option<String> {
    let mut walk = TypeWalk {
        schema,
        path: Vec::new(),
    };
    walk.check(value, schema.root(), None)
}

struct TypeWalk<'s> {
    schema: &'s Schema,
    path: Vec<String>,
}

impl<'s> TypeWalk<'s> {
    /// `owner` is the Go struct that holds the value.
    fn check(&mut self, value: &Value, node: &'s SchemaNode, owner: Option<&'s str>) -> Option<String> {
        if value.is_null() {
            return None;
        }
        match (node.json_type, value) {
            (JsonType::Object, Value::Object(fields)) => {
                let owner = node.type_name.as_deref().or(owner);
                for (name, member) in fields {
                    let MemberSchema::Known(child) = self.schema.member(node, name) else {
                        continue;
                    };
                    // Go counts the fields of structs, not the keys of maps.
                    let is_field = node.property(name).is_some();
                    if is_field {
                        self.path.push(name.clone());
                    }
                    let problem = self.check(member, child, owner);
                    if is_field {
                        self.path.pop();
                    }
                    if problem.is_some() {
                        return problem;
                    }
                }
                None
            }
            (JsonType::Array, Value::Array(items)) => {
                let child = self.schema.items(node)?;
                items.iter().find_map(|item| self.check(item, child, owner))
            }
            (JsonType::IntOrString, _) if is_quantity(node) => scalars::quantity_error(value),
            (JsonType::String, Value::String(text)) => match format_of(node) {
                Some("date-time") if node.type_name.as_deref() == Some("MicroTime") => {
                    scalars::micro_time_error(text)
                }
                Some("date-time") => scalars::time_error(text),
                Some("byte") => scalars::base64_error(text),
                _ => None,
            },
            (JsonType::Any, _)
            | (JsonType::IntOrString, Value::String(_))
            | (JsonType::Boolean, Value::Bool(_))
            | (JsonType::Number, Value::Number(_)) => None,
            (JsonType::Integer | JsonType::IntOrString, Value::Number(number)) if fits(number, node) => None,
            _ => Some(self.mismatch(value, node, owner)),
        }
    }

    fn mismatch(&self, value: &Value, node: &SchemaNode, owner: Option<&str>) -> String {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if matches!(node.json_type, JsonType::Integer | JsonType::IntOrString) => {
                format!("number {number}")
            }
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let wanted = self.go_type(node);
        match owner {
            Some(owner) => format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}",
                self.path.join(".")
            ),
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }

    fn go_type(&self, node: &SchemaNode) -> String {
        match node.json_type {
            JsonType::Object => match (&node.type_name, self.values(node)) {
                (Some(name), _) => format!("v1.{name}"),
                (None, Some(values)) => format!("map[string]{}", self.go_type(values)),
                (None, None) => "map[string]interface {}".to_owned(),
            },
            JsonType::Array => {
                let items = self
                    .schema
                    .items(node)
                    .map_or_else(|| "interface {}".to_owned(), |n| self.go_type(n));
                format!("[]{items}")
            }
            JsonType::String => match format_of(node) {
                Some("byte") => "[]uint8".to_owned(),
                _ => "string".to_owned(),
            },
            JsonType::Integer => format_of(node).unwrap_or("int64").to_owned(),
            JsonType::Number => "float64".to_owned(),
            JsonType::Boolean => "bool".to_owned(),
            JsonType::IntOrString => "int32".to_owned(),
            JsonType::Any => "interface {}".to_owned(),
        }
    }

    fn values(&self, node: &SchemaNode) -> Option<&SchemaNode> {
        match node.additional {
            AdditionalMembers::Schema(id) => Some(self.schema.node(id)),
            AdditionalMembers::Schemaless | AdditionalMembers::Unknown => None,
        }
    }
}

fn is_quantity(node: &SchemaNode) -> bool {
    node.type_name.as_deref() == Some("Quantity")
}

fn format_of(node: &SchemaNode) -> Option<&str> {
    node.checks.as_ref()?.format.as_deref()
}

fn fits(number: &serde_json::Number, node: &SchemaNode) -> bool {
    match number.as_i64() {
        Some(value) => {
            let narrow = node.json_type == JsonType::IntOrString || format_of(node) == Some("int32");
            !narrow || i32::try_from(value).is_ok()
        }
        None => false,
    }
}
