//! The progress of a node's update as reported in `MachineConfigNode`: which phase sets which conditions, and the
//! phase that a list of conditions represents.
//!
//! Pure functions between phases and conditions; independent of which component reports a phase, and when.

mod conditions;
mod phase;
mod stages;

pub use conditions::{
    complete, config_version, observed_generation, report, report_all, report_while_degraded,
};
pub use phase::{Applied, UpdatePhase};
pub use stages::{StageReport, StageState, UpdateStage, stages};
