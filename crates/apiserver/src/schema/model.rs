//! A schema in its compiled form: a table of nodes that point at each other by number.
//!
//! One form serves every kind. A CRD's structural schema becomes a tree, the built-in kinds one graph with a root
//! per kind. Nothing here is specific to a request, so a schema is compiled once and then shared.

use super::checks::Checks;
use super::rules::Rules;
use serde_json::Value;
use std::sync::Arc;

/// The number of a node in its schema's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// A compiled schema: cheap to clone, immutable.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Arc<[Node]>,
    root: NodeId,
}

/// What a value may look like at one place.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub json_type: JsonType,
    pub nullable: bool,
    /// Sorted by name.
    pub properties: Vec<Property>,
    pub additional: Additional,
    pub items: Option<NodeId>,
    pub list_type: ListType,
    pub map_type: MapType,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub default: Option<Value>,
    pub checks: Option<Box<Checks>>,
    pub rules: Option<Box<Rules>>,
    /// The Go type behind a built-in definition, which decoding errors name.
    pub type_name: Option<Box<str>>,
}

/// A named member of an object, and how a strategic merge patch treats it.
#[derive(Clone, Debug)]
pub struct Property {
    pub name: Box<str>,
    pub node: NodeId,
    pub patch: PatchRule,
}

/// The JSON type of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    /// No type given: anything goes.
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
    /// The name a schema document uses; empty when it has none.
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

/// What becomes of an object's members that are not among its properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Additional {
    /// They are unknown fields.
    #[default]
    Unknown,
    /// They are allowed, with nothing said about what is inside.
    Schemaless,
    Schema(NodeId),
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// By the values of these members.
    Map(Vec<Box<str>>),
}

/// Whether the members of an object have owners of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// What a strategic merge patch does with a member.
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
    pub fn new(nodes: Vec<Node>, root: NodeId) -> Self {
        Self {
            nodes: nodes.into(),
            root,
        }
    }

    /// The same table seen from another node; how the built-in kinds share one graph.
    #[must_use]
    pub fn rooted_at(&self, root: NodeId) -> Self {
        Self {
            nodes: Arc::clone(&self.nodes),
            root,
        }
    }

    /// Whether any node has rules of its own.
    pub fn has_rules(&self) -> bool {
        self.nodes.iter().any(|node| node.rules.is_some())
    }

    pub fn root(&self) -> &Node {
        self.node(self.root)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The node that describes a member of an object, if the schema says anything about it.
    pub fn member<'s>(&'s self, node: &'s Node, name: &str) -> Member<'s> {
        if let Some(property) = node.property(name) {
            return Member::Known(self.node(property.node));
        }
        match node.additional {
            Additional::Schema(id) => Member::Known(self.node(id)),
            Additional::Schemaless => Member::Schemaless,
            Additional::Unknown if node.preserve_unknown => Member::Schemaless,
            Additional::Unknown => Member::Unknown,
        }
    }

    pub fn items<'s>(&'s self, node: &'s Node) -> Option<&'s Node> {
        node.items.map(|id| self.node(id))
    }
}

/// What a schema says about one member of an object.
#[derive(Clone, Copy, Debug)]
pub enum Member<'s> {
    Known(&'s Node),
    /// Allowed, but nothing is said about it.
    Schemaless,
    Unknown,
}

impl Node {
    pub fn property(&self, name: &str) -> Option<&Property> {
        let at = self
            .properties
            .binary_search_by(|property| property.name.as_ref().cmp(name))
            .ok()?;
        self.properties.get(at)
    }

    /// Keeps the invariant that members are found by binary search.
    pub fn set_properties(&mut self, mut properties: Vec<Property>) {
        properties.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.properties = properties;
    }
}

/// Grows a table of nodes; ids stay valid while it grows.
#[derive(Debug, Default)]
pub struct NodeTable {
    nodes: Vec<Node>,
}

impl NodeTable {
    pub fn push(&mut self, node: Node) -> NodeId {
        // A schema with four billion nodes does not fit into a request.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    /// Fills a place that was reserved with an empty node, for definitions that refer to themselves.
    pub fn fill(&mut self, id: NodeId, node: Node) {
        if let Some(place) = self.nodes.get_mut(id.0 as usize) {
            *place = node;
        }
    }

    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    pub fn finish(self, root: NodeId) -> Schema {
        Schema::new(self.nodes, root)
    }
}
