//! Stages the OS of the next config of a node that waits for its turn.

use std::time::Duration;

use mco_api::vocabulary::events::daemon as event;
use mco_core::rollout::budget::{self, PoolNodes};
use mco_core::rollout::stage_ahead;
use tokio::time::Instant;

use super::error::AgentError;
use super::on_disk::OnDisk;
use super::report;
use super::run::{Agent, Pause, StageAhead};
use super::work;

impl Agent {
    /// Stages the OS of the pool's next config while the node waits for its turn. Best effort: a failure is reported when
    /// the turn comes. Returns how long to wait.
    pub(super) async fn stage_next(&mut self, disk: &OnDisk) -> Pause {
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
        let setting = pool.spec.max_unavailable.as_ref();
        let limit = budget::max_unavailable(PoolNodes::Workers, setting, members).unwrap_or(1);
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
}
