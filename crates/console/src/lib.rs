//! The web console: pools, nodes and MachineConfigs, server-rendered, live, readable on a phone.
//!
//! Everything it shows is decided by `mco-core`, and it reads and writes with the permissions of the logged-in user:
//! the console has none of its own. Pages are pure functions from view values to HTML, in `views`.

pub mod access;
mod assets;
mod http;
mod hub;
mod run;
pub mod views;

pub use access::ConsoleAccess;
pub use run::{ConsoleError, ConsoleOptions, local_host, run};

/// The parsers of requests, for the fuzz targets; not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::http::request::{FormFields, cookie, is_same_origin, segments};
}
