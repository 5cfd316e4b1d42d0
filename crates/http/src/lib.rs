//! The HTTP edge that every listening component shares.
//!
//! [`serve`] accepts connections on one socket: TLS, connection limit, deadlines, isolation of requests and graceful
//! drain. Around it: certificates that can be replaced while serving ([`tls`]), a certificate authority ([`pki`]),
//! hashed tokens ([`tokens`]) and the metrics endpoint ([`metrics`]). Routing and the meaning of a request belong to
//! the callers.

mod accept;
mod activity;
mod bind;
mod client_network;
mod connection;
mod descriptors;
pub mod fetch;
mod handler;
mod isolation;
mod limits;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod pki;
pub mod pool_tokens;
mod private_file;
mod request;
mod response;
mod stall;
pub mod tls;
pub mod tokens;

pub use accept::{Listener, ServeOptions, serve};
pub use bind::bind;
pub use client_network::client_network;
pub use connection::{ConnectionPeer, ListenerTransport};
pub use descriptors::raise_descriptor_limit;
pub use handler::{ConnectionMetrics, RequestHandler};
pub use limits::{Http1Limits, Http2Limits, HttpProtocol, ListenerLimits, Overflow};
pub use private_file::write_private;
pub use request::{BodyError, bearer_token, read_body};
pub use response::{TextResponse, text};
