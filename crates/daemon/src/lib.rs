//! The node agent: applies a configuration to a machine, completely or not at all, and detects drift.
//!
//! `mco-core` decides what a change costs and whether it is possible; `mco-host` accesses the machine. This crate
//! plans, orders, recovers and reports.

pub mod adoption;
pub mod agent;
pub mod apiserver_watcher;
pub mod apply;
pub mod boot_proof;
pub mod config;
pub mod custody;
pub mod disk;
pub mod drift;
pub mod firstboot;
pub mod footprint;
pub mod guard;
pub mod guarded;
pub mod hooks;
pub mod images;
pub mod live;
pub mod member;
pub mod node_files;
pub mod once;
pub mod os_change;
pub mod os_stage;
pub mod paths;
pub mod plan;
pub mod previous_logs;
pub mod revert;
pub mod status;
pub mod target;
pub mod transaction;
pub mod validate;

/// The component in the metric of panics.
pub(crate) const PANIC_COMPONENT: &str = "daemon";
