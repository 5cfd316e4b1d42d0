//! The controllers: thin reconcilers that gather, let [`mco_core`] decide, act and report.
//!
//! Nothing here decides what a machine gets or when; every decision is a call of a pure function, so that `mco plan` and
//! `mco diff` foretell exactly what happens here. All reconcilers share one watch per kind; of rendered MachineConfigs only
//! metadata is kept.

mod certificates;
mod cluster;
mod collector;
mod contents;
mod control_plane;
mod disruption_policy;
mod drain;
mod error;
mod events;
mod foundation;
mod generators;
mod members;
mod metrics;
mod mirror;
mod node_objects;
mod options;
mod os_streams;
mod owned;
mod patches;
mod pinned_images;
mod queue;
mod render;
mod renders;
mod restore;
mod rollout;
mod run;
mod target;
mod trim;
mod wiring;
mod worker;

pub use error::{Class, Error};
pub use metrics::Metrics;
pub use options::{Clock, DrainTiming, Options};
pub use run::{run, serve_metrics};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
