//! `mco status`

pub mod builds;
pub mod live;
pub mod text;
pub mod wait;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy};
use mco_client::build_status;
use mco_client::overview::{PoolOverview, overview};
use mco_core::rollout::RolloutView;

use self::live::LiveStatus;
use crate::cli::StatusArguments;
use crate::connection::list_readable;
use crate::output::{self, Columns, CommandOutcome};
use crate::runtime;
use crate::screen::Screen;

/// Refresh interval, for durations such as "for 3 seconds".
const REFRESH: Duration = Duration::from_secs(1);

/// The resource of a pool, as `kubectl get -o name` prints it.
const POOL_RESOURCE: &str = "machineconfigpool.machineconfiguration.openshift.io";

pub fn run(arguments: StatusArguments) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(async move {
        let client = arguments.query.connection.client().await?;
        if arguments.watch {
            return watch(&client, &arguments).await;
        }
        let mut pools = selected(read(&client).await?, &arguments.pools)?;
        let builds = pools.iter_mut().filter_map(|pool| pool.build.as_mut());
        mco_client::cluster::read_build_logs(&client, builds).await;
        let names = || {
            pools
                .iter()
                .map(|pool| format!("{POOL_RESOURCE}/{}", pool.name))
                .collect()
        };
        output::show_list(arguments.query.output.format.as_ref(), &pools, names, |columns| {
            let now = Timestamp::now();
            let text = match columns {
                Columns::Ordinary => text::describe(&pools, arguments.nodes, now),
                Columns::Wide => text::wide(&pools, now),
            };
            text + &builds::describe(&pools)
        })?;
        Ok(CommandOutcome::Done)
    })
}

async fn watch(client: &Client, arguments: &StatusArguments) -> anyhow::Result<CommandOutcome> {
    let mut live = LiveStatus::new(client);
    let mut screen = Screen::new();
    let mut pools = read(client).await?;
    loop {
        let now = Timestamp::now();
        let shown = selected(pools, &arguments.pools)?;
        let mut text = text::live(&shown, arguments.nodes, now) + &builds::describe(&shown);
        if let Some(why) = &live.lost {
            text = format!(
                "The cluster does not respond ({}); last known state:\n\n{text}",
                output::escape_control_chars(why)
            );
        }
        for object in live.unreadable() {
            text = format!(
                "{text}\n{}; it is left out\n",
                output::escape_control_chars(&object.to_string())
            );
        }
        screen.show(text)?;
        pools = next(&mut live).await;
    }
}

/// Returns the state after the next change, or after the refresh interval.
async fn next(live: &mut LiveStatus) -> Vec<PoolOverview> {
    loop {
        live.changed(REFRESH).await;
        if let Some(pools) = live.overview(Timestamp::now()) {
            return pools;
        }
    }
}

/// Returns the current state of every pool.
pub async fn read(client: &Client) -> anyhow::Result<Vec<PoolOverview>> {
    let (pools, nodes, progress, policies) = tokio::join!(
        list_readable::<MachineConfigPool>(client, "list the pools"),
        list_readable::<Node>(client, "list the nodes"),
        list_readable::<MachineConfigNode>(client, "list the MachineConfigNodes"),
        list_readable::<RolloutPolicy>(client, "list the RolloutPolicies"),
    );
    let (configs, builds) = tokio::join!(
        list_readable::<MachineOSConfig>(client, "list the MachineOSConfigs"),
        list_readable::<MachineOSBuild>(client, "list the MachineOSBuilds"),
    );
    let (pools, nodes) = (pools?, nodes?);
    // Optional: not every cluster has them, and a user who may list nodes may lack permission.
    let progress = progress.unwrap_or_default();
    let policies = policies.unwrap_or_default();
    let (configs, builds) = (configs.unwrap_or_default(), builds.unwrap_or_default());
    let now = Timestamp::now();
    let view = RolloutView::new(&pools, &nodes)
        .with_images(&configs, &builds)
        .with_policies(&policies, now, None);
    let mut pools = overview(&view, &progress, now);
    build_status::attach(&mut pools, &build_status::overviews(&builds, now));
    Ok(pools)
}

fn selected(pools: Vec<PoolOverview>, wanted: &[String]) -> anyhow::Result<Vec<PoolOverview>> {
    let known: BTreeSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name.as_str())) {
        let known: Vec<_> = known.into_iter().collect();
        bail!("there is no pool {unknown}; there are: {}", known.join(", "));
    }
    let chosen = |pool: &PoolOverview| wanted.is_empty() || wanted.contains(&pool.name);
    Ok(pools.into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_node_that_cannot_be_read_does_not_hide_the_others() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let node = |name: &str| {
                let labels = json!({"node-role.kubernetes.io/worker": ""});
                json!({"metadata": {"name": name, "labels": labels}})
            };
            let mut bad = node("bad");
            bad["status"] = json!({"addresses": [null]});
            let selector = json!({"matchLabels": {"node-role.kubernetes.io/worker": ""}});
            let items = match request.uri().path().rsplit('/').next() {
                Some("nodes") => json!([node("good-0"), bad, node("good-1")]),
                Some("machineconfigpools") => {
                    json!([{"metadata": {"name": "worker"}, "spec": {"nodeSelector": selector}}])
                }
                _ => json!([]),
            };
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        });
        let pools = read(&Client::new(service, "default")).await.unwrap();
        let names: Vec<_> = pools[0].nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(
            (pools[0].name.as_str(), names),
            ("worker", vec!["good-0", "good-1"])
        );
    }
}
