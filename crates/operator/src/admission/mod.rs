//! Refusing bad objects when they are written, on a real cluster and on an embedded one.
//!
//! What is refused is decided in [`mco_core::pipeline::admission`]; here is what it has to know ([`InUse`]) and how an API server asks
//! ([`webhook`]).

mod in_use;
mod review;
pub(crate) mod webhook;

pub use in_use::InUse;
pub use review::answer;
