//! The brain: what a pool's machines should look like, where each part of that comes from, and what it costs to
//! get there.
//!
//! Pure functions only. No Kubernetes client, no async runtime, no filesystem, no clock and no randomness: objects,
//! texts and times come in as values and decisions go out as values, so that the controller, the node daemon and
//! the command line can never disagree.

pub mod diff;
pub mod disruption;
pub mod explain;
pub mod extensions;
pub mod goyaml;
pub mod manifest;
pub mod merge;
pub mod offline;
pub mod pools;
pub mod problem;
pub mod provenance;
pub mod reconcilable;
pub mod render;
pub mod selector;
pub mod validate;
