//! What became of the latest render of each pool, and what was last written to it. The pool's status is written by the
//! rollout alone, so that two writers never overwrite each other; renders leave their word here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::contents::Versions;

/// Sources that have changed and are on their way, with what is known of them so far.
pub(crate) type Missing = BTreeMap<String, Option<Versions>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Rendered,
    Failed(String),
    /// It could not be tried yet.
    Waiting(String),
}

#[derive(Debug, Default)]
pub(crate) struct Renders {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    outcome: Option<Outcome>,
    /// What we wrote into the pool last.
    written: Option<MachineConfigPoolConfiguration>,
    /// The stream whose image the target has.
    stream: Option<String>,
    /// When its status was written last.
    status_at: Option<Instant>,
    /// What was missing when the render under way began to wait.
    awaited: Option<Missing>,
}

impl Renders {
    pub fn outcome(&self, pool: &str) -> Option<Outcome> {
        self.known.lock().get(pool)?.outcome.clone()
    }

    /// Says whether this is news.
    pub fn report(&self, pool: &str, outcome: Outcome) -> bool {
        let mut known = self.known.lock();
        let entry = known.entry(pool.to_owned()).or_default();
        // Waiting says nothing about whether rendering works.
        if matches!(
            (&outcome, &entry.outcome),
            (Outcome::Waiting(_), Some(Outcome::Rendered | Outcome::Failed(_)))
        ) {
            return false;
        }
        let news = entry.outcome.as_ref() != Some(&outcome);
        entry.outcome = Some(outcome);
        news
    }

    /// Whether a render has to wait for sources. What changes while it waits is left to the next render: otherwise a
    /// storm of changes would not be rendered before it is over.
    pub fn must_wait(&self, pool: &str, missing: &Missing) -> bool {
        let mut known = self.known.lock();
        let entry = known.entry(pool.to_owned()).or_default();
        let awaited = entry.awaited.get_or_insert_with(|| missing.clone());
        let wait = missing
            .iter()
            .any(|(name, so_far)| awaited.get(name) == Some(so_far));
        if !wait {
            entry.awaited = None;
        }
        wait
    }

    pub fn wrote(&self, pool: &str, configuration: MachineConfigPoolConfiguration) {
        self.known.lock().entry(pool.to_owned()).or_default().written = Some(configuration);
    }

    /// Whether a pool's target is the one that we wrote last.
    pub fn is_own(&self, pool: &str, configuration: &MachineConfigPoolConfiguration) -> bool {
        let known = self.known.lock();
        known.get(pool).and_then(|known| known.written.as_ref()) == Some(configuration)
    }

    pub fn follows(&self, pool: &str, stream: Option<String>) {
        self.known.lock().entry(pool.to_owned()).or_default().stream = stream;
    }

    /// The stream whose image the pool's target has, unless a MachineConfig chose the image itself.
    pub fn stream(&self, pool: &str) -> Option<String> {
        self.known.lock().get(pool)?.stream.clone()
    }

    pub fn wrote_status(&self, pool: &str) {
        self.known.lock().entry(pool.to_owned()).or_default().status_at = Some(Instant::now());
    }

    /// How long to wait before the pool's status may be written again.
    pub fn too_soon(&self, pool: &str, spacing: Duration) -> Option<Duration> {
        let last = self.known.lock().get(pool)?.status_at?;
        spacing.checked_sub(last.elapsed()).filter(|wait| !wait.is_zero())
    }

    pub fn forget(&self, pool: &str) {
        self.known.lock().remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(sources: &[(&str, Option<&str>)]) -> Missing {
        let versions = |version: &str| [Some(version.to_owned()), None];
        sources
            .iter()
            .map(|(name, so_far)| ((*name).to_owned(), so_far.map(versions)))
            .collect()
    }

    #[test]
    fn a_render_waits_for_what_was_missing_when_it_began_and_for_nothing_later() {
        let renders = Renders::default();
        let must_wait = |sources: &[(&str, Option<&str>)]| renders.must_wait("worker", &missing(sources));
        assert!(!must_wait(&[]));
        assert!(must_wait(&[("a", None), ("b", Some("1"))]));
        assert!(
            must_wait(&[("b", Some("1")), ("c", None)]),
            "b is still on its way"
        );
        // It has arrived, and has changed again since.
        assert!(!must_wait(&[("b", Some("2")), ("c", None)]));
        assert!(must_wait(&[("c", None)]), "the next render waits for c");
        assert!(!must_wait(&[]));
    }
}
