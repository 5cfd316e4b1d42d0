//! The cluster state that a plan reads; shared with the console.

pub use mco_client::cluster::sources;
