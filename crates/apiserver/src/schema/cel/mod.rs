//! CEL, the language of `x-kubernetes-validations` and of admission policies.
//!
//! The `cel` crate parses and evaluates. This module adds what Kubernetes adds: typed values, function libraries, error
//! messages, and a budget.

mod budget;
mod check;
mod environment;
mod instrument;
mod library;
mod parse;
mod program;
mod scope;
mod types;
mod value;

pub(crate) use budget::CelBudget;
pub(super) use check::undefined_reference;
pub(crate) use library::{AccessCheck, AuthorizerValue, ResourceAccess};
pub(crate) use parse::children;
pub(super) use program::RuleInput;
pub(crate) use program::{CelProgram, with_room};
pub(crate) use scope::{CelScope, CelVariableSet};
pub(crate) use types::{BOOL, CelDeclarations, CelType, INT, STRING};
pub(super) use value::CelPosition;
pub(crate) use value::{is_plain_name, untyped, untyped_owned};
