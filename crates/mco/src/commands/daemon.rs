//! `mco daemon`

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use mco_core::config::manifest::LARGEST_FILE;
use mco_core::config::remote::ContentKey;
use mco_daemon::agent::{self, AgentOptions, KubeletCheck, SecretEndpoint};
use mco_daemon::config::NodeConfig;
use mco_daemon::firstboot::{self, FirstBoot as Completed};
use mco_daemon::guard::{self, GuardEnd, GuardOptions, GuardTiming};
use mco_daemon::member::{self, MemberRecord};
use mco_daemon::once::{self, OnceOutcome as Applied, RebootPolicy};
use mco_daemon::status::{self, DaemonActivity, DaemonStatusReport};
use mco_daemon::transaction::Uninterrupted;
use mco_daemon::validate::{self, FileShape, Mismatch};
use mco_host::os::OsBackend;
use mco_host::{HostCommands, Machine};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{hosted, join};
use crate::cli::daemon::{
    Daemon, DaemonCommand, DaemonStart, DaemonStatus, DaemonValidate, FirstBootArguments, InRoot,
    MachineOptions, OnceFrom,
};
use crate::input::count;
use crate::log::Log;
use crate::output::{self, CommandOutcome};
use crate::remote;

/// Timeout of a graceful shutdown, slightly below the pod's termination grace period. An interrupted step is completed
/// or rolled back by the next start.
const GRACE: Duration = Duration::from_secs(590);

/// The interval between attempts of a first boot. The kubelet does not start before it is complete.
const FIRST_BOOT_INTERVAL: Duration = Duration::from_mins(1);

/// The health endpoint of a kubelet, if the machine has one.
const KUBELET: &str = "http://localhost:10248/healthz";

/// The running program, independent of its path in the container.
const OWN_PROGRAM: &str = "/proc/self/exe";

pub fn run(arguments: &Daemon) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        DaemonCommand::Start(arguments) => start(arguments),
        DaemonCommand::Join(arguments) => join::run(arguments),
        DaemonCommand::Firstboot(arguments) => first_boot(arguments),
        DaemonCommand::OnceFrom(arguments) => once_from(arguments),
        DaemonCommand::Validate(arguments) => validate(arguments),
        DaemonCommand::Status(arguments) => show_status(arguments),
        DaemonCommand::Guard(arguments) => guard_change(arguments),
        DaemonCommand::InRoot(arguments) => in_root(arguments),
    }
}

/// Runs `mco-guard.service`: reverts a config with which the node is not healthy.
fn guard_change(arguments: &MachineOptions) -> anyhow::Result<CommandOutcome> {
    Log::start(std::io::stderr);
    let machine = Arc::new(machine(arguments)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .context("cannot start")?;
    match runtime.block_on(guard::watch(machine, GuardTiming::default()))? {
        GuardEnd::NotNeeded => tracing::info!("no change waits for its confirmation"),
        GuardEnd::Healthy => tracing::info!("the node is healthy; the daemon confirms the change"),
        GuardEnd::Reverted { config, because } => {
            tracing::error!(
                config,
                because,
                "the config was reverted; the machine is rebooting"
            )
        }
    }
    Ok(CommandOutcome::Done)
}

fn start(arguments: &DaemonStart) -> anyhow::Result<CommandOutcome> {
    let machine = Arc::new(machine(&arguments.machine)?);
    if let Some(directory) = &arguments.desired_configmap {
        return hosted::start(arguments, machine, directory);
    }
    let Some(node) = arguments.node_name.clone() else {
        let membership = MemberRecord::read(&machine.root)?.filter(|membership| membership.pool.is_some());
        let membership = membership.context(
            "set the Node of this machine with --node-name, or join a cluster with mco daemon join",
        )?;
        if arguments.metrics.certificate.is_some() {
            bail!("a machine that has joined an mco up cannot authenticate scrapers: omit --metrics-cert");
        }
        return keep(machine, membership, arguments.metrics.listen);
    };
    let kubeconfig = arguments.kubeconfig.clone();
    let kubelet = kubelet_check(arguments);
    let metrics = arguments.metrics.clone();
    let is_guarded = runs(&arguments.machine);
    let secrets = arguments
        .secret_files_url
        .clone()
        .zip(arguments.secret_files_credentials.clone());
    let kubelet_endpoint = arguments.kubelet_healthz_endpoint.to_string();
    serve(metrics.listen, |options, stop| async move {
        let config = client_config(kubeconfig.as_deref()).await?;
        // The address in a pod exists only as long as a kubelet runs.
        let api_server = kubeconfig.and_then(|_| guard::host_and_port(&config.cluster_url.to_string()));
        let client = kube::Client::try_from(config)?;
        let options = AgentOptions {
            metrics_access: metrics.access(&client)?,
            kubelet,
            secrets: secrets.map(|(url, credentials)| SecretEndpoint { url, credentials }),
            guard: is_guarded.then(|| GuardOptions {
                program: OWN_PROGRAM.into(),
                kubelet: kubelet_endpoint,
                api_server,
            }),
            ..options
        };
        Ok(agent::run(client, machine, node, options, stop).await?)
    })
}

fn kubelet_check(arguments: &DaemonStart) -> Option<KubeletCheck> {
    let is_asked = arguments
        .kubelet_healthz_enabled
        .unwrap_or_else(|| runs(&arguments.machine));
    is_asked.then(|| KubeletCheck::new(arguments.kubelet_healthz_endpoint.clone()))
}

/// Runs the daemon of a machine that has joined an `mco up` and has no kubelet.
pub fn keep(
    machine: Arc<Machine>,
    membership: MemberRecord,
    metrics_listen: Option<SocketAddr>,
) -> anyhow::Result<CommandOutcome> {
    let is_guarded = machine.os.backend() != OsBackend::Simulated;
    serve(metrics_listen, |options, stop| async move {
        let client = join::client(&machine).await?;
        let options = AgentOptions {
            // Without a kubelet: only the way to the API server is checked.
            guard: is_guarded.then(|| GuardOptions {
                program: OWN_PROGRAM.into(),
                kubelet: KUBELET.to_owned(),
                api_server: None,
            }),
            ..options
        };
        Ok(Box::pin(member::run(client, machine, &membership, options, stop)).await?)
    })
}

/// Runs a daemon until a signal. One thread waits for the cluster, another works on the machine, so that the node's
/// other cores stay free.
pub fn serve<Work>(
    listen: Option<SocketAddr>,
    work: impl FnOnce(AgentOptions, CancellationToken) -> Work,
) -> anyhow::Result<CommandOutcome>
where
    Work: Future<Output = anyhow::Result<()>>,
{
    Log::start(std::io::stderr);
    // Fails only if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            stopped.cancel();
        });
        let options = AgentOptions {
            listen,
            notify_socket: std::env::var_os("NOTIFY_SOCKET"),
            grace: GRACE,
            alone: true,
            ..AgentOptions::default()
        };
        work(options, stop).await
    })?;
    Ok(CommandOutcome::Done)
}

pub async fn client_config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    Ok(match kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer()
            .await
            .context("cannot find out how to reach the cluster")?,
    })
}

/// Returns whether the options refer to a real machine, and not to a directory that simulates one.
fn runs(options: &MachineOptions) -> bool {
    options.root == Path::new("/") || Machine::runs_at(&options.root)
}

pub fn machine(options: &MachineOptions) -> anyhow::Result<Machine> {
    let root = options.root.as_path();
    Ok(if root == Path::new("/") {
        Machine::this()?
    } else if Machine::runs_at(root) {
        Machine::mounted(root, launcher(root))?
    } else {
        Machine::directory(root)?
    })
}

fn first_boot(arguments: &FirstBootArguments) -> anyhow::Result<CommandOutcome> {
    let machine = machine(&arguments.machine)?;
    if arguments.persist_nics {
        return persist_nics(arguments, &machine);
    }
    let reboots = reboot_policy(arguments.skip_reboot);
    let completed = loop {
        match firstboot::complete(&machine, reboots) {
            Err(error) if arguments.retry => {
                output::failure(&error.into());
                std::thread::sleep(FIRST_BOOT_INTERVAL);
            }
            completed => break completed?,
        }
    };
    output::print(&match completed {
        Completed::NotNeeded => "nothing to complete: this is not a first boot\n".to_owned(),
        Completed::Complete { config } => format!("{config}: the first boot is complete\n"),
        Completed::NeedsReboot { config } => format!("{config}: in place; boot the machine to finish\n"),
        Completed::Rebooting { config } => format!("{config}: in place; the machine is booting\n"),
    })?;
    Ok(CommandOutcome::Done)
}

/// Pins the names of network interfaces. Only a running machine has tools for it.
fn persist_nics(arguments: &FirstBootArguments, machine: &Machine) -> anyhow::Result<CommandOutcome> {
    if !runs(&arguments.machine) {
        bail!("--persist-nics needs a running machine, and a directory only simulates one");
    }
    let root = arguments.machine.root.as_path();
    let commands = if root == Path::new("/") {
        HostCommands::default()
    } else {
        HostCommands::through(launcher(root))
    };
    let changed = mco_host::os::persist_nic_names(&machine.root, &commands)?;
    let text = match changed.len() {
        0 => "no kernel argument had to change\n".to_owned(),
        number => format!("{} for the next boot\n", count(number, "kernel argument")),
    };
    output::print(&text)?;
    Ok(CommandOutcome::Done)
}

/// Returns the command prefix that changes to a root.
fn launcher(root: &Path) -> Vec<OsString> {
    let launcher = [OWN_PROGRAM, "daemon", "in-root"].map(OsString::from);
    launcher.into_iter().chain([root.into()]).collect()
}

fn reboot_policy(skip_reboot: bool) -> RebootPolicy {
    if skip_reboot {
        RebootPolicy::Never
    } else {
        RebootPolicy::WhenNeeded
    }
}

/// Replaces this process with another program; returns only on failure.
fn in_root(arguments: &InRoot) -> anyhow::Result<CommandOutcome> {
    let Some((program, options)) = arguments.command.split_first() else {
        bail!("no program was named");
    };
    let error = mco_host::run_within(&arguments.root, program, options);
    if error.kind() == std::io::ErrorKind::NotFound {
        std::process::exit(mco_host::NOT_INSTALLED);
    }
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

fn once_from(arguments: &OnceFrom) -> anyhow::Result<CommandOutcome> {
    let file = arguments.file.display().to_string();
    let bytes = if file.contains("://") {
        fetched(&file, arguments)?
    } else {
        read(&file, arguments)?
    };
    // The name of a config is that of its file, without what follows the path of a URL.
    let name = file.split(['?', '#']).next().unwrap_or(&file);
    let config = NodeConfig::from_document(name, &bytes)?;
    let reboots = reboot_policy(arguments.skip_reboot);
    let applied = once::apply(&machine(&arguments.machine)?, &config, reboots, &Uninterrupted)
        .with_context(|| format!("{} was not applied", config.name()))?;
    let name = config.name();
    output::print(&match applied {
        Applied::Unchanged => format!("{name}: nothing to do\n"),
        Applied::Applied { changed } => format!("{name}: applied, {} changed\n", count(changed, "path")),
        Applied::NeedsReboot { because, .. } => {
            format!("{name}: in place; boot the machine to finish ({because})\n")
        }
        Applied::Rebooting { because, .. } => {
            format!("{name}: in place; the machine is booting ({because})\n")
        }
    })?;
    Ok(CommandOutcome::Done)
}

fn fetched(url: &str, arguments: &OnceFrom) -> anyhow::Result<Vec<u8>> {
    let Some(hash) = &arguments.hash else {
        bail!("a configuration at a URL is applied only if it has the hash that --hash names");
    };
    let (authorities, networks) = (arguments.contents_ca.as_deref(), &arguments.contents_networks);
    remote::fetch_verified(url, hash, authorities, networks)
}

fn read(file: &str, arguments: &OnceFrom) -> anyhow::Result<Vec<u8>> {
    let size = fs::metadata(&arguments.file)
        .with_context(|| format!("cannot read {file}"))?
        .len();
    if size > LARGEST_FILE as u64 {
        bail!("{file}: {size} bytes are too much for a configuration; the limit is {LARGEST_FILE} bytes");
    }
    let bytes = fs::read(&arguments.file).with_context(|| format!("cannot read {file}"))?;
    if let Some(hash) = &arguments.hash {
        let key = ContentKey {
            hash: hash.clone(),
            compression: String::new(),
        };
        key.verify(&bytes)
            .with_context(|| format!("{file} is not applied"))?;
    }
    Ok(bytes)
}

fn validate(arguments: &DaemonValidate) -> anyhow::Result<CommandOutcome> {
    let machine = machine(&arguments.machine)?;
    let Some(config) = firstboot::expected(&machine)? else {
        bail!(
            "no configuration was ever applied to {}",
            arguments.machine.root.display()
        );
    };
    let mismatches = validate::validate(&machine, &config)?;
    match &arguments.output {
        Some(format) => output::print_as(format, &mismatches)?,
        None if mismatches.is_empty() => output::print(&format!("{}: no drift\n", config.name()))?,
        None => output::print(&mismatches.iter().map(describe).collect::<String>())?,
    }
    Ok(if mismatches.is_empty() {
        CommandOutcome::Done
    } else {
        CommandOutcome::Changes
    })
}

fn describe(mismatch: &Mismatch) -> String {
    let mut text = format!("{}\n", output::escape_control_chars(&mismatch.cause));
    if let (Some(expected), Some(found)) = (&mismatch.expected, &mismatch.found)
        && expected.sha256.is_some()
    {
        let _ = writeln!(text, "  expected {}, found {}", shape(expected), shape(found));
    }
    text
}

fn shape(shape: &FileShape) -> String {
    let hash: String = shape
        .sha256
        .iter()
        .flat_map(|hash| hash.chars().take(12))
        .collect();
    format!("{} bytes sha256:{hash}", shape.size.unwrap_or_default())
}

fn show_status(arguments: &DaemonStatus) -> anyhow::Result<CommandOutcome> {
    let status = status::status(&machine(&arguments.machine)?)?;
    output::show(arguments.output.as_ref(), &status, || lines(&status))?;
    Ok(CommandOutcome::Done)
}

fn lines(status: &DaemonStatusReport) -> String {
    let doing = match &status.activity {
        DaemonActivity::Idle => "nothing; idle".to_owned(),
        DaemonActivity::Interrupted {
            from,
            to,
            step,
            paths,
        } => {
            let paths = count(*paths, "path");
            format!(
                "interrupted while {step} ({paths}) on the way from {from} to {to}; the next run finishes it"
            )
        }
        DaemonActivity::AwaitingBoot { to, because } => format!("waiting for a boot into {to}: {because}"),
        DaemonActivity::Booted { to } => format!("booted into {to}; not proven yet"),
        DaemonActivity::Restarted { to } => format!("running with {to}; not confirmed yet"),
    };
    let mut text = String::new();
    let _ = writeln!(text, "config:  {}", status.config.as_deref().unwrap_or("none"));
    if let Some(image) = &status.image {
        let _ = writeln!(text, "image:   {image}");
    }
    let _ = writeln!(text, "doing:   {}", output::escape_control_chars(&doing));
    if let Some(agent) = &status.agent {
        let _ = writeln!(
            text,
            "agent:   {}, since {}",
            output::escape_control_chars(&agent.doing),
            agent.since
        );
        if let Some(request) = &agent.waits_for {
            let _ = writeln!(
                text,
                "waits:   for the controller to answer {}",
                output::escape_control_chars(request)
            );
        }
        if let Some(failure) = &agent.failure {
            let _ = writeln!(text, "failing: {}", output::escape_control_chars(failure));
        }
    }
    let _ = writeln!(text, "system:  {}", status.operating_system);
    let _ = writeln!(text, "boot id: {}", status.boot_id);
    if status.forced {
        text.push_str("forced:  the next update skips all checks\n");
    }
    text
}
