//! The embedded control plane.

pub mod field_error;
pub mod go_text;
pub mod kinds;
pub mod names;
pub mod selector;
