//! `mco up`: every component in one process, on an embedded control plane.

#[cfg(test)]
mod access_tests;
mod addresses;
mod admission;
mod component_policy;
mod console;
mod control_plane;
mod data_directory;
mod heartbeats;
mod ignition_server;
mod join_token_store;
mod join_tokens;
mod joining;
mod metrics;
mod node_policy;
pub mod nodes;
mod progress;
#[cfg(test)]
mod revocation_tests;
mod rotation;
mod secret_files;
pub mod simulation;
mod summary;

use std::sync::{Arc, Mutex};

use anyhow::Context;
use mco_runtime::FieldManager;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::VERSION;
use crate::cli::{TokenAction, TokenArguments, Up};
use crate::log::Log;
use crate::output::{self, CommandOutcome};
use crate::runtime;
use control_plane::ControlPlane;
pub use control_plane::bind;
use data_directory::DataDirectory;
use join_tokens::TokenRequest;

/// The field manager of the writes for local nodes.
const FIELD_MANAGER: FieldManager = FieldManager::new("mco-up");

/// A build that was interrupted here was killed, and not deleted by an administrator.
const RETRY_INTERRUPTED_BUILD: std::time::Duration = std::time::Duration::from_secs(5);

pub fn run(arguments: Up) -> anyhow::Result<CommandOutcome> {
    let join = &arguments.join;
    if join.join_token || join.list_join_tokens || join.revoke_join_token.is_some() || arguments.rotate {
        return run_on_existing(&arguments);
    }
    let directory = DataDirectory::open(arguments.data.data_dir.clone(), arguments.fresh)?;
    directory.examine(arguments.local_nodes().map(|node| node.name))?;
    let log = Log::start(Mutex::new(directory.log()?));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    runtime::run(threads, |stop| start_and_serve(arguments, directory, log, stop))?;
    Ok(CommandOutcome::Done)
}

/// Runs a command on the `mco up` that is already running.
fn run_on_existing(arguments: &Up) -> anyhow::Result<CommandOutcome> {
    let directory = DataDirectory::existing(arguments.data.data_dir.clone())?;
    runtime::block_on(async {
        match &arguments.join.revoke_join_token {
            Some(id) => join_tokens::revoke(&directory, id).await,
            None if arguments.join.list_join_tokens => join_tokens::list(&directory, None).await,
            None if arguments.rotate => rotation::rotate(&directory).await,
            None => join_tokens::issue(&TokenRequest::of_up(arguments), &directory).await,
        }
    })?;
    Ok(CommandOutcome::Done)
}

/// `mco token`
pub fn token(arguments: &TokenArguments) -> anyhow::Result<CommandOutcome> {
    let data = match &arguments.action {
        TokenAction::Create(create) => &create.data,
        TokenAction::List(list) => &list.data,
        TokenAction::Revoke(revoke) => &revoke.data,
    };
    let directory = DataDirectory::existing(data.data_dir.clone())?;
    runtime::block_on(async {
        match &arguments.action {
            TokenAction::Create(create) => {
                join_tokens::issue(&TokenRequest::of_token(create), &directory).await
            }
            TokenAction::List(list) => join_tokens::list(&directory, list.output.format.as_ref()).await,
            TokenAction::Revoke(revoke) => join_tokens::revoke(&directory, &revoke.name).await,
        }
    })?;
    Ok(CommandOutcome::Done)
}

async fn start_and_serve(
    arguments: Up,
    directory: DataDirectory,
    log: Log,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(&arguments, &directory).await?;
    let mut components = Components::new(stop.clone());
    let serving = control_plane.clone();
    components.start("the API", async move { serving.serve().await });
    let ended = match start_components(&arguments, &directory, log, &control_plane, &mut components).await {
        Ok(summary) => until_stopped(&arguments, &control_plane, &mut components, &summary).await,
        Err(error) => Err(error),
    };
    control_plane.stop().await;
    ended
}

/// Shows the startup progress, prints the summary, and runs until it is stopped.
async fn until_stopped(
    arguments: &Up,
    control_plane: &ControlPlane,
    components: &mut Components,
    summary: &str,
) -> anyhow::Result<()> {
    if !arguments.server.bare {
        let client = control_plane.client("progress");
        let started = progress::follow(&client, control_plane.url(), arguments.own_nodes());
        tokio::select! {
            () = started => {}
            ended = components.until_stopped() => return ended,
        }
    }
    output::print(summary)?;
    components.until_stopped().await
}

/// Starts all components and returns the summary.
async fn start_components(
    arguments: &Up,
    directory: &DataDirectory,
    log: Log,
    control_plane: &ControlPlane,
    components: &mut Components,
) -> anyhow::Result<String> {
    if arguments.server.bare {
        return Ok(summary::bare(directory, control_plane.url()));
    }
    let stop = components.stop.clone();
    let server = ignition_server::IgnitionServerFiles::create(directory.path())?;
    control_plane.prepare_bootstrap(&server)?;
    let listen = arguments.listen;
    let server_port = free_port(listen, arguments.server_port).await?;
    let reached_as = addresses::best(listen, &arguments.advertise);
    let options = mco_operator::OperatorOptions {
        api_server_url: Some(control_plane.url().to_owned()),
        config_server: Some(addresses::with_port(&reached_as, server_port)),
        ..mco_operator::OperatorOptions::new(VERSION)
    };
    let settings = mco_controllers::Options::new(VERSION, VERSION);
    let builder_metrics = mco_builder::Metrics::default();
    if let Some(address) = arguments.metrics_listen {
        let (operator, controllers) = (options.metrics.clone(), settings.metrics.clone());
        let builder = builder_metrics.clone();
        metrics::start(address, operator, controllers, builder, components).await?;
    }
    // Operator and operands share one process and its log level.
    tokio::spawn(log.follow(options.log_levels.subscribe(), mco_operator::LogLevels::louder));
    let in_use = Arc::clone(control_plane.in_use());
    let (follower, followed) = (control_plane.client("admission"), stop.clone());
    components.start("admission", async move {
        in_use.follow(follower, followed).await;
        Ok(())
    });
    let operator = mco_operator::run(control_plane.client("operator"), options, stop.clone());
    components.start("the operator", async move { Ok(operator.await?) });
    let controllers = mco_controllers::run(control_plane.client("controllers"), settings, stop.clone());
    components.start("the controllers", async move { Ok(controllers.await?) });
    start_builder(directory, control_plane, builder_metrics, components)?;
    components.start(
        "the Ignition server",
        ignition_server::run(
            control_plane.client("server"),
            server.clone(),
            listen,
            server_port,
            control_plane.url().to_owned(),
            stop.clone(),
        ),
    );
    let heartbeats = heartbeats::watch(control_plane.client("heartbeats"), stop.clone());
    components.start("the heartbeat monitor", heartbeats);
    if let Some(number) = arguments.simulate {
        let client = control_plane.client("fleet");
        let fleet = simulation::run(
            client,
            number.into(),
            arguments.simulation_profile(),
            stop.clone(),
        );
        components.start("the simulated fleet", fleet);
    }
    for node in arguments.local_nodes() {
        let root = directory.node(&node.name);
        let daemon = control_plane.client_of_node(&node.name);
        let kubelet = control_plane.client("kubelet");
        components.start("a local node", node.run(kubelet, daemon, root, stop.clone()));
    }
    let address = console::start(arguments.console_port, directory, control_plane, components).await?;
    let ignition = addresses::with_port(&reached_as, server_port);
    let summary = summary::full(directory, control_plane.url(), &server, &ignition);
    Ok(format!("{summary}\nconsole     {address}\n"))
}

/// Starts the image builder, and what runs its builds as processes of this machine.
fn start_builder(
    directory: &DataDirectory,
    control_plane: &ControlPlane,
    metrics: mco_builder::Metrics,
    components: &mut Components,
) -> anyhow::Result<()> {
    let options = mco_builder::Options {
        // Builds run as processes, so that no image is pulled for them.
        builder_image: Some(format!("localhost/mco:{VERSION}")),
        retry_interrupted: Some(RETRY_INTERRUPTED_BUILD),
        metrics,
        ..mco_builder::Options::default()
    };
    let builder = mco_builder::run(control_plane.client("builder"), options, components.stop.clone());
    components.start("the image builder", async move { Ok(builder.await?) });
    let local = mco_builder::local::LocalBuilds {
        directory: directory.path().join("builds"),
        program: std::env::current_exe().context("cannot find this program")?,
        tool: mco_builder::build::BuildTool::installed,
    };
    let builds = mco_builder::local::run(control_plane.client("builder"), local, components.stop.clone());
    components.start("the image builds", async move { Ok(builds.await?) });
    Ok(())
}

/// Returns the requested port, or a free one if it is in use.
async fn free_port(address: std::net::IpAddr, wanted: u16) -> anyhow::Result<u16> {
    let listener = match TcpListener::bind((address, wanted)).await {
        Err(_) => TcpListener::bind((address, 0))
            .await
            .context("there is no free port")?,
        Ok(listener) => listener,
    };
    Ok(listener.local_addr().context("there is no free port")?.port())
}

/// The running components. They stop together, because a part of the system would only appear to work.
struct Components {
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
    stop: CancellationToken,
}

impl Components {
    fn new(stop: CancellationToken) -> Self {
        Self {
            running: JoinSet::new(),
            stop,
        }
    }

    fn start(
        &mut self,
        name: &'static str,
        component: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.running.spawn(async move { (name, component.await) });
    }

    /// Waits for the stop, or for the first component that ends without one.
    async fn until_stopped(&mut self) -> anyhow::Result<()> {
        let early = tokio::select! {
            // Checked first: components that end after the stop are not early.
            biased;
            () = self.stop.cancelled() => return Ok(()),
            early = self.running.join_next() => early,
        };
        self.stop.cancel();
        match early.transpose().context("a component panicked")? {
            Some((name, Err(error))) => Err(error.context(format!("{name} stopped"))),
            Some((name, Ok(()))) => anyhow::bail!("{name} ended unexpectedly"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_component_that_ends_before_the_stop_is_an_error() {
        // Either event could be noticed first, so the test repeats.
        for _ in 0..50 {
            let mut components = Components::new(CancellationToken::new());
            let stop = components.stop.clone();
            components.start("a component", async move {
                stop.cancelled().await;
                Ok(())
            });
            components.stop.cancel();
            tokio::task::yield_now().await;
            components.until_stopped().await.unwrap();
        }
        let mut components = Components::new(CancellationToken::new());
        components.start("a component", async { Ok(()) });
        let error = components.until_stopped().await.unwrap_err();
        assert_eq!(error.to_string(), "a component ended unexpectedly");
        assert!(components.stop.is_cancelled(), "the others end with it");
    }
}
