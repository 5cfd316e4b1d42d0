//! The builder against the embedded control plane, with the tests in the place of kubelets, and a real registry where
//! one is installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod deletion;
mod inputs;
mod local;
mod reports;
mod seeding;
mod shutdown;
mod test_registry;
