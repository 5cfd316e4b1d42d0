//! Validating admission, on a real cluster and on an embedded one.
//!
//! [`mco_core::pipeline::admission`] decides what is rejected; this module holds its input ([`InUse`]) and the endpoint
//! that an API server calls ([`webhook`]).

mod in_use;
mod review;
pub(crate) mod webhook;

pub use in_use::InUseIndex;
pub use review::review_response;
