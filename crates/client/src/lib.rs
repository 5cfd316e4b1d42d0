//! Shared by the command line and the console: reading a cluster as the user, previewing a change, and describing the
//! state of pools and nodes.
//!
//! All modules except `cluster` and `plan` are pure. Decisions are made in `mco-core`; this crate composes and
//! explains them.

pub mod advice;
pub mod build_status;
pub mod change_list;
pub mod cluster;
pub mod comparison;
pub mod drift;
pub mod explain;
pub mod forecast;
pub mod image_builds;
pub mod overview;
pub mod plan;
pub mod preflight;
pub mod redaction;
pub mod snapshot;
pub mod switch;
pub mod text;
pub mod timeline;
pub mod undo;
pub mod uninstall;

pub use cluster::{ReadError, to_read_error};
pub use snapshot::{NodeDetails, Snapshot};
