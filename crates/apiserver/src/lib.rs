//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.

pub mod field_error;
pub mod go_text;
pub mod kinds;
pub mod names;
pub mod selector;
pub mod store;
