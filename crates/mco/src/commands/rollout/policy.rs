//! `mco rollout resume`, `promote` and `abort`: what an administrator decides about a rollout under a RolloutPolicy.

use anyhow::{anyhow, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::{Api, Client};
use mco_api::MachineConfigPool;
use mco_api::rollout_policy::{PoolRolloutStatus, RolloutPolicy};
use mco_api::vocabulary::annotations::ROLLOUT_CONTROL;
use mco_core::rollout::policy::{PoolControl, RolloutControl, selects};
use serde_json::json;

use super::set_paused;
use crate::cli::OnePool;
use crate::connection::{FIELD_MANAGER, list_readable, to_cli_error};
use crate::output::{self, CommandOutcome};

/// A pool and the policy that selects it.
struct Governed {
    client: Client,
    pool: MachineConfigPool,
    policy: Option<RolloutPolicy>,
}

impl Governed {
    async fn read(arguments: &OnePool) -> anyhow::Result<Self> {
        let client = arguments.connection.client().await?;
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let pool = to_cli_error(
            pools.get(&arguments.pool).await,
            &format!("read pool {}", arguments.pool),
        )?;
        // Without the kind there is no policy.
        let policies = list_readable::<RolloutPolicy>(&client, "list the RolloutPolicies").await;
        let mut policies = policies
            .unwrap_or_default()
            .into_iter()
            .filter(|policy| selects(policy, &pool));
        let policy = policies.next();
        if let (Some(one), Some(other)) = (&policy, policies.next()) {
            let name = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
            bail!(
                "RolloutPolicies {} and {} both select pool {}; change a poolSelector first",
                name(&one.metadata),
                name(&other.metadata),
                arguments.pool
            );
        }
        Ok(Self { client, pool, policy })
    }

    fn required(&self) -> anyhow::Result<&RolloutPolicy> {
        let name = self.pool.metadata.name.as_deref().unwrap_or_default();
        self.policy.as_ref().ok_or_else(|| {
            anyhow!("no RolloutPolicy selects pool {name}; stop its rollout with: mco rollout pause {name}")
        })
    }

    /// Returns the recorded state of the rollout.
    fn recorded(&self) -> Option<&PoolRolloutStatus> {
        let name = self.pool.metadata.name.as_deref()?;
        let pools = &self.policy.as_ref()?.status.as_ref()?.pools;
        pools.iter().find(|recorded| recorded.name == name)
    }

    /// Changes what is decided about the current config of the pool.
    async fn decide(&self, change: impl FnOnce(&mut PoolControl)) -> anyhow::Result<()> {
        let policy = self.required()?;
        let (pool, target) = (
            self.pool.metadata.name.as_deref().unwrap_or_default(),
            self.pool.target_name(),
        );
        let mut control = RolloutControl::of(policy);
        change(control.entry(pool, target));
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": policy.metadata.resource_version,
            "annotations": {ROLLOUT_CONTROL: serde_json::to_string(&control)?},
        }}));
        let policies: Api<RolloutPolicy> = Api::all(self.client.clone());
        let written = policies.patch(name, &FIELD_MANAGER.patch_params(), &patch).await;
        to_cli_error(written, &format!("change RolloutPolicy {name}"))?;
        Ok(())
    }
}

pub async fn resume(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::read(arguments).await?;
    let control = governed
        .policy
        .as_ref()
        .map(RolloutControl::of)
        .unwrap_or_default();
    let control = control.0.get(&arguments.pool).cloned().unwrap_or_default();
    let is_aborted = control.aborted && control.target == governed.pool.target_name();
    let failures = governed
        .recorded()
        .map_or(&[][..], |recorded| recorded.failures.as_slice());
    let failed: Vec<String> = failures.iter().map(|note| note.node.clone()).collect();
    if governed.pool.spec.paused || (!is_aborted && failed.is_empty()) {
        return set_paused(arguments, false).await;
    }
    governed
        .decide(|control| {
            control.aborted = false;
            control.acknowledged.extend(failed.iter().cloned());
            control.acknowledged.sort();
            control.acknowledged.dedup();
        })
        .await?;
    let ignored = match failed.len() {
        0 => String::new(),
        _ => format!("; failed nodes that no longer count: {}", failed.join(", ")),
    };
    output::print(&format!("pool {} resumed{ignored}\n", arguments.pool))?;
    Ok(CommandOutcome::Done)
}

pub async fn promote(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::read(arguments).await?;
    let waves = governed.required()?.spec.waves.len();
    let recorded = governed.recorded();
    let completed = recorded.map_or(0, |recorded| recorded.completed_waves.len());
    let is_soaking =
        recorded.is_some_and(|recorded| recorded.phase == mco_api::rollout_policy::RolloutPhase::Soaking);
    // During a soak time the current wave has not begun.
    let promoted = if is_soaking { completed } else { completed + 1 };
    if promoted > waves {
        output::print(&format!("pool {} is in its last wave\n", arguments.pool))?;
        return Ok(CommandOutcome::Done);
    }
    let wave = u32::try_from(promoted)?;
    governed
        .decide(|control| control.promoted = control.promoted.max(wave))
        .await?;
    output::print(&format!("pool {} continues after wave {wave}\n", arguments.pool))?;
    Ok(CommandOutcome::Done)
}

pub async fn abort(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::read(arguments).await?;
    governed.decide(|control| control.aborted = true).await?;
    output::print(&format!(
        "pool {} aborted: no further node is updated to {}\n",
        arguments.pool,
        governed.pool.target_name()
    ))?;
    Ok(CommandOutcome::Done)
}
