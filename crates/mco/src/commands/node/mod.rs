//! `mco node`

mod logs;
mod text;

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::ListParams;
use kube::{Api, Client};
use mco_api::vocabulary::annotations::HOOKS;
use mco_api::{MachineConfigNode, MachineConfigPool, RolloutPolicy};
use mco_client::advice::{self, Advice};
use mco_client::overview::{NodeOverview, NodeStanding, overview};
use mco_client::timeline::{self, Timeline};
use mco_core::rollout::hooks::{self, HookResult};
use mco_core::rollout::{NodeView, RolloutView};
use serde::Serialize;

use crate::cli;
use crate::connection::list_readable;
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// The report about one node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatusReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(flatten)]
    node: NodeOverview,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<NodeTroubleReport>,
    /// The results of the hooks of the last update.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<HookResult>,
    timeline: Timeline,
}

/// The cause of a degraded node, and the remedy.
#[derive(Debug, Serialize)]
struct NodeTroubleReport {
    complaint: String,
    #[serde(flatten)]
    advice: &'static Advice,
}

pub fn run(arguments: &cli::NodeArguments) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(async move {
        let connection = &arguments.query.connection;
        if arguments.logs {
            let client = if arguments.follow {
                connection.streaming_client().await?
            } else {
                connection.client().await?
            };
            return logs::print(&client, arguments).await;
        }
        let client = connection.client().await?;
        let now = Timestamp::now();
        let report = read(&client, &arguments.name, now).await?;
        output::show(arguments.query.output.format.as_ref(), &report, || {
            text::describe(&report, now)
        })?;
        Ok(CommandOutcome::Done)
    })
}

async fn read(client: &Client, name: &str, now: Timestamp) -> anyhow::Result<NodeStatusReport> {
    let progress: Api<MachineConfigNode> = Api::all(client.clone());
    let events: Api<Event> = Api::all(client.clone());
    // What a node waits for depends on the other nodes of its pool.
    let (pools, nodes, policies, progress, about_node, about_pools) = tokio::join!(
        list_readable::<MachineConfigPool>(client, "list the pools"),
        list_readable::<Node>(client, "list the nodes"),
        list_readable::<RolloutPolicy>(client, "list the RolloutPolicies"),
        progress.get_opt(name),
        events_about(&events, "Node", Some(name)),
        events_about(&events, "MachineConfigPool", None),
    );
    let (pools, nodes) = (pools?, nodes?);
    let Some(node) = nodes
        .iter()
        .find(|node| node.metadata.name.as_deref() == Some(name))
    else {
        bail!("there is no node {name}; see all nodes with: mco status --nodes");
    };
    // Optional: not every cluster has them, and a user who may list nodes may lack permission.
    let progress = progress.ok().flatten();
    let events: Vec<Event> = about_node.into_iter().chain(about_pools).collect();
    let policies = policies.unwrap_or_default();
    let view = RolloutView::new(&pools, &nodes).with_policies(&policies, now, None);
    let found = overview(&view, &progress, now).into_iter().find_map(|pool| {
        let mut nodes = pool.nodes.into_iter();
        let node = nodes.find(|node| node.name == name)?;
        Some((pool.name, node))
    });
    let (pool, overview) = match found {
        Some((pool, node)) => (Some(pool), node),
        None => (None, outsider(node)),
    };
    Ok(NodeStatusReport {
        pool,
        node: overview,
        trouble: advice_for(node),
        hooks: NodeView::new(node)
            .annotation(HOOKS)
            .map_or_else(Vec::new, hooks::parse),
        timeline: timeline::timeline(name, progress.as_ref(), &events, now),
    })
}

/// Returns the events of an object, or none without permission, since the rest of the report is useful without them.
async fn events_about(events: &Api<Event>, kind: &str, name: Option<&str>) -> Vec<Event> {
    let mut selector = format!("involvedObject.kind={kind}");
    if let Some(name) = name {
        selector.push_str(",involvedObject.name=");
        selector.push_str(name);
    }
    let found = events.list(&ListParams::default().fields(&selector)).await;
    found.map(|list| list.items).unwrap_or_default()
}

/// Returns the overview of a node that no pool selects.
fn outsider(node: &Node) -> NodeOverview {
    let view = NodeView::new(node);
    NodeOverview {
        name: view.name.to_owned(),
        standing: NodeStanding::Waiting,
        state: view.state.to_owned(),
        current: view.current_config.to_owned(),
        desired: view.desired_config.to_owned(),
        ready: view.is_kubelet_healthy(),
        cordoned: view.is_unschedulable(),
        doing: "belongs to no pool, or to more than one custom pool".to_owned(),
        since: None,
    }
}

fn advice_for(node: &Node) -> Option<NodeTroubleReport> {
    let view = NodeView::new(node);
    view.is_degraded().then(|| NodeTroubleReport {
        complaint: view.reason.to_owned(),
        advice: advice::for_complaint(view.reason),
    })
}
