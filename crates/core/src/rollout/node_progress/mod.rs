//! A node's way to its configuration as `MachineConfigNode` shows it: which step sets which conditions, and how far a
//! node is when it has them.
//!
//! Pure functions between steps and lists of conditions; who reports a step, and when it happens, is not known here.

mod conditions;
mod phase;
mod stages;

pub use conditions::{
    complete, config_version, observed_generation, report, report_all, report_while_degraded,
};
pub use phase::{Applied, Phase};
pub use stages::{Stage, StageReport, StageState, stages};
