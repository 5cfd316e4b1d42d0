//! The steps of a switch, as values that are printed first and then carried out.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use mco_client::switch::{self, UnsettledNode};
use serde_json::{Value, json};

use super::cluster::SwitchCluster;
use crate::cli::SwitchSteps;
use crate::commands::uninstall::{self, UninstallStep};
use crate::input;
use crate::output::{self, CommandOutcome};

/// Polling interval for nodes, which take minutes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Polling interval for deleted objects, which are gone once the garbage collector has processed them.
const DELETION_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout of a deletion: pods have 30 seconds to terminate, and a Lease lasts about two minutes.
pub const GONE_WITHIN: Duration = Duration::from_mins(5);

/// One step of a switch.
#[derive(Debug, Clone, PartialEq)]
pub enum SwitchStep {
    /// Writes the objects to a file.
    Save {
        file: PathBuf,
        objects: Vec<Value>,
    },
    Pause(String),
    /// Waits until no node is in the middle of an update.
    WaitForNodes,
    /// Patches the ClusterVersion.
    AddOverrides(Value),
    RemoveOverrides(Value),
    /// Deletes an object and waits until it is gone.
    Delete(Value),
    /// Waits until no controller holds the Lease, because it would undo the next steps.
    WaitForControllers,
    /// Removes our finalizer from all MachineConfigs.
    ReleaseConfigs(usize),
    /// Removes our drain records from nodes.
    ForgetDrains(usize),
    Restore(Vec<Value>),
    Resume(String),
    Uninstall(UninstallStep),
}

impl fmt::Display for SwitchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save { file, objects } => write!(f, "save {} to {}", listed(objects), file.display()),
            Self::Pause(pool) => write!(f, "pause pool {pool}"),
            Self::WaitForNodes => f.write_str("wait until no node is being updated or drained"),
            Self::AddOverrides(_) => f.write_str("add overrides to the ClusterVersion"),
            Self::RemoveOverrides(_) => {
                f.write_str("remove the overrides that were added to the ClusterVersion")
            }
            Self::Delete(object) => write!(f, "delete {}", described(object)),
            Self::WaitForControllers => f.write_str("wait until no controller holds the Lease"),
            Self::ReleaseConfigs(count) => {
                write!(
                    f,
                    "release {} from our finalizer",
                    input::count(*count, "MachineConfig")
                )
            }
            Self::ForgetDrains(count) => {
                write!(f, "remove our drain record from {}", input::count(*count, "node"))
            }
            Self::Restore(objects) => write!(f, "create {}", listed(objects)),
            Self::Resume(pool) => write!(f, "resume pool {pool}"),
            Self::Uninstall(step) => step.fmt(f),
        }
    }
}

/// Prints the steps, asks for confirmation unless disabled, and carries them out.
pub async fn carry_out(
    cluster: &SwitchCluster,
    steps: &[SwitchStep],
    how: &SwitchSteps,
) -> anyhow::Result<CommandOutcome> {
    if steps.is_empty() {
        output::print("nothing to do\n")?;
        return Ok(CommandOutcome::Done);
    }
    let patience = parse_timeout(&how.timeout)?;
    for step in steps {
        output::print(&format!(
            "- {}\n",
            output::escape_control_chars(&step.to_string())
        ))?;
    }
    if how.dry_run {
        return Ok(CommandOutcome::Changes);
    }
    if !how.yes && !input::confirmed()? {
        output::print("nothing was changed\n")?;
        return Ok(CommandOutcome::Refused);
    }
    output::print("\n")?;
    for step in steps {
        perform(cluster, step, patience).await?;
        output::print(&format!(
            "done: {}\n",
            output::escape_control_chars(&step.to_string())
        ))?;
    }
    Ok(CommandOutcome::Done)
}

async fn perform(cluster: &SwitchCluster, step: &SwitchStep, patience: Duration) -> anyhow::Result<()> {
    match step {
        SwitchStep::Save { file, objects } => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            let text = mco_core::config::goyaml::to_string(&list);
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
        }
        SwitchStep::Pause(name) => each_pool(cluster, name, switch::pause).await,
        SwitchStep::Resume(name) => each_pool(cluster, name, switch::resume).await,
        SwitchStep::WaitForNodes => wait_for_nodes(cluster, patience).await,
        SwitchStep::AddOverrides(patch) | SwitchStep::RemoveOverrides(patch) => {
            cluster.patch(&cluster_version(), patch).await
        }
        SwitchStep::Delete(object) => {
            cluster.delete(object).await?;
            let what = format!("{} is still there", described(object));
            wait_until(GONE_WITHIN, &what, async || {
                Ok(cluster.find(object).await?.is_none())
            })
            .await
        }
        SwitchStep::WaitForControllers => {
            let what = "a controller still holds its Lease; stop it and retry";
            wait_until(GONE_WITHIN, what, async || Ok(cluster.leader().await?.is_none())).await
        }
        SwitchStep::ReleaseConfigs(_) => release_configs(cluster).await.map(|_| ()),
        SwitchStep::ForgetDrains(_) => {
            for node in cluster.nodes().await? {
                if let Some(patch) = switch::clear_drain(&node) {
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    cluster.patch_node(name, &patch).await?;
                }
            }
            Ok(())
        }
        SwitchStep::Restore(objects) => {
            for object in objects {
                cluster.create(object).await?;
            }
            Ok(())
        }
        SwitchStep::Uninstall(step) => uninstall::perform(cluster, step, patience).await,
    }
}

/// Removes our finalizer from all MachineConfigs that have it, and returns their number.
pub async fn release_configs(cluster: &SwitchCluster) -> anyhow::Result<usize> {
    let held = held_configs(cluster).await?;
    let count = held.len();
    for config in held {
        cluster
            .patch_metadata(config, |config| switch::release(&config.metadata))
            .await?;
    }
    Ok(count)
}

/// Returns the MachineConfigs that have our finalizer.
pub async fn held_configs(
    cluster: &SwitchCluster,
) -> anyhow::Result<Vec<kube::core::PartialObjectMeta<mco_api::MachineConfig>>> {
    let mut configs = cluster
        .metadata_of::<mco_api::MachineConfig>("MachineConfigs")
        .await?;
    configs.retain(|config| switch::release(&config.metadata).is_some());
    Ok(configs)
}

async fn each_pool(
    cluster: &SwitchCluster,
    name: &str,
    change: impl Fn(&mco_api::MachineConfigPool) -> Option<Value>,
) -> anyhow::Result<()> {
    let pools = cluster.pools().await?;
    let pool = pools
        .iter()
        .find(|pool| pool.metadata.name.as_deref() == Some(name));
    match pool.and_then(change) {
        Some(patch) => cluster.patch_pool(name, &patch).await,
        None => Ok(()),
    }
}

/// Waits for the nodes and prints the ones it waits for on every change.
async fn wait_for_nodes(cluster: &SwitchCluster, patience: Duration) -> anyhow::Result<()> {
    wait_for_nodes_that(cluster, patience, |nodes| switch::unsettled(nodes)).await
}

/// Waits until `unsettled` returns no node.
pub async fn wait_for_nodes_that(
    cluster: &SwitchCluster,
    patience: Duration,
    unsettled: impl Fn(&[Node]) -> Vec<UnsettledNode>,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut printed: Vec<UnsettledNode> = Vec::new();
    loop {
        let unsettled = unsettled(&cluster.nodes().await?);
        if unsettled.is_empty() {
            return Ok(());
        }
        if unsettled != printed {
            output::print(&waiting(&unsettled))?;
            printed.clone_from(&unsettled);
        }
        if tokio::time::Instant::now() >= deadline {
            bail!(
                "{} not settled in time; see mco status --nodes, or hand over in the middle with --no-wait",
                if unsettled.len() == 1 {
                    "1 node is".to_owned()
                } else {
                    format!("{} nodes are", unsettled.len())
                }
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the nodes that a command waits for, one line each.
pub fn waiting(unsettled: &[UnsettledNode]) -> String {
    let lines = unsettled
        .iter()
        .map(|one| output::escape_control_chars(&format!("  node {} {}", one.node, one.why)) + "\n");
    lines.collect()
}

pub async fn wait_until(
    patience: Duration,
    otherwise: &str,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    while !holds().await? {
        if tokio::time::Instant::now() >= deadline {
            bail!("{otherwise}");
        }
        tokio::time::sleep(DELETION_POLL_INTERVAL).await;
    }
    Ok(())
}

fn parse_timeout(text: &str) -> anyhow::Result<Duration> {
    let parsed: SignedDuration = text
        .parse()
        .with_context(|| format!("--timeout: {text:?} is not a time such as 90s, 30m or 2h"))?;
    Duration::try_from(parsed).context("--timeout: must not be negative")
}

/// Returns a reference to the ClusterVersion, which only OpenShift has.
pub fn cluster_version() -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}})
}

/// Returns the object's kind and name, as kubectl prints them.
pub fn described(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

pub fn listed(objects: &[Value]) -> String {
    let all: Vec<String> = objects.iter().map(described).collect();
    all.join(", ")
}
