//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.

pub mod admission;
pub mod apply;
mod audit;
pub mod auth;
mod bootstrap;
pub mod catalog;
pub mod clock;
mod controllers;
pub mod crd;
pub mod decode;
pub mod error;
pub mod field_error;
mod files;
pub mod go_text;
pub mod http;
pub mod kinds;
pub mod limits;
mod listen;
pub mod meta;
pub mod metrics;
pub mod names;
pub mod object_meta;
pub mod patch;
pub mod present;
pub mod protobuf;
pub mod registry;
pub mod schema;
pub mod selection;
pub mod selector;
pub mod server;
pub mod store;
mod tables;
pub mod watch;

pub use auth::Identity;
pub use http::ApiService;
pub use server::{Options, Server, ServerError};
