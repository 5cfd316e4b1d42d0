//! Node heartbeats in place of a kubelet: the Ready condition and the node Lease.
//!
//! If the machine also runs a kubelet, the kubelet's Lease is enough and nothing is written here.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use mco_host::Machine;
use mco_host::os::OsRelease;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::FIELD_MANAGER;

/// Renewal interval and Lease duration, as for a kubelet.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How often an unchanged status is repeated, as by a kubelet.
const STATUS: Duration = Duration::from_mins(5);
const READY: &str = "Ready";

/// Node information that does not change while the machine is up.
#[derive(Debug, Clone)]
pub(super) struct MachineFacts {
    node_info: Value,
}

impl MachineFacts {
    pub fn of(machine: &Machine) -> Self {
        let release = OsRelease::read(&machine.root).unwrap_or_default();
        let boot = machine
            .power
            .boot_id(&machine.root)
            .map_or_else(|_| String::new(), |boot| boot.to_string());
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            node_info: json!({
                "architecture": architecture(),
                "bootID": boot,
                "containerRuntimeVersion": "none://",
                "kernelVersion": kernel.trim(),
                "kubeProxyVersion": "",
                "kubeletVersion": format!("mco-{}", env!("CARGO_PKG_VERSION")),
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": format!("{} {}", release.id(), release.version()).trim(),
                "systemUUID": "",
            }),
        }
    }
}

/// Returns the architecture under its Kubernetes name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Sends heartbeats until cancelled.
pub(super) async fn keep(client: Client, node: String, facts: MachineFacts, stop: CancellationToken) {
    let mut presence = NodeLease {
        leases: Api::namespaced(client.clone(), LEASE_NAMESPACE),
        nodes: Api::all(client),
        holder: format!("mco-daemon/{node}"),
        node,
        facts,
        renewed: None,
        reported: None,
    };
    let mut failing = false;
    loop {
        match presence.beat().await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                tracing::warn!(%error, node = presence.node, "could not send a heartbeat");
                failing = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
    }
}

struct NodeLease {
    leases: Api<Lease>,
    nodes: Api<Node>,
    node: String,
    holder: String,
    facts: MachineFacts,
    renewed: Option<Instant>,
    reported: Option<Instant>,
}

impl NodeLease {
    async fn beat(&mut self) -> Result<(), kube::Error> {
        if !self.renew().await? {
            self.renewed = None;
            return Ok(());
        }
        let was_away = self
            .renewed
            .is_none_or(|at| at.elapsed() > Duration::from_secs(LEASE_SECONDS.unsigned_abs().into()));
        if was_away || self.reported.is_none_or(|at| at.elapsed() > STATUS) {
            self.report_ready().await?;
            self.reported = Some(Instant::now());
        }
        self.renewed = Some(Instant::now());
        Ok(())
    }

    /// Renews the Lease, unless a kubelet does.
    async fn renew(&self) -> Result<bool, kube::Error> {
        let now = Timestamp::now();
        let spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{now:.6}"),
        });
        let Some(found) = self.leases.get_opt(&self.node).await? else {
            let lease = json!({
                "metadata": {"name": self.node, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            });
            let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            self.leases.create(&FIELD_MANAGER.post_params(), &lease).await?;
            return Ok(true);
        };
        if self.is_kept_by_another(&found, now) {
            return Ok(false);
        }
        let patch = Patch::Merge(json!({"spec": spec}));
        self.leases
            .patch(&self.node, &FIELD_MANAGER.patch_params(), &patch)
            .await?;
        Ok(true)
    }

    fn is_kept_by_another(&self, lease: &Lease, now: Timestamp) -> bool {
        let Some(spec) = &lease.spec else { return false };
        let (Some(holder), Some(renewed)) = (&spec.holder_identity, &spec.renew_time) else {
            return false;
        };
        let age = now.duration_since(renewed.0);
        *holder != self.holder && age < SignedDuration::from_secs(LEASE_SECONDS.into())
    }

    /// Writes the Ready condition.
    async fn report_ready(&self) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        let node = self.nodes.get(&self.node).await?;
        let conditions = node.status.and_then(|status| status.conditions);
        let before = conditions.and_then(|all| all.into_iter().find(|one| one.type_ == READY));
        let since = before
            .filter(|before| before.status == "True")
            .and_then(|before| before.last_transition_time)
            .map_or(now, |time| time.0);
        let status = json!({"status": {
            "conditions": [{
                "type": READY,
                "status": "True",
                "reason": "DaemonReady",
                "message": "mco daemon is posting ready status",
                "lastHeartbeatTime": format!("{now:.0}"),
                "lastTransitionTime": format!("{since:.0}"),
            }],
            "nodeInfo": self.facts.node_info,
        }});
        let patch = Patch::Strategic(&status);
        self.nodes
            .patch_status(&self.node, &FIELD_MANAGER.patch_params(), &patch)
            .await?;
        Ok(())
    }
}
