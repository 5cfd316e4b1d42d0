//! Executes the steps of [`super::decide`], one function each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mco_api::vocabulary::annotations::{SERVICE_CA_ROTATE, node as annotation};
use mco_api::vocabulary::events::daemon as event;
use mco_api::{ControllerConfig, MachineConfig};
use mco_core::config::disruption::PostConfigAction;
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::NodeAnnotations;
use mco_core::rollout::adoption::AdoptionRequest;
use mco_core::rollout::drain::DrainVerb;
use mco_core::rollout::node_progress::UpdatePhase;

use super::decide::{AgentStep, ConfigVersion, Observation, PendingChange, next};
use super::error::AgentError;
use super::node_files::FileRenewal;
use super::on_disk::OnDisk;
use super::report::{self, NodeReport};
use super::run::{AfterStep, Agent, CaComparison, Pause};
use super::work::{self, AgentUpdateResult};
use crate::config::{EMPTY, NodeConfig};
use crate::custody::Custody;
use crate::disk;
use crate::guard::{self, RequiredHealth};
use crate::live::{self, api_server_ca};
use crate::revert;

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
        let seen = Observation {
            renews_files: self.file_renewal == FileRenewal::Due,
            ..seen
        };
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
            AgentStep::Reboot { because } => self.reboot_into(because, seen.forced).await,
            AgentStep::ProveBoot => self.prove_boot(seen.disk).await,
            AgentStep::ProveRestart => self.prove_restart(seen.disk).await,
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

    async fn update(
        &mut self,
        seen: Observation,
        from: ConfigVersion,
        to: ConfigVersion,
    ) -> Result<AfterStep, AgentError> {
        self.stop_watching();
        let again = from == to && !seen.renews_files;
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
        // Before a drain, so that a node that cannot have the config goes on with its workloads.
        let new = if again {
            self.as_recorded(new).await?
        } else {
            self.resolved(new).await?
        };
        let image = from.image.clone();
        let old = self
            .blocking(move |machine| work::starting_point(machine, known, image))
            .await?;
        // A release restores what was there before, whatever has changed since.
        let is_release = to.config == EMPTY;
        if !seen.forced && !is_release {
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
        let guard = self.guard(&seen.node).await?;
        let update = work::UpdateRequest {
            guard,
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

    /// Returns the program that guards a change, and what the node must show after it: the checks that it passes now.
    async fn guard(&self, node: &NodeAnnotations) -> Result<Option<(PathBuf, RequiredHealth)>, AgentError> {
        let Some(options) = self.guard.clone() else {
            return Ok(None);
        };
        let deadline = node.confirm_deadline().unwrap_or(self.health_deadline);
        let api_server = match options.api_server {
            Some(server) => Some(server),
            None => {
                self.blocking(|machine| Ok(guard::find_api_server(&machine.root)))
                    .await?
            }
        };
        let required = RequiredHealth::new(deadline, Some(options.kubelet), api_server);
        let required = required.passing().await;
        Ok((!required.is_empty()).then_some((options.program, required)))
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
            AgentUpdateResult::AwaitingBoot => self.file_renewal = FileRenewal::NotDue,
            AgentUpdateResult::AwaitingConfirmation { actions } => {
                self.file_renewal = FileRenewal::NotDue;
                if !again {
                    self.run_post_config_actions(&actions).await;
                }
            }
            AgentUpdateResult::Settled { version, actions } => {
                self.file_renewal = FileRenewal::NotDue;
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
        let copy = self
            .blocking(move |machine| work::installed(machine, &wanted))
            .await?;
        let rendered = self.note_bootstrap_difference().await;
        let installed = name.to_owned();
        match (copy, rendered) {
            (Some(config), _) => Ok(config),
            (None, Some(rendered)) => Err(AgentError::BootstrapMismatch { installed, rendered }),
            (None, None) => Err(AgentError::BootstrapUnknown { installed }),
        }
    }

    /// Writes the difference between the installed config and the cluster's to disk, and returns the name of the
    /// cluster's; `None` if the pool is unknown. Best effort: the difference is for administrators only.
    async fn note_bootstrap_difference(&self) -> Option<String> {
        let pool = self.cluster.pool().await.ok()??;
        let rendered = pool.spec.configuration.reference.name.unwrap_or_default();
        if let Ok(config) = self.cluster.config(&rendered).await
            && let Err(error) = self
                .blocking(move |machine| work::note_bootstrap_difference(machine, config))
                .await
        {
            tracing::warn!(%error, "could not record how the installed config differs from the cluster's");
        }
        Some(rendered)
    }

    async fn report_done(&mut self, disk: &OnDisk, config: &str) -> Result<AfterStep, AgentError> {
        let reached = config.to_owned();
        self.blocking(move |machine| work::forget_rolled_back_after(machine, &reached))
            .await?;
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
                    self.preflight(&config).await.map_err(AgentError::at_start)?;
                }
                self.verified = Some(version.clone());
            }
            self.watch_over_disk().await;
            self.report_irreconcilable(version).await;
            if let Some(after) = self.follow_node_files().await? {
                return Ok(after);
            }
        }
        self.report_phase(&UpdatePhase::Updated).await;
        self.activity
            .succeeded(&self.machine.root, "idle; the node is up to date");
        Ok(AfterStep::Wait(self.stage_next(disk).await))
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

    /// Follows a rotation of the API server's CA: when the operator reports one, and once per process, because the
    /// report ends soon.
    async fn sync_api_server_ca(&mut self, config: &ControllerConfig) -> Result<(), AgentError> {
        let annotations = config.metadata.annotations.as_ref();
        let reported = annotations.and_then(|all| all.get(SERVICE_CA_ROTATE));
        if self.api_server_ca == CaComparison::Done && reported.is_none_or(|reported| reported != "true") {
            return Ok(());
        }
        let rotates = self
            .blocking(|machine| Ok(api_server_ca::is_rotated(&machine.root)?))
            .await?;
        if rotates && let Some(bundle) = self.cluster.api_server_ca().await? {
            let touched = self
                .blocking(move |machine| Ok(api_server_ca::sync(machine, &bundle)?))
                .await?;
            if !touched.is_empty() {
                tracing::info!(
                    ?touched,
                    "replaced the CA of the API server and restarted the kubelet"
                );
            }
        }
        self.api_server_ca = CaComparison::Done;
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
        self.sync_api_server_ca(&config).await?;
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
