//! The Ignition configuration model: strict parsing of every spec version in use, validation, merge, conversion.
//!
//! Pure functions over values: no I/O, no clock, no knowledge of Kubernetes or of MachineConfigs. Nothing here panics on
//! any input.

pub mod convert;
mod finding;
pub mod merge;
pub mod model;
pub mod parse;
mod place;
pub mod resource;
pub mod validate;
mod version;

pub use finding::{Finding, Report};
pub use merge::{Change, Item, KernelArgumentList, MergeEvent, MergeObserver, merge};
pub use model::Config;
pub use parse::{ParseError, Parsed, parse, parse_bytes};
pub use validate::validate;
pub use version::SpecVersion;
