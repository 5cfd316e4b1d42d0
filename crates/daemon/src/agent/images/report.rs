//! Telling in the node's `MachineConfigNode` which images it keeps.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::MachineConfigNodeStatus;
use mco_core::kept_images::{self, Keeping, SetReport};
use serde_json::{Value, json};

/// Others write to the same object, and an update writes often; more collisions in a row mean something else.
const ATTEMPTS: u32 = 10;

/// Whether there was somewhere to write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Yes,
    /// The controllers have not made the object yet.
    NobodyListens,
}

/// Writes how far the node is, if that is news. `sets` are all that the node keeps or shall keep.
pub(super) async fn tell(
    all: &Api<MachineConfigNode>,
    node: &str,
    keeping: &Keeping,
    sets: &[SetReport],
) -> Result<Told, kube::Error> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let Some(known) = all.get_opt(node).await? else {
            return Ok(Told::NobodyListens);
        };
        let before = known.status.unwrap_or_default();
        let Some(status) = next_status(&before, keeping, sets) else {
            return Ok(Told::Yes);
        };
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": known.metadata.resource_version},
            "status": status,
        }));
        match all.patch_status(node, &PatchParams::default(), &patch).await {
            // It may have been the first of two writes.
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => last = Some(kube::Error::Api(status)),
            Err(error) => return Err(error),
        }
    }
    last.map_or(Ok(Told::Yes), Err)
}

/// What to write next; none if everything is said.
fn next_status(before: &MachineConfigNodeStatus, keeping: &Keeping, sets: &[SetReport]) -> Option<Value> {
    let statuses = kept_images::set_statuses(&before.pinned_image_sets, sets);
    if let Some(remaining) = kept_images::forgotten(&before.pinned_image_sets, &statuses) {
        return Some(json!({"pinnedImageSets": remaining}));
    }
    let conditions = kept_images::conditions(&before.conditions, keeping, &Time(Timestamp::now()));
    // A node that never kept an image has nothing to say about it.
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
    use mco_core::kept_images::SetState;

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
            "forgotten before it is told anew"
        );
        let gone = next_status(&known, &done, &[]).unwrap();
        assert_eq!(gone["pinnedImageSets"], json!([]));
    }
}
