//! Writes the ClusterOperator status, and events on its changes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use mco_api::MachineConfigPool;
use mco_api::foreign::cluster_operator::{ClusterOperator, ClusterOperatorSpec, ClusterOperatorStatus};
use mco_api::vocabulary::{events, names};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::cluster::{Cluster, ClusterError, failed, written_by_us};
use crate::cluster_operator::{self, Situation};
use crate::options::Options;
use crate::progress::Progress;

/// The reporting component of events.
const REPORTER: &str = "machineconfigoperator";

/// The inputs of a report that do not come from the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story<'a> {
    pub release: &'a str,
    pub bringup: bool,
    pub progress: &'a Progress,
    pub pools: &'a [MachineConfigPool],
    pub evaluation: Option<&'a str>,
    pub boot_images: Option<&'a str>,
}

/// Creates the ClusterOperator if there is none, so that the bootstrap of a cluster can be followed.
pub(crate) async fn announce(cluster: &Cluster) -> Result<(), ClusterError> {
    if cluster
        .find::<ClusterOperator>(names::CLUSTER_OPERATOR)
        .await?
        .is_none()
    {
        let created = create(cluster).await?;
        write(cluster, &created, cluster_operator::initial(&now())).await?;
    }
    Ok(())
}

/// Returns the release that was deployed last, if any.
pub(crate) async fn deployed(cluster: &Cluster) -> Result<Option<String>, ClusterError> {
    let found = cluster.find::<ClusterOperator>(names::CLUSTER_OPERATOR).await?;
    let status = found.and_then(|found| found.status);
    let deployed = status.as_ref().and_then(cluster_operator::deployed);
    Ok(deployed.map(str::to_owned))
}

/// Writes the status, if it changed, and its events.
pub(crate) async fn report(
    cluster: &Cluster,
    options: &Options,
    story: &Story<'_>,
) -> Result<(), ClusterError> {
    let object = match cluster.find::<ClusterOperator>(names::CLUSTER_OPERATOR).await? {
        Some(found) => found,
        None => create(cluster).await?,
    };
    let before = object
        .status
        .clone()
        .unwrap_or_else(|| cluster_operator::initial(&now()));
    let situation = Situation {
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
    write(cluster, &object, after.clone()).await?;
    tell(cluster, &object, &before, &after).await;
    Ok(())
}

async fn create(cluster: &Cluster) -> Result<ClusterOperator, ClusterError> {
    let object = ClusterOperator::new(names::CLUSTER_OPERATOR, ClusterOperatorSpec::default());
    let answer = cluster.all().create(&written_by_us(), &object).await;
    answer.map_err(failed("creating", described))
}

/// Writes the whole status with the resource version as precondition; on conflict the next sync starts from the newer
/// one.
async fn write(
    cluster: &Cluster,
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
    let manager = PatchParams {
        field_manager: written_by_us().field_manager,
        ..PatchParams::default()
    };
    let api = cluster.all::<ClusterOperator>();
    let answer = api
        .patch_status(names::CLUSTER_OPERATOR, &manager, &Patch::Merge(patch))
        .await;
    answer.map(|_| ()).map_err(failed("updating", described))
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

/// Writes the events. A failure to write an event is only logged.
async fn tell(
    cluster: &Cluster,
    object: &ClusterOperator,
    before: &ClusterOperatorStatus,
    after: &ClusterOperatorStatus,
) {
    let mut news = Vec::new();
    let (old, new) = (
        cluster_operator::deployed(before),
        cluster_operator::deployed(after),
    );
    if let Some(new) = new.filter(|new| old != Some(*new)) {
        info!("the cluster now runs {new}");
        news.push(Event {
            type_: EventType::Normal,
            reason: events::operator::OPERATOR_VERSION_CHANGED.to_owned(),
            note: Some(format!(
                "clusteroperator/machine-config version changed from {} to {new}",
                old.unwrap_or("none")
            )),
            action: "Report".to_owned(),
            secondary: None,
        });
    }
    let (old, new) = (
        cluster_operator::degradation(before),
        cluster_operator::degradation(after),
    );
    if let Some((reason, message)) = new.filter(|_| old != new) {
        warn!("degraded: {message}");
        news.push(Event {
            type_: EventType::Warning,
            reason: events::operator::degraded(reason),
            note: Some(shortened(message)),
            action: "Report".to_owned(),
            secondary: None,
        });
    } else if old.is_some() && new.is_none() {
        info!("no longer degraded");
    }
    let recorder = Recorder::new(
        cluster.client(),
        Reporter {
            controller: REPORTER.to_owned(),
            instance: None,
        },
    );
    let about = ObjectReference {
        // Events about cluster-scoped objects are in our namespace, and the API requires both to match.
        namespace: Some(names::NAMESPACE.to_owned()),
        ..object.object_ref(&())
    };
    for event in news {
        if let Err(error) = recorder.publish(&event, &about).await {
            warn!("cannot write an event: {error}");
        }
    }
}

/// Truncates a note to the API's limit of one kilobyte.
fn shortened(message: &str) -> String {
    const LONGEST: usize = 1000;
    match message.char_indices().find(|(index, _)| *index >= LONGEST) {
        Some((index, _)) => format!("{}...", &message[..index]),
        None => message.to_owned(),
    }
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
