//! How the parts of a value are owned: as one, by name, by key or by value.
//!
//! Without a schema, the value itself decides: objects are owned member by member, lists as a whole.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::field_set::PathElement;
use crate::kinds;
use crate::schema::{AdditionalMembers, JsonType, ListType, MapType, Schema, SchemaNode};

/// A position in a schema; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct TypedPosition<'s> {
    schema: &'s Schema,
    /// No schema.
    node: Option<&'s SchemaNode>,
    /// A resource, whose metadata has a fixed schema.
    resource: bool,
}

/// How a value at a position is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOwnership<'s> {
    Scalar,
    AtomicList,
    Set,
    Keyed(&'s [Box<str>]),
    AtomicMap,
    Map,
}

static METADATA: LazyLock<Option<Schema>> =
    LazyLock::new(|| kinds::schema_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));

impl<'s> TypedPosition<'s> {
    /// The root of a resource.
    pub fn resource(schema: &'s Schema) -> Self {
        Self {
            schema,
            node: Some(schema.root()),
            resource: true,
        }
    }

    /// Returns how a value here is owned. A value that does not fit the schema is owned as the schema defines.
    pub fn form(self, value: &Value) -> FieldOwnership<'s> {
        let Some(node) = self.node else {
            return deduced(value);
        };
        match node.json_type {
            JsonType::Object if node.map_type == MapType::Atomic => FieldOwnership::AtomicMap,
            JsonType::Object => FieldOwnership::Map,
            JsonType::Array => match &node.list_type {
                ListType::Atomic => FieldOwnership::AtomicList,
                ListType::Set => FieldOwnership::Set,
                ListType::Map(keys) => FieldOwnership::Keyed(keys),
            },
            JsonType::Any => deduced(value),
            JsonType::String
            | JsonType::Integer
            | JsonType::Number
            | JsonType::Boolean
            | JsonType::IntOrString => FieldOwnership::Scalar,
        }
    }

    /// Returns the position of a member.
    pub fn member(self, name: &str) -> Self {
        if self.is_resource()
            && name == "metadata"
            && let Some(schema) = METADATA.as_ref()
        {
            return Self {
                schema,
                node: Some(schema.root()),
                resource: false,
            };
        }
        let node = self
            .node
            .and_then(|node| match (node.property(name), node.additional) {
                (Some(property), _) => Some(self.schema.node(property.node)),
                (None, AdditionalMembers::Schema(id)) => Some(self.schema.node(id)),
                (None, AdditionalMembers::Schemaless | AdditionalMembers::Unknown) => None,
            });
        Self {
            node,
            resource: false,
            ..self
        }
    }

    /// Returns whether the schema names this member, rather than allowing any.
    pub fn declares(self, name: &str) -> bool {
        let named = self.node.is_some_and(|node| node.property(name).is_some());
        named || (self.is_resource() && matches!(name, "apiVersion" | "kind" | "metadata"))
    }

    /// Returns whether the schema allows this member.
    pub fn allows(self, name: &str) -> bool {
        self.declares(name)
            || self.node.is_none_or(|node| {
                node.preserve_unknown
                    || node.additional != AdditionalMembers::Unknown
                    || node.json_type != JsonType::Object
            })
    }

    /// Returns the position of a list's items.
    pub fn item(self) -> Self {
        let node = self.node.and_then(|node| self.schema.items(node));
        Self {
            node,
            resource: false,
            ..self
        }
    }

    pub fn json_type(self) -> JsonType {
        self.node.map_or(JsonType::Any, |node| node.json_type)
    }

    /// Returns the path element of an item of a set or keyed list; the error describes why it has none.
    pub fn element(self, form: FieldOwnership<'s>, item: &Value) -> Result<PathElement, String> {
        let FieldOwnership::Keyed(keys) = form else {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::value(scalar)),
            };
        };
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut named = BTreeMap::new();
        for key in keys {
            let default = || {
                self.item()
                    .member(key)
                    .node
                    .and_then(|node| node.default.as_ref())
            };
            if let Some(value) = fields.get(key.as_ref()).or_else(default) {
                named.insert(key.to_string(), value.to_string());
            }
        }
        if named.is_empty() {
            let quoted: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                quoted.join(" ")
            ));
        }
        Ok(PathElement::Key(named))
    }

    /// Returns the position that a path element leads to.
    pub fn descend(self, element: &PathElement) -> Self {
        match element {
            PathElement::Field(name) => self.member(name),
            PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => self.item(),
        }
    }

    fn is_resource(self) -> bool {
        self.resource || self.node.is_some_and(|node| node.embedded_resource)
    }
}

fn deduced(value: &Value) -> FieldOwnership<'static> {
    match value {
        Value::Object(_) => FieldOwnership::Map,
        Value::Array(_) => FieldOwnership::AtomicList,
        _ => FieldOwnership::Scalar,
    }
}
