//! Watches the disk for drift from the current config, and handles it according to the drift policy.

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::vocabulary::events::daemon as event;
use mco_core::rollout::messages::DriftHealed;
use mco_core::rollout::node_progress::UpdatePhase;
use mco_core::rollout::{DriftPolicy, NodeAnnotations};

use super::decide::retry_delay;
use super::error::AgentError;
use super::report::{self, NodeFailure};
use super::run::{Agent, Pause};
use super::work;
use crate::config::NodeConfig;
use crate::disk;
use crate::drift::{self, Monitor};
use crate::validate::{self, Mismatch};

impl Agent {
    /// Validates the machine against its current config before a change. On a mismatch the change fails, unless the
    /// drift policy is to overwrite drift.
    pub(super) async fn preflight(&mut self, config: &NodeConfig) -> Result<(), AgentError> {
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
        let current = self
            .blocking(|machine| Ok(disk::current_config(&machine.root)?))
            .await?;
        if let Some(current) = current {
            let image = current.built_image.clone();
            let object = MachineConfig::clone(&current.object);
            let config = self
                .as_recorded(work::checked(object)?.with_built_image(image))
                .await?;
            self.blocking(move |machine| work::heal(machine, &config)).await?;
        }
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
}
