//! `mco controller`

use futures::TryFutureExt as _;
use kube::Client;
use mco_api::vocabulary::names;
use mco_controllers::Options;
use mco_core::generators::templates::TemplateTree;
use tokio_util::sync::CancellationToken;

use super::VERSION;
use crate::cli::Controller;
use crate::input;
use crate::leader;
use crate::log::Log;
use crate::output::CommandOutcome;
use crate::runtime;

/// The leader election Lease, shared with other implementations so that only one of them is active.
const LEASE: &str = "machine-config-controller";

pub fn run(arguments: Controller) -> anyhow::Result<CommandOutcome> {
    Log::start(std::io::stderr);
    let templates = match &arguments.templates {
        Some(directory) => input::template_tree(directory)?,
        None => TemplateTree::embedded(),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    runtime::run(threads, |stop| control(arguments, templates, stop))?;
    Ok(CommandOutcome::Done)
}

async fn control(
    arguments: Controller,
    templates: TemplateTree,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let config = arguments.connection.component_config().await?;
    let mut for_drains = config.clone();
    for_drains.default_retry = false;
    let client = Client::try_from(config)?;
    let options = Options {
        templates,
        contents_networks: arguments.contents_networks.clone(),
        drain_client: Some(Client::try_from(for_drains)?),
        ..Options::new(VERSION, VERSION)
    };
    if let Some(address) = arguments.metrics.listen {
        // Served also without leadership, so that a process that waits for the Lease is not reported as down.
        let (access, metrics) = (arguments.metrics.access(&client)?, options.metrics.clone());
        tokio::spawn(mco_controllers::serve_metrics(address, access, metrics, stop.clone()).await?);
    }
    let work = |stop| Box::pin(mco_controllers::run(client.clone(), options, stop)).map_err(Into::into);
    leader::lead(
        client.clone(),
        names::NAMESPACE,
        LEASE,
        &arguments.election,
        stop,
        work,
    )
    .await
}
