//! Schemas of kinds, compiled once.
//!
//! The rest of the server uses [`CustomSchema`] for a version of a CRD. Built-in kinds use the same compiled form
//! through [`crate::kinds::schema_of`], without its validations: theirs run when a body is decoded.

pub(crate) mod cel;
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

pub use checks::{NumericBound, ValueChecks};
pub use compile::compile;
pub use custom::CustomSchema;
pub use definition::validate_definition;
pub use model::{
    AdditionalMembers, JsonType, ListType, MapType, MemberSchema, NodeId, NodeTable, PatchRule,
    PatchStrategy, Schema, SchemaNode, SchemaProperty,
};
pub use pattern::GoPattern;
pub use rules::CelRules;
