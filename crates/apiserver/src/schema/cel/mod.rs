//! CEL, the language of `x-kubernetes-validations`.
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
mod value;

pub(super) use budget::CelBudget;
pub(super) use check::undefined_reference;
pub(super) use program::{CelProgram, RuleInput, with_room};
pub(super) use value::CelPosition;
