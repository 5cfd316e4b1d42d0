//! The presentation of states: a colour, an icon and a word, so that none of them is needed alone.

use mco_client::overview::{PoolState, Standing};
use mco_core::config::disruption::Level;
use mco_core::rollout::node_progress::StageState;

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

impl From<PoolState> for Tone {
    fn from(state: PoolState) -> Self {
        match state {
            PoolState::Updated => Self::Good,
            PoolState::Updating => Self::Busy,
            PoolState::Paused => Self::Warn,
            PoolState::Degraded => Self::Bad,
            PoolState::Waiting => Self::Calm,
        }
    }
}

impl From<Standing> for Tone {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Updated => Self::Good,
            Standing::Updating => Self::Busy,
            Standing::Waiting => Self::Calm,
            Standing::Degraded => Self::Bad,
        }
    }
}

impl From<Level> for Tone {
    fn from(level: Level) -> Self {
        match level {
            Level::None => Self::Good,
            Level::Reload | Level::Restart => Self::Busy,
            Level::Drain | Level::Reboot => Self::Warn,
        }
    }
}

/// Returns the label of a standing.
pub fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Updated => "Updated",
        Standing::Updating => "Updating",
        Standing::Waiting => "Waiting",
        Standing::Degraded => "Degraded",
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
