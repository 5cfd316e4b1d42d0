//! `mco why`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use mco_client::explain::{ConfigPart, Explanation, add_origins, explain, explain_named};
use mco_core::config::diff;
use mco_core::config::node_files::{NodeFiles, NodeValues};
use mco_core::config::render::{RenderIdentity, Rendered};
use mco_core::pipeline::bootstrap::BootstrapCluster;
use mco_ignition::model::File;
use serde::Serialize;

use super::VERSION;
use crate::cli::{ResolveArguments, Why};
use crate::input::{self, count};
use crate::output::{self, CommandOutcome};

#[derive(Serialize)]
struct ExplainAnswer<'a> {
    pool: &'a str,
    rendered: &'a str,
    parts: &'a [Explanation],
    /// The contents of files with per-node values, by path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    on_node: BTreeMap<String, String>,
}

pub fn run(arguments: &Why) -> anyhow::Result<CommandOutcome> {
    let cluster = input::cluster(
        &arguments.manifests,
        &arguments.base,
        &ResolveArguments::default(),
    )?;
    let rendered = rendered_pool(&cluster, &arguments.pool)?;
    let mut parts = match &arguments.path {
        Some(name) => explain_named(&rendered, name),
        None => explain(&rendered),
    };
    add_origins(&mut parts, &cluster.origins);
    if let (Some(name), true) = (&arguments.path, parts.is_empty()) {
        bail!("{}", nothing_called(name, &arguments.pool, &rendered));
    }
    let mut on_node = match &arguments.node {
        Some(path) => expanded(path, &rendered)?,
        None => BTreeMap::new(),
    };
    on_node.retain(|path, _| {
        parts
            .iter()
            .any(|part| part.section == "file" && part.name == *path)
    });
    match &arguments.output {
        Some(format) => output::print_as(
            format,
            &ExplainAnswer {
                pool: &arguments.pool,
                rendered: rendered.name(),
                parts: &parts,
                on_node,
            },
        )?,
        None if arguments.path.is_some() => {
            output::print(&in_detail(&parts, &arguments.pool, &rendered, &cluster))?;
            output::print(&contents(&on_node))?;
        }
        None => {
            output::print(&overview(&parts, &arguments.pool, &rendered))?;
            output::print(&contents(&on_node))?;
        }
    }
    Ok(CommandOutcome::Done)
}

/// Returns the files with per-node values as a node has them. Values of Secrets are not among them.
fn expanded(path: &Path, rendered: &Rendered) -> anyhow::Result<BTreeMap<String, String>> {
    let node: Node = serde_json::from_value(input::document(path)?)
        .with_context(|| format!("{} is not a Node", path.display()))?;
    let name = node.metadata.name.clone().unwrap_or_default();
    let lists = NodeFiles::of(&rendered.config.ignition);
    let values = NodeValues::of_node(&node, &lists.value_names());
    let files = lists
        .expand(&name, &values)
        .map_err(|problems| anyhow!("{}", problems.join("\n")))?;
    let text = |file: &File| diff::file_bytes(file).and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(files
        .iter()
        .filter_map(|file| Some((file.path.clone(), text(file)?)))
        .collect())
}

fn contents(on_node: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (path, contents) in on_node {
        let _ = writeln!(text, "\n{} on this node:", output::escape_control_chars(path));
        for line in contents.lines() {
            let _ = writeln!(text, "  {}", output::escape_control_chars(line));
        }
    }
    text
}

fn rendered_pool(cluster: &BootstrapCluster, pool: &str) -> anyhow::Result<Rendered> {
    let outcomes = cluster.render(RenderIdentity {
        controller_version: VERSION,
        release_version: "",
    });
    let names: Vec<String> = outcomes.iter().map(|outcome| outcome.name().to_owned()).collect();
    let outcome = outcomes
        .into_iter()
        .find(|outcome| outcome.name() == pool)
        .ok_or_else(|| anyhow!("there is no pool {pool:?}; there are {}", names.join(", ")))?;
    let rendered = outcome.result.map(|pool| pool.rendered);
    rendered.map_err(|error| anyhow!("Failed to render configuration for pool {pool}:\n{error}"))
}

fn nothing_called(name: &str, pool: &str, rendered: &Rendered) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let similar: Vec<String> = explain(rendered)
        .into_iter()
        .filter(|one| !last.is_empty() && one.name.contains(last))
        .map(|one| one.name)
        .take(5)
        .collect();
    let hint = match similar.as_slice() {
        [] => "leave the path out to see everything".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    };
    format!("nothing in pool {pool} is called {name:?}; {hint}")
}

fn in_detail(parts: &[Explanation], pool: &str, rendered: &Rendered, cluster: &BootstrapCluster) -> String {
    let mut text = String::new();
    for one in parts {
        let _ = writeln!(
            text,
            "{} {} in pool {pool} ({})",
            one.section,
            output::escape_control_chars(&one.name),
            rendered.name()
        );
        if let Some(by) = &one.removed_by {
            let _ = writeln!(
                text,
                "  removed by  MachineConfig {by}, which declares this path as another type"
            );
        }
        let rows = one
            .from
            .iter()
            .map(|part| ("from", part))
            .chain(one.overridden.iter().map(|part| ("overridden", part)));
        for (role, part) in rows {
            let file = cluster.inventory.origin("MachineConfig", &part.machine_config);
            let origin = part.made_from.clone().or_else(|| file.map(ToString::to_string));
            let origin = origin.map(|origin| format!("  [{origin}]")).unwrap_or_default();
            let _ = writeln!(
                text,
                "  {role:<10}  MachineConfig {}{}{origin}",
                part.machine_config,
                fields(part)
            );
        }
    }
    text
}

fn fields(part: &ConfigPart) -> String {
    if part.fields.is_empty() {
        String::new()
    } else {
        format!(": {}", part.fields.join(", "))
    }
}

fn overview(parts: &[Explanation], pool: &str, rendered: &Rendered) -> String {
    let sources = rendered.provenance.sources();
    let mut text = format!(
        "pool {pool}: {}, from {}\n",
        rendered.name(),
        count(sources.len(), "MachineConfig")
    );
    for source in sources {
        let _ = writeln!(text, "  {source}");
    }
    let mut sections: BTreeMap<&str, Vec<&Explanation>> = BTreeMap::new();
    for one in parts {
        sections.entry(one.section).or_default().push(one);
    }
    for (section, entries) in sections {
        let _ = writeln!(text, "\n{section}");
        let width = entries
            .iter()
            .map(|one| one.name.chars().count())
            .max()
            .unwrap_or(0)
            .min(60);
        for one in entries {
            let names = |parts: &[ConfigPart]| {
                parts
                    .iter()
                    .map(|part| part.machine_config.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let mut line = match &one.removed_by {
                Some(by) => format!("removed by {by}"),
                None => names(&one.from),
            };
            if !one.overridden.is_empty() {
                let _ = write!(line, " (overrides {})", names(&one.overridden));
            }
            let _ = writeln!(
                text,
                "  {:<width$}  {line}",
                output::escape_control_chars(&one.name)
            );
        }
    }
    text
}
