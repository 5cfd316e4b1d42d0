//! Defaults of a schema.

use serde_json::Value;

use super::model::{AdditionalMembers, Schema, SchemaNode};

/// Sets every default whose parent exists, from the outside in, so that a default may contain more defaults.
///
/// Nulls that are not allowed count as absent; run [`super::prune_nulls`] first for those without a default.
pub fn apply_defaults(object: &mut Value, schema: &Schema) {
    apply(object, schema.root(), schema);
}

fn apply(value: &mut Value, node: &SchemaNode, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for property in &node.properties {
                let child = schema.node(property.node);
                let Some(default) = &child.default else { continue };
                match fields.get_mut(property.name.as_ref()) {
                    None => {
                        fields.insert(property.name.to_string(), default.clone());
                    }
                    Some(member) => replace_null(member, child),
                }
            }
            for (name, member) in fields {
                let child = match (node.property(name), node.additional) {
                    (Some(property), _) => schema.node(property.node),
                    (None, AdditionalMembers::Schema(id)) => {
                        let child = schema.node(id);
                        replace_null(member, child);
                        child
                    }
                    (None, _) => continue,
                };
                apply(member, child, schema);
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items(node) {
                for item in items {
                    replace_null(item, child);
                    apply(item, child, schema);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, node: &SchemaNode) {
    if let (true, false, Some(default)) = (value.is_null(), node.nullable, &node.default) {
        value.clone_from(default);
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile;
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, mut object: Value, expected: &Value) {
        apply_defaults(&mut object, &compile(schema));
        assert_eq!(&object, expected);
    }

    #[test]
    fn defaults_fill_gaps_at_every_depth_that_exists() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "nested": {"type": "object", "properties": {"b": {"type": "integer", "default": 3}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "boolean", "default": true}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "string", "default": "y"}}}}}}}});
        check(
            &schema,
            json!({"spec": {"nested": {}, "list": [{}, {"c": false}], "map": {"k": {}}}}),
            &json!({"spec": {"a": "x", "nested": {"b": 3}, "list": [{"c": true}, {"c": false}], "map": {"k": {"d": "y"}}}}),
        );
        check(&schema, json!({}), &json!({}));
        check(&schema, json!({"spec": {"a": ""}}), &json!({"spec": {"a": ""}}));
    }

    #[test]
    fn a_default_object_receives_the_defaults_inside_it() {
        check(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
                "a": {"type": "string", "default": "x"}}}}}),
            json!({}),
            &json!({"spec": {"a": "x"}}),
        );
    }

    #[test]
    fn a_null_that_is_not_allowed_takes_the_default() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"}, "b": {"type": "string", "nullable": true, "default": "y"}}});
        check(
            &schema,
            json!({"a": null, "b": null}),
            &json!({"a": "x", "b": null}),
        );
    }
}
