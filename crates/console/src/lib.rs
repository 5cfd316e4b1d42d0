//! The web console: what pools, nodes and MachineConfigs do, server-rendered, live, readable on a phone.
//!
//! Whatever it shows was decided by `mco-core`, and whatever it reads or changes it does with the rights of the person who
//! has logged in: the console has none of its own. Pages are pure functions from view values to HTML, in `views`.

pub mod access;
mod assets;
pub mod cluster;
mod http;
mod hub;
pub mod plan;
mod run;
mod snapshot;
pub mod views;

pub use access::Door;
pub use cluster::{ReadError, explained};
pub use run::{ConsoleError, Options, run};
pub use snapshot::{NodeDetails, Snapshot};
