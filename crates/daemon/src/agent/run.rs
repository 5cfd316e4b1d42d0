//! The event loop: waits for watch events, runs steps until the node is up to date, reports failures and retries with
//! backoff.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use mco_api::ControllerConfig;
use mco_api::vocabulary::annotations::{REBOOT_LOCK, VALUE_PREFIX};
use mco_api::vocabulary::events::daemon as event;
use mco_core::rollout::NodeAnnotations;
use mco_core::rollout::hooks::HookResult;
use mco_core::rollout::node_progress::UpdatePhase;
use mco_host::os::OsRelease;
use mco_host::{Machine, ServiceManager};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::activity::ActivityReporter;
use super::boot::HealthGate;
use super::cluster::AgentClient;
use super::decide::{ConfigVersion, retry_delay};
use super::error::AgentError;
use super::events::NodeEvents;
use super::health::{self, Health};
use super::images::{Keeper, NodeFacts};
use super::isolation::isolated;
use super::kubelet;
use super::metrics::DaemonMetrics;
use super::node_files::{self, FileRenewal, SecretEndpoint};
use super::notes::Note;
use super::options::AgentOptions;
use super::progress::ProgressReporter;
use super::report::{self, NodeFailure, NodeReport};
use super::wake::{ClusterChange, ClusterChanges, cluster_changes};
use crate::drift::{DriftCheck, DriftError, HealBudget, Monitor};
use crate::guard::GuardOptions;
use crate::{disk, footprint, once, paths, previous_logs};

/// The idle time after which unused memory is released: no event for this long probably means none for a long time.
const SETTLED: Duration = Duration::from_secs(2);
/// How long a stop may wait for the copy of the logs.
const KEEPING_LOGS: Duration = Duration::from_mins(1);
const FORCE_FILE_POLL: Duration = Duration::from_secs(1);

/// Runs the daemon of one node until cancelled. Holds the machine's lock all the time.
pub async fn run(
    client: kube::Client,
    machine: impl Into<Arc<Machine>>,
    node_name: impl Into<String>,
    options: AgentOptions,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let (machine, node) = (machine.into(), node_name.into());
    let _lock = once::lock(&machine)?;
    // Background tasks end with this function, on every path.
    let helpers = CancellationToken::new();
    let _end_of_helpers = helpers.clone().drop_guard();
    // A background task that panics stops the daemon, which the service manager then restarts.
    let halt = stop.child_token();
    let keeper_client = client.clone();
    let mut agent = Agent::new(client, machine, node, &options);
    let endpoints = match options.listen {
        Some(address) => {
            let (access, health) = (options.metrics_access.clone(), Arc::clone(&agent.health));
            Some(health::listen(address, access, health, helpers.clone()).await?)
        }
        None => None,
    };
    if let Some(check) = options.kubelet_check() {
        let watch = kubelet::watch(check.clone(), Arc::clone(&agent.health), helpers.clone());
        tokio::spawn(stopping_at_end(watch, halt.clone()));
    }
    let keeper = Keeper::new(
        keeper_client,
        Arc::clone(&agent.machine),
        agent.cluster.node().to_owned(),
        agent.facts.subscribe(),
    );
    let keeper = tokio::spawn(stopping_at_end(keeper.run(helpers.clone()), halt.clone()));
    let news = cluster_changes(&agent.cluster);
    let ended = agent.follow(news, &options, &halt).await;
    agent.activity.stopping();
    agent.stop_watching();
    agent.keep_logs().await;
    helpers.cancel();
    keeper.await?;
    if let Some(endpoints) = endpoints {
        endpoints.await?;
    }
    ended
}

/// Runs a background task and cancels `halt` when it ends, also by a panic.
async fn stopping_at_end<T>(task: impl Future<Output = T>, halt: CancellationToken) -> T {
    let _guard = halt.drop_guard();
    task.await
}

/// The in-memory state of a node's daemon. Nothing here has to survive a restart.
pub(super) struct Agent {
    pub machine: Arc<Machine>,
    pub cluster: AgentClient,
    pub events: NodeEvents,
    pub progress: ProgressReporter,
    pub activity: ActivityReporter,
    pub health: Arc<Health>,
    pub node: Option<KnownNode>,
    /// Publishes the Node's properties to the task that pins images.
    pub facts: watch::Sender<Option<NodeFacts>>,
    pub controller_config: Option<Arc<ControllerConfig>>,
    pub api_server_ca: CaComparison,
    /// Whether a config was applied to the machine or declared for it. Otherwise nothing is reported on its Node.
    pub managed: bool,
    /// Whether an interrupted change was completed or rolled back.
    pub recovered: bool,
    /// Why the previous boot lost its staged deployment, if it did.
    pub finalization: Option<String>,
    /// Whether an update has begun since this process started.
    pub begun: bool,
    pub verified: Option<ConfigVersion>,
    /// The version whose irreconcilable differences were reported.
    pub compared_with_installation: Option<ConfigVersion>,
    pub monitor: Option<Monitor>,
    pub heals: HealBudget,
    pub started: Instant,
    pub failures: u32,
    pub health_deadline: Duration,
    pub gate: HealthGate,
    /// The hooks of the last update.
    pub hooks: Vec<HookResult>,
    pub guard: Option<GuardOptions>,
    pub stage_ahead_at: StageAhead,
    pub secret_endpoint: Option<SecretEndpoint>,
    pub file_renewal: FileRenewal,
}

/// Whether this process has compared the CA of the API server with the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaComparison {
    Due,
    Done,
}

/// When to stage the OS of the pool's next config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StageAhead {
    NotWanted,
    At(Instant),
    Done,
}

/// The Node as last seen, from the watch or from the response to our own write.
#[derive(Debug)]
pub(super) struct KnownNode {
    pub view: NodeAnnotations,
    revision: Option<u128>,
    pub uid: Option<String>,
    /// Changes with everything that files can have of the Node.
    values: u64,
    /// Whether the Node has annotations about files with changed values.
    pub has_file_annotations: bool,
}

/// Returns a number that changes with the labels, the values and the addresses of a Node.
fn fingerprint(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.metadata.labels.hash(&mut hasher);
    let annotations = node.metadata.annotations.iter().flatten();
    let values = annotations.filter(|(key, _)| key.starts_with(VALUE_PREFIX));
    values.for_each(|value| value.hash(&mut hasher));
    // The turn to write them again is another client's answer.
    node.metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(REBOOT_LOCK))
        .hash(&mut hasher);
    let status = node.status.as_ref();
    for address in status.iter().flat_map(|status| status.addresses.iter().flatten()) {
        (&address.type_, &address.address).hash(&mut hasher);
    }
    hasher.finish()
}

/// How long to wait if there is no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    UntilNews,
    Until(Instant),
}

impl Pause {
    pub fn after(delay: Duration) -> Self {
        Self::Until(Instant::now() + delay)
    }

    async fn over(self) {
        match self {
            Self::UntilNews => std::future::pending().await,
            Self::Until(deadline) => tokio::time::sleep_until(deadline).await,
        }
    }
}

/// What to do after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterStep {
    Wait(Pause),
    /// Run the next step at once.
    Again,
}

impl Agent {
    fn new(client: kube::Client, machine: Arc<Machine>, node: String, options: &AgentOptions) -> Self {
        let release = OsRelease::read(&machine.root).unwrap_or_default();
        let service_manager = ServiceManager::new(options.notify_socket.clone());
        Self {
            cluster: AgentClient::new(client.clone(), node.clone()),
            events: NodeEvents::start(client.clone(), node.clone()),
            progress: ProgressReporter::new(client, node),
            activity: ActivityReporter::new(&machine.root, service_manager),
            health: Arc::new(Health {
                metrics: DaemonMetrics::new(release.id(), &release.version()),
                ready: AtomicBool::new(false),
            }),
            node: None,
            facts: watch::Sender::new(None),
            controller_config: None,
            api_server_ca: CaComparison::Due,
            managed: false,
            recovered: false,
            finalization: None,
            begun: false,
            verified: None,
            compared_with_installation: None,
            monitor: None,
            heals: HealBudget::default(),
            started: Instant::now(),
            failures: 0,
            health_deadline: options.health_deadline,
            gate: HealthGate::default(),
            hooks: Vec::new(),
            guard: options.guard.clone(),
            stage_ahead_at: StageAhead::NotWanted,
            secret_endpoint: options.secrets.clone(),
            file_renewal: FileRenewal::NotDue,
            machine,
        }
    }

    /// Runs the loop. A stop is handled between steps; a step that exceeds the grace period is left to the next start.
    async fn follow(
        &mut self,
        mut news: ClusterChanges,
        options: &AgentOptions,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        self.activity.doing(
            &self.machine.root,
            "waiting for the Node to be created in the cluster",
            None,
        );
        // Without its Node no step is run, but a change that is not confirmed must not wait for it.
        let left = self.revert_unreachable().await.unwrap_or_default();
        let mut pause = left.map_or(Pause::UntilNews, Pause::after);
        loop {
            let Some(wake) = self.wait(&mut news, pause, options.alone, stop).await? else {
                return Ok(());
            };
            let events = self.events.clone();
            let work = self.act(wake, pause, stop);
            let outcome = tokio::select! {
                biased;
                outcome = work => outcome,
                () = cut_off(stop, options.grace, &events) => return Ok(()),
            };
            pause = match outcome {
                Ok(pause) => pause,
                Err(error) => Pause::after(self.report_failure(&error).await),
            };
        }
    }

    /// Waits for an event; `None` on a stop. If `alone` in the process, releases unused memory once idle.
    async fn wait(
        &mut self,
        news: &mut ClusterChanges,
        pause: Pause,
        alone: bool,
        stop: &CancellationToken,
    ) -> Result<Option<AgentWake>, AgentError> {
        let quiet_since = Instant::now();
        let mut shrunk = !alone;
        // The drift monitor watches the force file too, but does not run while a node is failing.
        let awaits_force_file =
            self.monitor.is_none() && !disk::is_forced(&self.machine.root).unwrap_or(true);
        loop {
            let wake = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                one = news.next() => AgentWake::News(one.ok_or(AgentError::WatchEnded)?),
                found = next_finding(&mut self.monitor) => AgentWake::Found(found),
                () = pause.over() => AgentWake::TimeIsUp,
                () = force_file_created(&self.machine), if awaits_force_file => AgentWake::TimeIsUp,
                () = tokio::time::sleep_until(quiet_since + SETTLED), if !shrunk => {
                    shrunk = true;
                    if let Err(problem) = footprint::release_memory() {
                        debug!("could not release unused memory: {problem}");
                    }
                    continue;
                }
            };
            return Ok(Some(wake));
        }
    }

    /// Handles an event. Returns `pause` unchanged if the event is irrelevant.
    async fn act(
        &mut self,
        wake: AgentWake,
        pause: Pause,
        stop: &CancellationToken,
    ) -> Result<Pause, AgentError> {
        match wake {
            AgentWake::News(ClusterChange::Node(node)) => {
                if !self.observe_node(&node) {
                    return Ok(pause);
                }
            }
            AgentWake::News(ClusterChange::NodeGone) => {
                self.node = None;
                self.facts.send_replace(None);
                return Ok(Pause::UntilNews);
            }
            AgentWake::News(ClusterChange::MachineConfigNode(seen)) => {
                // The pool of a node that is not managed may have changed.
                if !self.progress.observe(seen.as_deref()) && self.managed {
                    return Ok(pause);
                }
                self.compared_with_installation = None;
                self.restore_progress().await;
                // A failing node keeps its backoff.
                if self.view().is_some_and(NodeAnnotations::is_failing) {
                    return Ok(pause);
                }
            }
            AgentWake::News(ClusterChange::ControllerConfig(config)) => {
                self.controller_config = Some(Arc::new(*config))
            }
            AgentWake::Found(Ok(DriftCheck::Drifted(mismatches))) => {
                return Ok(self.react_to_drift(&mismatches).await?.unwrap_or(pause));
            }
            // The node may be repaired, or the force file may have been created.
            AgentWake::Found(Ok(DriftCheck::Intact)) | AgentWake::TimeIsUp => {}
            AgentWake::Found(Err(error)) => {
                self.monitor = None;
                return Err(error.into());
            }
        }
        self.sync(stop).await
    }

    /// Runs steps until there is none left.
    async fn sync(&mut self, stop: &CancellationToken) -> Result<Pause, AgentError> {
        if self.node.is_none() {
            let left = self.revert_unreachable().await?;
            return Ok(left.map_or(Pause::UntilNews, Pause::after));
        }
        self.restore_progress().await;
        loop {
            let after = self.step().await?;
            if !self.health.ready.swap(true, Ordering::Relaxed) {
                self.activity.ready();
            }
            match after {
                AfterStep::Wait(pause) => {
                    self.failures = 0;
                    return Ok(pause);
                }
                AfterStep::Again if stop.is_cancelled() => return Ok(Pause::UntilNews),
                AfterStep::Again => {}
            }
        }
    }

    pub fn view(&self) -> Option<&NodeAnnotations> {
        self.node.as_ref().map(|node| &node.view)
    }

    /// Observes the Node; returns whether a relevant annotation has changed. The response to a write may overtake the
    /// watch, so an older resource version is ignored.
    pub fn observe_node(&mut self, node: &Node) -> bool {
        let seen = KnownNode {
            view: NodeAnnotations::of_node(node).into_owned(),
            revision: node
                .metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok()),
            uid: node.metadata.uid.clone(),
            values: fingerprint(node),
            has_file_annotations: node_files::has_annotations(node),
        };
        if node.metadata.deletion_timestamp.is_some() {
            self.node = None;
            return false;
        }
        if let Some(known) = &self.node
            && seen.revision < known.revision
        {
            return false;
        }
        self.share_facts(node);
        if let Some(known) = &self.node
            && seen.view == known.view
            && seen.values == known.values
        {
            self.node = Some(seen);
            return false;
        }
        self.health.metrics.state(&seen.view.state, &seen.view.reason);
        self.node = Some(seen);
        true
    }

    /// Publishes the properties that affect image pulls only if they have changed, because Nodes are written often.
    ///
    /// A node without a config pins no images: its container runtime is not ours to configure.
    fn share_facts(&self, node: &Node) {
        let is_managed = NodeAnnotations::of_node(node).current_config.is_some();
        let facts = is_managed.then(|| NodeFacts::of(node));
        self.facts.send_if_modified(|known| {
            let news = *known != facts;
            if news {
                *known = facts;
            }
            news
        });
    }

    /// Patches the Node and continues from the response.
    pub async fn write(&mut self, report: &NodeReport) -> Result<(), AgentError> {
        if report.is_empty() {
            return Ok(());
        }
        let node = self.cluster.write(report).await?;
        self.observe_node(&node);
        Ok(())
    }

    pub async fn report_phase(&mut self, phase: &UpdatePhase) {
        let target = self
            .view()
            .and_then(|view| view.desired_config.clone())
            .unwrap_or_default();
        if let Some(doing) = doing(phase, &target) {
            self.activity.doing(&self.machine.root, &doing, None);
        }
        if let Some(node) = &self.node {
            self.progress.report(phase, &node.view).await;
        }
    }

    /// Writes the conditions of a MachineConfigNode that was created after this daemon had started.
    async fn restore_progress(&mut self) {
        if let Some(node) = self.node.as_ref().filter(|_| self.managed) {
            self.progress.restore(&node.view).await;
        }
    }

    /// Runs blocking work on the machine outside the event loop.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machine) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        isolated(Arc::clone(&self.machine), self.cluster.node(), work).await
    }

    /// Best effort: a stop must not fail, nor take long.
    async fn keep_logs(&self) {
        let kept = self.blocking(|machine| Ok(previous_logs::keep(&machine.root)?));
        match tokio::time::timeout(KEEPING_LOGS, kept).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "kept the logs in {}", paths::PREVIOUS_LOGS),
            Ok(Err(error)) => tracing::warn!(%error, "could not keep the logs"),
            Err(_) => tracing::warn!("the logs were not kept within {KEEPING_LOGS:?}"),
        }
    }

    /// Runs blocking work that reports its progress in notes.
    pub async fn blocking_with_progress<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Machine, &dyn Fn(Note)) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let (sender, mut notes) = mpsc::unbounded_channel();
        let node = self.cluster.node().to_owned();
        let working = isolated(Arc::clone(&self.machine), &node, move |machine| {
            // The receiver is gone only when the agent is shutting down.
            work(machine, &|note| drop(sender.send(note)))
        });
        let reporting = async {
            while let Some(note) = notes.recv().await {
                match note {
                    Note::Phase(phase) => self.report_phase(&phase).await,
                    Note::Event { reason, message } => self.events.normal(reason, message),
                    Note::Hooks(results) => self.report_hooks(results).await,
                }
            }
        };
        // Boxed, so that the future of every caller stays small.
        let (outcome, ()) = tokio::join!(Box::pin(working), Box::pin(reporting));
        outcome
    }

    /// Reports a failure on the Node and returns the backoff before the next attempt.
    async fn report_failure(&mut self, error: &AgentError) -> Duration {
        let text = error.to_string();
        tracing::warn!(
            node = self.cluster.node(),
            error = %text,
            "sync failed"
        );
        self.failures += 1;
        self.activity.failed(&self.machine.root, &text);
        if !matches!(error, AgentError::Api { .. }) {
            self.verified = None;
        }
        if error.is_stuck() {
            // An incomplete rollback must be completed before the next step or report.
            self.recovered = false;
        }
        if self.managed && self.failures > error.failures_before_degraded() {
            self.report_degraded(error, &text).await;
        }
        self.watch_over_disk().await;
        retry_delay(self.failures)
    }

    async fn report_degraded(&mut self, error: &AgentError, text: &str) {
        let report = report::degraded(error.failure(), text, error.differences());
        let failed = UpdatePhase::Failed {
            error: report::shortened(text),
        };
        if self.view().is_some_and(|view| report::is_on_node(&report, view)) {
            // The MachineConfigNode may be new, or an earlier write may have failed.
            return self.report_phase(&failed).await;
        }
        if let Some(reason) = error.event() {
            self.events.warning(reason, text);
        }
        if error.failure() == NodeFailure::Degraded && error.is_about_the_system() {
            self.health.metrics.system_failed();
        }
        let target = self.view().and_then(|view| view.desired_config.clone());
        self.health
            .metrics
            .update(target.as_deref().unwrap_or_default(), text);
        if let Err(unreported) = self.write(&report).await {
            tracing::warn!(error = %unreported, "could not report the failure");
        }
        self.report_phase(&failed).await;
    }
}

/// The event that ended a wait.
enum AgentWake {
    News(ClusterChange),
    Found(Result<DriftCheck, DriftError>),
    TimeIsUp,
}

/// Completes when an administrator creates the force file, which ends a backoff. Polled: its directory is recreated at
/// every boot and one `stat` per second is less than a watch costs.
async fn force_file_created(machine: &Machine) {
    loop {
        tokio::time::sleep(FORCE_FILE_POLL).await;
        if disk::is_forced(&machine.root).unwrap_or(false) {
            return;
        }
    }
}

async fn next_finding(monitor: &mut Option<Monitor>) -> Result<DriftCheck, DriftError> {
    match monitor {
        Some(monitor) => monitor.wait().await,
        None => std::future::pending().await,
    }
}

/// Ends after a stop and the grace period. The event is recorded at once, because a step that takes longer ends with the
/// process.
async fn cut_off(stop: &CancellationToken, grace: Duration, events: &NodeEvents) {
    stop.cancelled().await;
    events.warning(
        event::GOT_SIGTERM_DURING_UPDATE,
        "Got SIGTERM, but actively updating",
    );
    tokio::time::sleep(grace).await;
}

/// Returns the activity of a phase for `systemctl status`.
fn doing(phase: &UpdatePhase, target: &str) -> Option<String> {
    Some(match phase {
        UpdatePhase::NeedsUpdate => format!("planning the update to {target}"),
        UpdatePhase::Applying(_) => format!("applying {target}"),
        UpdatePhase::Applied(_) => format!("reloading services for {target}"),
        UpdatePhase::RebootPending => format!("rebooting into {target}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_force_file_ends_the_longest_backoff_within_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::directory(directory.path()).unwrap();
        let waiting = tokio::time::timeout(FORCE_FILE_POLL * 2, force_file_created(&machine));
        assert!(waiting.await.is_err(), "there is no file yet");
        let path = directory
            .path()
            .join(crate::paths::FORCE_FILE.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        force_file_created(&machine).await;
    }
}
