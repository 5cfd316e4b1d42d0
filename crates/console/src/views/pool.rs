//! A pool's page: its rollout as a timeline per node, paginated.

use std::fmt::Write as _;

use askama::Template;
use jiff::Timestamp;
use mco_client::build_status::BuildOverview;
use mco_client::overview::{NodeOverview, NodeStanding, PoolOverview};
use mco_client::snapshot::Snapshot;
use mco_client::text::{ago, count};
use mco_core::rollout::node_progress::UpdateStage;

use super::builds;
use super::overview::{Card, card};
use super::policy::RolloutPanel;
use super::{Frame, Text, Tone, link, tone};

/// Rows per page, so that a page stays small for a pool of any size.
const ROWS: usize = 50;
/// Pool sizes with a map: below, the rows suffice; above, the map would be too large.
const MAPPED: std::ops::RangeInclusive<usize> = 13..=5000;
/// Cells of the map: side, pitch and number per row.
const CELL: usize = 10;
const PITCH: usize = 12;
const COLUMNS: usize = 50;

#[derive(Debug, Template)]
#[template(path = "pool.html")]
pub struct PoolPage {
    pub frame: Frame,
    pub card: Card,
    /// The rollout under a RolloutPolicy; `None` without one.
    pub rollout: Option<RolloutPanel>,
    pub map: Option<Map>,
    pub filters: Vec<Filter>,
    pub stages: [&'static str; 5],
    pub rows: Vec<NodeRow>,
    pub nothing: bool,
    pub pages: Option<Pages>,
    /// The pause or resume button; `None` without permission.
    pub switch: Option<PauseSwitch>,
    /// The newest build of an OS image for the pool.
    pub build: Option<BuildLine>,
}

/// One line about a build, with a link to the page of builds.
#[derive(Debug, Clone)]
pub struct BuildLine {
    pub href: &'static str,
    pub state: &'static str,
    pub tone: &'static str,
    /// The end of its log while it runs.
    pub latest: Text,
}

#[derive(Debug, Clone)]
pub struct PauseSwitch {
    pub action: String,
    pub label: &'static str,
    pub csrf: String,
}

/// Every node as a small square.
#[derive(Debug, Clone)]
pub struct Map {
    pub width: usize,
    pub height: usize,
    pub label: String,
    /// Tone and path of its squares.
    pub parts: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone)]
pub struct Filter {
    pub label: &'static str,
    pub number: usize,
    pub href: String,
    pub current: bool,
}

#[derive(Debug, Clone)]
pub struct NodeRow {
    /// The element id, by which the script matches rows.
    pub id: String,
    pub name: Text,
    pub href: String,
    pub standing: &'static str,
    pub tone: &'static str,
    pub doing: Text,
    pub time: String,
    /// Style and label of each stage.
    pub stages: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Clone)]
pub struct Pages {
    pub text: String,
    pub previous: Option<String>,
    pub next: Option<String>,
}

/// The filter and page of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeFilter {
    pub standing: Option<NodeStanding>,
    /// From 1.
    pub page: usize,
}

impl NodeFilter {
    pub fn parse(show: &str, page: &str) -> Self {
        let standing = STANDINGS.into_iter().find(|standing| word(*standing) == show);
        Self {
            standing,
            page: page.parse().unwrap_or(1).max(1),
        }
    }
}

const STANDINGS: [NodeStanding; 4] = [
    NodeStanding::Degraded,
    NodeStanding::Updating,
    NodeStanding::Waiting,
    NodeStanding::Updated,
];

fn word(standing: NodeStanding) -> &'static str {
    match standing {
        NodeStanding::Updated => "updated",
        NodeStanding::Updating => "updating",
        NodeStanding::Waiting => "waiting",
        NodeStanding::Degraded => "degraded",
    }
}

/// Returns the page of a pool, or `None` if it does not exist.
pub fn pool(
    frame: Frame,
    snapshot: &Snapshot,
    name: &str,
    choice: NodeFilter,
    now: Timestamp,
) -> Option<PoolPage> {
    let pool = snapshot.pool(name)?;
    let chosen: Vec<&NodeOverview> = in_order(pool)
        .into_iter()
        .filter(|node| choice.standing.is_none_or(|wanted| node.standing == wanted))
        .collect();
    let last = chosen.len().div_ceil(ROWS).max(1);
    let page = choice.page.clamp(1, last);
    let rows: Vec<NodeRow> = chosen
        .iter()
        .skip((page - 1) * ROWS)
        .take(ROWS)
        .map(|node| row(node, snapshot, now))
        .collect();
    let steers = frame.viewer.as_ref().filter(|viewer| viewer.may_steer);
    let csrf = steers.map(|viewer| viewer.csrf.clone());
    Some(PoolPage {
        card: card(pool, now),
        rollout: snapshot
            .rollout(name)
            .map(|(policy, rollout)| RolloutPanel::on_pool_page(policy, rollout)),
        map: MAPPED.contains(&pool.nodes.len()).then(|| map(pool)),
        filters: filters(pool, choice),
        stages: UpdateStage::ALL.map(UpdateStage::as_str),
        nothing: rows.is_empty(),
        rows,
        pages: (last > 1).then(|| pages(name, choice, page, last, chosen.len())),
        build: pool.build.as_ref().map(build_line),
        switch: csrf.map(|csrf| switch(name, snapshot.paused.iter().any(|paused| paused == name), csrf)),
        frame,
    })
}

/// Returns the nodes in rollout order, which is stable. If they do not fit on one page, degraded ones come first, then
/// those in progress.
fn in_order(pool: &PoolOverview) -> Vec<&NodeOverview> {
    let rank = |node: &&NodeOverview| STANDINGS.iter().position(|standing| *standing == node.standing);
    let mut nodes: Vec<&NodeOverview> = pool.nodes.iter().collect();
    if nodes.len() > ROWS {
        nodes.sort_by_key(rank);
    }
    nodes
}

fn build_line(build: &BuildOverview) -> BuildLine {
    let latest = build.log.last().filter(|_| build.is_running);
    BuildLine {
        href: link::BUILDS,
        state: build.state,
        tone: builds::tone(build).name(),
        latest: Text::new(latest.map_or("", String::as_str)),
    }
}

fn switch(pool: &str, paused: bool, csrf: String) -> PauseSwitch {
    let (verb, label) = if paused {
        ("resume", "Resume updates")
    } else {
        ("pause", "Pause updates")
    };
    PauseSwitch {
        action: format!("{}/{verb}", link::pool(pool)),
        label,
        csrf,
    }
}

fn filters(pool: &PoolOverview, choice: NodeFilter) -> Vec<Filter> {
    let base = link::pool(&pool.name);
    let all = Filter {
        label: "All",
        number: pool.nodes.len(),
        href: base.clone(),
        current: choice.standing.is_none(),
    };
    let others = STANDINGS.into_iter().map(|standing| Filter {
        label: tone::standing(standing),
        number: pool.nodes.iter().filter(|node| node.standing == standing).count(),
        href: format!("{base}?show={}", word(standing)),
        current: choice.standing == Some(standing),
    });
    std::iter::once(all).chain(others).collect()
}

fn pages(name: &str, choice: NodeFilter, page: usize, last: usize, total: usize) -> Pages {
    let href = |page: usize| {
        let show = choice
            .standing
            .map_or_else(String::new, |standing| format!("show={}&", word(standing)));
        format!("{}?{show}page={page}", link::pool(name))
    };
    let first = (page - 1) * ROWS + 1;
    Pages {
        text: format!("{first}–{} of {total}", (page * ROWS).min(total)),
        previous: (page > 1).then(|| href(page - 1)),
        next: (page < last).then(|| href(page + 1)),
    }
}

fn row(node: &NodeOverview, snapshot: &Snapshot, now: Timestamp) -> NodeRow {
    let timeline = snapshot.nodes.get(&node.name).map(|details| &details.timeline);
    // A waiting node shows the upcoming stages, not those of its last update.
    let own = timeline.filter(|_| node.standing != NodeStanding::Waiting);
    let stages = own.into_iter().flatten().map(|report| tone::stage(report.state));
    let mut stages: Vec<_> = stages.collect();
    if stages.is_empty() {
        stages = vec![("pending", "to come"); UpdateStage::ALL.len()];
        if node.standing == NodeStanding::Updated {
            stages = vec![("skipped", "not needed"); UpdateStage::ALL.len() - 1];
            stages.push(("done", "done"));
        }
    }
    NodeRow {
        id: format!("n-{}", link::encoded(&node.name)),
        name: Text::new(&node.name),
        href: link::node(&node.name),
        standing: tone::standing(node.standing),
        tone: Tone::from(node.standing).name(),
        doing: Text::at_most(&node.doing, 300),
        time: node.since.map_or_else(String::new, |since| ago(now, since)),
        stages,
    }
}

fn map(pool: &PoolOverview) -> Map {
    let nodes = &pool.nodes;
    let mut parts: Vec<(&'static str, String)> = Vec::new();
    let mut counts: Vec<String> = Vec::new();
    for standing in STANDINGS {
        let mut path = String::new();
        let mut number = 0;
        for (index, _) in nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.standing == standing)
        {
            let (x, y) = (index % COLUMNS * PITCH, index / COLUMNS * PITCH);
            let _ = write!(path, "M{x} {y}h{CELL}v{CELL}h-{CELL}z");
            number += 1;
        }
        if number > 0 {
            parts.push((Tone::from(standing).name(), path));
            counts.push(format!("{number} {}", word(standing)));
        }
    }
    Map {
        width: nodes.len().min(COLUMNS) * PITCH,
        height: nodes.len().div_ceil(COLUMNS) * PITCH,
        label: format!("{}: {}", count(nodes.len(), "node"), counts.join(", ")),
        parts,
    }
}
