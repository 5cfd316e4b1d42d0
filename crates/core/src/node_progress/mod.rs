//! A node's way to its configuration as `MachineConfigNode` shows it: which step sets which conditions.
//!
//! A pure function from the step to the list of conditions; who reports a step, and when it happens, is not known here.

mod conditions;
mod phase;

pub use conditions::{config_version, observed_generation, report};
pub use phase::{Applied, Phase};
