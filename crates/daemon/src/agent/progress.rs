//! Telling people how far the node is, through its `MachineConfigNode`. What each step says is decided in
//! `mco_core::node_progress`. The wire protocol are the annotations, so a failure here stops nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::{IrreconcilableChange, MachineConfigNodeStatus};
use mco_api::vocabulary::conditions::{machine_config_node as type_, status};
use mco_core::node_progress::{self, Phase};
use serde_json::{Value, json};

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
        let node = self.node.clone();
        self.write(|known| after_phase(known, &node, phase, view)).await;
    }

    /// Tells what of its config the machine would have only if it were installed anew, and gives whether that is known now.
    pub async fn tell_irreconcilable(&mut self, changes: &[IrreconcilableChange]) -> bool {
        self.write(|known| after_comparison(known, changes)).await
    }

    /// Writes the status that follows from the object as it is, if one does. Gives whether nothing is left to say.
    async fn write(&mut self, next: impl Fn(&MachineConfigNode) -> Option<Value>) -> bool {
        for _ in 0..ATTEMPTS {
            match self.try_to_write(&next).await {
                Ok(all_said) => return all_said,
                Err(kube::Error::Api(status)) if status.is_conflict() => self.known = None,
                Err(error) => {
                    self.known = None;
                    tracing::debug!(node = self.node, %error, "progress was not written");
                    return false;
                }
            }
        }
        false
    }

    async fn try_to_write(
        &mut self,
        next: &impl Fn(&MachineConfigNode) -> Option<Value>,
    ) -> Result<bool, kube::Error> {
        if self.known.is_none() {
            self.known = self.all.get_opt(&self.node).await?;
        }
        let Some(known) = &self.known else {
            return Ok(false);
        };
        let Some(status) = next(known) else {
            return Ok(true);
        };
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": known.metadata.resource_version},
            "status": status,
        }));
        let written = self
            .all
            .patch_status(&self.node, &PatchParams::default(), &patch)
            .await?;
        self.known = Some(written);
        Ok(true)
    }
}

/// What a step makes of the status; none if that says it already.
fn after_phase(known: &MachineConfigNode, node: &str, phase: &Phase, view: &NodeView) -> Option<Value> {
    let before = known.status.clone().unwrap_or_default();
    let current = view.current_config.as_deref().unwrap_or_default();
    let desired = view.desired_config.as_deref().unwrap_or_default();
    if *phase == Phase::NeedsUpdate && is_under_way(&before, desired) {
        return None;
    }
    let now = Time(Timestamp::now());
    let conditions = node_progress::report(&before.conditions, phase, node, desired, &now)
        .unwrap_or_else(|| before.conditions.clone());
    let version = node_progress::config_version(current, desired, &conditions);
    if conditions == before.conditions && before.config_version.as_ref() == Some(&version) {
        return None;
    }
    let generation =
        node_progress::observed_generation(before.observed_generation, known.metadata.generation);
    Some(json!({
        "conditions": conditions,
        "configVersion": version,
        "observedGeneration": generation,
    }))
}

/// What a comparison with the installation makes of the status; none if that says it already.
fn after_comparison(known: &MachineConfigNode, changes: &[IrreconcilableChange]) -> Option<Value> {
    let said = known
        .status
        .as_ref()
        .map(|status| status.irreconcilable_changes.as_slice());
    if said.unwrap_or_default() == changes {
        return None;
    }
    // An empty list is none that the API takes.
    let changes = if changes.is_empty() {
        Value::Null
    } else {
        json!(changes)
    };
    Some(json!({"irreconcilableChanges": changes}))
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
