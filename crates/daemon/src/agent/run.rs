//! The event loop: observe, decide, act, report. It makes no choices of its own.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt as _, watcher};
use mco_api::vocabulary::annotations::node as annotation;
use mco_host::{Machine, Reboot};
use tokio::sync::mpsc;

use super::cluster::Cluster;
use super::decide::{Step, Version, next, retry_delay};
use super::error::AgentError;
use super::progress::{Milestone, conditions};
use super::report::{self, Report};
use super::sentry::Sentry;
use super::view::{NodeView, OnDisk};
use super::work::{self, Preflight, Updated};
use crate::config::NodeConfig;
use crate::disk;
use crate::drift::{DriftPolicy, HealBudget};
use crate::validate::Mismatch;

/// The daemon of one node.
#[derive(Debug)]
pub struct Agent {
    machine: Arc<Machine>,
    cluster: Cluster,
    /// What this process has compared and applied; nothing is taken on trust from the one before.
    verified: Option<Version>,
    recovered: bool,
    sentry: Option<Sentry>,
    drifted: (mpsc::Sender<Vec<Mismatch>>, mpsc::Receiver<Vec<Mismatch>>),
    heals: HealBudget,
    started: Instant,
    failures: u32,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Stopped,
    /// The machine is going down.
    Rebooting,
}

/// What follows a step.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// The next event decides.
    Wait,
    /// There is more to do at once.
    Again,
    Exit(Exit),
}

impl Agent {
    pub fn new(machine: Arc<Machine>, client: kube::Client, node: impl Into<String>) -> Self {
        Self {
            machine,
            cluster: Cluster::new(client, node.into()),
            verified: None,
            recovered: false,
            sentry: None,
            // Drift is a state, not a queue: one report at a time is enough.
            drifted: mpsc::channel(1),
            heals: HealBudget::default(),
            started: Instant::now(),
            failures: 0,
        }
    }

    /// Works until told to stop. A stop is obeyed between steps, never within one.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Exit, AgentError> {
        let selector = format!("metadata.name={}", self.cluster.node());
        let events = watcher(self.cluster.nodes(), watcher::Config::default().fields(&selector));
        self.follow(events.default_backoff().applied_objects(), stop)
            .await
    }

    async fn follow(
        &mut self,
        nodes: impl Stream<Item = Result<Node, watcher::Error>>,
        stop: impl Future<Output = ()>,
    ) -> Result<Exit, AgentError> {
        let (mut nodes, mut stop) = (pin!(nodes), pin!(stop));
        let mut latest: Option<NodeView> = None;
        let mut retry: Option<Duration> = None;
        loop {
            let timer = async {
                match retry {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop => return Ok(Exit::Stopped),
                event = nodes.next() => match event.ok_or(AgentError::WatchEnded)? {
                    Ok(node) => latest = Some(view(&node)),
                    Err(error) => {
                        tracing::warn!(%error, "the watch of this node was interrupted");
                        continue;
                    }
                },
                Some(mismatches) = self.drifted.1.recv() => {
                    if let Some(node) = &latest {
                        self.react_to_drift(node.clone(), &mismatches).await;
                    }
                    continue;
                }
                () = timer => {}
            }
            let Some(node) = &latest else {
                continue;
            };
            retry = None;
            match self.sync(node.clone()).await {
                Ok(After::Wait) => self.failures = 0,
                Ok(After::Again) => {
                    self.failures = 0;
                    // Our own writes come back through the watch; this only covers steps that wrote nothing.
                    retry = Some(Duration::ZERO);
                }
                Ok(After::Exit(exit)) => return Ok(exit),
                Err(error) => {
                    self.failures += 1;
                    retry = Some(retry_delay(self.failures));
                    self.report_failure(&error).await;
                }
            }
        }
    }

    /// One step.
    async fn sync(&mut self, node: NodeView) -> Result<After, AgentError> {
        if !self.recovered {
            self.blocking(|machine| work::recover(machine)).await?;
            self.recovered = true;
        }
        let seen = self.blocking(move |machine| work::observe(machine, node)).await?;
        let step = next(&seen, self.verified.as_ref())?;
        tracing::debug!(node = self.cluster.node(), ?step, "next step");
        match step {
            Step::AwaitDesired | Step::AwaitController { .. } => Ok(After::Wait),
            Step::Introduce => self.introduce(&seen.disk).await,
            Step::Reboot { because } => self.reboot(because).await,
            Step::ProveBoot => self.prove_boot(seen.disk).await,
            Step::Update { to, .. } => {
                self.update(seen.node, &seen.disk, to, seen.forced, Preflight::Compare)
                    .await
            }
            Step::RequestUncordon { config } => {
                self.cluster.write(&report::request_uncordon(&config)).await?;
                Ok(After::Wait)
            }
            Step::ReportDone { config } => self.report_done(&seen.disk, &config).await,
            Step::Idle => self.idle(&seen.disk).await,
        }
    }

    async fn introduce(&mut self, disk: &OnDisk) -> Result<After, AgentError> {
        let installed = self
            .blocking(|machine| Ok(disk::node_annotations(&machine.root)?))
            .await?;
        self.cluster
            .introduce(&report::introduction(installed.as_ref(), disk))
            .await?;
        Ok(After::Wait)
    }

    async fn reboot(&mut self, because: String) -> Result<After, AgentError> {
        let action = Report::from([(
            annotation::POST_CONFIG_ACTION,
            Some(annotation::REBOOTING.to_owned()),
        )]);
        self.cluster.write(&action).await?;
        self.progress(Milestone::RebootNeeded, "", None).await;
        match self
            .blocking(move |machine| work::reboot(machine, &because))
            .await?
        {
            Reboot::Queued => Ok(After::Exit(Exit::Rebooting)),
            Reboot::Simulated => Ok(After::Again),
        }
    }

    async fn prove_boot(&mut self, disk: OnDisk) -> Result<After, AgentError> {
        self.blocking(|machine| work::prove_boot(machine)).await?;
        self.verified = disk.config.map(|config| Version {
            config,
            image: disk.image,
        });
        self.progress(Milestone::Rebooted, "", None).await;
        let action = Report::from([(annotation::POST_CONFIG_ACTION, Some(String::new()))]);
        self.cluster.write(&action).await?;
        Ok(After::Again)
    }

    async fn update(
        &mut self,
        node: NodeView,
        disk: &OnDisk,
        to: Version,
        forced: bool,
        preflight: Preflight,
    ) -> Result<After, AgentError> {
        self.sentry = None;
        let target = self.cluster.config(&to.config).await?;
        let annotated = match (&disk.config, &node.current_config) {
            (None, Some(name)) => Some(self.cluster.config(name).await?),
            _ => None,
        };
        let policy = self.cluster.policy().await?;
        self.cluster.write(&report::working(&node)).await?;
        self.progress(Milestone::NeedsUpdate, &to.config, None).await;
        let update = work::Update {
            node,
            annotated,
            target,
            target_image: to.image.clone(),
            policy,
            forced,
            preflight,
        };
        match self
            .blocking(move |machine| work::update(machine, update))
            .await?
        {
            Updated::NeedsDrain => {
                self.cluster.write(&report::request_drain(&to.config)).await?;
                Ok(After::Wait)
            }
            Updated::AwaitingBoot => {
                self.progress(Milestone::InPlace, &to.config, None).await;
                Ok(After::Again)
            }
            Updated::Settled(version) => {
                self.progress(Milestone::InPlace, &to.config, None).await;
                self.progress(Milestone::ServicesTold, &to.config, None).await;
                self.verified = Some(version);
                Ok(After::Again)
            }
        }
    }

    async fn report_done(&mut self, disk: &OnDisk, config: &str) -> Result<After, AgentError> {
        self.cluster.write(&report::done(disk)).await?;
        for milestone in [
            Milestone::NothingPending,
            Milestone::Resumed,
            Milestone::Succeeded,
        ] {
            self.progress(milestone, config, Some(config)).await;
        }
        Ok(After::Wait)
    }

    /// Nothing to do, once it is certain that the disk is what it says.
    async fn idle(&mut self, disk: &OnDisk) -> Result<After, AgentError> {
        let Some(name) = disk.config.clone() else {
            return Ok(After::Wait);
        };
        let version = Version {
            config: name.clone(),
            image: disk.image.clone(),
        };
        if self.verified.as_ref() != Some(&version) {
            self.blocking(|machine| match disk::current_config(&machine.root)? {
                Some(config) => work::compare(machine, &config),
                None => Ok(()),
            })
            .await?;
            self.verified = Some(version);
            self.progress(Milestone::NothingPending, &name, Some(&name)).await;
        }
        if self.sentry.as_ref().is_none_or(|sentry| sentry.config != name) {
            let config: Option<NodeConfig> = self
                .blocking(|machine| Ok(disk::current_config(&machine.root)?))
                .await?;
            self.sentry =
                config.map(|config| Sentry::post(Arc::clone(&self.machine), config, self.drifted.0.clone()));
        }
        Ok(After::Wait)
    }

    async fn react_to_drift(&mut self, node: NodeView, mismatches: &[Mismatch]) {
        let Some(first) = mismatches.first() else {
            return;
        };
        let healing = node.drift_policy == DriftPolicy::Heal && self.heals.spend(self.started.elapsed());
        let result = match (node.drift_policy, healing, self.verified.clone()) {
            (DriftPolicy::Ignore, _, _) => return,
            (_, true, Some(version)) => {
                tracing::warn!(cause = first.cause, "putting back what the config says");
                let disk = OnDisk {
                    config: Some(version.config.clone()),
                    image: version.image.clone(),
                };
                self.update(node, &disk, version, false, Preflight::Skip)
                    .await
                    .map(|_| ())
            }
            _ => {
                self.verified = None;
                let reason = report::degraded(report::Failure::Degraded, &first.cause);
                self.cluster.write(&reason).await
            }
        };
        if let Err(error) = result {
            tracing::warn!(%error, "drift could not be dealt with");
        }
    }

    async fn report_failure(&mut self, error: &AgentError) {
        tracing::warn!(node = self.cluster.node(), %error, "the node could not be brought further");
        self.verified = None;
        let text = error.to_string();
        if let Err(unreported) = self
            .cluster
            .write(&report::degraded(error.failure(), &text))
            .await
        {
            tracing::warn!(error = %unreported, "the failure could not be reported");
        }
        self.progress(Milestone::Failed { why: &text }, "", None).await;
    }

    async fn progress(&self, milestone: Milestone<'_>, config: &str, current: Option<&str>) {
        let steps = conditions(self.cluster.node(), config, milestone);
        self.cluster.progress(&steps, current, Timestamp::now()).await;
    }

    /// Runs work on the machine away from the event loop.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machine) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let machine = Arc::clone(&self.machine);
        tokio::task::spawn_blocking(move || work(&machine)).await?
    }
}

fn view(node: &Node) -> NodeView {
    let empty = BTreeMap::new();
    NodeView::new(node.metadata.annotations.as_ref().unwrap_or(&empty))
}
