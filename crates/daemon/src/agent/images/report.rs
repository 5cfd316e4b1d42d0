//! Writes the status of pinned images to the node's `MachineConfigNode`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch};
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::MachineConfigNodeStatus;
use mco_core::rollout::pinned_images_on_node::{self, Keeping, SetReport};
use serde_json::{Value, json};

use crate::agent::FIELD_MANAGER;

/// Conflicts to retry: other clients write to the same object, and an update writes often. More in a row have another
/// cause.
const ATTEMPTS: u32 = 10;

/// The result of writing a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusWrite {
    Yes,
    /// The controllers have not created the `MachineConfigNode` yet.
    NoObject,
    /// The write failed, which blocks nothing else.
    No,
}

/// Writes the status of pinned images if it has changed. `sets` are all sets that are pinned or desired.
pub(super) async fn write_status(
    all: &Api<MachineConfigNode>,
    node: &str,
    keeping: &Keeping,
    sets: &[SetReport],
) -> StatusWrite {
    try_report(all, node, keeping, sets)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(node, %error, "could not write the status of pinned images");
            StatusWrite::No
        })
}

async fn try_report(
    all: &Api<MachineConfigNode>,
    node: &str,
    keeping: &Keeping,
    sets: &[SetReport],
) -> Result<StatusWrite, kube::Error> {
    let mut known = all.get_opt(node).await?;
    for attempt in 1..=ATTEMPTS {
        let Some(object) = known else {
            return Ok(StatusWrite::NoObject);
        };
        let before = object.status.unwrap_or_default();
        let Some(status) = next_status(&before, keeping, sets) else {
            break;
        };
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "status": status,
        }));
        known = match all
            .patch_status(node, &FIELD_MANAGER.patch_params(), &patch)
            .await
        {
            // The status may need two writes; this may have been the first.
            Ok(written) => Some(written),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => {
                all.get_opt(node).await?
            }
            Err(error) => return Err(error),
        };
    }
    Ok(StatusWrite::Yes)
}

/// Returns the next status to write; `None` if it is up to date.
fn next_status(before: &MachineConfigNodeStatus, keeping: &Keeping, sets: &[SetReport]) -> Option<Value> {
    let statuses = pinned_images_on_node::set_statuses(&before.pinned_image_sets, sets);
    if let Some(remaining) = pinned_images_on_node::forgotten(&before.pinned_image_sets, &statuses) {
        return Some(json!({"pinnedImageSets": remaining}));
    }
    let conditions = pinned_images_on_node::conditions(&before.conditions, keeping, &Time(Timestamp::now()));
    // A node that has never pinned an image reports no condition about it.
    let never_spoke = conditions.len() > before.conditions.len();
    let silent = sets.is_empty() && before.pinned_image_sets.is_empty() && never_spoke;
    let same = statuses == before.pinned_image_sets && conditions == before.conditions;
    if silent || same {
        return None;
    }
    Some(json!({"pinnedImageSets": statuses, "conditions": conditions}))
}

#[cfg(test)]
mod tests {
    use mco_core::rollout::pinned_images_on_node::SetState;

    use super::*;

    #[test]
    fn only_news_is_written_and_silence_stays_silence() {
        let done = Keeping::Done {
            message: "d".to_owned(),
        };
        let nothing = MachineConfigNodeStatus::default();
        assert_eq!(next_status(&nothing, &done, &[]), None);
        let set = |generation| SetReport {
            name: "a".to_owned(),
            generation,
            state: SetState::Kept,
        };
        let written = next_status(&nothing, &done, &[set(2)]).unwrap();
        let known: MachineConfigNodeStatus = serde_json::from_value(written).unwrap();
        assert_eq!(next_status(&known, &done, &[set(2)]), None, "the same once more");
        let again = next_status(&known, &done, &[set(1)]).unwrap();
        assert_eq!(
            again,
            json!({"pinnedImageSets": []}),
            "removed before it is reported again"
        );
        let gone = next_status(&known, &done, &[]).unwrap();
        assert_eq!(gone["pinnedImageSets"], json!([]));
    }
}
