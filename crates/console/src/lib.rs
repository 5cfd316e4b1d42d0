//! The web console: what pools, nodes and MachineConfigs do, server-rendered, live, readable on a phone.
//!
//! Whatever it shows was decided by `mco-core`, and whatever it reads or changes it does with the rights of the person who
//! has logged in: the console has none of its own. Pages are pure functions from view values to HTML, in `views`.

pub mod access;
mod assets;
mod http;
mod hub;
mod run;
pub mod views;

pub use access::Door;
pub use run::{ConsoleError, Options, run};
