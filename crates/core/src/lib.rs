//! The brain: what a pool's machines should look like, where each part of that comes from, and what it costs to
//! get there.
//!
//! Pure functions only. No Kubernetes client, no async runtime, no filesystem, no clock and no randomness: objects,
//! texts and times come in as values and decisions go out as values, so that the controller, the node daemon and
//! the command line can never disagree.

pub mod admission;
pub mod advice;
pub mod boot_images;
pub mod bootstrap;
pub mod change_list;
pub mod comparison;
pub mod container_runtime;
pub mod credential_provider;
pub mod diff;
pub mod disruption;
pub mod drain;
pub mod drift;
pub mod explain;
pub mod extensions;
pub mod feature_gates;
pub mod forecast;
pub mod generated;
pub mod goyaml;
pub mod hex;
pub mod irreconcilable;
pub mod kept_images;
pub mod kubelet;
pub mod manifest;
pub mod merge;
pub mod node_progress;
pub mod offline;
pub mod os_images;
pub mod os_streams;
pub mod overview;
pub mod parsed_config;
pub mod pinned_images;
pub mod pipeline;
pub mod pointer;
pub mod pool_status;
pub mod pools;
pub mod problem;
pub mod provenance;
pub mod quantity;
pub mod reconcilable;
pub mod redaction;
pub mod registries;
pub mod render;
pub mod rendered_configs;
pub mod retention;
pub mod rollout;
pub mod rules;
pub mod runtime_check;
pub mod selector;
pub mod semantic;
pub mod skew;
pub mod switch;
pub mod templates;
pub mod timeline;
pub mod tls_profile;
pub mod transition;
pub mod undo;
pub mod user_data;
pub mod validate;
pub mod words;
