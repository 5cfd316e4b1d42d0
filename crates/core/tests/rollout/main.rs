//! Rollout, pool status, drain and node progress from the outside: tables of single decisions, and whole fleets under
//! random events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::wildcard_imports,
    clippy::needless_pass_by_value,
    reason = "tables of cases are long, and read best with short words and values made in place"
)]

mod candidates;
mod control_plane;
mod drain;
mod fixtures;
mod layered;
mod node;
mod policy;
mod policy_confirmation;
mod policy_properties;
mod progress;
mod properties;
mod reboot_locks;
mod scale;
mod simulator;
mod status;
mod waves;
mod writes;
