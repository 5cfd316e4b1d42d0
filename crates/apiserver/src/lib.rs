//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.
//!
//! The README of this crate states its scope and its limits.

pub mod admission;
pub mod apply;
mod audit;
pub mod auth;
mod bootstrap;
pub mod catalog;
pub mod clock;
mod controllers;
pub mod cpu;
pub mod crd;
pub mod decode;
mod defaults;
pub mod error;
pub mod field_error;
pub mod files;
pub mod go_text;
mod go_types;
pub mod http;
pub mod kinds;
pub mod limits;
mod listen;
pub mod meta;
pub mod metrics;
pub mod names;
pub mod object_meta;
pub mod openapi;
pub mod patch;
pub mod present;
pub mod protobuf;
pub mod registry;
mod rules;
pub mod schema;
pub mod selection;
pub mod selector;
pub mod server;
pub mod store;
mod tables;
pub mod watch;

pub use auth::Identity;
pub use http::ApiService;
pub use server::{ApiServer, ApiServerOptions, Execution, ServerError};
pub mod table;
