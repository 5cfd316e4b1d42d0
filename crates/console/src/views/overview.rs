//! The overview page: every pool with its progress and what it waits for.

use askama::Template;
use jiff::Timestamp;
use mco_client::overview::{NodeOverview, NodeStanding, PoolOverview, PoolPhase};
use mco_client::snapshot::Snapshot;
use mco_client::text::{ago, count};

use super::{Frame, Text, Tone, link};

/// Maximum number of nodes per pool on the overview page.
const NAMED: usize = 4;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
pub struct Overview {
    pub frame: Frame,
    pub tone: &'static str,
    /// A summary of the whole cluster.
    pub headline: Text,
    pub pools: Vec<Card>,
}

#[derive(Debug, Clone)]
pub struct Card {
    pub name: Text,
    pub href: String,
    pub state: &'static str,
    pub tone: &'static str,
    pub bar: Bar,
    /// `3 of 12 nodes updated`
    pub progress: String,
    /// `done in about 3m`, `for 2m`
    pub time: String,
    pub problem: Option<Text>,
    pub target: Text,
    pub target_name: Text,
    pub target_href: String,
    pub doing: Vec<NodeActivityLine>,
    pub more: usize,
}

#[derive(Debug, Clone)]
pub struct NodeActivityLine {
    pub name: Text,
    pub href: String,
    pub tone: &'static str,
    pub text: Text,
    pub time: String,
}

/// Parts of a pool, in thousandths of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    pub good: usize,
    pub busy: usize,
    pub bad: usize,
}

impl Bar {
    pub fn of(pool: &PoolOverview) -> Self {
        let part = |standing: NodeStanding| {
            let number = pool.nodes.iter().filter(|node| node.standing == standing).count();
            (number * 1000).checked_div(pool.nodes.len()).unwrap_or(0)
        };
        Self {
            good: part(NodeStanding::Updated),
            busy: part(NodeStanding::Updating),
            bad: part(NodeStanding::Degraded),
        }
    }

    /// Returns where a part begins.
    pub fn busy_at(self) -> usize {
        self.good
    }

    pub fn bad_at(self) -> usize {
        self.good + self.busy
    }
}

pub fn overview(frame: Frame, snapshot: &Snapshot, now: Timestamp) -> Overview {
    let (tone, headline) = headline(&snapshot.pools);
    Overview {
        frame,
        tone: tone.name(),
        headline: headline.into(),
        pools: snapshot.pools.iter().map(|pool| card(pool, now)).collect(),
    }
}

pub fn card(pool: &PoolOverview, now: Timestamp) -> Card {
    let has_news =
        |node: &&NodeOverview| node.standing != NodeStanding::Updated || !node.ready || node.cordoned;
    let rank = |node: &NodeOverview| match node.standing {
        NodeStanding::Degraded => 0,
        NodeStanding::Updating => 1,
        NodeStanding::Updated => 2,
        NodeStanding::Waiting => 3,
    };
    let mut news: Vec<&NodeOverview> = pool.nodes.iter().filter(has_news).collect();
    news.sort_by_key(|node| rank(node));
    Card {
        name: Text::new(&pool.name),
        href: link::pool(&pool.name),
        state: pool.state.as_str(),
        tone: Tone::from(pool.state).name(),
        bar: Bar::of(pool),
        progress: format!("{} of {} updated", pool.updated, count(pool.total, "node")),
        time: time(pool, now),
        problem: problem(pool).map(Text::new),
        target: Text::config(&pool.target),
        target_name: Text::new(&pool.target),
        target_href: link::config(&pool.target),
        more: news.len().saturating_sub(NAMED),
        doing: news
            .into_iter()
            .take(NAMED)
            .map(|node| doing(node, now))
            .collect(),
    }
}

/// Returns the problem of a pool, unless its nodes report it.
fn problem(pool: &PoolOverview) -> Option<&str> {
    let problem = pool.problem.as_deref()?;
    let mut degraded = pool
        .nodes
        .iter()
        .filter(|node| node.standing == NodeStanding::Degraded);
    (!degraded.any(|node| problem.contains(&format!("{} ", node.name)))).then_some(problem)
}

pub fn doing(node: &NodeOverview, now: Timestamp) -> NodeActivityLine {
    NodeActivityLine {
        name: Text::new(&node.name),
        href: link::node(&node.name),
        tone: Tone::from(node.standing).name(),
        text: Text::at_most(&node.doing, 300),
        time: node.since.map_or_else(String::new, |since| ago(now, since)),
    }
}

fn time(pool: &PoolOverview, now: Timestamp) -> String {
    match (pool.state, pool.expected, pool.since) {
        (PoolPhase::Updating, Some(expected), _) => format!("done in about {}", ago(expected, now)),
        (_, _, Some(since)) => format!("for {}", ago(now, since)),
        _ => String::new(),
    }
}

fn headline(pools: &[PoolOverview]) -> (Tone, String) {
    let in_state = |state: PoolPhase| -> Vec<&PoolOverview> {
        pools.iter().filter(|pool| pool.state == state).collect()
    };
    let names = |pools: &[&PoolOverview]| {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        match names.as_slice() {
            [one] => format!("Pool {one}"),
            names => format!("Pools {}", names.join(", ")),
        }
    };
    let are = |pools: &[&PoolOverview]| if pools.len() == 1 { "is" } else { "are" };
    let nodes: usize = pools.iter().map(|pool| pool.total).sum();
    let (degraded, updating, paused, waiting) = (
        in_state(PoolPhase::Degraded),
        in_state(PoolPhase::Updating),
        in_state(PoolPhase::Paused),
        in_state(PoolPhase::Waiting),
    );
    if pools.is_empty() {
        (Tone::Calm, "There are no pools yet".to_owned())
    } else if !degraded.is_empty() {
        (
            Tone::Bad,
            format!("{} {} degraded", names(&degraded), are(&degraded)),
        )
    } else if !updating.is_empty() {
        (
            Tone::Busy,
            format!("{} {} being updated", names(&updating), are(&updating)),
        )
    } else if !paused.is_empty() {
        (Tone::Warn, format!("{} {} paused", names(&paused), are(&paused)))
    } else if !waiting.is_empty() {
        (
            Tone::Calm,
            format!("{} {} waiting for a first config", names(&waiting), are(&waiting)),
        )
    } else {
        (
            Tone::Good,
            format!("All {} are up to date", count(nodes, "machine")),
        )
    }
}
