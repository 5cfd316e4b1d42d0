//! `mco operator`

mod bootstrap;

use anyhow::Context;
use futures::TryFutureExt as _;
use kube::Client;
use mco_api::vocabulary::names;
use mco_operator::{MetricsAccess, OperandMode, OperatorOptions, Webhook};
use tokio_util::sync::CancellationToken;

use super::VERSION;
use crate::cli::{OperatorArguments, OperatorCommand};
use crate::leader;
use crate::log::Log;
use crate::output::CommandOutcome;
use crate::runtime;

/// The operator is idle most of the time.
const THREADS: usize = 2;
/// The leader election Lease, shared with other implementations so that only one of them is active.
const LEASE: &str = "machine-config";

pub fn run(arguments: OperatorArguments) -> anyhow::Result<CommandOutcome> {
    if let Some(OperatorCommand::Bootstrap(arguments)) = &arguments.command {
        return bootstrap::run(arguments);
    }
    let log = Log::start(std::io::stderr);
    runtime::run(THREADS, |stop| operate(arguments, log, stop))?;
    Ok(CommandOutcome::Done)
}

async fn operate(arguments: OperatorArguments, log: Log, stop: CancellationToken) -> anyhow::Result<()> {
    let client = Client::try_from(arguments.connection.component_config().await?)?;
    let options = options(&arguments);
    tokio::spawn(log.follow(options.log_levels.subscribe(), |levels| levels.operator));
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        // Creates the namespace of the Lease.
        prepared = mco_operator::prepare(client.clone()) => prepared.context("cannot use the cluster")?,
    }
    let election = arguments.election;
    let work = |stop| Box::pin(mco_operator::run(client.clone(), options, stop)).map_err(Into::into);
    leader::lead(client.clone(), names::NAMESPACE, LEASE, &election, stop, work).await
}

fn options(arguments: &OperatorArguments) -> OperatorOptions {
    OperatorOptions {
        release_version: arguments.release_version.clone(),
        image: arguments.image.clone().unwrap_or_default(),
        templates_image: arguments.templates_image.clone().unwrap_or_default(),
        builder_image: arguments.builder_image.clone().unwrap_or_default(),
        keep_builds: arguments.keep_builds,
        api_server_url: arguments.apiserver_url.clone(),
        config_server: arguments.config_server.clone(),
        workloads: if arguments.deploy {
            OperandMode::Deployed
        } else {
            OperandMode::Elsewhere
        },
        profile: arguments.profile.options(),
        ignition_tokens: arguments.ignition_tokens.into(),
        webhook: arguments.webhook_listen.map(|listen| Webhook {
            listen,
            url: arguments.webhook_url.clone(),
        }),
        metrics_address: arguments.metrics_listen,
        metrics_access: if arguments.guard_metrics {
            MetricsAccess::Guarded
        } else {
            MetricsAccess::Open
        },
        ..OperatorOptions::new(VERSION)
    }
}
