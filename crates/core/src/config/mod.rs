//! Processing of MachineConfigs: parsing, validation, merge, rendering and naming, provenance, diff and disruption.

pub mod applicability;
pub mod diff;
pub mod disruption;
pub mod extensions;
pub mod feature_gates;
pub mod go_duration;
pub mod goyaml;
pub mod hex;
pub mod irreconcilable;
pub mod manifest;
pub mod merge;
pub mod parsed_config;
pub mod pools;
pub mod problem;
pub mod provenance;
pub mod reconcilable;
pub mod render;
pub mod rendered_configs;
pub mod retention;
pub mod rules;
pub mod runtime_check;
pub mod selector;
pub mod semantic;
pub mod skew;
pub mod transition;
pub mod validate;
