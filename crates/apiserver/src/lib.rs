//! The embedded control plane.

pub mod apply;
pub mod decode;
pub mod field_error;
pub mod go_text;
pub mod kinds;
pub mod names;
pub mod object_meta;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod table;
