//! Built-in objects as Go's types hold them: decoding drops unknown fields and nulls, and a time is an instant, in
//! whichever notation a client writes it.

use jiff::Timestamp;
use serde_json::Value;

use crate::clock::{rfc3339, rfc3339_micro};
use crate::go_text;
use crate::meta::{self, JsonObject};
use crate::schema::{MemberSchema, Schema, SchemaNode};

/// Drops fields that the type does not have, and returns their paths. Times are rewritten as the server writes them.
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
        Value::String(text) => match node.type_name.as_deref() {
            Some("Time") => as_encoded(text, rfc3339),
            Some("MicroTime") => as_encoded(text, rfc3339_micro),
            _ => {}
        },
        _ => {}
    }
}

/// Rewrites the times in the metadata of an object as the server writes them. Clients write `+00:00` or `.000Z`, and
/// must be able to send back what they have read.
pub(super) fn conform_metadata_times(object: &mut JsonObject) {
    let metadata = meta::metadata_mut(object);
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(Value::String(text)) = metadata.get_mut(field) {
            as_encoded(text, rfc3339);
        }
    }
    let managers = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for manager in managers.into_iter().flatten() {
        if let Some(Value::String(text)) = manager.get_mut("time") {
            as_encoded(text, rfc3339);
        }
    }
}

fn as_encoded(text: &mut String, encode: fn(Timestamp) -> String) {
    // An invalid time is reported elsewhere, in the words of the client.
    if let Ok(time) = text.parse::<Timestamp>() {
        *text = encode(time);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    #[test]
    fn times_in_the_notation_of_other_clients_are_stored_as_the_server_writes_them() {
        let lease = kinds::by_kind("coordination.k8s.io", "v1", "Lease").unwrap();
        let schema = kinds::schema_of(lease.definition).unwrap();
        let mut object = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-11-18T03:13:14+01:00",
                "managedFields": [{"manager": "m", "time": "2026-11-18T02:13:14.000Z"}]},
            "spec": {"renewTime": "2026-11-18T02:13:14.123456+00:00"},
        });
        assert!(conform(&mut object, &schema).is_empty());
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "a", "creationTimestamp": "2026-11-18T02:13:14Z",
                    "managedFields": [{"manager": "m", "time": "2026-11-18T02:13:14Z"}]},
                "spec": {"renewTime": "2026-11-18T02:13:14.123456Z"},
            })
        );
    }
}
