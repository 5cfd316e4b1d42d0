//! The compiled form of a schema: a table of nodes that refer to each other by index.
//!
//! All kinds have this form. A CRD's structural schema is a tree; the built-in kinds are one graph with a root per
//! kind. It is immutable and shared by all requests.

use std::sync::Arc;

use serde_json::Value;

use super::checks::ValueChecks;
use super::rules::CelRules;

/// The index of a node in its schema's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// A compiled schema: cheap to clone, immutable.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Arc<[SchemaNode]>,
    root: NodeId,
}

/// The schema of a value.
#[derive(Clone, Debug, Default)]
pub struct SchemaNode {
    pub json_type: JsonType,
    pub nullable: bool,
    /// Sorted by name.
    pub properties: Vec<SchemaProperty>,
    pub additional: AdditionalMembers,
    pub items: Option<NodeId>,
    pub list_type: ListType,
    pub map_type: MapType,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub default: Option<Value>,
    pub checks: Option<Box<ValueChecks>>,
    pub rules: Option<Box<CelRules>>,
    /// The Go type behind a built-in definition, which decoding errors name.
    pub type_name: Option<Box<str>>,
}

/// A named member of an object, and how a strategic merge patch treats it.
#[derive(Clone, Debug)]
pub struct SchemaProperty {
    pub name: Box<str>,
    pub node: NodeId,
    pub patch: PatchRule,
}

/// The JSON type of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    /// No type: any value is allowed.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl JsonType {
    /// Returns the name in schema documents; empty if there is none.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any | Self::IntOrString => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// The rule for members of an object that are not among its properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdditionalMembers {
    /// They are unknown fields.
    #[default]
    Unknown,
    /// They are allowed, without a schema.
    Schemaless,
    Schema(NodeId),
}

/// How the items of a list are identified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// By the values of these members.
    Map(Vec<Box<str>>),
}

/// Whether the members of an object have separate owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// How a strategic merge patch treats a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRule {
    pub strategy: PatchStrategy,
    /// The member that identifies an item of a merged list of objects.
    pub merge_key: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Objects are merged, lists replaced.
    #[default]
    Usual,
    Merge,
    Replace,
}

impl Schema {
    pub fn new(nodes: Vec<SchemaNode>, root: NodeId) -> Self {
        Self {
            nodes: nodes.into(),
            root,
        }
    }

    /// Returns the same table with another root; the built-in kinds share one graph this way.
    #[must_use]
    pub fn rooted_at(&self, root: NodeId) -> Self {
        Self {
            nodes: Arc::clone(&self.nodes),
            root,
        }
    }

    /// Returns whether any node has rules.
    pub fn has_rules(&self) -> bool {
        self.nodes.iter().any(|node| node.rules.is_some())
    }

    pub fn root(&self) -> &SchemaNode {
        self.node(self.root)
    }

    pub fn node(&self, id: NodeId) -> &SchemaNode {
        &self.nodes[id.0 as usize]
    }

    /// Returns the node of a member of an object, if the schema has one.
    pub fn member<'s>(&'s self, node: &'s SchemaNode, name: &str) -> MemberSchema<'s> {
        if let Some(property) = node.property(name) {
            return MemberSchema::Known(self.node(property.node));
        }
        match node.additional {
            AdditionalMembers::Schema(id) => MemberSchema::Known(self.node(id)),
            AdditionalMembers::Schemaless => MemberSchema::Schemaless,
            AdditionalMembers::Unknown if node.preserve_unknown => MemberSchema::Schemaless,
            AdditionalMembers::Unknown => MemberSchema::Unknown,
        }
    }

    pub fn items<'s>(&'s self, node: &'s SchemaNode) -> Option<&'s SchemaNode> {
        node.items.map(|id| self.node(id))
    }
}

/// The schema of one member of an object.
#[derive(Clone, Copy, Debug)]
pub enum MemberSchema<'s> {
    Known(&'s SchemaNode),
    /// Allowed, without a schema.
    Schemaless,
    Unknown,
}

impl SchemaNode {
    pub fn property(&self, name: &str) -> Option<&SchemaProperty> {
        let at = self
            .properties
            .binary_search_by(|property| property.name.as_ref().cmp(name))
            .ok()?;
        self.properties.get(at)
    }

    /// Sorts members by name, for binary search.
    pub fn set_properties(&mut self, mut properties: Vec<SchemaProperty>) {
        properties.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.properties = properties;
    }
}

/// Builds a table of nodes; indexes stay valid while it grows.
#[derive(Debug, Default)]
pub struct NodeTable {
    nodes: Vec<SchemaNode>,
}

impl NodeTable {
    pub fn push(&mut self, node: SchemaNode) -> NodeId {
        // A schema with four billion nodes does not fit into a request.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    /// Sets a node that was reserved for a definition that refers to itself.
    pub fn fill(&mut self, id: NodeId, node: SchemaNode) {
        if let Some(place) = self.nodes.get_mut(id.0 as usize) {
            *place = node;
        }
    }

    pub fn get(&self, id: NodeId) -> Option<&SchemaNode> {
        self.nodes.get(id.0 as usize)
    }

    pub fn finish(self, root: NodeId) -> Schema {
        Schema::new(self.nodes, root)
    }
}
