//! Built-in objects as Go's types hold them: unknown fields and nulls are dropped by decoding.

use serde_json::Value;

use crate::go_text;
use crate::schema::{MemberSchema, Schema, SchemaNode};

/// Drops fields that the type does not have, and returns their paths.
pub(super) fn conform(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    visit(object, schema, schema.root(), "", &mut dropped);
    dropped
}

fn visit(value: &mut Value, schema: &Schema, node: &SchemaNode, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, member| {
                let at = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                if node.preserve_unknown && node.property(name).is_none() {
                    return true;
                }
                match schema.member(node, name) {
                    MemberSchema::Known(_) if member.is_null() => false,
                    MemberSchema::Known(child) => {
                        visit(member, schema, child, &at, dropped);
                        true
                    }
                    MemberSchema::Schemaless => true,
                    MemberSchema::Unknown => {
                        dropped.push(format!("unknown field {}", go_text::quote(&at)));
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            if let Some(node) = schema.items(node) {
                for (index, item) in items.iter_mut().enumerate() {
                    visit(item, schema, node, &format!("{path}[{index}]"), dropped);
                }
            }
        }
        _ => {}
    }
}
