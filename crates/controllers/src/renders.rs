//! What became of the latest render of each pool, and what was last written to it. The pool's status is written by the
//! rollout alone, so that two writers never overwrite each other; renders leave their word here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_core::config::parsed_config::ParsedConfig;
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
    /// The target that we gave the pool last.
    given: Option<MachineConfigPoolConfiguration>,
    /// The config of that target, parsed.
    config: Option<Arc<ParsedConfig>>,
    /// The one that we are writing: the API server may show it before it has answered.
    coming: Option<MachineConfigPoolConfiguration>,
    /// The stream whose image the target has.
    stream: Option<String>,
    /// When its status was written last.
    status_at: Option<Instant>,
    awaited: Option<Awaited>,
}

/// What the render under way waits for.
#[derive(Debug, Clone)]
struct Awaited {
    since: Instant,
    /// What was missing when that was found out.
    sources: Option<Missing>,
}

/// Generators that never come to an end, because the sources around them never rest, keep renders this long and no longer.
const LONGEST_WAIT_FOR_GENERATORS: Duration = Duration::from_secs(5);

impl Awaited {
    fn from_now() -> Self {
        Self {
            since: Instant::now(),
            sources: None,
        }
    }
}

/// Whether what generators make follows all that had happened when a render began to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generators {
    AtWork,
    Done,
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

    /// When the render under way began to wait, which is now unless it waits already.
    pub fn waits_since(&self, pool: &str) -> Instant {
        let mut known = self.known.lock();
        let entry = known.entry(pool.to_owned()).or_default();
        entry.awaited.get_or_insert_with(Awaited::from_now).since
    }

    /// Whether a render has to wait for generators or sources. What changes while it waits is left to the next render:
    /// otherwise a storm of changes would not be rendered before it is over.
    pub fn must_wait(&self, pool: &str, generators: Generators, missing: &Missing) -> bool {
        let mut known = self.known.lock();
        let entry = known.entry(pool.to_owned()).or_default();
        let awaited = entry.awaited.get_or_insert_with(Awaited::from_now);
        let sources = awaited.sources.get_or_insert_with(|| missing.clone());
        let mut missing = missing.iter();
        let for_sources = missing.any(|(name, so_far)| sources.get(name) == Some(so_far));
        let for_generators =
            generators == Generators::AtWork && awaited.since.elapsed() < LONGEST_WAIT_FOR_GENERATORS;
        let wait = for_sources || for_generators;
        if !wait {
            entry.awaited = None;
        }
        wait
    }

    /// The render ended before it could wait for anything.
    pub fn waits_no_more(&self, pool: &str) {
        if let Some(entry) = self.known.lock().get_mut(pool) {
            entry.awaited = None;
        }
    }

    /// The pool is about to get this target.
    pub fn gives(&self, pool: &str, configuration: MachineConfigPoolConfiguration) {
        self.known.lock().entry(pool.to_owned()).or_default().coming = Some(configuration);
    }

    /// The pool has this target, and no other is ours any more.
    pub fn gave(&self, pool: &str, configuration: MachineConfigPoolConfiguration) {
        let mut known = self.known.lock();
        let entry = known.entry(pool.to_owned()).or_default();
        entry.given = Some(configuration);
        entry.coming = None;
    }

    /// The target that we gave the pool last.
    pub fn given(&self, pool: &str) -> Option<MachineConfigPoolConfiguration> {
        self.known.lock().get(pool)?.given.clone()
    }

    /// Whether a pool's target is ours, and nobody else's wish.
    pub fn is_own(&self, pool: &str, configuration: &MachineConfigPoolConfiguration) -> bool {
        let known = self.known.lock();
        known.get(pool).is_some_and(|known| {
            let mut own = [&known.given, &known.coming].into_iter().flatten();
            own.any(|own| own == configuration)
        })
    }

    /// Keeps the config of the pool's target, so that the next render need not fetch it.
    pub fn keep_config(&self, pool: &str, config: Arc<ParsedConfig>) {
        self.known.lock().entry(pool.to_owned()).or_default().config = Some(config);
    }

    /// The config that was kept, if it has this name.
    pub fn config(&self, pool: &str, name: &str) -> Option<Arc<ParsedConfig>> {
        let known = self.known.lock();
        let config = known.get(pool)?.config.as_ref()?;
        (config.name() == name).then(|| Arc::clone(config))
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
    use k8s_openapi::api::core::v1::ObjectReference;

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
        let must_wait = |sources: &[(&str, Option<&str>)]| {
            renders.must_wait("worker", Generators::Done, &missing(sources))
        };
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

    #[tokio::test(start_paused = true)]
    async fn a_render_waits_for_generators_and_not_for_ever() {
        let renders = Renders::default();
        let must_wait = |generators| renders.must_wait("worker", generators, &Missing::new());
        let since = renders.waits_since("worker");
        assert!(must_wait(Generators::AtWork));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(renders.waits_since("worker"), since, "it waits already");
        assert!(!must_wait(Generators::Done));
        assert!(must_wait(Generators::AtWork), "the next one waits anew");
        tokio::time::advance(LONGEST_WAIT_FOR_GENERATORS).await;
        assert!(!must_wait(Generators::AtWork));
    }

    #[test]
    fn a_target_is_ours_from_when_it_is_written_until_another_has_taken_its_place() {
        let renders = Renders::default();
        let target = |name: &str| MachineConfigPoolConfiguration {
            reference: ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            ..MachineConfigPoolConfiguration::default()
        };
        let own = || ["a", "b"].map(|name| renders.is_own("worker", &target(name)));
        assert_eq!(own(), [false, false]);
        renders.gives("worker", target("a"));
        assert_eq!(own(), [true, false]);
        renders.gave("worker", target("a"));
        assert_eq!(own(), [true, false]);
        renders.gives("worker", target("b"));
        assert_eq!(own(), [true, true], "it may not arrive");
        renders.gave("worker", target("b"));
        assert_eq!(own(), [false, true]);
        assert!(!renders.is_own("infra", &target("b")));
        renders.forget("worker");
        assert_eq!(own(), [false, false]);
    }
}
