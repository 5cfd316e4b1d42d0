//! The namespaces and the CustomResourceDefinitions.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use mco_api::crd::{CustomResourceDefinition, companion_crds, own_crds};
use mco_api::vocabulary::names;

use crate::cluster::{Cluster, ClusterError, failed, metadata};
use crate::manifests;

/// A definition is served a moment after it is stored.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Our own namespace, and the one that machines' user data belongs into.
pub async fn namespaces(cluster: &Cluster) -> Result<(), ClusterError> {
    cluster.apply(&manifests::namespace()).await?;
    let machines = Namespace {
        metadata: metadata(None, names::MACHINE_API_NAMESPACE),
        ..Namespace::default()
    };
    cluster.create_if_absent(&machines).await
}

/// Our own definitions as this build has them; those of others only where they are missing.
pub async fn definitions(cluster: &Cluster) -> Result<(), ClusterError> {
    for definition in own_crds() {
        cluster.apply(&definition).await?;
    }
    for definition in companion_crds() {
        cluster.create_if_absent(&definition).await?;
    }
    for definition in own_crds().iter().chain(&companion_crds()) {
        established(cluster, definition.metadata.name.as_deref().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Waits until the API server knows the kind. Running out of time is no failure: whoever uses the kind will say so.
async fn established(cluster: &Cluster, name: &str) -> Result<(), ClusterError> {
    let definitions = cluster.all::<CustomResourceDefinition>();
    let deadline = tokio::time::Instant::now() + ESTABLISHED_WITHIN;
    while tokio::time::Instant::now() < deadline {
        let found = definitions.get_opt(name).await;
        let found = found.map_err(failed("reading", || format!("CustomResourceDefinition {name}")))?;
        let status = found.and_then(|found| found.status);
        let mut conditions = status
            .into_iter()
            .flat_map(|status| status.conditions.unwrap_or_default());
        if conditions.any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
