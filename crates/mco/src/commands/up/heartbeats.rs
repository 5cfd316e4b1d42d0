//! Heartbeats of joined machines: a node whose Lease is not renewed becomes NotReady.
//!
//! Local nodes have no Lease: they end with this process.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::FIELD_MANAGER;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The default node monitor grace period of Kubernetes.
const GRACE: Duration = Duration::from_secs(40);

/// When each Lease was last seen to change, by the local clock: clocks of machines may differ.
type SeenLeases = HashMap<String, (Option<Timestamp>, Instant)>;

pub async fn watch(client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let mut seen = SeenLeases::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        if let Err(error) = check_leases(&client, &mut seen).await {
            tracing::warn!("cannot read the Leases of nodes: {error:#}");
        }
    }
}

async fn check_leases(client: &Client, seen: &mut SeenLeases) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let all = leases.list(&ListParams::default()).await.context("list leases")?;
    let now = Instant::now();
    for lease in all {
        let Some(name) = lease.metadata.name else { continue };
        let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
        if time_since_renewal(seen, &name, renewed, now) > GRACE {
            set_ready_unknown(client, &name).await?;
        }
    }
    Ok(())
}

/// Returns the time since a Lease was last seen to change.
fn time_since_renewal(
    seen: &mut SeenLeases,
    name: &str,
    renewed: Option<Timestamp>,
    now: Instant,
) -> Duration {
    let last = seen.entry(name.to_owned()).or_insert((renewed, now));
    if last.0 != renewed {
        *last = (renewed, now);
    }
    now.duration_since(last.1)
}

async fn set_ready_unknown(client: &Client, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(name).await.context("read a node")? else {
        return Ok(());
    };
    let conditions = node
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    if !conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
    {
        return Ok(());
    }
    tracing::warn!(node = name, "the node stopped renewing its Lease");
    let now = Timestamp::now();
    let patch = json!({"status": {"conditions": [{
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": format!("{now:.0}"),
    }]}});
    nodes
        .patch_status(name, &FIELD_MANAGER.patch_params(), &Patch::Strategic(&patch))
        .await
        .context("mark a node")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_measured_by_the_local_clock() {
        let mut seen = SeenLeases::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let renewed = |second| Timestamp::from_second(second).ok();
        assert_eq!(
            time_since_renewal(&mut seen, "a", renewed(1), at(0)),
            Duration::ZERO,
            "regardless of its renewTime"
        );
        assert_eq!(
            time_since_renewal(&mut seen, "a", renewed(1), at(30)),
            Duration::from_secs(30)
        );
        assert_eq!(
            time_since_renewal(&mut seen, "a", renewed(2), at(50)),
            Duration::ZERO
        );
        assert_eq!(
            time_since_renewal(&mut seen, "b", renewed(2), at(50)),
            Duration::ZERO
        );
        assert_eq!(
            time_since_renewal(&mut seen, "a", renewed(2), at(91)),
            Duration::from_secs(41)
        );
    }
}
