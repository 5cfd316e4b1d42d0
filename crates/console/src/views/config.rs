//! A MachineConfig's page: where it applies, what it sets, and what overrides it.

use askama::Template;
use jiff::Timestamp;
use mco_client::comparison;
use mco_client::explain::{Explanation, Part};
use mco_client::words::{ago, count};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rules::Rules;

use super::changes::{self, Changes, Fate};
use super::node::Contents;
use super::{Frame, Show, Text, link};

#[derive(Debug, Template)]
#[template(path = "config.html")]
pub struct ConfigPage {
    pub frame: Frame,
    pub name: Text,
    pub origin: &'static str,
    pub age: String,
    /// Pools that contain it: pool, address, and its place in the merge.
    pub pools: Vec<(Text, String, Text)>,
    /// For a rendered config: who has it, and who shall.
    pub users: Option<Text>,
    /// When there is nothing to tell about single lines.
    pub summary: Option<&'static str>,
    pub changes: Changes,
    pub contents: Contents,
}

/// What is known about the one that the page is about.
#[derive(Debug)]
pub struct Subject<'a> {
    pub entry: &'a ParsedConfig,
    pub kind: Kind<'a>,
    pub created: Option<Timestamp>,
}

#[derive(Debug)]
pub enum Kind<'a> {
    Written(&'a [InPool]),
    Generated(&'a [InPool]),
    /// How many nodes have it and how many are sent to it.
    Rendered {
        pool: Option<&'a str>,
        has: usize,
        sent: usize,
    },
}

/// A pool that a MachineConfig is part of.
#[derive(Debug, Clone)]
pub struct InPool {
    pub pool: String,
    /// From 1, and of how many.
    pub place: (usize, usize),
    pub parts: Vec<Explanation>,
}

pub fn config(frame: Frame, subject: &Subject<'_>, show: Show, now: Timestamp) -> ConfigPage {
    let name = subject.entry.name();
    let nothing = ParsedConfig::default();
    let whole = comparison::compare(&nothing, subject.entry, &Rules::default());
    let mut changes = changes::changes(&whole, &nothing, subject.entry, show);
    changes.obstacles.clear();
    let (origin, in_pools, users) = match &subject.kind {
        Kind::Written(pools) => ("Written by people", *pools, None),
        Kind::Generated(pools) => ("Made by a controller", *pools, None),
        Kind::Rendered { pool, has, sent } => {
            let whose = pool.map_or_else(String::new, |pool| format!(" Rendered for pool {pool}."));
            let users = format!(
                "{} {} it, {} on the way to it.{whose}",
                count(*has, "node"),
                if *has == 1 { "has" } else { "have" },
                count(*sent, "node")
            );
            ("Rendered by the controller", &[][..], Some(users.into()))
        }
    };
    for line in &mut changes.lines {
        let (what, shown) = (line.what, line.name.as_str());
        line.fates = in_pools
            .iter()
            .filter_map(|pool| fate(pool, name, what, shown))
            .collect();
    }
    let contested = changes.lines.iter().any(|line| !line.fates.is_empty());
    let summary = match (in_pools, contested) {
        ([], _) => None,
        (_, true) => Some("In effect, but for what is said below."),
        (_, false) => Some("All of it is in effect; nothing overrides it."),
    };
    ConfigPage {
        name: Text::new(name),
        origin,
        age: subject
            .created
            .map_or_else(String::new, |created| format!("{} old", ago(now, created))),
        pools: in_pools.iter().map(place).collect(),
        users,
        summary,
        changes,
        contents: Contents::of(&link::config(name), show),
        frame,
    }
}

fn place(pool: &InPool) -> (Text, String, Text) {
    let (place, of) = pool.place;
    (
        Text::new(&pool.pool),
        link::pool(&pool.pool),
        format!("{place} of {of} in merge order; later ones win").into(),
    )
}

/// What became of one thing that a MachineConfig sets, in one pool; nothing to tell if it is simply in effect.
fn fate(pool: &InPool, config: &str, what: &str, name: &str) -> Option<Fate> {
    let about = |one: &&Explanation| {
        (one.section == what && Text::new(&one.name).as_str() == name)
            || (what.is_empty() && one.section == name)
    };
    let mentions = |parts: &[Part]| parts.iter().any(|part| part.machine_config == config);
    let mut relevant = pool
        .parts
        .iter()
        .filter(about)
        .filter(|one| mentions(&one.from) || mentions(&one.overridden));
    let one = relevant.next()?;
    let others: Vec<&str> = one
        .from
        .iter()
        .map(|part| part.machine_config.as_str())
        .filter(|other| *other != config)
        .collect();
    let overridden: Vec<&str> = one
        .overridden
        .iter()
        .map(|part| part.machine_config.as_str())
        .filter(|other| *other != config)
        .collect();
    let (tone, text) = match (&one.removed_by, mentions(&one.from), mentions(&one.overridden)) {
        (Some(by), _, _) => (
            "warn",
            format!("{by} declares the same path as something else, so it is not there"),
        ),
        (None, false, _) => ("warn", format!("overridden by {}", others.join(", "))),
        (None, true, true) => ("busy", format!("partly overridden by {}", others.join(", "))),
        (None, true, false) if !overridden.is_empty() => {
            ("good", format!("in effect; overrides {}", overridden.join(", ")))
        }
        (None, true, false) => return None,
    };
    Some(Fate {
        tone,
        text: format!("{}: {text}", pool.pool).into(),
    })
}
