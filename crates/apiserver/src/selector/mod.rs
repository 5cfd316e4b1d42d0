//! Label and field selectors: parsing and matching, with Kubernetes' error messages.
//!
//! A selector is parsed once per request and matched against many objects.

mod field;
mod label;
mod label_parser;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm, SelectableFields};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, LabelSelectorError};
