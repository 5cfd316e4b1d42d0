//! `mco drift`

mod text;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::ListParams;
use kube::{Api, Client};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool};
use mco_client::drift::{self, Drift, DriftReport};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::rollout::{NodeView, RolloutView};

use super::plan;
use crate::cli;
use crate::connection::{list_readable, to_cli_error};
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: &cli::DriftArguments) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(async move {
        let client = arguments.query.connection.client().await?;
        let mut report = read(&client, arguments.node.as_deref()).await?;
        report.drifted = with_sources(&client, report.drifted).await;
        let names = || {
            let mut nodes: Vec<String> = report
                .drifted
                .iter()
                .map(|drift| format!("node/{}", drift.node))
                .collect();
            nodes.dedup();
            nodes
        };
        output::show_list(arguments.query.output.format.as_ref(), &report, names, |_| {
            text::describe(&report, Timestamp::now())
        })?;
        Ok(if report.drifted.is_empty() {
            CommandOutcome::Done
        } else {
            CommandOutcome::Changes
        })
    })
}

async fn read(client: &Client, only: Option<&str>) -> anyhow::Result<DriftReport> {
    let drift_events = ListParams::default().fields("involvedObject.kind=Node");
    let events = Api::<Event>::all(client.clone());
    let (pools, nodes, progress, events) = tokio::join!(
        list_readable::<MachineConfigPool>(client, "list the pools"),
        list_readable::<Node>(client, "list the nodes"),
        list_readable::<MachineConfigNode>(client, "list the MachineConfigNodes"),
        events.list(&drift_events),
    );
    let (pools, nodes) = (pools?, nodes?);
    // Optional: a user who may list nodes may lack permission for these.
    let progress = progress.unwrap_or_default();
    let events = events.map(|list| list.items).unwrap_or_default();
    let is_asked_for = |name: Option<&str>| only.is_none() || name == only;
    if let Some(name) = only
        && !nodes
            .iter()
            .any(|node| is_asked_for(node.metadata.name.as_deref()))
    {
        bail!("there is no node {name}; see all nodes with: mco status --nodes");
    }
    let configs = configs_of_degraded(client, nodes.iter().map(NodeView::new)).await?;
    let mut report = drift::report(&RolloutView::new(&pools, &nodes), &progress, &events, &configs);
    report.drifted.retain(|drift| is_asked_for(Some(&drift.node)));
    report.healed.retain(|healed| is_asked_for(Some(&healed.node)));
    Ok(report)
}

/// Returns the rendered configs of degraded nodes, skipping those that no longer exist.
async fn configs_of_degraded<'n>(
    client: &Client,
    nodes: impl Iterator<Item = NodeView<'n>>,
) -> anyhow::Result<BTreeMap<String, ParsedConfig>> {
    let names: BTreeSet<&str> = nodes
        .filter(|node| node.is_degraded() && !node.current_config.is_empty())
        .map(|node| node.current_config)
        .collect();
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    for name in names {
        let config = to_cli_error(configs.get_opt(name).await, &format!("read MachineConfig {name}"))?;
        if let Some(entry) = config.and_then(|config| ParsedConfig::applicable(config).ok()) {
            found.insert(name.to_owned(), entry);
        }
    }
    Ok(found)
}

/// Adds the MachineConfig that each file comes from, where it can be determined.
async fn with_sources(client: &Client, drifted: Vec<Drift>) -> Vec<Drift> {
    if drifted.is_empty() {
        return drifted;
    }
    let explanations = plan::plan_pools(client).await.unwrap_or_default();
    let source = |drift: &Drift| {
        let parts = explanations.get(&drift.pool)?.iter();
        let mut parts = parts.filter(|part| Some(&part.name) == drift.subject.as_ref());
        Some(parts.next()?.from.first()?.machine_config.clone())
    };
    drifted
        .into_iter()
        .map(|drift| {
            let source = source(&drift);
            drift.with_source(source)
        })
        .collect()
}
