//! Pruning of unknown fields, and of nulls that are not allowed.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::model::{AdditionalMembers, Schema, SchemaNode};

/// Members that every resource has, regardless of its schema.
const RESOURCE_MEMBERS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields of a custom resource and returns their paths, sorted.
///
/// The root is a resource: its type and metadata stay regardless of the schema.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner {
        schema,
        path: String::new(),
        unknown: Vec::new(),
    };
    pruner.value(object, Some(schema.root()), true);
    pruner.unknown.sort_unstable();
    pruner.unknown
}

/// Removes nulls from members that are not nullable and have no default to take their place.
pub fn prune_nulls(object: &mut Value, schema: &Schema) {
    nulls(object, schema.root(), schema);
}

struct Pruner<'s> {
    schema: &'s Schema,
    path: String,
    unknown: Vec<String>,
}

impl<'s> Pruner<'s> {
    /// Without a schema every member is unknown.
    fn value(&mut self, value: &mut Value, node: Option<&'s SchemaNode>, is_resource: bool) {
        match value {
            Value::Object(fields) => self.object(fields, node, is_resource),
            Value::Array(items) => {
                let preserved = node.is_some_and(|node| node.preserve_unknown);
                let child = node.and_then(|node| self.schema.items(node));
                if preserved && child.is_none() {
                    return;
                }
                let length = self.path.len();
                for (index, item) in items.iter_mut().enumerate() {
                    // Writing to a String cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, child, false);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, node: Option<&'s SchemaNode>, is_resource: bool) {
        let is_resource = is_resource || node.is_some_and(|node| node.embedded_resource);
        fields.retain(|name, value| {
            if is_resource && RESOURCE_MEMBERS.contains(&name.as_str()) {
                return true;
            }
            let Some(node) = node else {
                self.report(name);
                return false;
            };
            let child = match (node.property(name), node.additional) {
                (Some(property), _) => Some(self.schema.node(property.node)),
                (None, AdditionalMembers::Schema(id)) => Some(self.schema.node(id)),
                (None, AdditionalMembers::Schemaless) => None,
                (None, AdditionalMembers::Unknown) if node.preserve_unknown => return true,
                (None, AdditionalMembers::Unknown) => {
                    self.report(name);
                    return false;
                }
            };
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.value(value, child, false);
            self.path.truncate(length);
            true
        });
    }

    fn report(&mut self, name: &str) {
        self.unknown.push(if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        });
    }
}

fn nulls(value: &mut Value, node: &SchemaNode, schema: &Schema) {
    match value {
        Value::Object(fields) => fields.retain(|name, member| {
            let child = match (node.property(name), node.additional) {
                (Some(property), _) => schema.node(property.node),
                (None, AdditionalMembers::Schema(id)) => schema.node(id),
                (None, _) => return true,
            };
            if member.is_null() && !child.nullable && child.default.is_none() {
                return false;
            }
            nulls(member, child, schema);
            true
        }),
        Value::Array(items) => {
            if let Some(child) = schema.items(node) {
                for item in items {
                    nulls(item, child, schema);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile;
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, mut object: Value, expected: &Value, unknown: &[&str]) {
        let found = prune(&mut object, &compile(schema));
        assert_eq!(&object, expected);
        assert_eq!(found, unknown);
    }

    #[test]
    fn unknown_fields_are_removed_and_reported_in_order() {
        check(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}}}}}}),
            json!({"apiVersion": "v", "kind": "K", "metadata": {"anything": 1}, "zzz": 1,
                "spec": {"a": "1", "c": 2, "b": {"deep": 1}, "list": [{"x": "1"}, {"y": "2"}]}}),
            &json!({"apiVersion": "v", "kind": "K", "metadata": {"anything": 1},
                "spec": {"a": "1", "list": [{"x": "1"}, {}]}}),
            &["spec.b", "spec.c", "spec.list[1].y", "zzz"],
        );
    }

    #[test]
    fn preserved_objects_keep_unknown_fields_and_prune_inside_declared_ones() {
        check(
            &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "known": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
            json!({"free": {"any": [1, {"x": 1}]}, "known": {"a": "1", "b": 1}}),
            &json!({"free": {"any": [1, {"x": 1}]}, "known": {"a": "1"}}),
            &["known.b"],
        );
    }

    #[test]
    fn maps_with_a_value_schema_are_pruned_inside_and_schemaless_ones_hold_only_scalars() {
        check(
            &json!({"type": "object", "properties": {
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "open": {"type": "object", "additionalProperties": true}}}),
            json!({"map": {"k": {"a": "1", "b": 2}}, "open": {"s": "x", "o": {"gone": 1}}}),
            &json!({"map": {"k": {"a": "1"}}, "open": {"s": "x", "o": {}}}),
            &["map.k.b", "open.o.gone"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_type_and_metadata() {
        check(
            &json!({"type": "object", "properties": {"template": {"type": "object",
                "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}),
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"a": 1}, "status": {}}}),
            &json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}}),
            &["template.spec.a", "template.status"],
        );
    }

    #[test]
    fn nulls_stay_only_where_they_are_allowed_or_replaced() {
        let schema = compile(&json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}));
        let mut object = json!({"plain": null, "nullable": null, "defaulted": null, "list": [{"a": null}, null],
            "free": {"x": null}});
        prune_nulls(&mut object, &schema);
        assert_eq!(
            object,
            json!({"nullable": null, "defaulted": null, "list": [{}, null], "free": {"x": null}})
        );
    }
}
