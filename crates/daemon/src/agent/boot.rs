//! Reboots, and waits until the node is healthy with a change before the change is proven.

use std::time::Duration;

use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::events::daemon as event;
use mco_core::rollout::NodeHealth;
use mco_core::rollout::hooks::{HookPhase, HookResult};
use mco_core::rollout::node_progress::UpdatePhase;
use mco_host::Reboot;
use tokio::time::Instant;

use super::decide::ConfigVersion;
use super::error::AgentError;
use super::on_disk::OnDisk;
use super::report::{self, NodeReport};
use super::run::{AfterStep, Agent, Pause};
use super::safety;
use super::work::{self, ExaminedBoot};
use crate::guard::{RequiredHealth, checks};
use crate::once::OnceError;

/// The shutdown timeout: a machine that is still up after this long was not rebooted. Shutdowns may be slow.
const LONGEST_SHUTDOWN: Duration = Duration::from_mins(15);

/// How often the health of a node with a new OS is read. Its Node changes too often to be watched for it.
const HEALTH_POLL: Duration = Duration::from_secs(5);
/// How often the machine itself is checked, which costs next to nothing.
const LOCAL_POLL: Duration = Duration::from_secs(1);
/// How many checks in a row must pass after services were restarted: one that fails soon after its start may pass once.
const PASSED_CHECKS: u32 = 3;

/// The change whose health is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    NewSystem,
    Boot,
    Restart,
}

impl Gate {
    fn what(self) -> &'static str {
        match self {
            Self::NewSystem => "with its new OS",
            Self::Boot | Self::Restart => "with its new config",
        }
    }

    fn failure(self) -> &'static str {
        match self {
            Self::NewSystem => "after the boot of its new OS",
            Self::Boot => "after the boot of its new config",
            Self::Restart => "after its services were restarted with its new config",
        }
    }
}

/// How the health of a node is waited for. Nothing here survives a restart: the deadline begins again.
#[derive(Debug, Default)]
pub(super) struct HealthGate {
    since: Option<Instant>,
    passed: u32,
}

impl Agent {
    pub(super) async fn reboot(&mut self, because: String) -> Result<AfterStep, AgentError> {
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

    /// Reboots into a change. A hook may refuse that, which undoes the change.
    pub(super) async fn reboot_into(
        &mut self,
        because: String,
        forced: bool,
    ) -> Result<AfterStep, AgentError> {
        let results = self
            .blocking(|machine| safety::change_hooks(machine, HookPhase::BeforeReboot))
            .await?;
        let failed = results.last().filter(|last| last.failure.is_some()).cloned();
        self.report_hooks(results).await;
        if let Some(result) = failed.filter(|_| !forced) {
            let why = result.to_string();
            self.blocking(move |machine| safety::undo(machine, &why)).await?;
            return Err(AgentError::Hook {
                result: Box::new(result),
                outcome: safety::UNDONE,
            });
        }
        self.reboot(because).await
    }

    /// Publishes the results of hooks on the Node. Best effort: the result of the change is reported anyway.
    pub(super) async fn report_hooks(&mut self, results: Vec<HookResult>) {
        let Some(config) = results.first().map(|result| result.config.clone()) else {
            return;
        };
        // Other failures are reported as the reason why there is no change.
        let reported = |result: &&HookResult| result.failure.is_some() && !result.phase.can_refuse();
        for failed in results.iter().filter(reported) {
            self.events.warning(event::HOOK_FAILED, failed.to_string());
        }
        self.hooks.retain(|known| {
            known.config == config && results.iter().all(|result| result.phase != known.phase)
        });
        self.hooks.extend(results);
        if let Err(error) = self.write(&report::hooks(&self.hooks)).await {
            tracing::warn!(%error, "could not report the results of the hooks");
        }
    }

    pub(super) async fn prove_boot(&mut self, disk: OnDisk) -> Result<AfterStep, AgentError> {
        match self.blocking(work::examine_boot).await? {
            ExaminedBoot::AnotherBoot { because } => return self.reboot(because).await,
            ExaminedBoot::Matches { new_system, required } => {
                let gate = if new_system { Gate::NewSystem } else { Gate::Boot };
                if let Some(after) = self.gate_on_health(gate, required).await? {
                    return Ok(after);
                }
            }
        }
        let results = self
            .blocking(|machine| safety::change_hooks(machine, HookPhase::AfterReboot))
            .await?;
        self.report_hooks(results).await;
        self.confirm(disk).await?;
        self.health.metrics.system_staged();
        self.acknowledge_boot().await
    }

    /// Proves a change without a reboot once the node is healthy with it.
    pub(super) async fn prove_restart(&mut self, disk: OnDisk) -> Result<AfterStep, AgentError> {
        let required = self.blocking(safety::required_health).await?;
        if let Some(after) = self.gate_on_health(Gate::Restart, required).await? {
            return Ok(after);
        }
        self.confirm(disk).await?;
        Ok(AfterStep::Again)
    }

    async fn confirm(&mut self, disk: OnDisk) -> Result<(), AgentError> {
        self.blocking(work::confirm_change).await?;
        self.gate = HealthGate::default();
        self.verified = disk.config.map(|config| ConfigVersion {
            config,
            image: disk.image,
        });
        Ok(())
    }

    /// Returns what to do while the node is not healthy with a change; `None` once it is.
    async fn gate_on_health(
        &mut self,
        gate: Gate,
        required: Option<RequiredHealth>,
    ) -> Result<Option<AfterStep>, AgentError> {
        let allowed = required
            .as_ref()
            .map_or(self.health_deadline, RequiredHealth::deadline);
        let since = *self.gate.since.get_or_insert_with(Instant::now);
        let Some((why, poll)) = self.unhealthy(gate, required).await? else {
            self.gate.passed += 1;
            if gate != Gate::Restart || self.gate.passed >= PASSED_CHECKS {
                return Ok(None);
            }
            return Ok(Some(AfterStep::Wait(Pause::after(LOCAL_POLL))));
        };
        self.gate.passed = 0;
        let deadline = since + allowed;
        if Instant::now() < deadline {
            let doing = format!("waiting for the node to become healthy {}: {why}", gate.what());
            self.activity.doing(&self.machine.root, &doing, None);
            return Ok(Some(AfterStep::Wait(Pause::Until(
                deadline.min(Instant::now() + poll),
            ))));
        }
        let because = format!(
            "the node did not become healthy within {} s {}: {why}",
            allowed.as_secs(),
            gate.failure()
        );
        let reason = match gate {
            Gate::NewSystem => event::OS_ROLLED_BACK,
            Gate::Boot | Gate::Restart => event::REVERTED,
        };
        self.events.warning(reason, because.as_str());
        self.give_up(because).await.map(Some)
    }

    /// Returns why the node is not healthy, and when to check again.
    async fn unhealthy(
        &self,
        gate: Gate,
        required: Option<RequiredHealth>,
    ) -> Result<Option<(String, Duration)>, AgentError> {
        if let Some(required) = required
            && let Some(why) = checks::problem(&required).await
        {
            return Ok(Some((why, LOCAL_POLL)));
        }
        if gate != Gate::NewSystem {
            return Ok(None);
        }
        let boot = self
            .blocking(|machine| Ok(machine.power.boot_id(&machine.root).map_err(OnceError::from)?))
            .await?;
        Ok(match self.cluster.health(&boot.0).await? {
            NodeHealth::Healthy => None,
            NodeHealth::Unhealthy { why } => Some((why, HEALTH_POLL)),
        })
    }

    /// Rolls a change back and reboots.
    async fn give_up(&mut self, because: String) -> Result<AfterStep, AgentError> {
        self.gate = HealthGate::default();
        tracing::error!(node = self.cluster.node(), because, "reverting the config");
        let reboot = self
            .blocking(move |machine| safety::give_up(machine, &because))
            .await?;
        self.reboot(reboot).await
    }

    /// Reverts a change if the cluster was not reached within its deadline and the node is at fault. Returns when to check
    /// again otherwise; `None` if no change waits for its confirmation.
    pub(super) async fn revert_unreachable(&mut self) -> Result<Option<Duration>, AgentError> {
        let Some(required) = self.blocking(safety::required_health).await? else {
            return Ok(None);
        };
        let since = *self.gate.since.get_or_insert_with(Instant::now);
        let left = (since + required.deadline()).saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let Some(why) = checks::problem(&required).await else {
            return Ok(Some(HEALTH_POLL));
        };
        let because = format!(
            "the node did not reach its cluster within {} s with its new config: {why}",
            required.deadline().as_secs()
        );
        self.give_up(because).await?;
        Ok(None)
    }

    pub(super) async fn acknowledge_boot(&mut self) -> Result<AfterStep, AgentError> {
        self.report_phase(&UpdatePhase::Rebooted).await;
        self.report_phase(&UpdatePhase::Resumed).await;
        let action = NodeReport::from([(annotation::POST_CONFIG_ACTION, Some(String::new()))]);
        self.write(&action).await?;
        Ok(AfterStep::Again)
    }
}
