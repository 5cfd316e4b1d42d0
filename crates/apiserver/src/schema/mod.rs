//! Schemas: what an object of a kind may look like, compiled once and asked often.
//!
//! [`CustomSchema`] is what the rest of the server uses for a version of a CRD. The built-in kinds use the same
//! compiled form through [`crate::kinds::schema_of`], without its checks: theirs are made when a body is decoded.

mod cel;
mod checks;
mod compile;
mod correlate;
mod custom;
mod default;
mod definition;
mod embedded;
mod extensions;
mod formats;
mod go_struct;
mod lists;
mod model;
mod pattern;
mod prune;
mod raw;
mod rules;
mod structural;
mod validate;

pub use checks::{Bound, Checks};
pub use compile::compile;
pub use custom::CustomSchema;
pub use definition::validate_definition;
pub use model::{
    Additional, JsonType, ListType, MapType, Member, Node, NodeId, NodeTable, PatchRule, PatchStrategy,
    Property, Schema,
};
pub use pattern::Pattern;
pub use rules::Rules;
