//! `mco plan`

pub mod cluster;
pub mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use mco_core::bootstrap::{self, BootstrapError, Cluster, Settings};
use mco_core::comparison::Entry;
use mco_core::explain::{self, Explanation};
use mco_core::forecast::{self, Edit, PoolForecast, Refusal, Situation};
use mco_core::manifest::Manifest;
use mco_core::overview::PoolOverview;
use mco_core::render::Identity;
use serde::Serialize;

use self::cluster::Found;
use super::VERSION;
use crate::cli::Plan;
use crate::input::{self, count};
use crate::output::{self, Outcome};
use crate::runtime;

#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refusal>,
    pools: Vec<PoolForecast>,
    #[serde(skip)]
    current: BTreeMap<String, Entry>,
}

pub fn run(arguments: &Plan) -> anyhow::Result<Outcome> {
    let edits = edits(arguments)?;
    let report = match &arguments.manifests {
        Some(directory) => offline(read_all(std::slice::from_ref(directory))?, &edits, arguments)?,
        None => runtime::ask(online(&edits, arguments))?,
    };
    match arguments.output {
        Some(format) => output::print_as(format, &report)?,
        None => output::print(&text::describe(&report, arguments.show_contents))?,
    }
    let failed = !report.refused.is_empty() || report.pools.iter().any(|pool| pool.error.is_some());
    Ok(match report.pools.iter().any(PoolForecast::is_change) {
        _ if failed => Outcome::Refused,
        true => Outcome::Changes,
        false => Outcome::Done,
    })
}

/// Whether the pool's target has everything that its MachineConfigs say now. Right after a change it has not.
pub async fn is_rendered(client: &Client, pool: &PoolOverview) -> anyhow::Result<bool> {
    let sources = cluster::sources(client).await?;
    let outcomes = assembled(bootstrap::adopt(sources.objects))?.render(IDENTITY);
    let outcome = outcomes.into_iter().find(|outcome| outcome.name() == pool.name);
    Ok(match outcome.map(|outcome| outcome.result) {
        Some(Ok(rendered)) => rendered.name() == pool.target,
        _ => false,
    })
}

/// Where each part of each pool's config comes from. A pool that cannot be rendered is left out.
pub async fn explained_pools(client: &Client) -> anyhow::Result<BTreeMap<String, Vec<Explanation>>> {
    let sources = cluster::sources(client).await?;
    let outcomes = assembled(bootstrap::adopt(sources.objects))?.render(IDENTITY);
    let explained = outcomes.into_iter().filter_map(|outcome| {
        let name = outcome.name().to_owned();
        Some((name, explain::explain(&outcome.result.ok()?)))
    });
    Ok(explained.collect())
}

fn edits(arguments: &Plan) -> anyhow::Result<Vec<Edit>> {
    let applied = read_all(&arguments.files)?.into_iter().map(Edit::Apply);
    Ok(applied
        .chain(arguments.delete.iter().cloned().map(Edit::Delete))
        .collect())
}

fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let manifests = input::manifests(paths)?;
    if manifests.unreadable > 0 {
        bail!("{} cannot be used", count(manifests.unreadable, "file"));
    }
    Ok(manifests.read)
}

/// All objects of one kind in a directory.
fn of_kind<K>(objects: &[Manifest], api_version: &str, kind: &str) -> anyhow::Result<Vec<K>>
where
    K: serde::de::DeserializeOwned,
{
    let them = objects
        .iter()
        .filter(|object| object.api_version == api_version && object.kind == kind);
    Ok(them.map(Manifest::decode).collect::<Result<_, _>>()?)
}

fn offline(objects: Vec<Manifest>, edits: &[Edit], arguments: &Plan) -> anyhow::Result<Report> {
    known(&objects, edits)?;
    let base = input::BaseInputs::read(&arguments.base)?;
    let settings = base.settings();
    let (after, refused) = forecast::edited(&objects, edits);
    let nodes: Vec<Node> = of_kind(&after, "v1", "Node")?;
    let pods: Vec<Pod> = of_kind(&after, "v1", "Pod")?;
    let budgets: Vec<PodDisruptionBudget> = of_kind(&after, "policy/v1", "PodDisruptionBudget")?;
    let policy = forecast::policy(&after)?.unwrap_or_default();
    let before = assembled(bootstrap::assemble(objects, &settings))?;
    let after = assembled(bootstrap::assemble(after, &settings))?;
    let current = before
        .render(IDENTITY)
        .into_iter()
        .filter_map(|outcome| Some((outcome.name().to_owned(), outcome.result.ok()?.into())))
        .collect();
    let situation = Situation {
        current,
        nodes: &nodes,
        pods: &pods,
        budgets: &budgets,
        policy,
    };
    Ok(Report {
        refused,
        pools: forecast::forecast(&after, IDENTITY, &situation),
        current: situation.current,
    })
}

async fn online(edits: &[Edit], arguments: &Plan) -> anyhow::Result<Report> {
    let client = arguments.connection.client().await?;
    let found = cluster::read(&client).await?;
    known(&found.sources.objects, edits)?;
    let base = input::BaseInputs::read(&arguments.base)?;
    let (_, mut refused) = forecast::edited(&found.sources.objects, edits);
    refused.extend(cluster::refused_by_server(&client, edits, &refused).await);
    let accepted: Vec<Edit> = edits
        .iter()
        .filter(|edit| match edit {
            Edit::Apply(manifest) => !refused
                .iter()
                .any(|one| one.kind == manifest.kind && one.name == manifest.name),
            Edit::Delete(_) => true,
        })
        .cloned()
        .collect();
    let mut report = foretell(found, &accepted, &base.settings())?;
    report.refused = refused;
    Ok(report)
}

/// What edits do that the cluster would accept.
pub fn foretell(found: Found, edits: &[Edit], settings: &Settings<'_>) -> anyhow::Result<Report> {
    let (after, refused) = forecast::edited(&found.sources.objects, edits);
    let policy = forecast::policy(&after)?.unwrap_or(found.policy);
    let after = assembled(forecast::in_cluster(&found.sources.objects, after, settings))?;
    let situation = Situation {
        current: found.current,
        nodes: &found.nodes,
        pods: &found.pods,
        budgets: &found.budgets,
        policy,
    };
    Ok(Report {
        refused,
        pools: forecast::forecast(&after, IDENTITY, &situation),
        current: situation.current,
    })
}

pub const IDENTITY: Identity<'static> = Identity {
    controller_version: VERSION,
    release_version: "",
};

/// A name that means nothing is a typing mistake, and must not look like "no change".
fn known(objects: &[Manifest], edits: &[Edit]) -> anyhow::Result<()> {
    for edit in edits {
        if let Edit::Delete(name) = edit
            && !objects.iter().any(|object| object.name == *name)
        {
            bail!("--delete: there is no object named {name}");
        }
    }
    Ok(())
}

pub fn assembled(result: Result<Cluster, Vec<BootstrapError>>) -> anyhow::Result<Cluster> {
    result.map_err(|errors| {
        for error in &errors {
            output::problem(error);
        }
        anyhow!("{} cannot be used", count(errors.len(), "object"))
    })
}
