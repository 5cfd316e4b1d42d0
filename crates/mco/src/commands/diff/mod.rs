//! `mco diff`

pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{anyhow, bail};
use mco_client::comparison::{self, ConfigComparison};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::RenderIdentity;
use mco_core::config::rules::AdministratorRules;
use serde::Serialize;

use super::VERSION;
use crate::cli::{BaseArguments, Diff, ResolveArguments};
use crate::input;
use crate::output::{self, CommandOutcome};

#[derive(Serialize)]
struct PoolComparison {
    /// The pool; `None` when two single configs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(flatten)]
    comparison: ConfigComparison,
    /// Unified diffs by path, if asked for.
    #[serde(skip)]
    texts: BTreeMap<String, String>,
}

pub fn run(arguments: &Diff) -> anyhow::Result<CommandOutcome> {
    if arguments.old == Path::new("-") && arguments.new == Path::new("-") {
        bail!("only one of A and B can be standard input");
    }
    // Beside a directory, standard input is manifests too: the output of kustomize, for example.
    let single = !(arguments.old.is_dir() || arguments.new.is_dir());
    let read = |path: &Path| {
        if single {
            Ok(BTreeMap::from([(String::new(), self::single(path)?)]))
        } else {
            entries(path, &arguments.base)
        }
    };
    let (old, new) = (read(&arguments.old)?, read(&arguments.new)?);
    let pools: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let nothing = ParsedConfig::default();
    let mut comparisons = Vec::new();
    for pool in pools {
        let (old, new) = (
            old.get(pool).unwrap_or(&nothing),
            new.get(pool).unwrap_or(&nothing),
        );
        let comparison = comparison::compare(old, new, &AdministratorRules::default());
        let texts = if arguments.show_contents {
            text::unified(&comparison, old, new)
        } else {
            BTreeMap::new()
        };
        comparisons.push(PoolComparison {
            pool: (!single).then(|| pool.clone()),
            comparison,
            texts,
        });
    }
    match &arguments.output {
        Some(format) => output::print_as(format, &comparisons)?,
        None => output::print(
            &comparisons
                .iter()
                .map(|one| text::describe(one.pool.as_deref(), &one.comparison, &one.texts))
                .collect::<Vec<_>>()
                .join("\n"),
        )?,
    }
    let changed = comparisons.iter().any(|one| !one.comparison.changes.is_empty());
    Ok(if changed {
        CommandOutcome::Changes
    } else {
        CommandOutcome::Done
    })
}

/// Returns the configs on one side, by pool.
fn entries(path: &Path, base: &BaseArguments) -> anyhow::Result<BTreeMap<String, ParsedConfig>> {
    let outcomes = input::cluster(path, base, &ResolveArguments::default())?.render(RenderIdentity {
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
        entries.insert(pool, rendered.rendered.config);
    }
    Ok(entries)
}

fn single(path: &Path) -> anyhow::Result<ParsedConfig> {
    let mut configs = input::cluster(path, &BaseArguments::default(), &ResolveArguments::default())?
        .inventory
        .configs;
    let (Some(config), true) = (configs.pop(), configs.is_empty()) else {
        bail!(
            "{}: has several MachineConfigs; use a file with one, or a directory of manifests",
            path.display()
        );
    };
    Ok(ParsedConfig::applicable(config)?)
}
