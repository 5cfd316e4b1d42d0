//! The Ignition endpoint: what a new machine fetches at its first boot.
//!
//! [`negotiate`], [`choose`], [`compose`] and [`pointer`] decide and do nothing else. [`prepared`] keeps finished answers,
//! [`offline`] and [`cluster`] feed it, [`http`] hands answers out. Nothing here writes to the cluster, and nothing secret
//! (tokens, kubeconfigs, file contents) reaches a log.

pub mod choose;
pub mod compose;
mod gojson;
pub mod kubeconfig;
pub mod negotiate;
