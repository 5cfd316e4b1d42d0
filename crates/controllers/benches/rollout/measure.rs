//! The measurements and their budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scene::Scale;

/// The necessary writes per node: desired config, cordon, drain response, uncordon.
const NEEDED_WRITES: f64 = 4.0;

#[derive(Debug)]
pub struct Measured {
    pub to_first_target: Duration,
    pub rollout: Duration,
    pub peak_megabytes: f64,
    /// By what was written to.
    pub writes: BTreeMap<String, u64>,
}

pub struct Budget {
    pub what: &'static str,
    pub found: f64,
    pub allowed: f64,
    pub unit: &'static str,
}

impl Measured {
    pub fn budgets(&self, scale: &Scale) -> [Budget; 4] {
        #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
        let per_node = {
            let writes = self.writes.iter().filter(|(what, _)| what.ends_with(" nodes"));
            writes.map(|(_, count)| *count).sum::<u64>() as f64 / scale.nodes as f64
        };
        [
            Budget {
                what: "from a MachineConfig to the first node's desiredConfig",
                found: self.to_first_target.as_secs_f64(),
                allowed: 1.0,
                unit: "s",
            },
            Budget {
                what: "writes to each node",
                found: per_node,
                allowed: NEEDED_WRITES + 1.0,
                unit: "",
            },
            Budget {
                what: "most memory of the controllers",
                found: self.peak_megabytes,
                allowed: 150.0,
                unit: "MB",
            },
            Budget {
                what: "rollout against what is possible",
                found: self.rollout.as_secs_f64() / scale.possible().as_secs_f64(),
                allowed: 1.05,
                unit: "times",
            },
        ]
    }
}
