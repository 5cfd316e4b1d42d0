//! The presentation of states: a colour, an icon and a word, so that none of them is needed alone.

use mco_api::rollout_policy::RolloutPhase;
use mco_client::overview::{NodeStanding, PoolPhase};
use mco_core::config::disruption::DisruptionLevel;
use mco_core::rollout::node_progress::StageState;
use mco_core::rollout::policy::GateState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Busy,
    Calm,
    Warn,
    Bad,
}

impl Tone {
    /// Returns the name in the style sheet and of the icon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Calm => "calm",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

impl From<PoolPhase> for Tone {
    fn from(state: PoolPhase) -> Self {
        match state {
            PoolPhase::Updated => Self::Good,
            PoolPhase::Updating => Self::Busy,
            PoolPhase::Paused => Self::Warn,
            PoolPhase::Degraded => Self::Bad,
            PoolPhase::Waiting => Self::Calm,
        }
    }
}

impl From<NodeStanding> for Tone {
    fn from(standing: NodeStanding) -> Self {
        match standing {
            NodeStanding::Updated => Self::Good,
            NodeStanding::Updating => Self::Busy,
            NodeStanding::Waiting => Self::Calm,
            NodeStanding::Degraded => Self::Bad,
        }
    }
}

impl From<RolloutPhase> for Tone {
    fn from(phase: RolloutPhase) -> Self {
        match phase {
            RolloutPhase::Done => Self::Good,
            RolloutPhase::Progressing => Self::Busy,
            RolloutPhase::Soaking | RolloutPhase::Waiting => Self::Calm,
            RolloutPhase::Aborted => Self::Warn,
            RolloutPhase::Reverted | RolloutPhase::Halted => Self::Bad,
        }
    }
}

impl From<GateState> for Tone {
    fn from(state: GateState) -> Self {
        match state {
            GateState::NotChecked => Self::Calm,
            GateState::Passed => Self::Good,
            GateState::Failed | GateState::Unreachable => Self::Warn,
        }
    }
}

impl From<DisruptionLevel> for Tone {
    fn from(level: DisruptionLevel) -> Self {
        match level {
            DisruptionLevel::None => Self::Good,
            DisruptionLevel::Reload | DisruptionLevel::Restart => Self::Busy,
            DisruptionLevel::Drain | DisruptionLevel::Reboot => Self::Warn,
        }
    }
}

/// Returns the label of a standing.
pub fn standing(standing: NodeStanding) -> &'static str {
    match standing {
        NodeStanding::Updated => "Updated",
        NodeStanding::Updating => "Updating",
        NodeStanding::Waiting => "Waiting",
        NodeStanding::Degraded => "Degraded",
    }
}

/// Returns the name of a stage's state in the style sheet, and its label.
pub fn stage(state: StageState) -> (&'static str, &'static str) {
    match state {
        StageState::Pending => ("pending", "to come"),
        StageState::Running => ("running", "under way"),
        StageState::Done => ("done", "done"),
        StageState::Skipped => ("skipped", "not needed"),
        StageState::Failed => ("failed", "failed"),
    }
}
