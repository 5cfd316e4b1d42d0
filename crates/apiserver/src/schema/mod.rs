//! Schemas: what an object of a kind may look like, compiled once and asked often.

mod checks;
mod model;

pub use checks::Checks;
pub use model::{
    Additional, JsonType, ListType, MapType, Member, Node, NodeId, NodeTable, PatchRule, PatchStrategy,
    Property, Schema,
};
