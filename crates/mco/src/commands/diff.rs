//! `mco diff`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{anyhow, bail};
use mco_api::MachineConfig;
use mco_core::diff::{self, ConfigDiff, FileChange, Kind, Side, UnitChange, UserChange};
use mco_core::disruption::{self, Cost, Drain, Policy, REGISTRIES_CONF, RegistriesChange};
use mco_core::problem::Problem;
use mco_core::reconcilable::{self, Overrides};
use mco_core::render::Identity;
use mco_core::validate;
use mco_ignition::Config;
use serde::Serialize;
use similar::TextDiff;

use super::VERSION;
use crate::cli::Diff;
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
        Side { spec: &self.config.spec, ignition: &self.ignition }
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
    let (old, new) = (entries(&arguments.old)?, entries(&arguments.new)?);
    let single = !(arguments.old.is_dir() || arguments.new.is_dir());
    let pools: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let empty = Entry { name: String::new(), config: MachineConfig::default(), ignition: Config::default() };
    let mut comparisons = Vec::new();
    for pool in pools {
        let mut comparison = compare(old.get(pool).unwrap_or(&empty), new.get(pool).unwrap_or(&empty), arguments.show_contents);
        comparison.pool = (!single).then(|| pool.clone());
        comparisons.push(comparison);
    }
    match arguments.output {
        Some(format) => output::print_as(format, &comparisons)?,
        None => output::print(&comparisons.iter().map(describe).collect::<Vec<_>>().join("\n"))?,
    }
    let changed = comparisons.iter().any(|comparison| !comparison.changes.is_empty());
    Ok(if changed { Outcome::Changes } else { Outcome::Done })
}

/// The configs on one side, by pool; a single config has the empty name.
fn entries(path: &Path) -> anyhow::Result<BTreeMap<String, Entry>> {
    if !path.is_dir() {
        return Ok(BTreeMap::from([(String::new(), single(path)?)]));
    }
    let outcomes = input::inventory(path)?.render(Identity { controller_version: VERSION, release_version: "" });
    let mut entries = BTreeMap::new();
    for outcome in outcomes {
        let pool = outcome.name().to_owned();
        let rendered = outcome.result.map_err(|error| anyhow!("{}: Failed to render configuration for pool {pool}:\n{error}", path.display()))?;
        let entry = Entry { name: rendered.name().to_owned(), config: rendered.config, ignition: rendered.ignition };
        entries.insert(pool, entry);
    }
    Ok(entries)
}

fn single(path: &Path) -> anyhow::Result<Entry> {
    let mut configs = input::inventory(path)?.configs;
    let (Some(config), true) = (configs.pop(), configs.is_empty()) else {
        bail!("{}: has several MachineConfigs; give a file with one, or a directory of manifests", path.display());
    };
    let ignition = validate::check(&config)?.ignition.unwrap_or_default();
    Ok(Entry { name: config.metadata.name.clone().unwrap_or_default(), config, ignition })
}

fn compare(old: &Entry, new: &Entry, show_contents: bool) -> Comparison {
    let changes = diff::diff(old.side(), new.side());
    let cost = disruption::cost(&changes, &Policy::default(), &registries(old, new));
    let reconcilable = |entry: &Entry| (entry.config.spec.fips, entry.name.is_empty());
    let obstacles = match (reconcilable(old), reconcilable(new)) {
        ((_, true), _) | (_, (_, true)) => Vec::new(),
        ((old_fips, _), (new_fips, _)) => reconcilable::obstacles(
            reconcilable::Side { ignition: &old.ignition, fips: old_fips },
            reconcilable::Side { ignition: &new.ignition, fips: new_fips },
            Overrides::default(),
        ),
    };
    let texts = if show_contents { unified_diffs(&changes, old, new) } else { BTreeMap::new() };
    let name = |entry: &Entry| (!entry.name.is_empty()).then(|| entry.name.clone());
    Comparison { pool: None, old: name(old), new: name(new), level: cost.level(), changes, cost, obstacles, texts }
}

fn text_of(entry: &Entry, path: &str) -> Option<String> {
    let file = entry.ignition.storage.files.iter().find(|file| file.path == path)?;
    String::from_utf8(diff::file_bytes(file)?).ok()
}

fn registries(old: &Entry, new: &Entry) -> RegistriesChange {
    let text = |entry| text_of(entry, REGISTRIES_CONF).unwrap_or_default();
    disruption::compare_registries(&text(old), &text(new))
}

fn unified_diffs(changes: &ConfigDiff, old: &Entry, new: &Entry) -> BTreeMap<String, String> {
    let changed = changes.files.iter().filter(|file| file.contents.is_some());
    changed
        .filter_map(|file| {
            let before = text_of(old, &file.path).or_else(|| (file.kind == Kind::Added).then(String::new))?;
            let after = text_of(new, &file.path).or_else(|| (file.kind == Kind::Removed).then(String::new))?;
            let text = TextDiff::from_lines(&before, &after).unified_diff().context_radius(3).to_string();
            Some((file.path.clone(), text))
        })
        .collect()
}

fn describe(comparison: &Comparison) -> String {
    let mut text = String::new();
    if let Some(pool) = &comparison.pool {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "nothing".to_owned());
        let _ = writeln!(text, "pool {pool}: {} -> {}", name(&comparison.old), name(&comparison.new));
    }
    if comparison.changes.is_empty() {
        text.push_str("  no change\n");
        return text;
    }
    describe_changes(comparison, &mut text);
    for obstacle in &comparison.obstacles {
        let _ = writeln!(text, "  cannot be applied to running nodes: {obstacle}");
    }
    let _ = writeln!(text, "  cost: {}", comparison.level);
    for cause in &comparison.cost.causes {
        let actions = cause.actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "    {}: {actions} ({})", output::harmless(&cause.change), cause.rule);
    }
    if let Drain::Needed { because } = &comparison.cost.drain {
        let _ = writeln!(text, "    drained first, because {}", output::harmless(because));
    }
    text
}

fn describe_changes(comparison: &Comparison, text: &mut String) {
    let changes = &comparison.changes;
    for file in &changes.files {
        let _ = writeln!(text, "  {} file {}{}", sign(file.kind), output::harmless(&file.path), file_details(file));
        for line in comparison.texts.get(&file.path).into_iter().flat_map(|diff| diff.lines()) {
            let _ = writeln!(text, "      {}", output::harmless(line));
        }
    }
    for unit in &changes.units {
        let _ = writeln!(text, "  {} unit {}{}", sign(unit.kind), output::harmless(&unit.name), unit_details(unit));
    }
    for user in &changes.users {
        let _ = writeln!(text, "  {} user {}{}", sign(user.kind), output::harmless(&user.name), user_details(user));
    }
    for section in &changes.first_boot_sections {
        let _ = writeln!(text, "  ~ {section} (takes effect at first boot only)");
    }
    let lists = [("kernelArguments", &changes.kernel_arguments), ("extensions", &changes.extensions)];
    for (name, change) in lists {
        if let Some(change) = change {
            let _ = writeln!(text, "  ~ {name}: [{}] -> [{}]", change.old.join(" "), change.new.join(" "));
        }
    }
    let scalars = [
        ("kernelType", changes.kernel_type.as_ref().map(|c| (c.old.to_owned(), c.new.to_owned()))),
        ("fips", changes.fips.as_ref().map(|c| (c.old.to_string(), c.new.to_string()))),
        ("osImageURL", changes.os_image.as_ref().map(|c| (c.old.clone(), c.new.clone()))),
        ("baseOSExtensionsContainerImage", changes.extensions_image.as_ref().map(|c| (c.old.clone(), c.new.clone()))),
    ];
    for (name, change) in scalars {
        if let Some((old, new)) = change {
            let _ = writeln!(text, "  ~ {name}: {old:?} -> {new:?}");
        }
    }
}

fn sign(kind: Kind) -> char {
    match kind {
        Kind::Added => '+',
        Kind::Removed => '-',
        Kind::Changed => '~',
    }
}

fn file_details(file: &FileChange) -> String {
    let mut details = Vec::new();
    if let Some(change) = &file.contents {
        let summary = |contents: &diff::Contents| {
            let hash: String = contents.sha256.chars().take(12).collect();
            format!("{} bytes sha256:{hash}", contents.size)
        };
        details.push(match (&change.old, &change.new) {
            (Some(old), Some(new)) => format!("{} -> {}", summary(old), summary(new)),
            (None, Some(one)) | (Some(one), None) => summary(one),
            (None, None) => String::new(),
        });
    }
    for (name, change) in [("mode", &file.mode), ("owner", &file.owner)] {
        match change.as_ref().map(|change| (&change.old, &change.new)) {
            Some((Some(old), Some(new))) => details.push(format!("{name} {old} -> {new}")),
            Some((None, Some(new))) => details.push(format!("{name} {new}")),
            _ => {}
        }
    }
    if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) }
}

fn unit_details(unit: &UnitChange) -> String {
    let mut details = Vec::new();
    if unit.contents_changed {
        details.push("contents".to_owned());
    }
    let flag = |value: Option<bool>| value.map_or_else(|| "unset".to_owned(), |value| value.to_string());
    for (name, change) in [("enabled", &unit.enabled), ("mask", &unit.mask)] {
        if let Some(change) = change {
            details.push(format!("{name} {} -> {}", flag(change.old), flag(change.new)));
        }
    }
    details.extend(unit.dropins.iter().map(|dropin| format!("{} drop-in {}", sign(dropin.kind), dropin.name)));
    if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) }
}

fn user_details(user: &UserChange) -> String {
    let mut details = Vec::new();
    if user.keys_added + user.keys_removed > 0 {
        details.push(format!("{} keys added, {} removed", user.keys_added, user.keys_removed));
    }
    if user.password_changed {
        details.push("password changed".to_owned());
    }
    if user.other_fields_changed {
        details.push("other fields changed".to_owned());
    }
    if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) }
}
