//! Handing out answers over HTTP/1.1, plain and over TLS.
//!
//! [`answer`] turns a request into a response; `listen` owns sockets, limits and time. Status codes are chosen by
//! what they make a booting machine do: below 500 it gives up, from 500 on it asks again for ever, and a success without a
//! body would let it boot without any configuration.

mod answer;
mod guard;
mod listen;
mod path;
mod stall;

pub use answer::App;
pub use guard::TokenGuard;
pub use listen::{Limits, Listener, Transport, bind, serve, serve_metrics};
pub use path::is_pool_name;
