//! One module per group of objects that the operator reconciles. Each reads, decides with a pure function, and writes
//! what differs.

pub(crate) mod definitions;
pub(crate) mod evaluation;
pub(crate) mod ignition_tokens;
pub(crate) mod machine_configuration;
pub(crate) mod monitoring;
pub(crate) mod os_builds;
pub(crate) mod own_metrics;
pub(crate) mod pools;
pub(crate) mod rendering;
pub(crate) mod serving;
pub(crate) mod user_data;
pub(crate) mod workloads;
