//! Telling people how far the node is, through its `MachineConfigNode`. What each step says is decided in
//! `mco_core::node_progress`. The wire protocol are the annotations, so a failure here stops nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::MachineConfigNodeStatus;
use mco_api::vocabulary::conditions::{machine_config_node as type_, status};
use mco_core::node_progress::{self, Phase};
use serde_json::json;

use super::view::NodeView;

/// The controller that drains writes to the same object; more than a few collisions in a row mean something else.
const ATTEMPTS: u32 = 4;

pub(super) struct Progress {
    all: Api<MachineConfigNode>,
    node: String,
    /// As it was when we last wrote or read it.
    known: Option<MachineConfigNode>,
}

impl Progress {
    pub fn new(client: kube::Client, node: String) -> Self {
        Self {
            all: Api::all(client),
            node,
            known: None,
        }
    }

    pub async fn tell(&mut self, phase: &Phase, view: &NodeView) {
        for _ in 0..ATTEMPTS {
            match self.try_tell(phase, view).await {
                Ok(()) => return,
                Err(kube::Error::Api(status)) if status.is_conflict() => self.known = None,
                Err(error) => {
                    self.known = None;
                    tracing::debug!(node = self.node, %error, "progress was not written");
                    return;
                }
            }
        }
    }

    async fn try_tell(&mut self, phase: &Phase, view: &NodeView) -> Result<(), kube::Error> {
        if self.known.is_none() {
            self.known = self.all.get_opt(&self.node).await?;
        }
        let Some(known) = &self.known else {
            return Ok(());
        };
        let before = known.status.clone().unwrap_or_default();
        let current = view.current_config.as_deref().unwrap_or_default();
        let desired = view.desired_config.as_deref().unwrap_or_default();
        if *phase == Phase::NeedsUpdate && is_under_way(&before, desired) {
            return Ok(());
        }
        let now = Time(Timestamp::now());
        let conditions = node_progress::report(&before.conditions, phase, &self.node, desired, &now)
            .unwrap_or_else(|| before.conditions.clone());
        let version = node_progress::config_version(current, desired, &conditions);
        if conditions == before.conditions && before.config_version.as_ref() == Some(&version) {
            return Ok(());
        }
        let generation =
            node_progress::observed_generation(before.observed_generation, known.metadata.generation);
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": known.metadata.resource_version},
            "status": {
                "conditions": conditions,
                "configVersion": version,
                "observedGeneration": generation,
            },
        }));
        let written = self
            .all
            .patch_status(&self.node, &PatchParams::default(), &patch)
            .await?;
        self.known = Some(written);
        Ok(())
    }
}

/// An update that was begun before is not begun anew: what the controller has reported about it meanwhile would be lost.
fn is_under_way(status: &MachineConfigNodeStatus, desired: &str) -> bool {
    let begun = status
        .conditions
        .iter()
        .any(|condition| condition.type_ == type_::UPDATED && condition.status == status::FALSE);
    let known = status.config_version.as_ref();
    begun && known.is_some_and(|version| version.desired == desired)
}

#[cfg(test)]
mod tests {
    use mco_api::machine_config_node::ConfigVersionStatus;

    use super::*;

    #[test]
    fn an_update_is_begun_once_per_target() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let begun = node_progress::report(&[], &Phase::NeedsUpdate, "n", "b", &now).unwrap_or_default();
        let status = |desired: &str| MachineConfigNodeStatus {
            conditions: begun.clone(),
            config_version: Some(ConfigVersionStatus {
                current: "a".to_owned(),
                desired: desired.to_owned(),
            }),
            ..MachineConfigNodeStatus::default()
        };
        assert!(is_under_way(&status("b"), "b"));
        assert!(
            !is_under_way(&status("b"), "c"),
            "another target is another update"
        );
        assert!(
            !is_under_way(&status("not-yet-set"), "b"),
            "nothing was reported about it yet"
        );
        assert!(!is_under_way(&MachineConfigNodeStatus::default(), "b"));
    }
}
