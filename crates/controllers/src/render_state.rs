//! The result of the last render of each pool, and what was last written to it. A pool's status has one writer, the
//! rollout, so renders record their results here for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_core::config::parsed_config::ParsedConfig;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::source_cache::SourceVersions;

/// Sources that have changed and are not fetched yet, with the versions that are cached.
pub(crate) type MissingSources = BTreeMap<String, Option<SourceVersions>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderResult {
    Rendered,
    Failed(String),
    /// It cannot be rendered yet.
    Waiting(String),
}

#[derive(Debug, Default)]
pub(crate) struct RenderStates {
    pools: Mutex<HashMap<String, PoolRender>>,
}

#[derive(Debug, Clone, Default)]
struct PoolRender {
    result: Option<RenderResult>,
    /// The target that this process set last.
    last_target: Option<MachineConfigPoolConfiguration>,
    /// The config of that target, parsed.
    config: Option<Arc<ParsedConfig>>,
    /// The target that is being written: the watch may report it before the response has arrived.
    next_target: Option<MachineConfigPoolConfiguration>,
    /// The stream whose image the target has.
    stream: Option<String>,
    status_written: Option<Instant>,
    wait: Option<RenderWait>,
}

/// What a pending render waits for.
#[derive(Debug, Clone)]
struct RenderWait {
    since: Instant,
    /// The sources that were missing when it began to wait.
    sources: Option<MissingSources>,
}

/// Generators whose inputs change all the time would delay renders for ever.
const MAX_WAIT_FOR_GENERATORS: Duration = Duration::from_secs(5);

impl RenderWait {
    fn from_now() -> Self {
        Self {
            since: Instant::now(),
            sources: None,
        }
    }
}

/// Whether the generated configs reflect every change up to the moment when a render began to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GeneratorProgress {
    Running,
    Done,
}

impl RenderStates {
    pub fn result(&self, pool: &str) -> Option<RenderResult> {
        self.pools.lock().get(pool)?.result.clone()
    }

    /// Records a result. Returns true if it differs from the last one.
    pub fn record(&self, pool: &str, result: RenderResult) -> bool {
        let mut pools = self.pools.lock();
        let entry = pools.entry(pool.to_owned()).or_default();
        // A render that waits does not change whether rendering works.
        if matches!(
            (&result, &entry.result),
            (
                RenderResult::Waiting(_),
                Some(RenderResult::Rendered | RenderResult::Failed(_))
            )
        ) {
            return false;
        }
        let is_new = entry.result.as_ref() != Some(&result);
        entry.result = Some(result);
        is_new
    }

    /// Returns when the pending render began to wait; begins to wait unless it does already.
    pub fn waiting_since(&self, pool: &str) -> Instant {
        let mut pools = self.pools.lock();
        let entry = pools.entry(pool.to_owned()).or_default();
        entry.wait.get_or_insert_with(RenderWait::from_now).since
    }

    /// Returns true if a render has to wait for generators or sources. Changes during the wait are left to the next
    /// render: otherwise a storm of changes would delay it until the storm is over.
    pub fn must_wait(&self, pool: &str, generators: GeneratorProgress, missing: &MissingSources) -> bool {
        let mut pools = self.pools.lock();
        let entry = pools.entry(pool.to_owned()).or_default();
        let wait = entry.wait.get_or_insert_with(RenderWait::from_now);
        let sources = wait.sources.get_or_insert_with(|| missing.clone());
        let mut missing = missing.iter();
        let for_sources = missing.any(|(name, cached)| sources.get(name) == Some(cached));
        let for_generators =
            generators == GeneratorProgress::Running && wait.since.elapsed() < MAX_WAIT_FOR_GENERATORS;
        let must_wait = for_sources || for_generators;
        if !must_wait {
            entry.wait = None;
        }
        must_wait
    }

    /// Ends the wait of a render that cannot be tried.
    pub fn stop_waiting(&self, pool: &str) {
        if let Some(entry) = self.pools.lock().get_mut(pool) {
            entry.wait = None;
        }
    }

    /// Records the target that is about to be written.
    pub fn begin_target(&self, pool: &str, configuration: MachineConfigPoolConfiguration) {
        self.pools.lock().entry(pool.to_owned()).or_default().next_target = Some(configuration);
    }

    /// Records that the pool has this target; any other is no longer our own.
    pub fn commit_target(&self, pool: &str, configuration: MachineConfigPoolConfiguration) {
        let mut pools = self.pools.lock();
        let entry = pools.entry(pool.to_owned()).or_default();
        entry.last_target = Some(configuration);
        entry.next_target = None;
    }

    /// Returns the target that this process set last.
    pub fn last_target(&self, pool: &str) -> Option<MachineConfigPoolConfiguration> {
        self.pools.lock().get(pool)?.last_target.clone()
    }

    /// Returns true if this process has set, or is setting, this target.
    pub fn is_own_target(&self, pool: &str, configuration: &MachineConfigPoolConfiguration) -> bool {
        let pools = self.pools.lock();
        pools.get(pool).is_some_and(|entry| {
            let mut own = [&entry.last_target, &entry.next_target].into_iter().flatten();
            own.any(|own| own == configuration)
        })
    }

    /// Caches the config of the pool's target, so that the next render need not fetch it.
    pub fn set_target_config(&self, pool: &str, config: Arc<ParsedConfig>) {
        self.pools.lock().entry(pool.to_owned()).or_default().config = Some(config);
    }

    /// Returns the cached config of the pool's target if it has this name.
    pub fn target_config(&self, pool: &str, name: &str) -> Option<Arc<ParsedConfig>> {
        let pools = self.pools.lock();
        let config = pools.get(pool)?.config.as_ref()?;
        (config.name() == name).then(|| Arc::clone(config))
    }

    pub fn set_stream(&self, pool: &str, stream: Option<String>) {
        self.pools.lock().entry(pool.to_owned()).or_default().stream = stream;
    }

    /// Returns the stream whose image the pool's target has, unless a MachineConfig overrides the image.
    pub fn stream(&self, pool: &str) -> Option<String> {
        self.pools.lock().get(pool)?.stream.clone()
    }

    pub fn record_status_write(&self, pool: &str) {
        self.pools
            .lock()
            .entry(pool.to_owned())
            .or_default()
            .status_written = Some(Instant::now());
    }

    /// Returns how long to wait until the pool's status may be written again; `None` if it may be written now.
    pub fn status_write_delay(&self, pool: &str, interval: Duration) -> Option<Duration> {
        let last = self.pools.lock().get(pool)?.status_written?;
        interval
            .checked_sub(last.elapsed())
            .filter(|wait| !wait.is_zero())
    }

    pub fn remove(&self, pool: &str) {
        self.pools.lock().remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn missing(sources: &[(&str, Option<&str>)]) -> MissingSources {
        let versions = |version: &str| [Some(version.to_owned()), None];
        sources
            .iter()
            .map(|(name, cached)| ((*name).to_owned(), cached.map(versions)))
            .collect()
    }

    #[test]
    fn a_render_waits_for_sources_that_were_missing_when_it_began_and_for_no_later_ones() {
        let renders = RenderStates::default();
        let must_wait = |sources: &[(&str, Option<&str>)]| {
            renders.must_wait("worker", GeneratorProgress::Done, &missing(sources))
        };
        assert!(!must_wait(&[]));
        assert!(must_wait(&[("a", None), ("b", Some("1"))]));
        assert!(
            must_wait(&[("b", Some("1")), ("c", None)]),
            "b is still being fetched"
        );
        // b was fetched, and has changed again since.
        assert!(!must_wait(&[("b", Some("2")), ("c", None)]));
        assert!(must_wait(&[("c", None)]), "the next render waits for c");
        assert!(!must_wait(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_render_waits_for_generators_up_to_a_limit() {
        let renders = RenderStates::default();
        let must_wait = |generators| renders.must_wait("worker", generators, &MissingSources::new());
        let since = renders.waiting_since("worker");
        assert!(must_wait(GeneratorProgress::Running));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(renders.waiting_since("worker"), since, "it waits already");
        assert!(!must_wait(GeneratorProgress::Done));
        assert!(must_wait(GeneratorProgress::Running), "the next one waits again");
        tokio::time::advance(MAX_WAIT_FOR_GENERATORS).await;
        assert!(!must_wait(GeneratorProgress::Running));
    }

    #[test]
    fn a_target_is_our_own_from_when_it_is_written_until_another_has_replaced_it() {
        let renders = RenderStates::default();
        let target = |name: &str| MachineConfigPoolConfiguration {
            reference: ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            ..MachineConfigPoolConfiguration::default()
        };
        let own = || ["a", "b"].map(|name| renders.is_own_target("worker", &target(name)));
        assert_eq!(own(), [false, false]);
        renders.begin_target("worker", target("a"));
        assert_eq!(own(), [true, false]);
        renders.commit_target("worker", target("a"));
        assert_eq!(own(), [true, false]);
        renders.begin_target("worker", target("b"));
        assert_eq!(own(), [true, true], "the write may fail");
        renders.commit_target("worker", target("b"));
        assert_eq!(own(), [false, true]);
        assert!(!renders.is_own_target("infra", &target("b")));
        renders.remove("worker");
        assert_eq!(own(), [false, false]);
    }
}
