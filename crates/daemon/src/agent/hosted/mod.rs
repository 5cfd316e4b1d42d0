//! The daemon of a node of a hosted cluster, as HyperShift runs it for updates in place.
//!
//! There are no MachineConfigs, pools or ControllerConfig in such a cluster: the desired config is in a mounted ConfigMap,
//! its name is a hash, and the controller that drains and releases the node is HyperShift's. The protocol are the
//! annotations of the Node:
//!
//! | annotation | written by | value |
//! |---|---|---|
//! | `desiredConfig` | controller | the hash to reach |
//! | `desiredDrain` | daemon | `drain-<hash>`, `uncordon-<hash>` |
//! | `lastAppliedDrain` | controller | the request that is done |
//! | `currentConfig` | daemon | the hash that is reached |
//! | `state`, `reason` | daemon | `Working`, `Done`, `Degraded` |

mod payload;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::node_state;
use mco_core::rollout::NodeAnnotations;
use mco_host::Machine;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::work::{HostedUpdate, UpdateGoal};
use super::cluster::AgentClient;
use super::decide::retry_delay;
use super::error::AgentError;
use super::isolation::isolated;
use super::report::{self, NodeReport};
use super::wake::{ClusterChange, node_changes};
pub use payload::PayloadError;

/// How soon the mounted ConfigMap is read again; the kubelet updates it within about a minute.
const MOUNT_POLL: Duration = Duration::from_secs(2);

/// What a node does next, according to its annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HostedStep {
    /// There is nothing to do.
    Idle,
    /// The controller has not answered this request.
    AwaitAnswer { request: String },
    /// Update to the config with this hash.
    Update { hash: String },
}

fn next_step(node: &NodeAnnotations) -> HostedStep {
    if let Some(request) = &node.desired_drain
        && node.last_applied_drain.as_ref() != Some(request)
    {
        return HostedStep::AwaitAnswer {
            request: request.clone(),
        };
    }
    match &node.desired_config {
        Some(hash) if !hash.is_empty() && node.current_config.as_ref() != Some(hash) => {
            HostedStep::Update { hash: hash.clone() }
        }
        _ => HostedStep::Idle,
    }
}

/// Runs the daemon until `stop`, which is handled between steps. `directory` is where the ConfigMap is mounted, below the
/// machine's root or in the container.
pub async fn run(
    client: kube::Client,
    machine: Arc<Machine>,
    node: String,
    directory: PathBuf,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let mut daemon = HostedDaemon {
        cluster: AgentClient::new(client, node),
        machine,
        directory,
        failures: 0,
    };
    let mut changes = node_changes(&daemon.cluster);
    let mut known: Option<NodeAnnotations> = None;
    let mut pause: Option<Duration> = None;
    loop {
        let timer = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        let seen = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            change = changes.next() => match change.ok_or(AgentError::WatchEnded)? {
                ClusterChange::Node(node) => Some(annotations(&node)),
                _ => continue,
            },
            () = timer => None,
        };
        if let Some(seen) = seen {
            // Own reports and heartbeats are no reason to end a backoff.
            let is_same = known
                .as_ref()
                .is_some_and(|known| next_step(known) == next_step(&seen));
            known = Some(seen);
            if is_same && pause.is_some() {
                continue;
            }
        }
        let Some(view) = known.clone() else {
            continue;
        };
        pause = match daemon.sync(&view).await {
            Ok(pause) => {
                daemon.failures = 0;
                pause
            }
            Err(error) => Some(daemon.report(&error).await),
        };
    }
}

fn annotations(node: &Node) -> NodeAnnotations {
    NodeAnnotations::of_node(node).into_owned()
}

struct HostedDaemon {
    cluster: AgentClient,
    machine: Arc<Machine>,
    directory: PathBuf,
    failures: u32,
}

impl HostedDaemon {
    /// Takes the next step. Returns when to look again without a change of the Node.
    async fn sync(&mut self, node: &NodeAnnotations) -> Result<Option<Duration>, AgentError> {
        let hash = match next_step(node) {
            HostedStep::Idle => return Ok(None),
            HostedStep::AwaitAnswer { request } => {
                info!(request, "waiting for the controller");
                return Ok(None);
            }
            HostedStep::Update { hash } => hash,
        };
        let goal = UpdateGoal {
            is_drained: node.desired_drain.as_deref() == Some(annotation::drain::drain(&hash).as_str()),
            hash: hash.clone(),
            directory: self.directory.clone(),
        };
        if !goal.is_drained {
            self.write(working(node)).await?;
        }
        let update = isolated(Arc::clone(&self.machine), self.cluster.node(), move |machine| {
            work::update(machine, &goal)
        });
        match update.await? {
            HostedUpdate::NotMounted { found } => {
                info!(
                    desired = hash,
                    found, "waiting until the ConfigMap of the desired config is mounted"
                );
                Ok(Some(MOUNT_POLL))
            }
            HostedUpdate::NeedsDrain { because } => {
                info!(hash, because, "requesting a drain");
                let request = annotation::drain::drain(&hash);
                self.write(NodeReport::from([
                    (annotation::STATE, Some(node_state::WORKING.to_owned())),
                    (annotation::REASON, Some(String::new())),
                    (annotation::DESIRED_DRAIN, Some(request)),
                ]))
                .await?;
                Ok(None)
            }
            HostedUpdate::Rebooting { because } => {
                info!(hash, because, "the machine is rebooting");
                // The process ends with the machine; a reboot that was lost is requested again.
                Ok(Some(retry_delay(u32::MAX)))
            }
            HostedUpdate::Done => {
                info!(hash, "the config is in place");
                self.write(NodeReport::from([
                    (annotation::STATE, Some(node_state::DONE.to_owned())),
                    (annotation::REASON, Some(String::new())),
                    (annotation::CURRENT_CONFIG, Some(hash.clone())),
                    (
                        annotation::DESIRED_DRAIN,
                        Some(annotation::drain::uncordon(&hash)),
                    ),
                ]))
                .await?;
                Ok(None)
            }
        }
    }

    async fn write(&self, report: NodeReport) -> Result<(), AgentError> {
        if !report.is_empty() {
            self.cluster.write(&report).await?;
        }
        Ok(())
    }

    /// Reports a failure on the Node and returns the time until the next attempt.
    async fn report(&mut self, error: &AgentError) -> Duration {
        self.failures = self.failures.saturating_add(1);
        warn!(%error, failures = self.failures, "the update failed");
        if self.failures > error.failures_before_degraded() {
            let report = NodeReport::from([
                (annotation::STATE, Some(node_state::DEGRADED.to_owned())),
                (annotation::REASON, Some(report::shortened(&error.to_string()))),
            ]);
            if let Err(unreported) = self.write(report).await {
                warn!(error = %unreported, "could not report the failure");
            }
        }
        retry_delay(self.failures)
    }
}

/// Returns the report of a node that begins to update. A failing node stays so until it is done.
fn working(node: &NodeAnnotations) -> NodeReport {
    if node.state == node_state::WORKING {
        return NodeReport::new();
    }
    report::working(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotations_decide_the_next_step() {
        let view = |current: &str, desired: &str, request: &str, answer: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            NodeAnnotations {
                current_config: some(current),
                desired_config: some(desired),
                desired_drain: some(request),
                last_applied_drain: some(answer),
                ..NodeAnnotations::default()
            }
        };
        let update = HostedStep::Update { hash: "b".to_owned() };
        let waits = |request: &str| HostedStep::AwaitAnswer {
            request: request.to_owned(),
        };
        for (node, expected) in [
            (view("", "", "", ""), HostedStep::Idle),
            (view("a", "", "", ""), HostedStep::Idle),
            (view("b", "b", "", ""), HostedStep::Idle),
            (view("", "b", "", ""), update.clone()),
            (view("a", "b", "", ""), update.clone()),
            (view("a", "b", "drain-b", ""), waits("drain-b")),
            (view("a", "b", "drain-b", "uncordon-a"), waits("drain-b")),
            (view("a", "b", "drain-b", "drain-b"), update.clone()),
            (view("a", "b", "uncordon-a", "uncordon-a"), update),
            (view("b", "b", "uncordon-b", "drain-b"), waits("uncordon-b")),
            (view("b", "b", "uncordon-b", "uncordon-b"), HostedStep::Idle),
        ] {
            assert_eq!(next_step(&node), expected, "{node:?}");
        }
    }
}
