//! Secrets that MachineConfigs have written to nodes: their versions, from which rendered configs follow, and their
//! values, for the nodes whose pool's config names them.
//!
//! The operator is the only component that reads them. The controllers see versions, and the daemons get values over TLS,
//! each for the node that its token names.

mod endpoint;
mod values;
mod versions;

pub use endpoint::{AUDIENCE, SecretEndpoint};
pub use values::{SecretRefusal, values};
pub(crate) use versions::publish;
