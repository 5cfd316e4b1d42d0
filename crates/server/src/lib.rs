//! The Ignition endpoint: what a new machine fetches at its first boot.
//!
//! [`negotiate`], [`choose`], [`compose`] and [`pointer`] decide and do nothing else. [`prepared`] keeps finished answers,
//! [`offline`] and [`cluster`] feed it, [`http`] hands answers out, [`run`](mod@run) ties them together. Nothing here writes
//! to the cluster, and nothing secret (tokens, kubeconfigs, file contents) reaches a log.

pub mod choose;
pub mod cluster;
pub mod compose;
mod gojson;
pub mod http;
pub mod kubeconfig;
mod metrics;
pub mod negotiate;
pub mod offline;
pub mod prepared;
pub mod run;
pub mod tokens;

pub use mco_core::generators::pointer;
pub use run::{Backend, RunError, Settings, run};
