//! Spec 2: read from clusters that still use it, and written for machines that do not support a newer version.
//!
//! Spec 2 allowed constructs that spec 3 does not support. Parsing therefore removes duplicates as the reference does,
//! and rejects what cannot be translated; versions above 2.2 are not supported.

mod check;
mod deduplicate;
pub(crate) mod down;
mod model;
mod parse;
mod up;

pub(crate) use parse::parse;
