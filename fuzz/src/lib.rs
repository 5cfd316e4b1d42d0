//! What several fuzz targets share: JSON in the shape of Kubernetes objects, and the measures that invariants use.
//!
//! Most byte mutations of JSON text are syntax errors, so the targets of transforms generate values from the fuzzer's
//! bytes instead of parsing them.

pub mod document;
pub mod expression;
pub mod values;
