//! Label and field selectors: parsing, matching, and refusing in Kubernetes' words.
//!
//! A selector is parsed once per request and then asked about many objects; it never looks anything up.

mod field;
mod label;
mod label_parser;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm, SelectableFields};
pub use label::{LabelSelector, LabelSelectorError, Operator, Requirement};
