//! Writes the ClusterOperator, and events when its version or degradation changes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use kube::api::Patch;
use mco_api::crd::CompanionKinds;
use mco_api::foreign::cluster_operator::{ClusterOperator, ClusterOperatorSpec, ClusterOperatorStatus};
use mco_api::vocabulary::{events, names};
use mco_api::{MachineConfigPool, plain};
use mco_runtime::{EventQueue, EventType, Repeats};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed};
use crate::cluster_operator::{self, ClusterOperatorInputs};
use crate::options::OperatorOptions;
use crate::progress::SyncProgress;

/// The reporting controller of events.
const REPORTER: &str = "machineconfigoperator";

/// The inputs of a report that do not come from the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story<'a> {
    pub release: &'a str,
    pub bringup: bool,
    pub progress: &'a SyncProgress,
    pub pools: &'a [MachineConfigPool],
    pub evaluation: Option<&'a str>,
    pub boot_images: Option<&'a str>,
    /// Whether the state is a ClusterOperator's or, on clusters without that kind, of our own one.
    pub kinds: CompanionKinds,
}

/// Creates the ClusterOperator if there is none, so that the bootstrap of a cluster can be followed.
pub(crate) async fn announce(cluster: &OperatorClient, kinds: CompanionKinds) -> Result<(), ClusterError> {
    if find(cluster, kinds).await?.is_none() {
        let created = create(cluster, kinds).await?;
        write(cluster, kinds, &created, cluster_operator::initial(&now())).await?;
    }
    Ok(())
}

async fn find(
    cluster: &OperatorClient,
    kinds: CompanionKinds,
) -> Result<Option<ClusterOperator>, ClusterError> {
    let name = names::CLUSTER_OPERATOR;
    match kinds {
        CompanionKinds::OpenShift => cluster.find::<ClusterOperator>(name).await,
        CompanionKinds::Plain => {
            let found = cluster.find::<plain::MachineConfigOperator>(name).await?;
            Ok(found.map(ClusterOperator::from))
        }
    }
}

/// Returns the release that was deployed last, if any.
pub(crate) async fn deployed(
    cluster: &OperatorClient,
    kinds: CompanionKinds,
) -> Result<Option<String>, ClusterError> {
    let found = find(cluster, kinds).await?;
    let status = found.and_then(|found| found.status);
    let deployed = status.as_ref().and_then(cluster_operator::deployed);
    Ok(deployed.map(str::to_owned))
}

/// Writes the status, if it changed, and its events.
pub(crate) async fn report(
    cluster: &OperatorClient,
    options: &OperatorOptions,
    story: &Story<'_>,
) -> Result<(), ClusterError> {
    let kinds = story.kinds;
    let object = match find(cluster, kinds).await? {
        Some(found) => found,
        None => create(cluster, kinds).await?,
    };
    let before = object
        .status
        .clone()
        .unwrap_or_else(|| cluster_operator::initial(&now()));
    let situation = ClusterOperatorInputs {
        release: story.release,
        image: &options.image,
        bringup: story.bringup,
        progress: story.progress,
        pools: story.pools,
        evaluation: story.evaluation,
        boot_images: story.boot_images,
    };
    let after = cluster_operator::report(&before, &situation, &now());
    options.metrics.reported(&after);
    if object.status.as_ref() == Some(&after) {
        return Ok(());
    }
    write(cluster, kinds, &object, after.clone()).await?;
    let reference = match kinds {
        CompanionKinds::OpenShift => object.object_ref(&()),
        CompanionKinds::Plain => {
            let own = plain::MachineConfigOperator {
                metadata: object.metadata.clone(),
                ..plain::MachineConfigOperator::default()
            };
            own.object_ref(&())
        }
    };
    record_events(cluster, &reference, &before, &after).await;
    Ok(())
}

async fn create(cluster: &OperatorClient, kinds: CompanionKinds) -> Result<ClusterOperator, ClusterError> {
    let (name, spec) = (names::CLUSTER_OPERATOR, ClusterOperatorSpec::default());
    let parameters = OPERATOR.post_params();
    match kinds {
        CompanionKinds::OpenShift => {
            let object = ClusterOperator::new(name, spec);
            let answer = cluster.all().create(&parameters, &object).await;
            answer.map_err(failed("creating", described))
        }
        CompanionKinds::Plain => {
            let object = plain::MachineConfigOperator::new(name, spec);
            let answer = cluster.all().create(&parameters, &object).await;
            answer
                .map(ClusterOperator::from)
                .map_err(failed("creating", described))
        }
    }
}

/// Writes the whole status with the resource version as precondition; on conflict the next sync starts from the newer
/// one.
async fn write(
    cluster: &OperatorClient,
    kinds: CompanionKinds,
    object: &ClusterOperator,
    status: ClusterOperatorStatus,
) -> Result<(), ClusterError> {
    let mut patch = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": status,
    });
    // A merge patch keeps absent members, so resolved problems are removed explicitly.
    let before = object
        .status
        .as_ref()
        .and_then(|status| status.extension.as_ref());
    for key in gone(before, status.extension.as_ref()) {
        patch["status"]["extension"][key] = Value::Null;
    }
    let (name, parameters) = (names::CLUSTER_OPERATOR, OPERATOR.patch_params());
    let patch = Patch::Merge(patch);
    let answer = match kinds {
        CompanionKinds::OpenShift => {
            let api = cluster.all::<ClusterOperator>();
            api.patch_status(name, &parameters, &patch).await.map(|_| ())
        }
        CompanionKinds::Plain => {
            let api = cluster.all::<plain::MachineConfigOperator>();
            api.patch_status(name, &parameters, &patch).await.map(|_| ())
        }
    };
    answer.map_err(failed("updating", described))
}

/// Returns the members of an extension that the next one does not have.
fn gone<'a>(before: Option<&'a Value>, after: Option<&Value>) -> Vec<&'a str> {
    let members = before.and_then(Value::as_object).into_iter().flatten();
    let stays = |key: &str| after.is_some_and(|after| after.get(key).is_some());
    members
        .map(|(key, _)| key.as_str())
        .filter(|key| !stays(key))
        .collect()
}

fn described() -> String {
    format!("ClusterOperator {}", names::CLUSTER_OPERATOR)
}

/// Writes an event for a new version and for a new degradation. A failure is only logged.
async fn record_events(
    cluster: &OperatorClient,
    object: &ObjectReference,
    before: &ClusterOperatorStatus,
    after: &ClusterOperatorStatus,
) {
    let queue = EventQueue {
        namespace: names::NAMESPACE,
        capacity: 2,
        repeats: Repeats::Write,
    };
    let (recorder, writer) = queue.open();
    let record = |type_, reason, message| {
        recorder.record(REPORTER, object.clone(), type_, reason, message);
    };
    let (old, new) = (
        cluster_operator::deployed(before),
        cluster_operator::deployed(after),
    );
    if let Some(new) = new.filter(|new| old != Some(*new)) {
        let old = old.unwrap_or("none");
        let message = format!("clusteroperator/machine-config version changed from {old} to {new}");
        let reason = events::operator::OPERATOR_VERSION_CHANGED.to_owned();
        record(EventType::Normal, reason, message);
    }
    let (old, new) = (
        cluster_operator::degradation(before),
        cluster_operator::degradation(after),
    );
    if let Some((reason, message)) = new.filter(|_| old != new) {
        warn!("degraded: {message}");
        let reason = events::operator::degraded(reason);
        record(EventType::Warning, reason, message.to_owned());
    } else if old.is_some() && new.is_none() {
        info!("no longer degraded");
    }
    // The writer ends when the last recorder is dropped.
    drop(recorder);
    writer.run(cluster.client()).await;
}

fn now() -> Time {
    // The API stores whole seconds, so a fraction would always be a difference.
    let second = Timestamp::now().as_second();
    Time(Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sync_error_stayed_after_everything_was_fine() {
        let before = json!({"lastSyncError": "waiting", "worker": "3 nodes"});
        let after = json!({"worker": "4 nodes"});
        assert_eq!(gone(Some(&before), Some(&after)), ["lastSyncError"]);
        assert_eq!(gone(Some(&before), None), ["lastSyncError", "worker"]);
        assert!(gone(None, Some(&after)).is_empty());
    }
}
