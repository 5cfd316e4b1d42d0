//! Runs the real daemon on a directory node against the embedded API server and asserts the annotations on the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/doubled.rs"]
mod doubled;
#[path = "../support/log.rs"]
mod log;
#[path = "../support/runtime.rs"]
mod runtime;
#[path = "../support/mod.rs"]
mod support;
mod world;

mod adoption;
mod certificates;
mod drains;
mod drift;
mod failures;
mod guard;
mod guarded;
mod hooks;
mod hosted;
mod image_mode;
mod images;
mod install;
mod kubelet;
mod lifecycle;
mod node_files;
mod observability;
mod os_images;
mod progress;
mod revert;
mod rollback;
mod users;
