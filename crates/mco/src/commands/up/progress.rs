//! What happens while `mco up` starts, for the person who waits. It watches what everybody can see and decides nothing.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use mco_client::overview::{PoolOverview, PoolState};
use mco_client::words::count;
use tokio::time::Instant;

use crate::commands::status::live::Live;
use crate::commands::status::{self, text};
use crate::output::{self, harmless};
use crate::screen::Lines;

/// How often it is asked for pools before there are any: they come within a second or two.
const LOOK: Duration = Duration::from_millis(250);
/// A terminal shows times that go on; a file should not be filled with them.
const REFRESH: Duration = Duration::from_secs(1);
/// Whatever has not moved for so long needs a person, who needs to know how to look at it.
const STALLED: Duration = Duration::from_mins(1);

/// How far the start is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Start {
    api: String,
    /// How many nodes there shall be; machines that joined come on top.
    nodes: usize,
    /// None before the operator has made them.
    pools: Vec<PoolOverview>,
}

/// Whether there is anything left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Started,
}

/// Shows the start until it is over. Failing to look at it is no reason to stop: it is tried again.
pub async fn follow(client: &Client, api: &str, nodes: usize) {
    let mut lines = Lines::new();
    let mut start = Start {
        api: api.to_owned(),
        nodes,
        pools: Vec::new(),
    };
    let mut live: Option<Live> = None;
    let mut moved = Instant::now();
    loop {
        let now = Timestamp::now();
        lines.show(&if lines.is_terminal() {
            on_a_terminal(&start, now)
        } else {
            in_a_file(&start)
        });
        if stage(&start) == Stage::Started {
            return lines.end();
        }
        if moved.elapsed() > STALLED {
            lines.end();
            return output::warning(
                "nothing has moved for a minute; it goes on in the background, see what it waits for with mco status",
            );
        }
        let pools = if let Some(live) = &mut live {
            live.changed(REFRESH).await;
            live.overview(Timestamp::now())
        } else {
            tokio::time::sleep(LOOK).await;
            status::read(client).await.ok()
        };
        let Some(pools) = pools else { continue };
        if live.is_none() && !pools.is_empty() {
            // Watching for kinds that do not exist yet would only wait longer and longer.
            live = Some(Live::new(client));
        }
        if pools != start.pools {
            moved = Instant::now();
        }
        start.pools = pools;
    }
}

/// A rollout that an earlier start has left behind is no part of this one, nor is what waits for a person.
fn stage(start: &Start) -> Stage {
    let rolls_out = |pool: &PoolOverview| {
        let mut nodes = pool.nodes.iter();
        nodes.any(|node| !node.current.is_empty() && node.current != pool.target)
    };
    let is_settled = |pool: &PoolOverview| match pool.state {
        PoolState::Updated | PoolState::Paused | PoolState::Degraded => true,
        PoolState::Updating => rolls_out(pool),
        PoolState::Waiting => false,
    };
    let is_complete = !start.pools.is_empty() && registered(&start.pools) >= start.nodes;
    if is_complete && start.pools.iter().all(is_settled) {
        Stage::Started
    } else {
        Stage::Starting
    }
}

fn registered(pools: &[PoolOverview]) -> usize {
    pools.iter().map(|pool| pool.total).sum()
}

fn on_a_terminal(start: &Start, now: Timestamp) -> Vec<String> {
    let mut lines = components(start);
    if !start.pools.is_empty() {
        lines.extend(text::live(&start.pools, false, now).lines().map(str::to_owned));
    }
    lines
}

fn in_a_file(start: &Start) -> Vec<String> {
    let mut lines = components(start);
    lines.extend(start.pools.iter().map(|pool| {
        let name = format!("pool {}", harmless(&pool.name));
        let far = format!("{} of {} updated", pool.updated, count(pool.total, "node"));
        match pool.state {
            PoolState::Waiting => format!("{name:<14} waits for its first config"),
            PoolState::Updated | PoolState::Updating => format!("{name:<14} {far}"),
            PoolState::Paused => format!("{name:<14} {far}, paused"),
            PoolState::Degraded => format!("{name:<14} {far}, degraded"),
        }
    }));
    lines
}

fn components(start: &Start) -> Vec<String> {
    let is_rendered = |pool: &PoolOverview| pool.state != PoolState::Waiting;
    let operator = if start.pools.is_empty() {
        "installs"
    } else if start.pools.iter().all(is_rendered) {
        "ready"
    } else {
        "renders the first configs"
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
    use mco_client::overview::{NodeOverview, Standing};

    use super::*;

    const TARGET: &str = "rendered-worker-2";

    fn pool(name: &str, state: PoolState, current: &[&str]) -> PoolOverview {
        let node = |(index, current): (usize, &&str)| NodeOverview {
            name: format!("{name}-{index}"),
            standing: Standing::Updating,
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
            updated: if state == PoolState::Updated {
                current.len()
            } else {
                0
            },
            ready: 0,
            degraded: 0,
            problem: None,
            since: None,
            expected: None,
            nodes: current.iter().enumerate().map(node).collect(),
        }
    }

    fn start(nodes: usize, pools: Vec<PoolOverview>) -> Start {
        Start {
            api: "https://127.0.0.1:7443".to_owned(),
            nodes,
            pools,
        }
    }

    #[test]
    fn a_start_is_over_when_nothing_more_happens_by_itself() {
        use PoolState::{Degraded, Paused, Updated, Updating, Waiting};
        let cases = [
            ("no pools yet", 0, vec![], Stage::Starting),
            (
                "no node shall be",
                0,
                vec![pool("worker", Updated, &[])],
                Stage::Started,
            ),
            (
                "a node has not come yet",
                2,
                vec![pool("worker", Updated, &[TARGET])],
                Stage::Starting,
            ),
            (
                "all updated",
                1,
                vec![pool("worker", Updated, &[TARGET])],
                Stage::Started,
            ),
            (
                "another pool has no config",
                1,
                vec![pool("master", Waiting, &[]), pool("worker", Updated, &[TARGET])],
                Stage::Starting,
            ),
            (
                "a node says nothing yet",
                1,
                vec![pool("worker", Updating, &[""])],
                Stage::Starting,
            ),
            (
                "a node is about to be done",
                1,
                vec![pool("worker", Updating, &[TARGET])],
                Stage::Starting,
            ),
            (
                "a rollout goes on that was there before",
                2,
                vec![pool("worker", Updating, &[TARGET, "rendered-worker-1"])],
                Stage::Started,
            ),
            (
                "a person paused it",
                1,
                vec![pool("worker", Paused, &["x"])],
                Stage::Started,
            ),
            (
                "it is degraded",
                1,
                vec![pool("worker", Degraded, &["x"])],
                Stage::Started,
            ),
            (
                "a machine has joined besides",
                1,
                vec![pool("worker", Updated, &[TARGET, TARGET])],
                Stage::Started,
            ),
        ];
        for (name, nodes, pools, expected) in cases {
            assert_eq!(stage(&start(nodes, pools)), expected, "{name}");
        }
    }

    #[test]
    fn each_part_says_how_far_it_is() {
        let mut at = start(2, Vec::new());
        assert_eq!(
            in_a_file(&at),
            [
                "control plane  https://127.0.0.1:7443",
                "operator       installs",
                "nodes          0 of 2 registered",
            ]
        );
        at.pools = vec![
            pool("master", PoolState::Waiting, &[]),
            pool("worker", PoolState::Updating, &["", ""]),
        ];
        assert_eq!(
            in_a_file(&at)[1..],
            [
                "operator       renders the first configs",
                "nodes          2 of 2 registered",
                "pool master    waits for its first config",
                "pool worker    0 of 2 nodes updated",
            ]
        );
        at.pools = vec![
            pool("master", PoolState::Paused, &[TARGET]),
            pool("worker", PoolState::Updated, &[TARGET, TARGET]),
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
        let at = start(1, vec![pool("worker", PoolState::Updating, &[""])]);
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
        let at = start(0, vec![pool("a\u{1b}[2J", PoolState::Updated, &["x"])]);
        for lines in [in_a_file(&at), on_a_terminal(&at, Timestamp::UNIX_EPOCH)] {
            assert!(!lines.concat().contains('\u{1b}'), "{lines:?}");
        }
    }
}
