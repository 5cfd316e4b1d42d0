//! Spec 2: read from clusters that still have it, and written for machines that know nothing newer.
//!
//! Spec 2 allowed things that spec 3 has no place for. Reading it therefore collapses duplicates as the operator always did,
//! and refuses what cannot be translated; nothing here goes beyond version 2.2.

mod check;
mod deduplicate;
pub(crate) mod down;
mod model;
mod parse;
mod up;

pub(crate) use parse::parse;
