//! `mco plan`

pub mod cluster;
pub mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use mco_api::RolloutPolicy;
use mco_client::explain::{self, Explanation};
use mco_client::forecast::{self, Edit, ObjectForecast, PlanContext};
use mco_client::image_builds::ImageContext;
use mco_client::overview::PoolOverview;
use mco_client::plan::{ClusterPlanError, PlanReport, ensure_exists};
use mco_core::config::manifest::Manifest;
use mco_core::config::render::RenderIdentity;
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::bootstrap::{self, BootstrapCluster, BootstrapError, BootstrapSettings};

use super::VERSION;
use crate::cli::{BaseArguments, PlanArguments};
use crate::connection::describe_error;
use crate::input::{self, count};
use crate::output::{self, CommandOutcome};
use crate::runtime;

pub fn run(arguments: &PlanArguments) -> anyhow::Result<CommandOutcome> {
    let edits = edits(arguments)?;
    let report = match &arguments.manifests {
        Some(directory) => offline(read_all(std::slice::from_ref(directory))?, &edits, arguments)?,
        None => runtime::block_on(online(&edits, arguments))?,
    };
    output::show(arguments.output.as_ref(), &report, || {
        text::describe(&report, arguments.show_contents)
    })?;
    let failed = !report.refused.is_empty()
        || report.pools.iter().any(|pool| pool.error.is_some())
        || report
            .objects
            .iter()
            .any(|object| is_unusable_edit(object, &edits));
    Ok(match report.is_change() {
        _ if failed => CommandOutcome::Refused,
        true => CommandOutcome::Changes,
        false => CommandOutcome::Done,
    })
}

/// Returns whether an edit would be stored without any config being generated from it.
fn is_unusable_edit(object: &ObjectForecast, edits: &[Edit]) -> bool {
    let is_same = |edit: &Edit| match edit {
        Edit::Apply(manifest) => manifest.kind == object.kind && manifest.name == object.name,
        Edit::Delete(_) => false,
    };
    !object.accepted && edits.iter().any(is_same)
}

/// Returns whether the pool's target contains the current version of all its MachineConfigs, which is false right after
/// a change.
pub async fn is_rendered(client: &Client, pool: &PoolOverview) -> anyhow::Result<bool> {
    let sources = cluster::sources(client).await.map_err(describe_error)?;
    let outcomes = assembled(bootstrap::adopt(sources.objects))?.render(IDENTITY);
    let outcome = outcomes.into_iter().find(|outcome| outcome.name() == pool.name);
    Ok(match outcome.map(|outcome| outcome.result) {
        Some(Ok(pool_now)) => pool_now.rendered.name() == pool.target,
        _ => false,
    })
}

/// Returns the provenance of each part of each pool's config, without the pools that cannot be rendered.
pub async fn plan_pools(client: &Client) -> anyhow::Result<BTreeMap<String, Vec<Explanation>>> {
    let sources = cluster::sources(client).await.map_err(describe_error)?;
    let outcomes = assembled(bootstrap::adopt(sources.objects))?.render(IDENTITY);
    let explained = outcomes.into_iter().filter_map(|outcome| {
        let name = outcome.name().to_owned();
        Some((name, explain::explain(&outcome.result.ok()?.rendered)))
    });
    Ok(explained.collect())
}

/// Returns the plan of the edits: what they would change in the cluster.
pub async fn plan_cluster(
    client: &Client,
    edits: &[Edit],
    base: &BaseArguments,
) -> anyhow::Result<PlanReport> {
    let base = input::BaseInputs::read(base)?;
    let report = mco_client::plan::plan(client, edits, &base.settings()).await;
    let report = report.map_err(to_plan_error)?;
    for node in &report.unreadable_nodes {
        output::warning(format!("node {node}; it is left out"));
    }
    Ok(report)
}

fn edits(arguments: &PlanArguments) -> anyhow::Result<Vec<Edit>> {
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

/// Returns all objects of one kind in a directory.
fn of_kind<K>(objects: &[Manifest], api_version: &str, kind: &str) -> anyhow::Result<Vec<K>>
where
    K: serde::de::DeserializeOwned,
{
    let them = objects
        .iter()
        .filter(|object| object.api_version == api_version && object.kind == kind);
    Ok(them.map(Manifest::decode).collect::<Result<_, _>>()?)
}

fn offline(objects: Vec<Manifest>, edits: &[Edit], arguments: &PlanArguments) -> anyhow::Result<PlanReport> {
    ensure_exists(&objects, edits).map_err(to_plan_error)?;
    let base = input::BaseInputs::read(&arguments.base)?;
    let settings = base.settings();
    let (after, refused) = forecast::edited(&objects, edits);
    let nodes: Vec<Node> = of_kind(&after, "v1", "Node")?;
    let pods: Vec<Pod> = of_kind(&after, "v1", "Pod")?;
    let budgets: Vec<PodDisruptionBudget> = of_kind(&after, "policy/v1", "PodDisruptionBudget")?;
    let policies: Vec<RolloutPolicy> = of_kind(&after, "mco.dev/v1alpha1", "RolloutPolicy")?;
    let after = forecast::with_base(after, settings.base);
    let mut images = ImageContext::new(&objects, &after)?;
    images.builds = of_kind(&after, OWN, "MachineOSBuild")?;
    let rendered = objects
        .iter()
        .filter(|object| object.kind == "MachineConfig" && object.name.starts_with("rendered-"));
    images.rendered = rendered.map(|object| object.value.clone()).collect();
    let rules = forecast::rules(&after, AdministratorRules::of_base(forecast::base(&after)?))?;
    let unchanged = BootstrapSettings {
        base: None,
        ..settings
    };
    let before = assembled(bootstrap::assemble(objects, &unchanged))?;
    let after = assembled(bootstrap::assemble(after, &settings))?;
    for warning in &after.warnings {
        output::warning(warning);
    }
    let current = before
        .render(IDENTITY)
        .into_iter()
        .filter_map(|outcome| Some((outcome.name().to_owned(), outcome.result.ok()?.rendered.config)))
        .collect();
    let situation = PlanContext {
        current,
        nodes: &nodes,
        pods: &pods,
        budgets: &budgets,
        rules,
        policies: &policies,
        images,
        time: jiff::Timestamp::now(),
    };
    Ok(PlanReport {
        unreadable_nodes: Vec::new(),
        refused,
        objects: forecast::objects(&after),
        pools: forecast::forecast(&after, IDENTITY, &situation),
        current: situation.current,
    })
}

async fn online(edits: &[Edit], arguments: &PlanArguments) -> anyhow::Result<PlanReport> {
    let client = arguments.connection.client().await?;
    plan_cluster(&client, edits, &arguments.base).await
}

/// Converts the error to one with command line hints.
fn to_plan_error(error: ClusterPlanError) -> anyhow::Error {
    match error {
        ClusterPlanError::NothingToDelete(_) => anyhow!("--delete: {error}"),
        ClusterPlanError::Unusable(errors) => unusable(&errors),
        ClusterPlanError::Manifest(error) => error.into(),
        ClusterPlanError::Read(error) => describe_error(error),
    }
}

const OWN: &str = "machineconfiguration.openshift.io/v1";

pub const IDENTITY: RenderIdentity<'static> = RenderIdentity {
    controller_version: VERSION,
    release_version: "",
};

pub fn assembled(result: Result<BootstrapCluster, Vec<BootstrapError>>) -> anyhow::Result<BootstrapCluster> {
    result.map_err(|errors| unusable(&errors))
}

fn unusable(errors: &[BootstrapError]) -> anyhow::Error {
    for error in errors {
        output::problem(error);
    }
    anyhow!("{} cannot be used", count(errors.len(), "object"))
}
