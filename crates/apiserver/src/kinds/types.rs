//! The compiled schemas of the built-in kinds: published definitions joined with the merge rules.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::definitions::{REFERENCE_PREFIX, definitions};
use super::merge::{self, MergePatchRule, MergeShape};
use crate::schema::{
    AdditionalMembers, JsonType, ListType, MapType, NodeId, NodeTable, PatchRule, PatchStrategy, Schema,
    SchemaNode, SchemaProperty, ValueChecks,
};

/// Returns the schema of a definition by its full name, if a built-in kind or one of its subresources uses it.
pub fn schema_of(definition: &str) -> Option<Schema> {
    static GRAPH: LazyLock<Graph> = LazyLock::new(Graph::compile);
    let root = GRAPH.roots.get(definition)?;
    Some(GRAPH.schema.rooted_at(*root))
}

struct Graph {
    schema: Schema,
    roots: BTreeMap<String, NodeId>,
}

impl Graph {
    fn compile() -> Self {
        let definitions = definitions();
        let mut compiler = Compiler {
            table: NodeTable::default(),
            places: BTreeMap::new(),
        };
        for name in definitions.keys() {
            let place = compiler.table.push(SchemaNode::default());
            compiler.places.insert(name.clone(), place);
        }
        for (name, definition) in &definitions {
            let node = compiler.definition(name, definition);
            if let Some(place) = compiler.places.get(name) {
                compiler.table.fill(*place, node);
            }
        }
        let root = compiler.table.push(SchemaNode::default());
        Self {
            schema: compiler.table.finish(root),
            roots: compiler.places,
        }
    }
}

struct Compiler {
    table: NodeTable,
    places: BTreeMap<String, NodeId>,
}

impl Compiler {
    fn definition(&mut self, name: &str, schema: &Value) -> SchemaNode {
        let short = merge::short_name(name);
        let mut node = self.node(short, schema);
        node.type_name = short.rsplit('.').next().map(Into::into);
        if merge::ATOMIC.contains(&short) {
            node.map_type = MapType::Atomic;
        }
        if is_free_form(short) {
            node = SchemaNode {
                type_name: node.type_name,
                ..free_form()
            };
        }
        node
    }

    fn node(&mut self, definition: &str, schema: &Value) -> SchemaNode {
        if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            return SchemaNode {
                json_type: JsonType::IntOrString,
                ..SchemaNode::default()
            };
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => self.object(definition, schema),
            Some("array") => {
                let items = schema.get("items").map(|items| self.place(definition, items));
                SchemaNode {
                    json_type: JsonType::Array,
                    items,
                    ..SchemaNode::default()
                }
            }
            Some("string") => scalar(JsonType::String, schema),
            Some("integer") => scalar(JsonType::Integer, schema),
            Some("number") => scalar(JsonType::Number, schema),
            Some("boolean") => scalar(JsonType::Boolean, schema),
            _ => free_form(),
        }
    }

    fn object(&mut self, definition: &str, schema: &Value) -> SchemaNode {
        let mut node = SchemaNode {
            json_type: JsonType::Object,
            ..SchemaNode::default()
        };
        let members = schema.get("properties").and_then(Value::as_object);
        let properties = members
            .into_iter()
            .flatten()
            .map(|(name, schema)| self.property(definition, name, schema))
            .collect();
        node.set_properties(properties);
        match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => {
                node.additional = AdditionalMembers::Schema(self.place(definition, values));
            }
            _ if members.is_none() => node.preserve_unknown = true,
            _ => {}
        }
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let required: Vec<Box<str>> = required.filter_map(Value::as_str).map(Into::into).collect();
        if !required.is_empty() {
            node.checks = Some(Box::new(ValueChecks {
                required,
                ..ValueChecks::default()
            }));
        }
        node
    }

    fn property(&mut self, definition: &str, name: &str, schema: &Value) -> SchemaProperty {
        let rule = merge::MEMBERS
            .iter()
            .find(|rule| rule.definition == definition && rule.member == name);
        let default = merge::KEY_DEFAULTS
            .iter()
            .find(|(owner, member, _)| *owner == definition && *member == name);
        let shape = rule.map_or(MergeShape::Usual, |rule| rule.shape);
        let node = if shape == MergeShape::Usual && default.is_none() {
            self.place(definition, schema)
        } else {
            let mut node = self.node(definition, schema);
            match shape {
                MergeShape::Usual => {}
                MergeShape::Set => node.list_type = ListType::Set,
                MergeShape::Keyed(keys) => {
                    node.list_type = ListType::Map(keys.iter().map(|key| (*key).into()).collect());
                }
                MergeShape::AtomicMap => node.map_type = MapType::Atomic,
            }
            node.default = default.map(|(_, _, value)| Value::from(*value));
            self.table.push(node)
        };
        let patch = match rule.map_or(MergePatchRule::Usual, |rule| rule.patch) {
            MergePatchRule::Usual => PatchRule::default(),
            MergePatchRule::Merged(key) => PatchRule {
                strategy: PatchStrategy::Merge,
                merge_key: key.map(Into::into),
            },
            MergePatchRule::Replaced => PatchRule {
                strategy: PatchStrategy::Replace,
                merge_key: None,
            },
        };
        SchemaProperty {
            name: name.into(),
            node,
            patch,
        }
    }

    /// Returns the node of a sub-schema: that of its definition for a reference, otherwise a new one.
    fn place(&mut self, definition: &str, schema: &Value) -> NodeId {
        let referenced = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix(REFERENCE_PREFIX))
            .and_then(|name| self.places.get(name));
        if let Some(place) = referenced {
            return *place;
        }
        let node = self.node(definition, schema);
        self.table.push(node)
    }
}

fn scalar(json_type: JsonType, schema: &Value) -> SchemaNode {
    let format = schema.get("format").and_then(Value::as_str);
    let checks = format.map(|format| {
        Box::new(ValueChecks {
            format: Some(format.into()),
            ..ValueChecks::default()
        })
    });
    SchemaNode {
        json_type,
        checks,
        ..SchemaNode::default()
    }
}

fn free_form() -> SchemaNode {
    SchemaNode {
        preserve_unknown: true,
        ..SchemaNode::default()
    }
}

/// Definitions that hold any JSON, in spite of their published type.
fn is_free_form(short: &str) -> bool {
    matches!(
        short,
        "apiextensions.v1.JSON"
            | "apiextensions.v1.JSONSchemaPropsOrArray"
            | "apiextensions.v1.JSONSchemaPropsOrBool"
            | "apiextensions.v1.JSONSchemaPropsOrStringArray"
            | "meta.v1.FieldsV1"
    ) || short.ends_with("runtime.RawExtension")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BUILT_IN;

    /// Follows member names and `[]` for list items.
    fn at<'s>(schema: &'s Schema, path: &str) -> &'s SchemaNode {
        path.split('.')
            .filter(|step| !step.is_empty())
            .fold(schema.root(), |node, step| {
                if step == "[]" {
                    return schema.items(node).unwrap_or_else(|| panic!("{path}: not a list"));
                }
                let property = node
                    .property(step)
                    .unwrap_or_else(|| panic!("{path}: no member {step}"));
                schema.node(property.node)
            })
    }

    #[test]
    fn every_built_in_kind_and_subresource_body_has_a_schema_with_metadata() {
        for kind in BUILT_IN {
            let schema = schema_of(kind.definition).unwrap_or_else(|| panic!("{} has no schema", kind.kind));
            assert!(schema.root().property("metadata").is_some(), "{}", kind.kind);
            assert_eq!(schema.root().type_name.as_deref(), Some(kind.kind));
        }
        for body in ["io.k8s.api.policy.v1.Eviction", "io.k8s.api.autoscaling.v1.Scale"] {
            assert!(schema_of(body).is_some(), "{body}");
        }
        assert!(schema_of("io.k8s.api.core.v1.Nonsense").is_none());
    }

    #[test]
    fn every_merge_rule_names_a_member_that_exists_and_has_the_right_type() {
        let definitions = definitions();
        let member = |owner: &str, name: &str| {
            let found = definitions
                .iter()
                .find(|(definition, _)| merge::short_name(definition) == owner);
            let (_, schema) = found.unwrap_or_else(|| panic!("no definition {owner}"));
            schema["properties"]
                .get(name)
                .cloned()
                .unwrap_or_else(|| panic!("{owner} has no {name}"))
        };
        for rule in merge::MEMBERS {
            let schema = member(rule.definition, rule.member);
            let is_list = matches!(rule.shape, MergeShape::Set | MergeShape::Keyed(_))
                || matches!(rule.patch, MergePatchRule::Merged(_));
            assert_eq!(
                schema["type"] == "array",
                is_list,
                "{} {}",
                rule.definition,
                rule.member
            );
        }
        for (owner, name, _) in merge::KEY_DEFAULTS {
            assert_eq!(member(owner, name)["type"], "string");
        }
        for atomic in merge::ATOMIC {
            assert!(
                definitions
                    .keys()
                    .any(|definition| merge::short_name(definition) == *atomic),
                "{atomic}"
            );
        }
    }

    #[test]
    fn lists_and_maps_of_a_pod_merge_like_kubernetes() {
        let pod = schema_of("io.k8s.api.core.v1.Pod").expect("pods");
        let keyed = |keys: &[&str]| ListType::Map(keys.iter().map(|key| (*key).into()).collect());
        assert_eq!(at(&pod, "spec.containers").list_type, keyed(&["name"]));
        assert_eq!(
            at(&pod, "spec.containers.[].ports").list_type,
            keyed(&["containerPort", "protocol"])
        );
        assert_eq!(
            at(&pod, "spec.containers.[].ports.[].protocol").default,
            Some(Value::from("TCP"))
        );
        assert_eq!(at(&pod, "spec.tolerations").list_type, ListType::Atomic);
        assert_eq!(at(&pod, "metadata.finalizers").list_type, ListType::Set);
        assert_eq!(at(&pod, "spec.nodeSelector").map_type, MapType::Atomic);
        assert_eq!(at(&pod, "metadata.ownerReferences.[]").map_type, MapType::Atomic);
        let spec = at(&pod, "spec");
        let containers = spec.property("containers").expect("containers");
        assert_eq!(
            containers.patch,
            PatchRule {
                strategy: PatchStrategy::Merge,
                merge_key: Some("name".into())
            }
        );
        assert_eq!(
            spec.property("tolerations").expect("tolerations").patch,
            PatchRule::default()
        );
    }
}
