//! `mco diff`

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{anyhow, bail};
use mco_api::MachineConfig;
use mco_core::diff::{self, ConfigDiff, Kind, Side};
use mco_core::disruption::{self, Cost, Policy, REGISTRIES_CONF, RegistriesChange};
use mco_core::problem::Problem;
use mco_core::reconcilable::{self, Overrides};
use mco_core::render::Identity;
use mco_core::validate;
use mco_ignition::Config;
use serde::Serialize;
use similar::TextDiff;

use super::VERSION;
use crate::cli::{Base, Diff};
use crate::input;
use crate::output::{self, Outcome};

/// A config on one side of the comparison.
struct Entry {
    name: String,
    config: MachineConfig,
    ignition: Config,
}

impl Entry {
    fn side(&self) -> Side<'_> {
        Side {
            spec: &self.config.spec,
            ignition: &self.ignition,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Comparison {
    /// The pool, or nothing when two single configs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    old: Option<String>,
    new: Option<String>,
    changes: ConfigDiff,
    cost: Cost,
    level: disruption::Level,
    /// Why a running node could not take this change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    obstacles: Vec<Problem>,
    #[serde(skip)]
    texts: BTreeMap<String, String>,
}

pub fn run(arguments: &Diff) -> anyhow::Result<Outcome> {
    let (old, new) = (
        entries(&arguments.old, &arguments.base)?,
        entries(&arguments.new, &arguments.base)?,
    );
    let single = !(arguments.old.is_dir() || arguments.new.is_dir());
    let pools: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let empty = Entry {
        name: String::new(),
        config: MachineConfig::default(),
        ignition: Config::default(),
    };
    let mut comparisons = Vec::new();
    for pool in pools {
        let mut comparison = compare(
            old.get(pool).unwrap_or(&empty),
            new.get(pool).unwrap_or(&empty),
            arguments.show_contents,
        );
        comparison.pool = (!single).then(|| pool.clone());
        comparisons.push(comparison);
    }
    match arguments.output {
        Some(format) => output::print_as(format, &comparisons)?,
        None => output::print(
            &comparisons
                .iter()
                .map(text::describe)
                .collect::<Vec<_>>()
                .join("\n"),
        )?,
    }
    let changed = comparisons
        .iter()
        .any(|comparison| !comparison.changes.is_empty());
    Ok(if changed { Outcome::Changes } else { Outcome::Done })
}

/// The configs on one side, by pool; a single config has the empty name.
fn entries(path: &Path, base: &Base) -> anyhow::Result<BTreeMap<String, Entry>> {
    if !path.is_dir() {
        return Ok(BTreeMap::from([(String::new(), single(path)?)]));
    }
    let outcomes = input::cluster(path, base)?.render(Identity {
        controller_version: VERSION,
        release_version: "",
    });
    let mut entries = BTreeMap::new();
    for outcome in outcomes {
        let pool = outcome.name().to_owned();
        let rendered = outcome.result.map_err(|error| {
            anyhow!(
                "{}: Failed to render configuration for pool {pool}:\n{error}",
                path.display()
            )
        })?;
        let entry = Entry {
            name: rendered.name().to_owned(),
            config: rendered.config,
            ignition: rendered.ignition,
        };
        entries.insert(pool, entry);
    }
    Ok(entries)
}

fn single(path: &Path) -> anyhow::Result<Entry> {
    let mut configs = input::cluster(path, &Base::default())?.inventory.configs;
    let (Some(config), true) = (configs.pop(), configs.is_empty()) else {
        bail!(
            "{}: has several MachineConfigs; give a file with one, or a directory of manifests",
            path.display()
        );
    };
    let ignition = validate::check(&config)?.ignition.unwrap_or_default();
    Ok(Entry {
        name: config.metadata.name.clone().unwrap_or_default(),
        config,
        ignition,
    })
}

fn compare(old: &Entry, new: &Entry, show_contents: bool) -> Comparison {
    let changes = diff::diff(old.side(), new.side());
    let cost = disruption::cost(&changes, &Policy::default(), &registries(old, new));
    let reconcilable = |entry: &Entry| (entry.config.spec.fips, entry.name.is_empty());
    let obstacles = match (reconcilable(old), reconcilable(new)) {
        ((_, true), _) | (_, (_, true)) => Vec::new(),
        ((old_fips, _), (new_fips, _)) => reconcilable::obstacles(
            reconcilable::Side {
                ignition: &old.ignition,
                fips: old_fips,
            },
            reconcilable::Side {
                ignition: &new.ignition,
                fips: new_fips,
            },
            Overrides::default(),
        ),
    };
    let texts = if show_contents {
        unified_diffs(&changes, old, new)
    } else {
        BTreeMap::new()
    };
    let name = |entry: &Entry| (!entry.name.is_empty()).then(|| entry.name.clone());
    Comparison {
        pool: None,
        old: name(old),
        new: name(new),
        level: cost.level(),
        changes,
        cost,
        obstacles,
        texts,
    }
}

fn text_of(entry: &Entry, path: &str) -> Option<String> {
    let file = entry
        .ignition
        .storage
        .files
        .iter()
        .find(|file| file.path == path)?;
    String::from_utf8(diff::file_bytes(file)?).ok()
}

fn registries(old: &Entry, new: &Entry) -> RegistriesChange {
    let text = |entry| text_of(entry, REGISTRIES_CONF).unwrap_or_default();
    disruption::compare_registries(&text(old), &text(new))
}

fn unified_diffs(changes: &ConfigDiff, old: &Entry, new: &Entry) -> BTreeMap<String, String> {
    let with_contents = changes.files.iter().filter(|file| file.contents.is_some());
    with_contents
        .filter_map(|file| {
            let before = text_of(old, &file.path).or_else(|| (file.kind == Kind::Added).then(String::new))?;
            let after =
                text_of(new, &file.path).or_else(|| (file.kind == Kind::Removed).then(String::new))?;
            let text = TextDiff::from_lines(&before, &after)
                .unified_diff()
                .context_radius(3)
                .to_string();
            Some((file.path.clone(), text))
        })
        .collect()
}
