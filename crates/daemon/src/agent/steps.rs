//! Executes the steps of [`super::decide`], one function each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::events::daemon as event;
use mco_core::config::disruption::PostConfigAction;
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::adoption::AdoptionRequest;
use mco_core::rollout::drain::DrainVerb;
use mco_core::rollout::messages::DriftHealed;
use mco_core::rollout::node_progress::UpdatePhase;
use mco_core::rollout::{DriftPolicy, NodeAnnotations, NodeHealth, budget, stage_ahead};
use mco_host::Reboot;
use tokio::time::Instant;

use super::decide::{AgentStep, ConfigVersion, Observation, PendingChange, next, retry_delay};
use super::error::AgentError;
use super::on_disk::OnDisk;
use super::report::{self, NodeFailure, NodeReport};
use super::run::{AfterStep, Agent, Pause, StageAhead};
use super::work::{self, AgentUpdateResult, ExaminedBoot};
use crate::config::{EMPTY, NodeConfig};
use crate::custody::Custody;
use crate::disk;
use crate::drift::{self, Monitor};
use crate::live;
use crate::once::OnceError;
use crate::revert;
use crate::validate::{self, Mismatch};

/// The shutdown timeout: a machine that is still up after this long was not rebooted. Shutdowns may be slow.
const LONGEST_SHUTDOWN: Duration = Duration::from_mins(15);

/// How often the health of a node with a new OS is read. Its Node changes too often to be watched for it.
const HEALTH_POLL: Duration = Duration::from_secs(5);

impl Agent {
    /// Runs one step.
    pub(super) async fn step(&mut self) -> Result<AfterStep, AgentError> {
        let is_ours = self.blocking(work::has_record).await?;
        self.managed = is_ours || self.view().is_some_and(|view| view.current_config.is_some());
        if !self.recovered {
            self.blocking(work::recover).await?;
            self.recovered = true;
            self.finalization = self.blocking(work::finalization_failure).await?;
            self.measure_packages().await;
        }
        if is_ours {
            self.report_finalization().await?;
            self.sync_certificates().await?;
        }
        let Some(node) = self.view().cloned() else {
            return Ok(AfterStep::Wait(Pause::UntilNews));
        };
        let seen = self.blocking(move |machine| work::observe(machine, node)).await?;
        let request = seen.node.adoption_request.clone();
        match (&request, request.as_deref().and_then(AdoptionRequest::parse)) {
            (Some(value), Some(AdoptionRequest::Release)) if seen.is_managed() => {
                let value = value.clone();
                return self.release(seen, value).await;
            }
            (Some(value), _) if seen.is_recorded() => {
                self.compare_managed(value.clone()).await?;
                return Ok(AfterStep::Again);
            }
            (Some(_), _) => return self.await_adoption(&seen).await,
            (None, _) if !seen.is_managed() => return self.await_adoption(&seen).await,
            (None, _) => {}
        }
        if seen.node.rebooting && seen.pending == PendingChange::Nothing {
            // Rebooted by the daemon of another implementation, or manually after ours had requested it.
            return self.acknowledge_boot().await;
        }
        let step = next(&seen, self.verified.as_ref());
        self.perform(step, seen).await
    }

    pub(super) async fn perform(
        &mut self,
        step: AgentStep,
        seen: Observation,
    ) -> Result<AfterStep, AgentError> {
        tracing::debug!(node = self.cluster.node(), ?step, "next step");
        match step {
            AgentStep::AwaitAdoption => self.await_adoption(&seen).await,
            AgentStep::AwaitDesired => {
                self.activity.doing(
                    &self.machine.root,
                    "waiting for the controller to set a desired config",
                    None,
                );
                Ok(AfterStep::Wait(Pause::UntilNews))
            }
            AgentStep::AwaitController { request } => self.await_controller(&request),
            AgentStep::Introduce => self.introduce(&seen.disk).await,
            AgentStep::Reboot { because } => self.reboot(because).await,
            AgentStep::ProveBoot => self.prove_boot(seen.disk).await,
            AgentStep::Update { from, to } => self.update(seen, from, to).await,
            AgentStep::RequestUncordon { config } => {
                self.write(&report::request_uncordon(&config)).await?;
                Ok(AfterStep::Again)
            }
            AgentStep::ReportDone { config } => self.report_done(&seen.disk, &config).await,
            AgentStep::Idle => self.idle(&seen.disk).await,
        }
    }

    /// Keeps the Node's annotation about a lost staged deployment up to date.
    async fn report_finalization(&mut self) -> Result<(), AgentError> {
        let said = self.view().and_then(|view| view.finalization_failure.clone());
        if said == self.finalization {
            return Ok(());
        }
        let text = self.finalization.clone().unwrap_or_default();
        if !text.is_empty() {
            self.events.warning(event::FAILED_FINALIZATION, text.as_str());
        }
        self.write(&report::finalization_failure(&text)).await
    }

    fn await_controller(&mut self, request: &str) -> Result<AfterStep, AgentError> {
        let drains = DrainVerb::of(request) == Some(DrainVerb::Drain);
        let doing = if drains {
            "waiting for the controller to drain the node"
        } else {
            "waiting for the controller to uncordon the node"
        };
        let requested = self.activity.doing(&self.machine.root, doing, Some(request));
        let deadline = self.view().and_then(|view| view.drain_deadline(requested));
        let left = deadline.unwrap_or(requested).duration_since(Timestamp::now());
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => Ok(AfterStep::Wait(Pause::after(left))),
            _ if drains => Err(AgentError::DrainTimeout {
                node: self.cluster.node().to_owned(),
                waits_for: self.view().and_then(NodeAnnotations::drain_obstacle),
            }),
            _ => Err(AgentError::UncordonTimeout(self.cluster.node().to_owned())),
        }
    }

    async fn introduce(&mut self, disk: &OnDisk) -> Result<AfterStep, AgentError> {
        let installed = self
            .blocking(|machine| Ok(disk::node_annotations(&machine.root)?))
            .await?;
        let annotations = report::introduction(installed.as_ref(), disk);
        let node = self.cluster.introduce(&annotations).await?;
        self.observe_node(&node);
        Ok(AfterStep::Again)
    }

    async fn reboot(&mut self, because: String) -> Result<AfterStep, AgentError> {
        self.report_phase(&UpdatePhase::RebootPending).await;
        let action = NodeReport::from([(
            annotation::POST_CONFIG_ACTION,
            Some(annotation::REBOOTING.to_owned()),
        )]);
        // The annotation is informational; a node whose API server is unreachable must still reboot.
        if let Err(error) = self.write(&action).await {
            tracing::warn!(%error, "could not annotate the node before the reboot");
        }
        self.events.normal(event::REBOOT, because.as_str());
        tracing::info!(node = self.cluster.node(), because, "initiating reboot");
        let asked = self
            .blocking(move |machine| work::reboot(machine, &because))
            .await
            .inspect_err(|_| self.health.metrics.reboot_failed())?;
        match asked {
            Reboot::Queued => Ok(AfterStep::Wait(Pause::after(LONGEST_SHUTDOWN))),
            Reboot::Simulated => {
                // Reset to the state of a new process.
                self.recovered = false;
                self.verified = None;
                Ok(AfterStep::Again)
            }
        }
    }

    async fn prove_boot(&mut self, disk: OnDisk) -> Result<AfterStep, AgentError> {
        match self.blocking(work::examine_boot).await? {
            ExaminedBoot::AnotherBoot { because } => return self.reboot(because).await,
            ExaminedBoot::Matches { new_system: true } => {
                if let Some(after) = self.gate_on_health().await? {
                    return Ok(after);
                }
            }
            ExaminedBoot::Matches { new_system: false } => {}
        }
        self.blocking(work::confirm_boot).await?;
        self.booted_at = None;
        self.health.metrics.system_staged();
        self.verified = disk.config.map(|config| ConfigVersion {
            config,
            image: disk.image,
        });
        self.acknowledge_boot().await
    }

    /// Returns what to do while the node is not healthy with its new OS; `None` once it is.
    async fn gate_on_health(&mut self) -> Result<Option<AfterStep>, AgentError> {
        let boot = self
            .blocking(|machine| Ok(machine.power.boot_id(&machine.root).map_err(OnceError::from)?))
            .await?;
        let health = self.cluster.health(&boot.0).await?;
        let NodeHealth::Unhealthy { why } = health else {
            return Ok(None);
        };
        let since = *self.booted_at.get_or_insert_with(Instant::now);
        let deadline = since + self.health_deadline;
        if Instant::now() < deadline {
            let doing = format!("waiting for the node to become healthy with its new OS: {why}");
            self.activity.doing(&self.machine.root, &doing, None);
            return Ok(Some(AfterStep::Wait(Pause::Until(
                deadline.min(Instant::now() + HEALTH_POLL),
            ))));
        }
        let because = format!(
            "the node did not become healthy within {} s after the boot of its new OS: {why}",
            self.health_deadline.as_secs()
        );
        self.events.warning(event::OS_ROLLED_BACK, because.as_str());
        self.booted_at = None;
        let text = because.clone();
        self.blocking(move |machine| work::roll_back_boot(machine, &text))
            .await?;
        self.reboot(because).await.map(Some)
    }

    /// Best effort: a metric is no reason to degrade.
    async fn measure_packages(&self) {
        match self.blocking(work::unsupported_packages).await {
            Ok(count) => self
                .health
                .metrics
                .unsupported_packages(self.cluster.node(), count),
            Err(error) => tracing::debug!(%error, "could not count the local changes of the OS"),
        }
    }

    async fn acknowledge_boot(&mut self) -> Result<AfterStep, AgentError> {
        self.report_phase(&UpdatePhase::Rebooted).await;
        self.report_phase(&UpdatePhase::Resumed).await;
        let action = NodeReport::from([(annotation::POST_CONFIG_ACTION, Some(String::new()))]);
        self.write(&action).await?;
        Ok(AfterStep::Again)
    }

    async fn update(
        &mut self,
        seen: Observation,
        from: ConfigVersion,
        to: ConfigVersion,
    ) -> Result<AfterStep, AgentError> {
        self.stop_watching();
        let again = from == to;
        if seen.forced {
            self.blocking(work::forget_rolled_back).await?;
        } else {
            self.refuse_rolled_back(&seen.node, &to).await?;
        }
        if !again {
            self.report_resync(&from, &to);
            self.report_phase(&UpdatePhase::NeedsUpdate).await;
        }
        self.begun = true;
        let known = if seen.introduces_itself || seen.disk.config.is_none() {
            Some(self.installed(&from.config).await?)
        } else {
            None
        };
        let target = match &known {
            Some(known) if from.config == to.config => known.clone(),
            _ => self.target(&to.config).await?,
        };
        let new = work::checked(target)?.with_built_image(to.image.clone());
        let image = from.image.clone();
        let old = self
            .blocking(move |machine| work::starting_point(machine, known, image))
            .await?;
        if !seen.forced {
            self.preflight(&old).await?;
        }
        let rules = if again {
            AdministratorRules::default()
        } else {
            self.cluster.rules().await?
        };
        if !again || seen.forced {
            self.write(&report::working(&seen.node)).await?;
        }
        let way_back = if revert::is_needed(self.machine.os.backend(), &old, &new) {
            Some(self.cluster.way_back().await?)
        } else {
            None
        };
        let update = work::UpdateRequest {
            node: seen.node,
            old,
            new,
            rules,
            forced: seen.forced,
            way_back,
        };
        let updated = self
            .blocking_with_progress(move |machine, notify| work::update(machine, &update, notify))
            .await?;
        self.follow_up(updated, &to, again).await
    }

    /// Returns an error for a target that was rolled back. The node is of use with its former config, so it is uncordoned.
    async fn refuse_rolled_back(
        &mut self,
        node: &NodeAnnotations,
        to: &ConfigVersion,
    ) -> Result<(), AgentError> {
        let target = to.clone();
        let rolled_back = self
            .blocking(move |machine| work::rolled_back(machine, &target))
            .await?;
        let Some(because) = rolled_back else {
            return Ok(());
        };
        let drained = annotation::drain::drain(&to.config);
        if node.last_applied_drain.as_deref() == Some(drained.as_str()) && node.open_request().is_none() {
            self.write(&report::request_uncordon(&to.config)).await?;
        }
        Err(AgentError::RolledBack {
            config: to.config.clone(),
            because,
        })
    }

    /// Records an event if this process finds its node in the middle of an update, or with a new target set while no
    /// daemon was running.
    fn report_resync(&self, from: &ConfigVersion, to: &ConfigVersion) {
        if !self.begun && self.verified.is_none() {
            let text = format!(
                "Booting node {}, currentConfig {}, desiredConfig {}",
                self.cluster.node(),
                from.config,
                to.config
            );
            self.events.normal(event::BOOT_RESYNC, text);
        }
    }

    async fn follow_up(
        &mut self,
        updated: AgentUpdateResult,
        to: &ConfigVersion,
        again: bool,
    ) -> Result<AfterStep, AgentError> {
        match updated {
            AgentUpdateResult::NeedsDrain { because } => {
                self.events.normal(event::CORDON, "Cordoned node to apply update");
                self.events
                    .normal(event::DRAIN, format!("Draining node to update config: {because}"));
                self.write(&report::request_drain(&to.config)).await?;
            }
            AgentUpdateResult::AwaitingBoot => {}
            AgentUpdateResult::Settled { version, actions } => {
                if !again {
                    self.run_post_config_actions(&actions).await;
                }
                self.verified = Some(version);
            }
        }
        Ok(AfterStep::Again)
    }

    async fn run_post_config_actions(&mut self, actions: &[PostConfigAction]) {
        for action in actions {
            let text = format!("Config changes do not require reboot. Done: {action}.");
            match action {
                PostConfigAction::Reload(_) | PostConfigAction::Special => {
                    self.events.normal(event::SERVICE_RELOAD, text)
                }
                PostConfigAction::Restart(_) | PostConfigAction::DaemonReload => {
                    self.events.normal(event::SERVICE_RESTART, text)
                }
                PostConfigAction::None => self
                    .events
                    .normal(event::SKIP_REBOOT, "Config changes do not require reboot."),
                PostConfigAction::Drain | PostConfigAction::Reboot => {}
            }
        }
        let done: Vec<String> = actions
            .iter()
            .filter(|action| !matches!(action, PostConfigAction::None | PostConfigAction::Drain))
            .map(ToString::to_string)
            .collect();
        self.report_phase(&UpdatePhase::PostActionsDone { actions: done })
            .await;
    }

    /// Returns the config to reach. One that is on disk is not fetched, because it may be deleted from the cluster.
    async fn target(&self, name: &str) -> Result<MachineConfig, AgentError> {
        if name == EMPTY {
            return Ok(MachineConfig::clone(&NodeConfig::empty().object));
        }
        let wanted = name.to_owned();
        match self
            .blocking(move |machine| work::on_disk(machine, &wanted))
            .await?
        {
            Some(config) => Ok(config),
            None => self.cluster.config(name).await,
        }
    }

    /// Returns the config a machine was installed with, which the cluster may have replaced in the meantime.
    async fn installed(&self, name: &str) -> Result<MachineConfig, AgentError> {
        let found = self.cluster.config(name).await;
        if !matches!(found, Err(AgentError::NoSuchConfig(_))) {
            return found;
        }
        let wanted = name.to_owned();
        if let Some(config) = self
            .blocking(move |machine| work::installed(machine, &wanted))
            .await?
        {
            return Ok(config);
        }
        let Ok(Some(pool)) = self.cluster.pool().await else {
            return Err(AgentError::BootstrapUnknown {
                installed: name.to_owned(),
            });
        };
        let rendered = pool.spec.configuration.reference.name.unwrap_or_default();
        if let Ok(config) = self.cluster.config(&rendered).await {
            self.blocking(move |machine| work::note_bootstrap_difference(machine, config))
                .await?;
        }
        Err(AgentError::BootstrapMismatch {
            installed: name.to_owned(),
            rendered,
        })
    }

    /// Validates the machine against its current config before a change. On a mismatch the change fails, unless the
    /// drift policy is to overwrite drift.
    async fn preflight(&mut self, config: &NodeConfig) -> Result<(), AgentError> {
        let compared = config.clone();
        let mismatches = self
            .blocking(move |machine| work::compare(machine, &compared))
            .await?;
        let Some(message) = validate::unexpected_state(config, &mismatches, self.finalization.as_deref())
        else {
            self.health.metrics.no_drift();
            return Ok(());
        };
        match self.drift_policy().await {
            DriftPolicy::Degrade => Err(AgentError::UnexpectedState {
                message,
                differences: validate::causes(&mismatches),
            }),
            DriftPolicy::Heal | DriftPolicy::Ignore => {
                tracing::warn!(cause = %message, "overwriting config drift");
                Ok(())
            }
        }
    }

    async fn report_done(&mut self, disk: &OnDisk, config: &str) -> Result<AfterStep, AgentError> {
        self.blocking(work::forget_rolled_back).await?;
        self.write(&report::done(disk)).await?;
        let text = format!("Update completed for config {config} and node has been uncordoned");
        self.events.normal(event::UNCORDON, text);
        self.events.normal(
            event::NODE_DONE,
            format!(
                "Setting node {}, currentConfig {config} to Done",
                self.cluster.node()
            ),
        );
        self.health.metrics.update(config, "");
        self.report_phase(&UpdatePhase::Succeeded).await;
        Ok(AfterStep::Again)
    }

    /// Waits, after validating the machine against the config on disk once.
    async fn idle(&mut self, disk: &OnDisk) -> Result<AfterStep, AgentError> {
        if let Some(config) = &disk.config {
            let version = ConfigVersion {
                config: config.clone(),
                image: disk.image.clone(),
            };
            if self.verified.as_ref() != Some(&version) {
                if let Some(config) = self
                    .blocking(|machine| Ok(disk::current_config(&machine.root)?))
                    .await?
                {
                    self.preflight(&config).await?;
                }
                self.verified = Some(version.clone());
            }
            self.watch_over_disk().await;
            self.report_irreconcilable(version).await;
        }
        self.report_phase(&UpdatePhase::Updated).await;
        self.activity
            .succeeded(&self.machine.root, "idle; the node is up to date");
        Ok(AfterStep::Wait(self.stage_next(disk).await))
    }

    /// Stages the OS of the pool's next config while the node waits for its turn. Best effort: a failure is reported when
    /// the turn comes. Returns how long to wait.
    async fn stage_next(&mut self, disk: &OnDisk) -> Pause {
        let waits = self
            .view()
            .is_some_and(|view| view.awaits_update && view.desired_image.is_none());
        if !waits || disk.image.is_some() || !self.machine.os.stages_ahead() {
            self.stage_ahead_at = StageAhead::NotWanted;
            return Pause::UntilNews;
        }
        match self.stage_ahead_at {
            StageAhead::Done => Pause::UntilNews,
            StageAhead::At(time) if Instant::now() < time => Pause::Until(time),
            StageAhead::NotWanted => match self.next_config(disk).await {
                Ok(Some((_, delay))) if !delay.is_zero() => {
                    let time = Instant::now() + delay;
                    self.stage_ahead_at = StageAhead::At(time);
                    Pause::Until(time)
                }
                Ok(Some((config, _))) => self.stage_now(config).await,
                Ok(None) | Err(_) => Pause::UntilNews,
            },
            StageAhead::At(_) => match self.next_config(disk).await {
                Ok(Some((config, _))) => self.stage_now(config).await,
                Ok(None) | Err(_) => Pause::UntilNews,
            },
        }
    }

    /// Returns the config that the pool will send the node to, and when to stage its OS.
    async fn next_config(&self, disk: &OnDisk) -> Result<Option<(String, Duration)>, AgentError> {
        let Some(pool) = self.cluster.pool().await? else {
            return Ok(None);
        };
        let target = pool.spec.configuration.reference.name.clone().unwrap_or_default();
        if target.is_empty() || pool.spec.paused || disk.config.as_deref() == Some(target.as_str()) {
            return Ok(None);
        }
        let members = pool.status.as_ref().map_or(0, |status| status.machine_count);
        let members = usize::try_from(members).unwrap_or_default();
        let limit = budget::max_unavailable("", pool.spec.max_unavailable.as_ref(), members).unwrap_or(1);
        Ok(Some((
            target,
            stage_ahead::delay(self.cluster.node(), members, limit),
        )))
    }

    async fn stage_now(&mut self, config: String) -> Pause {
        self.stage_ahead_at = StageAhead::Done;
        match self.try_stage(&config).await {
            Ok(true) => {
                let text =
                    format!("Changes to OS staged for config {config}, to which the node will be updated");
                self.events.normal(event::OS_STAGED_AHEAD, text);
                if let Err(error) = self.write(&report::staged_ahead(&config)).await {
                    tracing::debug!(%error, "could not report the staged OS");
                }
            }
            Ok(false) => {}
            Err(error) => {
                let text = format!("OS of config {config} cannot be staged ahead: {error}");
                tracing::warn!("{text}");
                self.events
                    .warning(event::FAILED_TO_STAGE_AHEAD, report::shortened(&text));
            }
        }
        Pause::UntilNews
    }

    async fn try_stage(&self, config: &str) -> Result<bool, AgentError> {
        let object = self.cluster.config(config).await?;
        let rules = self.cluster.rules().await?;
        self.blocking(move |machine| work::stage_next(machine, object, &rules))
            .await
    }

    /// Reports the parts of its config that the machine gets only when it is reinstalled. Best effort: a failure is
    /// retried with the next change.
    async fn report_irreconcilable(&mut self, version: ConfigVersion) {
        if self.compared_with_installation.as_ref() == Some(&version) {
            return;
        }
        let is_told = match self.blocking(work::irreconcilable).await {
            Ok(Some(changes)) => self.progress.report_irreconcilable(&changes).await,
            Ok(None) => true,
            Err(error) => {
                tracing::debug!(%error, "could not compare the config with the installed one");
                true
            }
        };
        if is_told {
            self.compared_with_installation = Some(version);
        }
    }

    pub(super) fn stop_watching(&mut self) {
        if self.monitor.take().is_some() {
            tracing::info!(node = self.cluster.node(), "Config Drift Monitor has shut down");
            self.events.normal(
                event::CONFIG_DRIFT_MONITOR_STOPPED,
                "Config Drift Monitor stopped",
            );
        }
    }

    /// Starts the drift monitor for the config on disk. It detects drift on a healthy node, and the repair of a
    /// degraded one.
    pub(super) async fn watch_over_disk(&mut self) {
        let current = self
            .blocking(|machine| Ok(disk::current_config(&machine.root)?))
            .await;
        let started = match current {
            Ok(Some(config)) => {
                if self
                    .monitor
                    .as_ref()
                    .is_some_and(|monitor| monitor.config().name() == config.name())
                {
                    return;
                }
                Monitor::start(Arc::clone(&self.machine), Arc::new(config)).map_err(AgentError::from)
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match started {
            Ok(monitor) => {
                let text = format!(
                    "Config Drift Monitor started, watching against {}",
                    monitor.config().name()
                );
                tracing::info!(node = self.cluster.node(), "{text}");
                self.events.normal(event::CONFIG_DRIFT_MONITOR_STARTED, text);
                self.monitor = Some(monitor);
            }
            Err(error) => tracing::warn!(%error, "could not start the drift monitor"),
        }
    }

    async fn drift_policy(&self) -> DriftPolicy {
        match self.view().and_then(|view| view.drift_policy) {
            Some(policy) => policy,
            None => self.cluster.drift_policy().await,
        }
    }

    /// Handles a drifted file according to the drift policy. Returns when to retry if the node was degraded.
    pub(super) async fn react_to_drift(
        &mut self,
        mismatches: &[Mismatch],
    ) -> Result<Option<Pause>, AgentError> {
        let Some(first) = mismatches.first() else {
            return Ok(None);
        };
        for mismatch in mismatches {
            // In the message, because text fields are quoted a second time, which would break a search for the
            // reference's message.
            tracing::warn!(
                node = self.cluster.node(),
                "Config drift detected: {}",
                mismatch.with_sizes()
            );
        }
        self.note_difference(&first.subject).await;
        self.health.metrics.drifted();
        match self.drift_policy().await {
            DriftPolicy::Ignore => Ok(None),
            DriftPolicy::Heal if self.heals.spend(self.started.elapsed()) => {
                self.heal(&first.cause, mismatches.len()).await?;
                Ok(None)
            }
            DriftPolicy::Heal | DriftPolicy::Degrade => {
                self.degrade_by_drift(&first.cause, &validate::causes(mismatches))
                    .await?;
                Ok(Some(Pause::after(retry_delay(self.failures.max(1)))))
            }
        }
    }

    /// Logs the diff of a file to the machine's own journal.
    async fn note_difference(&self, path: &str) {
        let Some(config) = self.monitor.as_ref().map(|monitor| Arc::clone(monitor.config())) else {
            return;
        };
        let subject = path.to_owned();
        let difference = self
            .blocking(move |machine| Ok(drift::unified(machine, &config, &subject)))
            .await;
        if let Ok(Some(text)) = difference {
            tracing::warn!("diff of {path}:\n{text}");
        }
    }

    async fn heal(&mut self, cause: &str, count: usize) -> Result<(), AgentError> {
        self.stop_watching();
        self.blocking(|machine| match disk::current_config(&machine.root)? {
            Some(config) => work::heal(machine, &config),
            None => Ok(()),
        })
        .await?;
        let healed = DriftHealed {
            cause: cause.to_owned(),
            more: count.saturating_sub(1),
        };
        self.events
            .warning(event::CONFIG_DRIFT_DETECTED, healed.to_string());
        self.health.metrics.no_drift();
        self.watch_over_disk().await;
        Ok(())
    }

    async fn degrade_by_drift(&mut self, cause: &str, differences: &[String]) -> Result<(), AgentError> {
        self.verified = None;
        let failing = self.view().is_some_and(NodeAnnotations::is_failing);
        self.activity.failed(&self.machine.root, cause);
        // The reason of a failing node is more specific: it names the config that the node was validated against.
        if !failing {
            self.events.warning(event::CONFIG_DRIFT_DETECTED, cause);
            self.write(&report::degraded(NodeFailure::Degraded, cause, differences))
                .await?;
            self.report_phase(&UpdatePhase::Failed {
                error: report::shortened(cause),
            })
            .await;
        }
        Ok(())
    }

    /// Syncs certificates first: without valid ones a node soon cannot do anything else.
    async fn sync_certificates(&mut self) -> Result<(), AgentError> {
        let Some(config) = self.controller_config.clone() else {
            return Ok(());
        };
        let source = Arc::clone(&config);
        let touched = self
            .blocking(move |machine| {
                let wanted = live::wanted(&source).map_err(live::LiveError::from)?;
                let current = disk::current_config(&machine.root)?;
                let custody = Custody::of(&machine.root)?;
                Ok(live::sync(&machine.root, &wanted, current.as_ref(), custody)?)
            })
            .await?;
        if !touched.is_empty() {
            tracing::info!(?touched, "synced certificates");
        }
        let synced = config.metadata.resource_version.clone();
        if self
            .view()
            .is_some_and(|view| view.synced_controller_config != synced)
        {
            let report = NodeReport::from([(annotation::LAST_SYNCED_CONTROLLER_CONFIG, synced)]);
            self.write(&report).await?;
        }
        self.controller_config = None;
        Ok(())
    }
}
