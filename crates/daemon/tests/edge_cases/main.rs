//! Edge cases, one table per subject: what counts as a change, what cannot be changed, what a change costs and what it
//! leaves on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod costs;
mod differences;
mod on_disk;
mod possible;
