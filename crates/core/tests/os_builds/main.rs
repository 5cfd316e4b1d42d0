//! On-cluster builds of OS images: recorded results of the reference implementation, and our own cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod decisions;
mod golden;
mod vectors;
