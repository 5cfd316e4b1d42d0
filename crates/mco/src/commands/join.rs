//! `mco daemon join`: joins a real machine, or a directory that simulates one, to a running `mco up`.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use mco_daemon::member::{self, Invitation, MemberRecord};
use mco_host::systemd::{ServiceAction, UNIT_DIRECTORY};
use mco_host::{Attributes, Machine, RootedPath};

use super::daemon;
use crate::cli::daemon::{DaemonJoin, MachineOptions};
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// More than any token has.
const MAX_TOKEN_FILE: u64 = 4096;
const SERVICE: &str = "mco-daemon.service";
/// Timeout of a request with the existing credential. On timeout the machine joins again, which reports why the server
/// does not respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

pub fn run(arguments: &DaemonJoin) -> anyhow::Result<CommandOutcome> {
    let token = token(arguments)?;
    let invitation: Invitation = token.parse()?;
    if let Some(hash) = arguments.ca_hash
        && hash != invitation.authority
    {
        bail!(
            "--ca-hash is {hash}, but the token is for a server with the CA {}; nothing was sent. Paste both from one \
             mco up --join-token",
            invitation.authority
        );
    }
    let machine = machine(&arguments.machine)?;
    let node = match &arguments.node_name {
        Some(name) => name.clone(),
        None => own_name(&arguments.machine.root)?,
    };
    let membership = runtime::block_on(joined(&machine, &arguments.server, &invitation, &node))?;
    let pool = membership.pool.as_deref().unwrap_or_default();
    output::print(&format!(
        "{node} belongs to pool {pool} of {}\n",
        membership.server
    ))?;
    let is_this_machine = arguments.machine.root == Path::new("/");
    if !arguments.foreground && is_this_machine && Machine::runs_at(Path::new("/")) {
        install_service(&machine, arguments)?;
        output::print(&format!(
            "its daemon runs as {SERVICE}; follow it with: mco daemon status\n"
        ))?;
        return Ok(CommandOutcome::Done);
    }
    output::print("running until Ctrl-C; mco daemon start resumes it\n")?;
    if std::env::args().any(|argument| argument.contains(&token)) {
        return restart_without_token(arguments);
    }
    daemon::keep(machine, membership, arguments.metrics_listen)
}

/// Reads the join token from the file, the option or the environment variable.
fn token(arguments: &DaemonJoin) -> anyhow::Result<String> {
    let text = match (&arguments.token_file, &arguments.token) {
        (Some(path), _) if path == Path::new("-") => {
            let mut text = String::new();
            io::stdin()
                .take(MAX_TOKEN_FILE)
                .read_to_string(&mut text)
                .context("cannot read the join token from standard input")?;
            text
        }
        (Some(path), _) => fs::read_to_string(path)
            .with_context(|| format!("cannot read the join token {}", path.display()))?,
        (None, Some(token)) => token.clone(),
        (None, None) => bail!("a join token is required: --token-file FILE, or - for standard input"),
    };
    Ok(text.trim().to_owned())
}

/// Replaces this process by the daemon of the machine. Any user can read the arguments of a process, and this one runs
/// for as long as the machine.
fn restart_without_token(arguments: &DaemonJoin) -> anyhow::Result<CommandOutcome> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut start = Command::new(program);
    start
        .args(["daemon", "start", "--root"])
        .arg(&arguments.machine.root)
        .env_remove("MCO_JOIN_TOKEN");
    if let Some(address) = arguments.metrics_listen {
        start.arg("--metrics-listen").arg(address.to_string());
    }
    Err(start.exec()).context("cannot start the daemon of this machine")
}

/// Returns the client of a machine that has joined.
pub async fn client(machine: &Machine) -> anyhow::Result<Client> {
    let text = member::kubeconfig(&machine.root)?
        .context("this machine no longer has credentials; join again with mco daemon join")?;
    let file = Kubeconfig::from_yaml(&text)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn machine(options: &MachineOptions) -> anyhow::Result<Arc<Machine>> {
    let root = options.root.as_path();
    Ok(Arc::new(if Machine::runs_at(root) {
        daemon::machine(options)?
    } else {
        Machine::create_directory(root)?
    }))
}

/// Joins, or returns the existing membership, for which the token may have expired.
async fn joined(
    machine: &Machine,
    server: &str,
    invitation: &Invitation,
    node: &str,
) -> anyhow::Result<MemberRecord> {
    if let Some(known) = MemberRecord::read(&machine.root)?
        && known.is_complete(server, node)
        && is_node_registered(machine, node).await
    {
        return Ok(known);
    }
    Ok(member::join(&machine.root, server, invitation, node).await?)
}

async fn is_node_registered(machine: &Machine, node: &str) -> bool {
    let Ok(client) = client(machine).await else {
        return false;
    };
    let nodes: Api<Node> = Api::all(client);
    matches!(
        tokio::time::timeout(RESPONSE_TIMEOUT, nodes.get_opt(node)).await,
        Ok(Ok(Some(_)))
    )
}

/// Returns the machine's host name; for a directory without one, the directory's name.
fn own_name(root: &Path) -> anyhow::Result<String> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        Some(text.trim().to_lowercase()).filter(|name| !name.is_empty() && name != "localhost")
    };
    let name = if root == Path::new("/") {
        read(Path::new("/proc/sys/kernel/hostname"))
    } else {
        read(&root.join("etc/hostname")).or_else(|| {
            let name = root.canonicalize().ok()?;
            Some(name.file_name()?.to_string_lossy().to_lowercase())
        })
    };
    name.context("this machine has no name; choose one with --node-name")
}

fn install_service(machine: &Machine, arguments: &DaemonJoin) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let listen = arguments
        .metrics_listen
        .map(|address| format!(" --metrics-listen {address}"));
    let command = format!(
        "\"{}\" daemon start{}",
        program.display().to_string().replace('%', "%%"),
        listen.unwrap_or_default()
    );
    let unit = format!(
        "[Unit]\nDescription=Machine Config Daemon\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nType=exec\nNotifyAccess=main\nExecStart={command}\nRestart=always\nRestartSec=5\n\
         # A step in progress is completed before the daemon exits.\nTimeoutStopSec=600\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    );
    let path = RootedPath::new(&format!("{UNIT_DIRECTORY}/{SERVICE}"))?;
    machine
        .root
        .write_atomically(&path, Attributes::root(0o644), unit.as_bytes())?;
    let service = || SERVICE.to_owned();
    for action in [
        ServiceAction::DaemonReload,
        ServiceAction::Enable(service()),
        ServiceAction::Restart(service()),
    ] {
        machine.services.perform(&action).with_context(|| {
            format!("the machine has joined, but its daemon is not running: cannot {action}")
        })?;
    }
    Ok(())
}
