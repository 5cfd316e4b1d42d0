//! `mco adopt` and `mco release`

mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch};
use kube::{Api, Client};
use mco_api::node_adoption::{NodeAdoptionStatus, NodeAgent};
use mco_api::vocabulary::annotations::ADOPTION_REQUEST;
use mco_api::{MachineConfigPool, NodeAdoption};
use mco_core::rollout::RolloutView;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::cli;
use crate::connection::{FIELD_MANAGER, list_readable, to_cli_error};
use crate::output::{self, CommandOutcome};
use crate::runtime;

const POLL: Duration = Duration::from_millis(300);

/// What one node has answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeAnswer {
    node: String,
    #[serde(flatten)]
    status: NodeAdoptionStatus,
}

pub fn adopt(arguments: &cli::AdoptArguments) -> anyhow::Result<CommandOutcome> {
    let timeout = timeout(&arguments.timeout)?;
    runtime::block_on(async move {
        let client = arguments.query.connection.client().await?;
        let nodes = selected(&client, arguments).await?;
        let verb = if arguments.yes { "adopt" } else { "compare" };
        let mut answers = ask(&client, &nodes, verb, timeout).await?;
        if let Some(kured) = kured(&client).await {
            for answer in &mut answers {
                answer.status.agents.retain(|agent| agent.name != kured.name);
                answer.status.agents.push(kured.clone());
            }
        }
        output::show(arguments.query.output.format.as_ref(), &answers, || {
            text::comparison(&answers, arguments.yes)
        })?;
        let changes = answers.iter().any(|answer| would_change(&answer.status));
        if let Some(failed) = answers.iter().find(|answer| answer.status.phase == "Failed") {
            bail!("node {}: {}", failed.node, failed.status.message);
        }
        Ok(if changes && !arguments.yes {
            CommandOutcome::Changes
        } else {
            CommandOutcome::Done
        })
    })
}

pub fn release(arguments: &cli::ReleaseArguments) -> anyhow::Result<CommandOutcome> {
    let timeout = timeout(&arguments.timeout)?;
    runtime::block_on(async move {
        let client = arguments.query.connection.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for name in &arguments.nodes {
            let node = to_cli_error(nodes.get_opt(name).await, &format!("read node {name}"))?;
            if node.is_none() {
                bail!("there is no node {name}; see all nodes with: mco status --nodes");
            }
        }
        let answers = ask(&client, &arguments.nodes, "release", timeout).await?;
        output::show(arguments.query.output.format.as_ref(), &answers, || {
            text::released(&answers)
        })?;
        if let Some(failed) = answers.iter().find(|answer| answer.status.phase == "Failed") {
            bail!("node {}: {}", failed.node, failed.status.message);
        }
        Ok(CommandOutcome::Done)
    })
}

/// Whether the config would change anything on the node.
fn would_change(status: &NodeAdoptionStatus) -> bool {
    !status.differences.is_empty() || !status.os_changes.is_empty()
}

fn timeout(text: &str) -> anyhow::Result<Duration> {
    let span: jiff::SignedDuration = text
        .parse()
        .with_context(|| format!("{text:?} is no duration; write for example 30s or 2m"))?;
    Ok(span.try_into()?)
}

/// Returns the nodes to compare: those that were named, or all that are not adopted yet.
async fn selected(client: &Client, arguments: &cli::AdoptArguments) -> anyhow::Result<Vec<String>> {
    let (pools, nodes) = tokio::join!(
        list_readable::<MachineConfigPool>(client, "list the pools"),
        list_readable::<Node>(client, "list the nodes"),
    );
    let (pools, nodes) = (pools?, nodes?);
    let view = RolloutView::new(&pools, &nodes);
    if let Some(pool) = &arguments.pool
        && view.pool(pool).is_none()
    {
        bail!("there is no pool {pool}; see all pools with: mco status");
    }
    let is_asked_for = |pool: &str| arguments.pool.as_deref().is_none_or(|only| only == pool);
    let mut pool_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = Vec::new();
    for pool in view.pools.iter().filter(|pool| is_asked_for(pool.name)) {
        for node in pool.members.iter().chain(&pool.unadopted) {
            pool_of.insert(node.name, pool.name);
            if node.current_config.is_empty() {
                waiting.push(node.name.to_owned());
            }
        }
    }
    if arguments.nodes.is_empty() {
        return Ok(waiting);
    }
    for name in &arguments.nodes {
        if pool_of.contains_key(name.as_str()) {
            continue;
        }
        if let Some(contested) = view.contested.iter().find(|contested| contested.node == *name) {
            bail!(
                "{contested}: {}; remove the labels of all but one",
                contested.pools.join(", ")
            );
        }
        if !nodes.iter().any(|node| node.metadata.name.as_ref() == Some(name)) {
            bail!("there is no node {name}; see all nodes with: mco status --nodes");
        }
        match &arguments.pool {
            Some(pool) => bail!("node {name} does not belong to pool {pool}"),
            None => bail!(
                "no pool selects node {name}; label the node as the nodeSelector of a pool requires, or create a pool"
            ),
        }
    }
    Ok(arguments.nodes.clone())
}

/// Requests something of each node's daemon and waits for the answers.
async fn ask(
    client: &Client,
    names: &[String],
    verb: &str,
    timeout: Duration,
) -> anyhow::Result<Vec<NodeAnswer>> {
    let request = format!("{verb} {}", Timestamp::now().as_microsecond());
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {ADOPTION_REQUEST: request}}}));
    for name in names {
        let written = nodes.patch(name, &FIELD_MANAGER.patch_params(), &patch).await;
        to_cli_error(written, &format!("annotate node {name}"))?;
    }
    let deadline = Instant::now() + timeout;
    let adoptions: Api<NodeAdoption> = Api::all(client.clone());
    let mut answers = Vec::new();
    for name in names {
        let status = loop {
            let found = to_cli_error(
                adoptions.get_opt(name).await,
                &format!("read NodeAdoption {name}"),
            )?;
            if let Some(status) = found.and_then(|found| found.status)
                && status.request == request
            {
                break status;
            }
            if Instant::now() > deadline {
                let node = to_cli_error(nodes.get_opt(name).await, &format!("read node {name}"))?;
                bail!(
                    "node {name} has not answered; {}. The request stays in the node's annotation {ADOPTION_REQUEST}, \
                     and the answer will be in: kubectl get nodeadoption {name} -o yaml",
                    text::delay(node.as_ref())
                );
            }
            tokio::time::sleep(POLL).await;
        };
        answers.push(NodeAnswer {
            node: name.clone(),
            status,
        });
    }
    Ok(answers)
}

/// Returns kured, if the cluster runs it. Without permission to list DaemonSets it stays unknown.
async fn kured(client: &Client) -> Option<NodeAgent> {
    let all: Api<DaemonSet> = Api::all(client.clone());
    let found = all.list(&ListParams::default()).await.ok()?;
    let kured = found.items.into_iter().find(|set| {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        name == "kured" || name.ends_with("-kured") || name.starts_with("kured-")
    })?;
    Some(NodeAgent {
        name: "kured".to_owned(),
        effect: format!(
            "DaemonSet {}/{} reboots nodes that have /var/run/reboot-required, without regard to the budget of the pool",
            kured.metadata.namespace.unwrap_or_default(),
            kured.metadata.name.unwrap_or_default()
        ),
    })
}
