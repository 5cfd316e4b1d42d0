//! Watching over machines that have joined: one whose Lease nobody renews is not ready any more.
//!
//! Local nodes keep no Lease: they live and die with this process.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const LOOK: Duration = Duration::from_secs(5);
/// As long as Kubernetes waits by default before it stops believing in a node.
const GRACE: Duration = Duration::from_secs(40);

/// When a Lease was last seen to change, by our own clock: the machines' clocks may be anything.
type Seen = HashMap<String, (Option<Timestamp>, Instant)>;

pub async fn watch(client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let mut seen = Seen::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
        if let Err(error) = look(&client, &mut seen).await {
            tracing::warn!("the machines' signs of life cannot be read: {error:#}");
        }
    }
}

async fn look(client: &Client, seen: &mut Seen) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let all = leases.list(&ListParams::default()).await.context("list leases")?;
    let now = Instant::now();
    for lease in all {
        let Some(name) = lease.metadata.name else { continue };
        let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
        if silent(seen, &name, renewed, now) > GRACE {
            say_unknown(client, &name).await?;
        }
    }
    Ok(())
}

/// How long a machine has been silent.
fn silent(seen: &mut Seen, name: &str, renewed: Option<Timestamp>, now: Instant) -> Duration {
    let last = seen.entry(name.to_owned()).or_insert((renewed, now));
    if last.0 != renewed {
        *last = (renewed, now);
    }
    now.duration_since(last.1)
}

async fn say_unknown(client: &Client, name: &str) -> anyhow::Result<()> {
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
    tracing::warn!(node = name, "the machine does not show that it lives");
    let now = Timestamp::now();
    let patch = json!({"status": {"conditions": [{
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": format!("{now:.0}"),
    }]}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
        .context("mark a node")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_measured_by_our_own_clock() {
        let mut seen = Seen::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let renewed = |second| Timestamp::from_second(second).ok();
        assert_eq!(
            silent(&mut seen, "a", renewed(1), at(0)),
            Duration::ZERO,
            "however old it says it is"
        );
        assert_eq!(
            silent(&mut seen, "a", renewed(1), at(30)),
            Duration::from_secs(30)
        );
        assert_eq!(silent(&mut seen, "a", renewed(2), at(50)), Duration::ZERO);
        assert_eq!(silent(&mut seen, "b", renewed(2), at(50)), Duration::ZERO);
        assert_eq!(
            silent(&mut seen, "a", renewed(2), at(91)),
            Duration::from_secs(41)
        );
    }
}
