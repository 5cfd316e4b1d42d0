//! `mco builder`

pub mod plan;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use futures::TryFutureExt as _;
use kube::Client;
use mco_api::vocabulary::names;
use mco_builder::build::ImageBuild;
use mco_builder::{DigestConfigMap, Options};
use mco_core::generators::os_builds::InputPaths;
use tokio_util::sync::CancellationToken;

use crate::cli::{BuilderArguments, BuilderCommand, DigestArguments, ImageBuildArguments};
use crate::leader;
use crate::log::Log;
use crate::output::CommandOutcome;
use crate::runtime;

/// The leader election Lease, shared with other implementations so that only one of them is active.
const LEASE: &str = "machine-os-builder";

pub fn run(mut arguments: BuilderArguments) -> anyhow::Result<CommandOutcome> {
    match arguments.command.take() {
        Some(BuilderCommand::Plan(arguments)) => plan::run(&arguments),
        Some(BuilderCommand::Build(arguments)) => build(&arguments),
        Some(BuilderCommand::Digest(arguments)) => publish(&arguments),
        None => {
            Log::start(std::io::stderr);
            let threads = std::thread::available_parallelism().map_or(2, usize::from);
            runtime::run(threads, |stop| control(arguments, stop))?;
            Ok(CommandOutcome::Done)
        }
    }
}

async fn control(arguments: BuilderArguments, stop: CancellationToken) -> anyhow::Result<()> {
    let client = Client::try_from(arguments.connection.component_config().await?)?;
    let options = Options {
        builder_image: arguments.builder_image.clone(),
        kept_builds: arguments.keep_builds,
        retry_interrupted: retry_delay(arguments.retry_interrupted),
        ..Options::default()
    };
    if let Some(address) = arguments.metrics.listen {
        let access = arguments.metrics.access(&client)?;
        let metrics = options.metrics.clone();
        let listener = mco_http::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let source = move || metrics.encode();
        tokio::spawn(mco_http::metrics::serve_metrics(
            listener,
            access,
            source,
            stop.clone(),
        ));
    }
    let work = |stop| Box::pin(mco_builder::run(client.clone(), options, stop)).map_err(Into::into);
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

/// Returns the delay after which interrupted builds are started again; 0 means never.
pub fn retry_delay(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn build(arguments: &ImageBuildArguments) -> anyhow::Result<CommandOutcome> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (paths, default_work) = if let Some(inputs) = &arguments.inputs {
        (InputPaths::below(&inputs.display().to_string()), inputs.clone())
    } else {
        let home = PathBuf::from(variable("HOME"));
        (InputPaths::in_pod(), home.join(".local/share/containers"))
    };
    let build = ImageBuild {
        paths,
        work: arguments.work.clone().unwrap_or(default_work),
        tag: arguments.tag.clone(),
        http_proxy: variable("HTTP_PROXY"),
        https_proxy: variable("HTTPS_PROXY"),
        no_proxy: variable("NO_PROXY"),
    };
    build.run()?;
    Ok(CommandOutcome::Done)
}

fn publish(arguments: &DigestArguments) -> anyhow::Result<CommandOutcome> {
    let file = &arguments.digestfile;
    let digest = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let object = DigestConfigMap::new(
        &arguments.namespace,
        &arguments.configmap_name,
        &arguments.labels,
        &digest,
    )?;
    runtime::block_on(async {
        let client = Client::try_from(arguments.connection.component_config().await?)?;
        Ok(mco_builder::publish_digest(client, &object).await?)
    })?;
    Ok(CommandOutcome::Done)
}
