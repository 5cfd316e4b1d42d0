//! A real daemon on a directory node against the embedded API server: the annotations on the wire are the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;
mod world;

mod certificates;
mod drains;
mod drift;
mod failures;
mod lifecycle;
mod observability;
