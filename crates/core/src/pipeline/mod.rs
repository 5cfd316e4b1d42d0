//! The render pipeline: from a cluster's objects to the rendered config of every pool.
//!
//! ```text
//! ClusterObjects --base--> Base --generate--> generated MachineConfigs + reports
//! user MachineConfigs + generated ones --render_pool--> rendered-<pool>-<hash>, or one RenderFailure
//! ```
//!
//! This is the only composition of those steps. The controllers, `mco plan`, `diff`, `rollout undo`, `render`, the
//! console and the operator's bootstrap gather the inputs, call these functions, and write or print the results. A
//! generator or a check is added here, once.

pub mod admission;
mod base;
pub mod bootstrap;
mod credential_provider;
mod existing;
mod generate;
mod kubelet;
mod objects;
pub mod offline;
mod registries;
mod render;
mod user_configs;

pub use base::{BaseConfigs, BaseError, BaseSettings};
pub use existing::ExistingConfigs;
pub use generate::{
    ClusterStage, GeneratedConfig, GenerationError, GenerationFailure, GenerationResult, GeneratorInputs,
    ObjectReport, SkippedObject, generate, run_generator,
};
pub use objects::{ClusterObjects, SOURCE_KINDS, SourceKind};
pub use render::{PoolInputs, RenderFailure, RenderedPool, is_user_source, render_pool};
pub use user_configs::is_generated_from;
