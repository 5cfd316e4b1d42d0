//! The controllers on the embedded control plane, with simulated nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::too_many_lines, reason = "a scenario is one function")]

mod boot_images;
mod cluster;
mod control_plane;
mod controller_config;
mod drains;
mod feature_gates;
mod fleetlock;
mod generated;
mod generators;
mod image_policies;
mod layered;
mod node_settings;
mod observer;
mod os_streams;
mod pinned_images;
mod policies;
mod remote_contents;
mod rollout;
mod scrape;
mod steps;
mod story;
mod targets;
mod voters;
