//! The cluster that a plan is about; the console reads it in the same way.

pub use mco_client::cluster::sources;
