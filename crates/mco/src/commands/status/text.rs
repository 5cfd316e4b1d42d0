//! Pools and nodes as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_client::overview::{NodeOverview, NodeStanding, PoolOverview, PoolPhase};
use mco_client::text::ago;

use crate::output::escape_control_chars;
use crate::style::Severity;
use crate::table::Table;

const BAR: usize = 20;
/// Maximum number of nodes in the same state that are listed individually.
const SHOWN_ALIKE: usize = 3;

/// The column of the state in every table.
const STATE: usize = 1;

pub fn describe(pools: &[PoolOverview], all_nodes: bool, now: Timestamp) -> String {
    if pools.is_empty() {
        return "There are no pools yet.\n".to_owned();
    }
    let mut table = Table::new(["POOL", "STATE", "UPDATED", "READY", "DEGRADED", "SINCE", "CONFIG"]);
    for pool in pools {
        let row = [
            pool.name.clone(),
            pool.state.as_str().to_owned(),
            format!("{}/{}", pool.updated, pool.total),
            pool.ready.to_string(),
            pool.degraded.to_string(),
            pool.since.map_or_else(String::new, |since| ago(now, since)),
            pool.target.clone(),
        ];
        table.row_with(row, |column| {
            state_severity(column, Severity::of_pool(pool.state))
        });
    }
    let mut text = table.to_string();
    for pool in pools {
        details(pool, all_nodes, now, &mut text);
    }
    text
}

fn state_severity(column: usize, severity: Severity) -> Severity {
    if column == STATE {
        severity
    } else {
        Severity::Plain
    }
}

/// Returns the tables of `-o wide`: every pool with its problem and expected end, and every node.
pub fn wide(pools: &[PoolOverview], now: Timestamp) -> String {
    if pools.is_empty() {
        return "There are no pools yet.\n".to_owned();
    }
    let mut table = Table::new([
        "POOL", "STATE", "UPDATED", "READY", "DEGRADED", "SINCE", "DONE IN", "CONFIG", "MESSAGE",
    ]);
    let mut nodes = Table::new([
        "NODE", "STATE", "POOL", "KUBELET", "SINCE", "CURRENT", "DESIRED", "NOW",
    ]);
    for pool in pools {
        let row = [
            pool.name.clone(),
            pool.state.as_str().to_owned(),
            format!("{}/{}", pool.updated, pool.total),
            pool.ready.to_string(),
            pool.degraded.to_string(),
            pool.since.map_or_else(String::new, |since| ago(now, since)),
            pool.expected
                .map_or_else(String::new, |expected| ago(expected, now)),
            pool.target.clone(),
            one_line(pool.problem.as_deref().unwrap_or_default()),
        ];
        table.row_with(row, |column| {
            state_severity(column, Severity::of_pool(pool.state))
        });
        for node in &pool.nodes {
            let kubelet = if node.ready { "ready" } else { "not ready" };
            let cordon = if node.cordoned { ",cordoned" } else { "" };
            let row = [
                node.name.clone(),
                node.state.clone(),
                pool.name.clone(),
                format!("{kubelet}{cordon}"),
                node.since.map_or_else(String::new, |since| ago(now, since)),
                node.current.clone(),
                node.desired.clone(),
                one_line(&node.doing),
            ];
            nodes.row_with(row, |column| {
                state_severity(column, Severity::of_node(&node.state))
            });
        }
    }
    format!("{table}\n{nodes}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        let _ = writeln!(
            text,
            "  {} {}",
            Severity::Bad.paint("!"),
            escape_control_chars(problem)
        );
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
            let severity = match node.standing {
                NodeStanding::Degraded => Severity::Bad,
                _ => Severity::Plain,
            };
            let _ = writeln!(
                text,
                "  {} {}{}",
                escape_control_chars(&node.name),
                severity.paint(&escape_control_chars(doing)),
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
    let state = match pool.state {
        PoolPhase::Paused => "paused",
        PoolPhase::Degraded => "degraded",
        PoolPhase::Waiting => "no config yet",
        PoolPhase::Updated | PoolPhase::Updating => "",
    };
    if !state.is_empty() {
        let _ = write!(line, ", {}", Severity::of_pool(pool.state).paint(state));
    }
    if let Some(expected) = pool.expected {
        let _ = write!(line, ", done in about {}", ago(expected, now));
    }
    line
}

#[cfg(test)]
mod tests {
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
            build: None,
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
    fn the_wide_tables_have_every_node_and_the_problem_of_its_pool() {
        let mut degraded = pool(vec![node("a", "is drained"), node("b", "waits\nfor its turn")]);
        degraded.state = PoolPhase::Degraded;
        degraded.problem = Some("disk full".to_owned());
        let text = wide(&[degraded], Timestamp::UNIX_EPOCH);
        let plain = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = plain.lines().collect();
        assert!(lines[1].starts_with("worker   Degraded"), "{plain}");
        assert!(lines[1].ends_with("disk full"), "{plain}");
        assert!(lines[5].starts_with("b      Working   worker"), "{plain}");
        assert!(lines[5].ends_with("waits for its turn"), "{plain}");
        assert!(text.contains(&Severity::Bad.paint("Degraded")), "{text}");
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let mut hostile = pool(vec![node("a\u{1b}[2J", "b\u{7}")]);
        hostile.problem = Some("c\u{1b}]0;x\u{7}".to_owned());
        for text in [
            live(&[hostile.clone()], true, Timestamp::UNIX_EPOCH),
            describe(std::slice::from_ref(&hostile), true, Timestamp::UNIX_EPOCH),
            wide(&[hostile], Timestamp::UNIX_EPOCH),
        ] {
            assert!(
                !text.contains("\u{1b}[2J") && !text.contains("\u{1b}]"),
                "{text:?}"
            );
            assert!(!text.contains('\u{7}'), "{text:?}");
        }
    }
}
