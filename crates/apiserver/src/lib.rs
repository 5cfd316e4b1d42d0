//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.

pub mod admission;
pub mod catalog;
pub mod clock;
pub mod error;
pub mod decode;
pub mod field_error;
pub mod go_text;
pub mod kinds;
pub mod meta;
pub mod names;
pub mod present;
pub mod registry;
pub mod selection;
pub mod schema;
pub mod selector;
pub mod store;
mod tables;
pub mod watch;
