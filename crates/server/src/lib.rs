//! The Ignition endpoint: serves the configuration that a new machine fetches at its first boot.
//!
//! [`negotiate`], [`choose`], [`compose`] and [`pointer`] are pure decisions. [`prepared`] caches documents,
//! [`offline`] and [`cluster`] publish them, [`http`] serves them, and [`run`](mod@run) wires these together. Only
//! [`fleetlock`] writes to the cluster, and no secret (tokens, kubeconfigs, file contents) reaches a log.

pub mod choose;
pub mod cluster;
pub mod compose;
pub mod fleetlock;
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
pub use run::{ConfigBackend, RunError, ServerSettings, run};
