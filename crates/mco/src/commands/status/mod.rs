//! `mco status` and `mco wait`

mod text;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_core::overview::{PoolOverview, PoolState, overview};
use mco_core::rollout::View;

use crate::cli::{Status, Wait};
use crate::connection::explained;
use crate::output::{self, Outcome};
use crate::runtime;

/// Changes come in groups; a person cannot read faster anyway.
const SETTLE: Duration = Duration::from_millis(250);
/// Times such as "for 3 minutes" go on without any change.
const REFRESH: Duration = Duration::from_secs(10);
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub fn run(arguments: Status) -> anyhow::Result<Outcome> {
    runtime::ask(async move {
        let client = arguments.connection.client().await?;
        if arguments.watch {
            return watch(&client, &arguments).await;
        }
        let pools = selected(read(&client).await?, &arguments.pools)?;
        match arguments.output {
            Some(format) => output::print_as(format, &pools)?,
            None => output::print(&text::describe(&pools, arguments.nodes, Timestamp::now()))?,
        }
        Ok(Outcome::Done)
    })
}

pub fn wait(arguments: &Wait) -> anyhow::Result<Outcome> {
    let timeout: SignedDuration = arguments.timeout.parse().with_context(|| {
        format!(
            "--timeout: {:?} is not a time such as 90s, 30m or 2h",
            arguments.timeout
        )
    })?;
    let timeout = Duration::try_from(timeout).context("--timeout: must not be negative")?;
    runtime::ask(async move {
        let client = arguments.connection.client().await?;
        let waiting = until_updated(&client, &arguments.pool);
        match tokio::time::timeout(timeout, waiting).await {
            Ok(outcome) => outcome,
            Err(_) => bail!(
                "pool {} is not updated after {}; see what it waits for with: mco status {0}",
                arguments.pool,
                arguments.timeout
            ),
        }
    })
}

async fn until_updated(client: &Client, name: &str) -> anyhow::Result<Outcome> {
    let mut changes = std::pin::pin!(changes(client));
    let mut said = String::new();
    loop {
        let pools = selected(read(client).await?, &[name.to_owned()])?;
        let Some(pool) = pools.first() else {
            bail!("there is no pool {name}");
        };
        let line = text::progress(pool, Timestamp::now());
        if line != said {
            output::print(&format!("{line}\n"))?;
            said = line;
        }
        match pool.state {
            PoolState::Updated if super::plan::is_rendered(client, pool).await? => return Ok(Outcome::Done),
            PoolState::Degraded => return Ok(Outcome::Refused),
            PoolState::Updated | PoolState::Updating | PoolState::Paused | PoolState::Waiting => {}
        }
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(REFRESH) => {}
        }
    }
}

async fn watch(client: &Client, arguments: &Status) -> anyhow::Result<Outcome> {
    let mut changes = std::pin::pin!(changes(client));
    let clear = if std::io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    loop {
        let pools = selected(read(client).await?, &arguments.pools)?;
        let text = text::describe(&pools, arguments.nodes, Timestamp::now());
        output::print(&format!("{clear}{text}"))?;
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(REFRESH) => {}
        }
    }
}

/// Ticks when a pool, node or progress report changes, at most a few times a second.
fn changes(client: &Client) -> impl futures::Stream<Item = ()> {
    let pools = touched(Api::<MachineConfigPool>::all(client.clone()));
    let nodes = touched(Api::<Node>::all(client.clone()));
    let progress = touched(Api::<MachineConfigNode>::all(client.clone()));
    let any = stream::select(pools, stream::select(nodes, progress));
    any.ready_chunks(1024)
        .then(async |_| tokio::time::sleep(SETTLE).await)
}

fn touched<K>(api: Api<K>) -> impl futures::Stream<Item = ()> + Send
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .map(|_| ())
}

async fn read(client: &Client) -> anyhow::Result<Vec<PoolOverview>> {
    let everything = ListParams::default();
    let (pools, nodes, progress) = (
        Api::<MachineConfigPool>::all(client.clone()),
        Api::<Node>::all(client.clone()),
        Api::<MachineConfigNode>::all(client.clone()),
    );
    let (pools, nodes, progress) = tokio::join!(
        pools.list(&everything),
        nodes.list(&everything),
        progress.list(&everything)
    );
    let pools = explained(pools, "list the pools")?;
    let nodes = explained(nodes, "list the nodes")?;
    // Not every cluster has them, and who may see nodes may not see these.
    let progress = progress.map(|list| list.items).unwrap_or_default();
    Ok(overview(&View::new(&pools, &nodes), &progress, Timestamp::now()))
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
