//! The search page: which MachineConfig sets a path, unit or name, in any pool or on one node.

use askama::Template;
use mco_client::explain::{ConfigPart, Explanation};
use mco_client::snapshot::Snapshot;
use mco_client::text::count;

use super::{Frame, Text, link};

/// Maximum number of hits per pool.
const HITS: usize = 30;
/// Maximum number of nodes, pools and MachineConfigs whose names match.
const DIRECT: usize = 12;

#[derive(Debug, Template)]
#[template(path = "search.html")]
pub struct Search {
    pub frame: Frame,
    pub query: Text,
    pub node: Text,
    pub asked: bool,
    pub direct: Vec<(&'static str, Text, String)>,
    pub pools: Vec<PoolHits>,
    pub problem: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct PoolHits {
    pub pool: Text,
    pub href: String,
    pub note: Text,
    pub hits: Vec<Hit>,
    pub more: usize,
}

#[derive(Debug, Clone)]
pub struct Hit {
    pub section: &'static str,
    pub name: Text,
    pub from: Vec<PartView>,
    pub overridden: Vec<PartView>,
    pub removed_by: Option<Text>,
}

#[derive(Debug, Clone)]
pub struct PartView {
    pub config: Text,
    pub href: String,
    pub fields: Text,
    pub made_from: Option<Text>,
}

/// The provenance of one pool's config.
#[derive(Debug, Clone)]
pub struct Explained {
    pub pool: String,
    pub rendered: String,
    pub parts: Vec<Explanation>,
}

/// The search query.
#[derive(Debug, Clone, Copy)]
pub struct SearchQuery<'a> {
    pub query: &'a str,
    /// Only this node; empty for all.
    pub node: &'a str,
}

pub fn search(
    frame: Frame,
    question: SearchQuery<'_>,
    explained: &[Explained],
    snapshot: &Snapshot,
    config_names: &[String],
) -> Search {
    let query = question.query.trim();
    let node = question.node.trim();
    let pool_of_node = snapshot
        .nodes
        .get(node)
        .and_then(|details| details.pool.as_deref());
    let problem = match (node, pool_of_node) {
        ("", _) | (_, Some(_)) => None,
        (node, None) => Some(format!("There is no node {node} in any pool.").into()),
    };
    let relevant = explained
        .iter()
        .filter(|one| node.is_empty() || pool_of_node == Some(one.pool.as_str()));
    let pools = relevant
        .filter(|_| !query.is_empty())
        .map(|one| pool_hits(one, query, node, snapshot))
        .filter(|hits| !hits.hits.is_empty());
    Search {
        asked: !query.is_empty(),
        direct: if query.is_empty() {
            Vec::new()
        } else {
            direct(query, snapshot, config_names)
        },
        pools: pools.collect(),
        query: Text::at_most(query, 512),
        node: Text::at_most(node, 253),
        problem,
        frame,
    }
}

fn direct(query: &str, snapshot: &Snapshot, configs: &[String]) -> Vec<(&'static str, Text, String)> {
    let found = |name: &&str| name.contains(query);
    let pools = snapshot.pools.iter().map(|pool| pool.name.as_str()).filter(found);
    let nodes = snapshot.nodes.keys().map(String::as_str).filter(found);
    let configs = configs.iter().map(String::as_str).filter(found);
    pools
        .map(|name| ("pool", Text::new(name), link::pool(name)))
        .chain(nodes.map(|name| ("node", Text::new(name), link::node(name))))
        .chain(configs.map(|name| ("MachineConfig", Text::new(name), link::config(name))))
        .take(DIRECT)
        .collect()
}

fn pool_hits(explained: &Explained, query: &str, node: &str, snapshot: &Snapshot) -> PoolHits {
    let mut hits: Vec<&Explanation> = explained
        .parts
        .iter()
        .filter(|one| one.name.contains(query) || one.section == query)
        .collect();
    hits.sort_by_key(|one| (one.name != query, one.name.len()));
    PoolHits {
        pool: Text::new(&explained.pool),
        href: link::pool(&explained.pool),
        note: note(explained, node, snapshot).into(),
        more: hits.len().saturating_sub(HITS),
        hits: hits.into_iter().take(HITS).map(hit).collect(),
    }
}

/// Returns which nodes already have this config.
fn note(explained: &Explained, node: &str, snapshot: &Snapshot) -> String {
    let Some(pool) = snapshot.pool(&explained.pool) else {
        return String::new();
    };
    if let Some(node) = pool.nodes.iter().find(|one| one.name == node) {
        return if node.current == explained.rendered {
            format!("{} has this config.", node.name)
        } else {
            format!(
                "{} still has {}; this is its next config.",
                node.name, node.current
            )
        };
    }
    let have = pool
        .nodes
        .iter()
        .filter(|one| one.current == explained.rendered)
        .count();
    format!("On {have} of {}.", count(pool.nodes.len(), "node"))
}

fn hit(one: &Explanation) -> Hit {
    let parts = |parts: &[ConfigPart]| parts.iter().map(part).collect();
    Hit {
        section: one.section,
        name: Text::new(&one.name),
        from: parts(&one.from),
        overridden: parts(&one.overridden),
        removed_by: one.removed_by.as_deref().map(Text::new),
    }
}

fn part(part: &ConfigPart) -> PartView {
    PartView {
        config: Text::new(&part.machine_config),
        href: link::config(&part.machine_config),
        fields: part.fields.join(", ").into(),
        made_from: part.made_from.as_deref().map(Text::new),
    }
}
