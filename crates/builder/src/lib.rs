//! The image builder: reconciles MachineOSConfigs into images.
//!
//! `MachineOSConfig -> MachineOSBuild -> Job -> digest -> MachineOSConfig.status`; the rollout of the image is the
//! controllers'. Every decision is [`mco_core::generators::os_builds`]'s; this crate gathers, writes and reports. It may
//! be stopped or killed at any moment: the next run continues from what it finds in the cluster.
//!
//! | module | purpose |
//! |---|---|
//! | `reconcile` | one MachineOSConfig: Jobs to status, then step by step to the current image |
//! | `steps` | the writes of each step |
//! | `images` | inspection and deletion of images, in any registry |
//! | [`build`] | the build itself, inside the Job: drives buildah or podman |
//! | [`local`] | runs Jobs as processes of this host, where there is no kubelet |

pub mod build;
mod build_directory;
mod cleanup;
mod context;
mod digest;
mod error;
mod events;
mod images;
mod inputs;
pub mod local;
mod metrics;
mod options;
mod reconcile;
mod registry;
mod run;
mod steps;

pub use digest::{DigestConfigMap, publish_digest};
pub use error::Error;
pub use metrics::Metrics;
pub use options::Options;
pub use run::run;
