//! `mco rollout`

mod undo;

use anyhow::bail;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use mco_api::{MachineConfig, MachineConfigPool};
use serde_json::json;

use crate::cli::{OnePool, Rollout, RolloutAction};
use crate::connection::explained;
use crate::output::{self, Outcome};
use crate::runtime;
use crate::table::Table;

pub fn run(arguments: Rollout) -> anyhow::Result<Outcome> {
    runtime::ask(async move {
        match arguments.action {
            RolloutAction::Pause(pool) => set_paused(&pool, true).await,
            RolloutAction::Resume(pool) => set_paused(&pool, false).await,
            RolloutAction::History(pool) => history(&pool).await,
            RolloutAction::Undo(arguments) => Box::pin(undo::run(&arguments)).await,
        }
    })
}

async fn set_paused(arguments: &OnePool, paused: bool) -> anyhow::Result<Outcome> {
    let client = arguments.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client);
    let pool = explained(
        pools.get(&arguments.pool).await,
        &format!("read pool {}", arguments.pool),
    )?;
    let word = if paused { "paused" } else { "resumed" };
    if pool.spec.paused == paused {
        output::print(&format!("pool {} is {word} already\n", arguments.pool))?;
        return Ok(Outcome::Done);
    }
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    let changed = pools
        .patch(&arguments.pool, &PatchParams::default(), &patch)
        .await;
    explained(changed, &format!("change pool {}", arguments.pool))?;
    output::print(&format!("pool {} {word}\n", arguments.pool))?;
    Ok(Outcome::Done)
}

async fn history(arguments: &OnePool) -> anyhow::Result<Outcome> {
    let client = arguments.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = explained(
        pools.get(&arguments.pool).await,
        &format!("read pool {}", arguments.pool),
    )?;
    let mut configs = rendered_for(&client, &arguments.pool).await?;
    if configs.is_empty() {
        bail!("pool {} has no rendered config yet", arguments.pool);
    }
    configs.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let reached = pool
        .status
        .as_ref()
        .map(|status| status.configuration.reference.name.clone().unwrap_or_default());
    let target = pool.spec.configuration.reference.name.clone().unwrap_or_default();
    let mut table = Table::new(["CONFIG", "CREATED", "STATE"]);
    for config in &configs {
        let name = config.name_any();
        let state = match (name == target, reached.as_deref() == Some(&name)) {
            (true, true) => "current",
            (true, false) => "rolling out",
            (false, true) => "rolling away",
            (false, false) => "",
        };
        let created = config.metadata.creation_timestamp.as_ref();
        table.row([
            name,
            created.map_or_else(String::new, |time| time.0.to_string()),
            state.to_owned(),
        ]);
    }
    output::print(&table.to_string())?;
    Ok(Outcome::Done)
}

/// The rendered configs that belong to a pool.
async fn rendered_for(
    client: &Client,
    pool: &str,
) -> anyhow::Result<Vec<kube::core::PartialObjectMeta<MachineConfig>>> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let all = explained(
        configs.list_metadata(&ListParams::default()).await,
        "list the MachineConfigs",
    )?;
    let belongs = |config: &kube::core::PartialObjectMeta<MachineConfig>| {
        let owners = config.metadata.owner_references.as_deref().unwrap_or_default();
        owners
            .iter()
            .any(|owner| owner.kind == "MachineConfigPool" && owner.name == pool)
    };
    Ok(all.items.into_iter().filter(belongs).collect())
}
