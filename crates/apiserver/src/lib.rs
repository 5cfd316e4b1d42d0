//! The embedded control plane: a revisioned store with Kubernetes REST semantics, for one machine.

pub mod kinds;
pub mod store;
