//! Pools and nodes as a person reads them.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_core::overview::{NodeOverview, PoolOverview, PoolState};
use mco_core::words::ago;

use crate::output::harmless;
use crate::table::Table;

const BAR: usize = 20;

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

fn details(pool: &PoolOverview, all_nodes: bool, now: Timestamp, text: &mut String) {
    let settled = |node: &&NodeOverview| node.current == pool.target && node.state == "Done" && node.ready;
    let shown: Vec<_> = pool
        .nodes
        .iter()
        .filter(|node| all_nodes || !settled(node))
        .collect();
    if shown.is_empty() && pool.problem.is_none() {
        return;
    }
    let _ = writeln!(text, "\n{}", progress(pool, now));
    if let Some(problem) = &pool.problem {
        let _ = writeln!(text, "  ! {}", harmless(problem));
    }
    for node in shown {
        let since = node
            .since
            .map_or_else(String::new, |since| format!(", for {}", ago(now, since)));
        let _ = writeln!(text, "  {} {}{since}", node.name, harmless(&node.doing));
    }
}

/// One line: how far, and how long it will take.
pub fn progress(pool: &PoolOverview, now: Timestamp) -> String {
    let filled = (pool.updated * BAR).checked_div(pool.total).unwrap_or(BAR);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled.min(BAR)));
    let mut line = format!(
        "{} [{bar}] {} of {} nodes updated",
        pool.name, pool.updated, pool.total
    );
    match pool.state {
        PoolState::Paused => line.push_str(", paused"),
        PoolState::Degraded => line.push_str(", degraded"),
        PoolState::Waiting => line.push_str(", no config yet"),
        PoolState::Updated | PoolState::Updating => {}
    }
    if let Some(expected) = pool.expected {
        let _ = write!(line, ", done in about {}", ago(expected, now));
    }
    line
}
