//! CEL, the language of `x-kubernetes-validations`.
//!
//! Parsing and evaluating is the work of the `cel` crate. This module adds what Kubernetes adds: values that know
//! their schema, its libraries of functions, the words of its errors, and a budget that no rule can outrun.

mod budget;
mod check;
mod environment;
mod instrument;
mod library;
mod parse;
mod program;
mod value;

pub(super) use budget::Budget;
pub(super) use check::undefined_reference;
pub(super) use program::{Evaluation, Program, with_room};
pub(super) use value::Place;
