//! The startup progress of `mco up`. It only reads what any client can read.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use mco_client::overview::{PoolOverview, PoolPhase};
use mco_client::text::count;
use tokio::time::Instant;

use crate::commands::status::live::LiveStatus;
use crate::commands::status::{self, text};
use crate::output::{self, escape_control_chars};
use crate::screen::Lines;

/// The interval at which pools are listed before there are any, which takes a second or two.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The refresh interval of a terminal. A log file gets only changes.
const REFRESH: Duration = Duration::from_secs(1);
/// Without progress for this time, a hint is shown.
const STALLED: Duration = Duration::from_mins(1);

/// The state of the start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StartupState {
    api: String,
    /// The expected number of nodes; joined machines come in addition.
    nodes: usize,
    /// None before the operator has created them.
    pools: Vec<PoolOverview>,
}

/// Whether there is anything left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartupStage {
    Starting,
    Started,
}

/// Shows the start until it is complete. Errors are retried.
pub async fn follow(client: &Client, api: &str, nodes: usize) {
    let mut lines = Lines::new();
    let mut start = StartupState {
        api: api.to_owned(),
        nodes,
        pools: Vec::new(),
    };
    let mut live: Option<LiveStatus> = None;
    let mut moved = Instant::now();
    loop {
        let now = Timestamp::now();
        lines.show(&if lines.is_terminal() {
            on_a_terminal(&start, now)
        } else {
            in_a_file(&start)
        });
        if stage(&start) == StartupStage::Started {
            return lines.end();
        }
        if moved.elapsed() > STALLED {
            lines.end();
            return output::warning(
                "no progress for a minute; it continues in the background, run mco status to see what it waits for",
            );
        }
        let pools = if let Some(live) = &mut live {
            live.changed(REFRESH).await;
            live.overview(Timestamp::now())
        } else {
            tokio::time::sleep(POLL_INTERVAL).await;
            status::read(client).await.ok()
        };
        let Some(pools) = pools else { continue };
        if live.is_none() && !pools.is_empty() {
            // A watch on kinds that do not exist yet would back off too long.
            live = Some(LiveStatus::new(client));
        }
        if pools != start.pools {
            moved = Instant::now();
        }
        start.pools = pools;
    }
}

/// A rollout from an earlier start is not waited for, nor is a paused or degraded pool.
fn stage(start: &StartupState) -> StartupStage {
    let rolls_out = |pool: &PoolOverview| {
        let mut nodes = pool.nodes.iter();
        nodes.any(|node| !node.current.is_empty() && node.current != pool.target)
    };
    let is_settled = |pool: &PoolOverview| match pool.state {
        PoolPhase::Updated | PoolPhase::Paused | PoolPhase::Degraded => true,
        PoolPhase::Updating => rolls_out(pool),
        PoolPhase::Waiting => false,
    };
    let is_complete = !start.pools.is_empty() && registered(&start.pools) >= start.nodes;
    if is_complete && start.pools.iter().all(is_settled) {
        StartupStage::Started
    } else {
        StartupStage::Starting
    }
}

fn registered(pools: &[PoolOverview]) -> usize {
    pools.iter().map(|pool| pool.total).sum()
}

fn on_a_terminal(start: &StartupState, now: Timestamp) -> Vec<String> {
    let mut lines = components(start);
    if !start.pools.is_empty() {
        lines.extend(text::live(&start.pools, false, now).lines().map(str::to_owned));
    }
    lines
}

fn in_a_file(start: &StartupState) -> Vec<String> {
    let mut lines = components(start);
    lines.extend(start.pools.iter().map(|pool| {
        let name = format!("pool {}", escape_control_chars(&pool.name));
        let far = format!("{} of {} updated", pool.updated, count(pool.total, "node"));
        match pool.state {
            PoolPhase::Waiting => format!("{name:<14} waiting for its first config"),
            PoolPhase::Updated | PoolPhase::Updating => format!("{name:<14} {far}"),
            PoolPhase::Paused => format!("{name:<14} {far}, paused"),
            PoolPhase::Degraded => format!("{name:<14} {far}, degraded"),
        }
    }));
    lines
}

fn components(start: &StartupState) -> Vec<String> {
    let is_rendered = |pool: &PoolOverview| pool.state != PoolPhase::Waiting;
    let operator = if start.pools.is_empty() {
        "installing"
    } else if start.pools.iter().all(is_rendered) {
        "ready"
    } else {
        "rendering the first configs"
    };
    let registered = registered(&start.pools);
    vec![
        format!("control plane  {}", start.api),
        format!("operator       {operator}"),
        format!(
            "nodes          {registered} of {} registered",
            start.nodes.max(registered)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use mco_client::overview::{NodeOverview, NodeStanding};

    use super::*;

    const TARGET: &str = "rendered-worker-2";

    fn pool(name: &str, state: PoolPhase, current: &[&str]) -> PoolOverview {
        let node = |(index, current): (usize, &&str)| NodeOverview {
            name: format!("{name}-{index}"),
            standing: NodeStanding::Updating,
            state: "Working".to_owned(),
            current: (*current).to_owned(),
            desired: TARGET.to_owned(),
            ready: true,
            cordoned: false,
            doing: "starts".to_owned(),
            since: None,
        };
        PoolOverview {
            name: name.to_owned(),
            state,
            target: TARGET.to_owned(),
            total: current.len(),
            updated: if state == PoolPhase::Updated {
                current.len()
            } else {
                0
            },
            ready: 0,
            degraded: 0,
            problem: None,
            since: None,
            expected: None,
            build: None,
            nodes: current.iter().enumerate().map(node).collect(),
        }
    }

    fn start(nodes: usize, pools: Vec<PoolOverview>) -> StartupState {
        StartupState {
            api: "https://127.0.0.1:7443".to_owned(),
            nodes,
            pools,
        }
    }

    #[test]
    fn a_start_is_over_when_nothing_more_happens_by_itself() {
        use PoolPhase::{Degraded, Paused, Updated, Updating, Waiting};
        let cases = [
            ("no pools yet", 0, vec![], StartupStage::Starting),
            (
                "no node is expected",
                0,
                vec![pool("worker", Updated, &[])],
                StartupStage::Started,
            ),
            (
                "a node has not registered yet",
                2,
                vec![pool("worker", Updated, &[TARGET])],
                StartupStage::Starting,
            ),
            (
                "all updated",
                1,
                vec![pool("worker", Updated, &[TARGET])],
                StartupStage::Started,
            ),
            (
                "another pool has no config",
                1,
                vec![pool("master", Waiting, &[]), pool("worker", Updated, &[TARGET])],
                StartupStage::Starting,
            ),
            (
                "a node has no config yet",
                1,
                vec![pool("worker", Updating, &[""])],
                StartupStage::Starting,
            ),
            (
                "a node is about to be done",
                1,
                vec![pool("worker", Updating, &[TARGET])],
                StartupStage::Starting,
            ),
            (
                "a rollout of an earlier start continues",
                2,
                vec![pool("worker", Updating, &[TARGET, "rendered-worker-1"])],
                StartupStage::Started,
            ),
            (
                "it is paused",
                1,
                vec![pool("worker", Paused, &["x"])],
                StartupStage::Started,
            ),
            (
                "it is degraded",
                1,
                vec![pool("worker", Degraded, &["x"])],
                StartupStage::Started,
            ),
            (
                "a machine has joined in addition",
                1,
                vec![pool("worker", Updated, &[TARGET, TARGET])],
                StartupStage::Started,
            ),
        ];
        for (name, nodes, pools, expected) in cases {
            assert_eq!(stage(&start(nodes, pools)), expected, "{name}");
        }
    }

    #[test]
    fn each_component_shows_its_progress() {
        let mut at = start(2, Vec::new());
        assert_eq!(
            in_a_file(&at),
            [
                "control plane  https://127.0.0.1:7443",
                "operator       installing",
                "nodes          0 of 2 registered",
            ]
        );
        at.pools = vec![
            pool("master", PoolPhase::Waiting, &[]),
            pool("worker", PoolPhase::Updating, &["", ""]),
        ];
        assert_eq!(
            in_a_file(&at)[1..],
            [
                "operator       rendering the first configs",
                "nodes          2 of 2 registered",
                "pool master    waiting for its first config",
                "pool worker    0 of 2 nodes updated",
            ]
        );
        at.pools = vec![
            pool("master", PoolPhase::Paused, &[TARGET]),
            pool("worker", PoolPhase::Updated, &[TARGET, TARGET]),
        ];
        assert_eq!(
            in_a_file(&at)[1..],
            [
                "operator       ready",
                "nodes          3 of 3 registered",
                "pool master    0 of 1 node updated, paused",
                "pool worker    2 of 2 nodes updated",
            ]
        );
    }

    #[test]
    fn a_terminal_shows_bars_and_what_nodes_do() {
        let at = start(1, vec![pool("worker", PoolPhase::Updating, &[""])]);
        assert_eq!(
            on_a_terminal(&at, Timestamp::UNIX_EPOCH)[2..],
            [
                "nodes          1 of 1 registered",
                "worker [....................] 0 of 1 nodes updated",
                "  rendered-worker-2",
                "  worker-0 starts",
            ]
        );
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let at = start(0, vec![pool("a\u{1b}[2J", PoolPhase::Updated, &["x"])]);
        for lines in [in_a_file(&at), on_a_terminal(&at, Timestamp::UNIX_EPOCH)] {
            assert!(!lines.concat().contains('\u{1b}'), "{lines:?}");
        }
    }
}
