//! The controllers: thin reconcilers that gather, call [`mco_core`] for the decision, write and report.
//!
//! No reconciler decides what a node gets or when; every decision is a call of a pure function that `mco plan` and
//! `mco diff` call too. All reconcilers share one watch per kind (see `watched_kinds`); of rendered MachineConfigs only
//! metadata is cached.

mod boot_image_events;
mod boot_images;
mod certificates;
mod contents;
mod context;
mod control_plane;
mod disruption_policy;
mod drain;
mod error;
mod events;
mod feature_gates;
mod gates;
mod generated_configs;
mod generators;
mod machine_config_nodes;
mod membership;
mod metrics;
mod notify;
mod options;
mod os_streams;
mod outbound;
mod pinned_images;
mod policies;
mod policy_secrets;
mod reconcilers;
mod render;
mod render_state;
mod rendered_config_gc;
mod restore;
mod rollout;
mod run;
mod source_cache;
mod target;
mod template_controller;
mod transforms;
mod watch_handlers;
mod watched_kinds;

pub use error::Error;
pub use metrics::Metrics;
pub use options::{Clock, DrainTiming, Options};
pub use run::{run, serve_metrics};
