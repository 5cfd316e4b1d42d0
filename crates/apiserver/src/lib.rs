//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.

pub mod admission;
mod audit;
pub mod auth;
pub mod catalog;
pub mod clock;
pub mod decode;
pub mod error;
pub mod field_error;
mod files;
pub mod go_text;
pub mod http;
pub mod kinds;
pub mod limits;
pub mod meta;
pub mod metrics;
pub mod names;
pub mod present;
pub mod registry;
pub mod schema;
pub mod selection;
pub mod selector;
pub mod store;
mod tables;
pub mod watch;
