//! Colours of states on a terminal. `anstream` removes them where the output is no terminal, and with `NO_COLOR`.

use anstyle::{AnsiColor, Style};
use mco_api::vocabulary::node_state;
use mco_client::overview::PoolPhase;

/// How good a state is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Plain,
    Good,
    InProgress,
    Attention,
    Bad,
}

impl Severity {
    pub fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Good => colour(AnsiColor::Green),
            Self::InProgress => colour(AnsiColor::Cyan),
            Self::Attention => colour(AnsiColor::Yellow),
            Self::Bad => colour(AnsiColor::Red).bold(),
        }
    }

    /// Returns the text in the colour of this severity.
    pub fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }

    pub fn of_pool(phase: PoolPhase) -> Self {
        match phase {
            PoolPhase::Updated => Self::Good,
            PoolPhase::Updating => Self::InProgress,
            PoolPhase::Paused | PoolPhase::Waiting => Self::Attention,
            PoolPhase::Degraded => Self::Bad,
        }
    }

    /// The severity of the state that a daemon reports.
    pub fn of_node(state: &str) -> Self {
        match state {
            node_state::DONE => Self::Good,
            node_state::WORKING => Self::InProgress,
            state if node_state::is_failure(state) => Self::Bad,
            _ => Self::Attention,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_degraded_pool_does_not_look_like_one_that_is_updated() {
        let phases = [
            PoolPhase::Updated,
            PoolPhase::Updating,
            PoolPhase::Paused,
            PoolPhase::Degraded,
        ];
        let looks: std::collections::BTreeSet<String> = phases
            .map(|phase| Severity::of_pool(phase).paint("x"))
            .into_iter()
            .collect();
        assert_eq!(looks.len(), phases.len());
        assert_eq!(Severity::Plain.paint("x"), "x");
    }
}
