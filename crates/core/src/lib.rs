//! The decisions of the Machine Config Operator, as pure functions in four layers.
//!
//! | layer | what it decides |
//! |---|---|
//! | [`config`] | what a MachineConfig means: parse, validate, merge, render and name, diff, disruption |
//! | [`generators`] | which MachineConfigs come from templates and from other objects |
//! | [`rollout`] | which node gets which config when; drain; status of pools and nodes |
//! | [`pipeline`] | the composition: `generate`, then `render_pool`; admission; bootstrap |
//!
//! A layer uses only those above it in the table; a test enforces that. No Kubernetes client, no async runtime, no
//! filesystem, no clock and no randomness: objects, texts and times are arguments, decisions are return values. The
//! controllers, the daemon and the command line call the same functions and therefore agree.

pub mod config;
pub mod generators;
pub mod pipeline;
pub mod rollout;
