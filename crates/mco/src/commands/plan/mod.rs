//! `mco plan`

mod cluster;
mod text;

use anyhow::{anyhow, bail};
use mco_console::plan::{PlanError, Report, known};
use mco_core::bootstrap::{self, BootstrapError, Cluster};
use mco_core::forecast::{self, Edit, Situation};
use mco_core::manifest::Manifest;
use mco_core::overview::PoolOverview;
use mco_core::render::Identity;

use super::VERSION;
use crate::cli::Plan;
use crate::input::{self, count};
use crate::output::{self, Outcome};
use crate::runtime;

pub fn run(arguments: &Plan) -> anyhow::Result<Outcome> {
    let edits = edits(arguments)?;
    let report = match &arguments.manifests {
        Some(directory) => offline(
            input::manifests(std::slice::from_ref(directory))?.read,
            &edits,
            arguments,
        )?,
        None => runtime::ask(online(&edits, arguments))?,
    };
    match arguments.output {
        Some(format) => output::print_as(format, &report)?,
        None => output::print(&text::describe(&report, arguments.show_contents))?,
    }
    let failed = !report.refused.is_empty() || report.pools.iter().any(|pool| pool.error.is_some());
    Ok(match report.is_change() {
        _ if failed => Outcome::Refused,
        true => Outcome::Changes,
        false => Outcome::Done,
    })
}

/// Whether the pool's target has everything that its MachineConfigs say now. Right after a change it has not.
pub async fn is_rendered(client: &kube::Client, pool: &PoolOverview) -> anyhow::Result<bool> {
    let sources = cluster::sources(client).await?;
    let objects = assembled(bootstrap::adopt(sources.objects))?;
    let outcomes = objects.render(IDENTITY);
    let outcome = outcomes.into_iter().find(|outcome| outcome.name() == pool.name);
    Ok(match outcome.map(|outcome| outcome.result) {
        Some(Ok(rendered)) => rendered.name() == pool.target,
        _ => false,
    })
}

fn edits(arguments: &Plan) -> anyhow::Result<Vec<Edit>> {
    let read = input::manifests(&arguments.files)?;
    if read.unreadable > 0 {
        bail!("{} cannot be used", count(read.unreadable, "file"));
    }
    let applied = read.read.into_iter().map(Edit::Apply);
    Ok(applied
        .chain(arguments.delete.iter().cloned().map(Edit::Delete))
        .collect())
}

fn offline(objects: Vec<Manifest>, edits: &[Edit], arguments: &Plan) -> anyhow::Result<Report> {
    known(&objects, edits).map_err(explained)?;
    let base = input::BaseInputs::read(&arguments.base)?;
    let settings = base.settings();
    let (after, refused) = forecast::edited(&objects, edits);
    let before = assembled(bootstrap::assemble(objects, &settings))?;
    let after = assembled(bootstrap::assemble(after, &settings))?;
    let current = before
        .render(IDENTITY)
        .into_iter()
        .filter_map(|outcome| Some((outcome.name().to_owned(), outcome.result.ok()?.into())))
        .collect();
    let situation = Situation {
        current,
        ..Situation::default()
    };
    Ok(Report {
        refused,
        pools: forecast::forecast(&after, IDENTITY, &situation),
        current: situation.current,
    })
}

async fn online(edits: &[Edit], arguments: &Plan) -> anyhow::Result<Report> {
    let client = arguments.connection.client().await?;
    let base = input::BaseInputs::read(&arguments.base)?;
    let report = mco_console::plan::foretell(&client, edits, &base.settings()).await;
    report.map_err(explained)
}

/// What went wrong, in the words of the command line.
fn explained(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::NothingToDelete(_) => anyhow!("--delete: {error}"),
        PlanError::Unusable(errors) => unusable(&errors),
        PlanError::Read(error) => error.into(),
    }
}

const IDENTITY: Identity<'static> = Identity {
    controller_version: VERSION,
    release_version: "",
};

fn assembled(result: Result<Cluster, Vec<BootstrapError>>) -> anyhow::Result<Cluster> {
    result.map_err(|errors| unusable(&errors))
}

fn unusable(errors: &[BootstrapError]) -> anyhow::Error {
    for error in errors {
        output::problem(error);
    }
    anyhow!("{} cannot be used", count(errors.len(), "object"))
}
