//! All MachineConfigs that people or controllers wrote, and the pools they reach.

use askama::Template;
use mco_client::words::count;

use super::{Frame, Text, link};

/// Nobody scrolls through more; the search finds the rest.
const ROWS: usize = 500;

#[derive(Debug, Template)]
#[template(path = "configs.html")]
pub struct Configs {
    pub frame: Frame,
    pub summary: String,
    pub rows: Vec<Row>,
    pub more: usize,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub name: Text,
    pub href: String,
    pub origin: &'static str,
    pub pools: Vec<(Text, String)>,
}

/// One MachineConfig as the list needs it.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: String,
    /// Whether a controller made it.
    pub generated: bool,
    pub pools: Vec<String>,
}

pub fn configs(frame: Frame, mut listed: Vec<Listed>) -> Configs {
    // What people wrote is what they look for.
    listed.sort_by(|a, b| (a.generated, &a.name).cmp(&(b.generated, &b.name)));
    let own = listed.iter().filter(|one| !one.generated).count();
    Configs {
        frame,
        summary: format!(
            "{} written by people, {} made by controllers",
            count(own, "MachineConfig"),
            listed.len() - own
        ),
        more: listed.len().saturating_sub(ROWS),
        rows: listed.iter().take(ROWS).map(row).collect(),
    }
}

fn row(one: &Listed) -> Row {
    Row {
        name: Text::new(&one.name),
        href: link::config(&one.name),
        origin: if one.generated { "generated" } else { "written" },
        pools: one
            .pools
            .iter()
            .map(|pool| (Text::new(pool), link::pool(pool)))
            .collect(),
    }
}
