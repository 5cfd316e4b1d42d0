//! `mco rollout`

mod policy;
mod restart;
mod undo;

use anyhow::bail;
use jiff::Timestamp;
use kube::api::{ListParams, Patch};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::rendered_configs;
use serde::Serialize;
use serde_json::json;

use crate::cli::{HistoryArguments, OnePool, Rollout, RolloutAction};
use crate::connection::FIELD_MANAGER;
use crate::connection::to_cli_error;
use crate::output::{self, CommandOutcome};
use crate::runtime;
use crate::table::Table;

pub fn run(arguments: Rollout) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(async move {
        match arguments.action {
            RolloutAction::Status(arguments) => super::status::wait::rollout_status(&arguments).await,
            RolloutAction::Restart(arguments) => restart::run(&arguments).await,
            RolloutAction::Pause(pool) => set_paused(&pool, true).await,
            RolloutAction::Resume(pool) => policy::resume(&pool).await,
            RolloutAction::Promote(pool) => policy::promote(&pool).await,
            RolloutAction::Abort(pool) => policy::abort(&pool).await,
            RolloutAction::History(arguments) => history(&arguments).await,
            RolloutAction::Undo(arguments) => Box::pin(undo::run(&arguments)).await,
        }
    })
}

async fn set_paused(arguments: &OnePool, paused: bool) -> anyhow::Result<CommandOutcome> {
    let client = arguments.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client);
    let pool = to_cli_error(
        pools.get(&arguments.pool).await,
        &format!("read pool {}", arguments.pool),
    )?;
    let word = if paused { "paused" } else { "resumed" };
    if pool.spec.paused == paused {
        output::print(&format!("pool {} is already {word}\n", arguments.pool))?;
        return Ok(CommandOutcome::Done);
    }
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    let changed = pools
        .patch(&arguments.pool, &FIELD_MANAGER.patch_params(), &patch)
        .await;
    to_cli_error(changed, &format!("change pool {}", arguments.pool))?;
    output::print(&format!("pool {} {word}\n", arguments.pool))?;
    Ok(CommandOutcome::Done)
}

/// One config of a pool's history.
#[derive(Debug, Serialize)]
struct Had {
    config: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    /// `current`, `rolling out`, `rolling away`, or empty for other configs.
    state: &'static str,
}

async fn history(arguments: &HistoryArguments) -> anyhow::Result<CommandOutcome> {
    let name = &arguments.of.pool;
    let client = arguments.of.connection.client().await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = to_cli_error(pools.get(name).await, &format!("read pool {name}"))?;
    let mut configs = rendered_for(&client, name).await?;
    if configs.is_empty() {
        bail!("pool {name} has no rendered config yet");
    }
    configs.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let reached = pool
        .status
        .as_ref()
        .map(|status| status.configuration.reference.name.clone().unwrap_or_default());
    let target = pool.target_name();
    let had = |config: &PartialObjectMeta<MachineConfig>| {
        let config_name = config.name_any();
        let is_reached = reached.as_deref() == Some(&config_name);
        Had {
            state: match (config_name == target, is_reached) {
                (true, true) => "current",
                (true, false) => "rolling out",
                (false, true) => "rolling away",
                (false, false) => "",
            },
            config: config_name,
            created: config.metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    };
    let all: Vec<Had> = configs.iter().map(had).collect();
    let names = || {
        let name = |one: &Had| format!("machineconfig.machineconfiguration.openshift.io/{}", one.config);
        all.iter().map(name).collect()
    };
    output::show_list(arguments.output.format.as_ref(), &all, names, |_| listed(&all))?;
    Ok(CommandOutcome::Done)
}

fn listed(all: &[Had]) -> String {
    let mut table = Table::new(["CONFIG", "CREATED", "STATE"]);
    for one in all {
        let created = one.created.map_or_else(String::new, |time| time.to_string());
        table.row([one.config.clone(), created, one.state.to_owned()]);
    }
    table.to_string()
}

/// Returns the rendered configs of a pool.
async fn rendered_for(client: &Client, pool: &str) -> anyhow::Result<Vec<PartialObjectMeta<MachineConfig>>> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let all = to_cli_error(
        configs.list_metadata(&ListParams::default()).await,
        "list the MachineConfigs",
    )?;
    let belongs =
        |config: &PartialObjectMeta<MachineConfig>| rendered_configs::pool_of(&config.metadata) == Some(pool);
    Ok(all.items.into_iter().filter(belongs).collect())
}
