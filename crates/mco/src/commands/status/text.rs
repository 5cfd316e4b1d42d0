//! Pools and nodes as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_client::overview::{NodeOverview, PoolOverview, PoolPhase};
use mco_client::text::ago;

use crate::output::escape_control_chars;
use crate::table::Table;

const BAR: usize = 20;
/// Maximum number of nodes in the same state that are listed individually.
const SHOWN_ALIKE: usize = 3;

pub fn describe(pools: &[PoolOverview], all_nodes: bool, now: Timestamp) -> String {
    if pools.is_empty() {
        return "There are no pools yet.\n".to_owned();
    }
    let mut table = Table::new(["POOL", "STATE", "UPDATED", "READY", "DEGRADED", "SINCE", "CONFIG"]);
    for pool in pools {
        table.row([
            pool.name.clone(),
            pool.state.as_str().to_owned(),
            format!("{}/{}", pool.updated, pool.total),
            pool.ready.to_string(),
            pool.degraded.to_string(),
            pool.since.map_or_else(String::new, |since| ago(now, since)),
            pool.target.clone(),
        ]);
    }
    let mut text = table.to_string();
    for pool in pools {
        details(pool, all_nodes, now, &mut text);
    }
    text
}

/// Returns the screen of `--watch`: the progress of every pool, then the state of its nodes.
pub fn live(pools: &[PoolOverview], all_nodes: bool, now: Timestamp) -> String {
    if pools.is_empty() {
        return "There are no pools yet.\n".to_owned();
    }
    let mut text = String::new();
    for pool in pools {
        let since = pool.since.map(|since| format!(", for {}", ago(now, since)));
        let _ = writeln!(text, "{}{}", progress(pool, now), since.unwrap_or_default());
        let _ = writeln!(text, "  {}", escape_control_chars(&pool.target));
        nodes(pool, all_nodes, now, &mut text);
    }
    text
}

fn details(pool: &PoolOverview, all_nodes: bool, now: Timestamp, text: &mut String) {
    let quiet = pool.problem.is_none() && !pool.nodes.iter().any(|node| all_nodes || !is_settled(pool, node));
    if quiet {
        return;
    }
    let _ = writeln!(text, "\n{}", progress(pool, now));
    nodes(pool, all_nodes, now, text);
}

fn is_settled(pool: &PoolOverview, node: &NodeOverview) -> bool {
    node.current == pool.target && node.state == "Done" && node.ready
}

fn nodes(pool: &PoolOverview, all_nodes: bool, now: Timestamp, text: &mut String) {
    if let Some(problem) = &pool.problem {
        let _ = writeln!(text, "  ! {}", escape_control_chars(problem));
    }
    let shown = pool
        .nodes
        .iter()
        .filter(|node| all_nodes || !is_settled(pool, node));
    // Nodes that wait for the same thing are grouped in one line.
    let mut groups: Vec<(&str, Vec<&NodeOverview>)> = Vec::new();
    for node in shown {
        let alike = |group: &&mut (&str, Vec<&NodeOverview>)| group.0 == node.doing && !all_nodes;
        match groups.iter_mut().find(alike) {
            Some(group) => group.1.push(node),
            None => groups.push((&node.doing, vec![node])),
        }
    }
    for (doing, alike) in groups {
        if alike.len() > SHOWN_ALIKE {
            let names: Vec<_> = alike
                .iter()
                .take(SHOWN_ALIKE)
                .map(|node| escape_control_chars(&node.name))
                .collect();
            let more = alike.len() - SHOWN_ALIKE;
            let _ = writeln!(
                text,
                "  {} and {more} more: each {}",
                names.join(", "),
                escape_control_chars(doing)
            );
            continue;
        }
        for node in alike {
            let since = node.since.map(|since| format!(", for {}", ago(now, since)));
            let _ = writeln!(
                text,
                "  {} {}{}",
                escape_control_chars(&node.name),
                escape_control_chars(doing),
                since.unwrap_or_default()
            );
        }
    }
}

/// Returns one line with the progress of a pool and its estimated completion time.
pub fn progress(pool: &PoolOverview, now: Timestamp) -> String {
    let filled = (pool.updated * BAR).checked_div(pool.total).unwrap_or(BAR);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled.min(BAR)));
    let mut line = format!(
        "{} [{bar}] {} of {} nodes updated",
        escape_control_chars(&pool.name),
        pool.updated,
        pool.total
    );
    match pool.state {
        PoolPhase::Paused => line.push_str(", paused"),
        PoolPhase::Degraded => line.push_str(", degraded"),
        PoolPhase::Waiting => line.push_str(", no config yet"),
        PoolPhase::Updated | PoolPhase::Updating => {}
    }
    if let Some(expected) = pool.expected {
        let _ = write!(line, ", done in about {}", ago(expected, now));
    }
    line
}

#[cfg(test)]
mod tests {
    use mco_client::overview::{NodeStanding, PoolPhase};

    use super::*;

    fn node(name: &str, doing: &str) -> NodeOverview {
        NodeOverview {
            name: name.to_owned(),
            standing: NodeStanding::Updating,
            state: "Working".to_owned(),
            current: "rendered-worker-1".to_owned(),
            desired: "rendered-worker-2".to_owned(),
            ready: true,
            cordoned: false,
            doing: doing.to_owned(),
            since: None,
        }
    }

    fn pool(nodes: Vec<NodeOverview>) -> PoolOverview {
        PoolOverview {
            name: "worker".to_owned(),
            state: PoolPhase::Updating,
            target: "rendered-worker-2".to_owned(),
            total: 10,
            updated: 5,
            ready: 5,
            degraded: 0,
            problem: None,
            since: Some(Timestamp::UNIX_EPOCH),
            expected: None,
            nodes,
        }
    }

    #[test]
    fn nodes_that_wait_for_the_same_thing_share_a_line() {
        let waits = "waits for its turn";
        let mut nodes = vec![node("a", "is drained")];
        nodes.extend(["b", "c", "d", "e", "f"].map(|name| node(name, waits)));
        let now = "1970-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(
            live(&[pool(nodes.clone())], false, now),
            "worker [##########..........] 5 of 10 nodes updated, for 1m\n  rendered-worker-2\n  a is drained\n  \
             b, c, d and 2 more: each waits for its turn\n"
        );
        assert_eq!(live(&[pool(nodes)], true, now).lines().count(), 8);
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let mut hostile = pool(vec![node("a\u{1b}[2J", "b\u{7}")]);
        hostile.problem = Some("c\u{1b}]0;x\u{7}".to_owned());
        for text in [
            live(&[hostile.clone()], true, Timestamp::UNIX_EPOCH),
            describe(&[hostile], true, Timestamp::UNIX_EPOCH),
        ] {
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        }
    }
}
