//! `mco wait` and `mco rollout status`

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use mco_api::MachineConfigPool;
use mco_client::overview::{PoolOverview, PoolPhase};

use super::live::LiveStatus;
use super::{next, read, selected, text};
use crate::cli::{RolloutStatus, Wait, WaitTarget};
use crate::commands::plan;
use crate::connection::list_readable;
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// Pools to wait for.
struct Waiting<'a> {
    /// All pools if empty.
    pools: &'a [String],
    target: &'a WaitTarget,
}

/// `mco wait`
pub fn wait(arguments: &Wait) -> anyhow::Result<CommandOutcome> {
    let timeout = duration("--timeout", &arguments.timeout)?;
    let waiting = Waiting {
        pools: &arguments.pools,
        target: &arguments.target,
    };
    runtime::block_on(async move {
        let client = arguments.connection.client().await?;
        match tokio::time::timeout(timeout, waiting.run(&client)).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("{}", waiting.timed_out(&arguments.timeout)),
        }
    })
}

/// `mco rollout status`
pub async fn rollout_status(arguments: &RolloutStatus) -> anyhow::Result<CommandOutcome> {
    let timeout = duration("--timeout", &arguments.timeout)?;
    let client = arguments.connection.client().await?;
    let pools = std::slice::from_ref(&arguments.pool);
    if !arguments.watch {
        for pool in selected(read(&client).await?, pools)? {
            output::print(&format!("{}\n", text::progress(&pool, Timestamp::now())))?;
        }
        return Ok(CommandOutcome::Done);
    }
    let waiting = Waiting {
        pools,
        target: &WaitTarget::Updated,
    };
    if timeout.is_zero() {
        return waiting.run(&client).await;
    }
    match tokio::time::timeout(timeout, waiting.run(&client)).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("{}", waiting.timed_out(&arguments.timeout)),
    }
}

fn duration(option: &str, text: &str) -> anyhow::Result<Duration> {
    let parsed: SignedDuration = text
        .parse()
        .with_context(|| format!("{option}: {text:?} is not a time such as 90s, 30m or 2h"))?;
    Duration::try_from(parsed).with_context(|| format!("{option}: must not be negative"))
}

impl Waiting<'_> {
    async fn run(&self, client: &Client) -> anyhow::Result<CommandOutcome> {
        match self.target {
            WaitTarget::Updated => self.until_updated(client).await,
            WaitTarget::Condition { condition, status } => {
                self.until_condition(client, condition, status).await
            }
        }
    }

    fn timed_out(&self, timeout: &str) -> String {
        let state = match self.target {
            WaitTarget::Updated => "updated".to_owned(),
            WaitTarget::Condition { condition, status } => format!("{condition}={status}"),
        };
        let which = match self.pools {
            [] => "not every pool is".to_owned(),
            [one] => format!("pool {one} is not"),
            several => format!("not all of the pools {} are", several.join(", ")),
        };
        let names = self.pools.join(" ");
        format!(
            "{which} {state} after {timeout}; see what it waits for with: {}",
            format!("mco status {names}").trim_end()
        )
    }

    async fn until_updated(&self, client: &Client) -> anyhow::Result<CommandOutcome> {
        let mut live = LiveStatus::new(client);
        let mut reported = BTreeMap::new();
        // A connection error is reported immediately; a watch would only retry.
        let mut pools = read(client).await?;
        loop {
            let chosen = selected(pools, self.pools)?;
            if chosen.is_empty() {
                bail!("there are no pools");
            }
            for pool in &chosen {
                report(pool, &mut reported)?;
            }
            let has_failed = chosen.iter().any(|pool| pool.state == PoolPhase::Degraded);
            if has_failed {
                return Ok(CommandOutcome::Refused);
            }
            if chosen.iter().all(|pool| pool.state == PoolPhase::Updated) {
                let mut rendered = true;
                for pool in &chosen {
                    rendered &= plan::is_rendered(client, pool).await?;
                }
                if rendered {
                    return Ok(CommandOutcome::Done);
                }
            }
            pools = next(&mut live).await;
        }
    }

    async fn until_condition(
        &self,
        client: &Client,
        condition: &str,
        status: &str,
    ) -> anyhow::Result<CommandOutcome> {
        let mut live = LiveStatus::new(client);
        let mut met: BTreeSet<String> = BTreeSet::new();
        let mut pools = list_readable::<MachineConfigPool>(client, "list the pools").await?;
        loop {
            let names: BTreeSet<&str> = pools
                .iter()
                .filter_map(|pool| pool.metadata.name.as_deref())
                .collect();
            if let Some(unknown) = self.pools.iter().find(|name| !names.contains(name.as_str())) {
                let known: Vec<&str> = names.into_iter().collect();
                bail!("there is no pool {unknown}; there are: {}", known.join(", "));
            }
            let wanted: BTreeSet<&str> = match self.pools {
                [] => names,
                chosen => chosen.iter().map(String::as_str).collect(),
            };
            if wanted.is_empty() {
                bail!("there are no pools");
            }
            let is_met = |pool: &&MachineConfigPool| has_condition(pool, condition, status);
            let now: BTreeSet<String> = pools
                .iter()
                .filter(is_met)
                .filter_map(|pool| pool.metadata.name.clone())
                .filter(|name| wanted.contains(name.as_str()))
                .collect();
            for name in now.difference(&met) {
                output::print(&format!("pool {name}: {condition}={status}\n"))?;
            }
            if now.len() == wanted.len() {
                return Ok(CommandOutcome::Done);
            }
            met = now;
            pools = live.next_pools().await;
        }
    }
}

fn has_condition(pool: &MachineConfigPool, type_: &str, status: &str) -> bool {
    let conditions = pool.status.as_ref().map(|found| &found.conditions);
    conditions
        .into_iter()
        .flatten()
        .any(|found| found.type_.eq_ignore_ascii_case(type_) && found.status.eq_ignore_ascii_case(status))
}

/// Prints the progress of a pool if it has changed.
fn report(
    pool: &PoolOverview,
    reported: &mut BTreeMap<String, (usize, usize, PoolPhase)>,
) -> anyhow::Result<()> {
    // Excludes the estimated time, which changes constantly.
    let state = (pool.updated, pool.total, pool.state);
    if reported.insert(pool.name.clone(), state) != Some(state) {
        output::print(&format!("{}\n", text::progress(pool, Timestamp::now())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_of_a_pool_is_found_as_kubectl_finds_it() {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {},
            "status": {"conditions": [
                {"type": "Updated", "status": "False", "reason": "", "message": "", "lastTransitionTime": null},
                {"type": "Updating", "status": "True", "reason": "", "message": "", "lastTransitionTime": null},
            ]},
        }))
        .unwrap();
        for (type_, status, expected) in [
            ("Updated", "True", false),
            ("Updated", "False", true),
            ("updating", "true", true),
            ("Degraded", "False", false),
        ] {
            assert_eq!(has_condition(&pool, type_, status), expected, "{type_}={status}");
        }
    }

    #[test]
    fn a_timeout_names_what_was_waited_for() {
        let timed_out = |pools: &[&str], target: &str| {
            let pools: Vec<String> = pools.iter().map(|&pool| pool.to_owned()).collect();
            let target = target.parse().unwrap();
            let waiting = Waiting {
                pools: &pools,
                target: &target,
            };
            waiting.timed_out("5s")
        };
        assert_eq!(
            timed_out(&["worker"], "updated"),
            "pool worker is not updated after 5s; see what it waits for with: mco status worker"
        );
        assert_eq!(
            timed_out(&[], "condition=Degraded"),
            "not every pool is Degraded=True after 5s; see what it waits for with: mco status"
        );
    }
}
