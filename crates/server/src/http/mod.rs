//! Serving configurations over HTTP/1.1, plain and over TLS.
//!
//! [`answer`] turns a request into a response; `listen` binds sockets and sets limits. Status codes are chosen by their
//! effect on a booting machine: below 500 it fails its boot, from 500 on it retries without end, and a success without
//! a body would let it boot without any configuration.

mod answer;
mod guard;
mod listen;
mod path;

pub use answer::IgnitionApp;
pub use guard::TokenGuard;
pub(crate) use listen::PANIC_COMPONENT;
pub use listen::{DEFAULT_LIMITS, serve, serve_metrics};
pub use path::is_pool_name;
