//! Reports the progress of an update in the node's `MachineConfigNode`. The conditions of each step are decided in
//! `mco_core::rollout::node_progress`. The annotations are the wire protocol, so a failure here blocks nothing.

use std::mem::discriminant;
use std::slice;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::api::{Api, Patch};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::machine_config_node::IrreconcilableChange;
use mco_api::vocabulary::conditions::{machine_config_node as type_, status};
use mco_api::vocabulary::names;
use mco_api::vocabulary::reasons::machine_config_node as reason;
use mco_api::{ControllerConfig, MachineConfigNode};
use mco_core::config::feature_gates::FeatureGates;
use mco_core::rollout::NodeAnnotations;
use mco_core::rollout::image_mode_status::{self, ImageModeStatus};
use mco_core::rollout::node_progress::{self, UpdatePhase};
use serde_json::{Value, json};

use super::cluster::FIELD_MANAGER;

/// Conflicts to retry: the drain controller writes to the same object. More in a row have another cause.
const ATTEMPTS: u32 = 4;

pub(super) struct ProgressReporter {
    all: Api<MachineConfigNode>,
    node: String,
    /// The object as last read or written.
    known: Option<MachineConfigNode>,
    /// The UID of the watched object; `None` while it does not exist.
    uid: Option<String>,
    /// The watched object was created or first seen, and its conditions are not read yet.
    is_new: bool,
    /// The steps since the update began or the previous one completed, for an object that is created later.
    steps: Vec<UpdatePhase>,
    /// The target of the update that the steps belong to.
    begun: Option<String>,
    /// Whether the object already shows the beginning of this update.
    shows_begin: bool,
    /// The steps of this update, as the feature gate was when it began; `None` before the first report.
    mode: Option<ImageModeStatus>,
}

impl ProgressReporter {
    pub fn new(client: kube::Client, node: String) -> Self {
        Self {
            all: Api::all(client),
            node,
            known: None,
            uid: None,
            is_new: false,
            steps: Vec::new(),
            begun: None,
            shows_begin: false,
            mode: None,
        }
    }

    /// Reports a step. A retry of an update that has begun is no new update.
    pub async fn report(&mut self, phase: &UpdatePhase, view: &NodeAnnotations) {
        let begins = *phase == UpdatePhase::NeedsUpdate;
        let desired = view.desired_config.as_deref().unwrap_or_default();
        let is_new = begins && self.begun.as_deref() != Some(desired);
        let mode = self.mode(is_new).await;
        self.record(phase, desired);
        if begins && self.shows_begin {
            return;
        }
        let (node, steps) = (self.node.clone(), self.steps.clone());
        let is_written = self
            .write(|known| {
                if begins && is_under_way(known, desired) {
                    return None;
                }
                let steps = if shows_progress(known) {
                    slice::from_ref(phase)
                } else {
                    &steps
                };
                after_steps(known, &node, steps, view, mode)
            })
            .await;
        self.shows_begin |= begins && is_written;
    }

    /// Observes the object from the watch. Returns whether it is a different object than before.
    pub fn observe(&mut self, seen: Option<&ObjectMeta>) -> bool {
        let uid = seen.and_then(|metadata| metadata.uid.clone());
        let known = self.known.as_ref().map(|known| &known.metadata);
        if seen.and_then(revision) > known.and_then(revision) {
            // Another client has written it, and the cached copy would hide that change.
            self.known = None;
        }
        if uid == self.uid {
            return false;
        }
        self.known = None;
        self.shows_begin = false;
        self.is_new = uid.is_some();
        self.uid = uid;
        self.is_new
    }

    /// Writes the conditions of an object that was created after the steps they come from.
    pub async fn restore(&mut self, view: &NodeAnnotations) {
        if !self.is_new {
            return;
        }
        let mut steps = self.steps.clone();
        if steps.is_empty() && view.current_config != view.desired_config {
            steps.push(UpdatePhase::NeedsUpdate);
        }
        let node = self.node.clone();
        let mode = self.mode(false).await;
        let is_written = self
            .write(|known| {
                if steps.is_empty() || shows_progress(known) {
                    return None;
                }
                after_steps(known, &node, &steps, view, mode)
            })
            .await;
        self.is_new = !is_written;
    }

    /// Returns the steps of the update, and reads the feature gates when a new one begins.
    async fn mode(&mut self, is_new: bool) -> ImageModeStatus {
        if let Some(mode) = self.mode.filter(|_| !is_new) {
            return mode;
        }
        match self.gates().await {
            Ok(gates) => {
                let mode = ImageModeStatus::of_gates(&gates);
                self.mode = Some(mode);
                mode
            }
            Err(error) => {
                tracing::debug!(node = self.node, %error, "could not read the feature gates");
                self.mode.unwrap_or_default()
            }
        }
    }

    /// Returns the feature gates. A cluster without them has none, and neither has one whose operator does not let the
    /// daemon read them.
    async fn gates(&self) -> Result<FeatureGates, kube::Error> {
        let client = self.all.clone().into_client();
        let gates: Api<FeatureGate> = Api::all(client.clone());
        let object = match gates.get_opt(names::SINGLETON).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => None,
            found => found?,
        };
        let Some(object) = object else {
            return Ok(FeatureGates::default());
        };
        let configs: Api<ControllerConfig> = Api::all(client);
        let config = configs.get_opt(CONTROLLER_CONFIG_NAME).await?.unwrap_or_default();
        Ok(FeatureGates::in_force(Some(&object), &config, None).unwrap_or_default())
    }

    /// Records the latest step of each kind.
    fn record(&mut self, phase: &UpdatePhase, target: &str) {
        match phase {
            UpdatePhase::NeedsUpdate if self.begun.as_deref() == Some(target) => return,
            UpdatePhase::NeedsUpdate => {
                self.steps.clear();
                self.begun = Some(target.to_owned());
                self.shows_begin = false;
            }
            UpdatePhase::Updated => {
                self.steps.clear();
                self.begun = None;
                self.shows_begin = false;
            }
            _ => self
                .steps
                .retain(|known| discriminant(known) != discriminant(phase)),
        }
        self.steps.push(phase.clone());
    }

    /// Reports the parts of its config that the machine gets only when it is reinstalled. Returns whether the report is
    /// written.
    pub async fn report_irreconcilable(&mut self, changes: &[IrreconcilableChange]) -> bool {
        self.write(|known| after_comparison(known, changes)).await
    }

    /// Patches the status that `next` computes from the current object, if any. Returns whether the status is up to
    /// date.
    async fn write(&mut self, next: impl Fn(&MachineConfigNode) -> Option<Value>) -> bool {
        for _ in 0..ATTEMPTS {
            match self.try_to_write(&next).await {
                Ok(all_said) => return all_said,
                Err(kube::Error::Api(status)) if status.is_conflict() => self.known = None,
                Err(error) => {
                    self.known = None;
                    tracing::debug!(node = self.node, %error, "could not write the progress");
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
            .patch_status(&self.node, &FIELD_MANAGER.patch_params(), &patch)
            .await?;
        self.known = Some(written);
        Ok(true)
    }
}

/// Returns the status after these steps; `None` if it is already up to date.
fn after_steps(
    known: &MachineConfigNode,
    node: &str,
    phases: &[UpdatePhase],
    view: &NodeAnnotations,
    mode: ImageModeStatus,
) -> Option<Value> {
    let before = known.status.clone().unwrap_or_default();
    let current = view.current_config.as_deref().unwrap_or_default();
    let desired = view.desired_config.as_deref().unwrap_or_default();
    let now = Time(Timestamp::now());
    let is_complete = shows_progress(known);
    // An update that began before a restart keeps its steps.
    let mode = match phases.first() {
        Some(UpdatePhase::NeedsUpdate) => mode,
        _ => ImageModeStatus::of_conditions(&before.conditions).unwrap_or(mode),
    };
    let mut conditions = if is_complete {
        before.conditions.clone()
    } else {
        Vec::new()
    };
    for phase in phases {
        let reports_health = matches!(
            phase,
            UpdatePhase::Failed { .. } | UpdatePhase::Succeeded | UpdatePhase::Updated
        );
        let after = if view.is_failing() && !reports_health {
            let error = &view.reason;
            node_progress::report_while_degraded(&conditions, phase, error, node, desired, &now, mode)
        } else {
            node_progress::report(&conditions, phase, node, desired, &now, mode)
        };
        conditions = after.unwrap_or(conditions);
    }
    if !is_complete {
        conditions = node_progress::complete(&before.conditions, conditions);
    }
    let version = node_progress::config_version(current, desired, &conditions);
    let goal = view
        .desired_image
        .as_deref()
        .filter(|_| version.desired == desired);
    let images = image_mode_status::images(mode, view.current_image.as_deref(), goal);
    let is_same = before.config_version.as_ref() == Some(&version) && before.config_image == images;
    if conditions == before.conditions && is_same {
        return None;
    }
    let generation =
        node_progress::observed_generation(before.observed_generation, known.metadata.generation);
    let mut status = json!({
        "conditions": conditions,
        "configVersion": version,
        "observedGeneration": generation,
    });
    if images != before.config_image {
        // A merge replaces each image, and removes one that the node no longer has.
        status["configImage"] = images.map_or(
            Value::Null,
            |images| json!({"currentImage": images.current_image, "desiredImage": images.desired_image}),
        );
    }
    Some(status)
}

/// Returns the status after a comparison with the installation; `None` if it is already up to date.
fn after_comparison(known: &MachineConfigNode, changes: &[IrreconcilableChange]) -> Option<Value> {
    let said = known
        .status
        .as_ref()
        .map(|status| status.irreconcilable_changes.as_slice());
    if said.unwrap_or_default() == changes {
        return None;
    }
    // The API rejects an empty list.
    let changes = if changes.is_empty() {
        Value::Null
    } else {
        json!(changes)
    };
    Some(json!({"irreconcilableChanges": changes}))
}

/// Returns whether this update has already begun. Beginning it again would lose what the controller has reported about
/// it.
fn is_under_way(known: &MachineConfigNode, desired: &str) -> bool {
    let Some(status) = &known.status else {
        return false;
    };
    let begun = updated(known).is_some_and(|condition| condition.status == status::FALSE);
    let version = status.config_version.as_ref();
    begun && version.is_some_and(|version| version.desired == desired)
}

/// Returns whether the daemon has ever reported a step. The drain controller also writes all conditions, but only the
/// daemon reports whether the node is updated.
fn shows_progress(known: &MachineConfigNode) -> bool {
    updated(known).is_some_and(|condition| condition.reason != reason::NOT_YET_OCCURRED)
}

fn updated(known: &MachineConfigNode) -> Option<&Condition> {
    let conditions = &known.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|condition| condition.type_ == type_::UPDATED)
}

/// Returns the resource version as a number. Versions of one object can be compared; a missing one is the oldest.
fn revision(metadata: &ObjectMeta) -> Option<u128> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use mco_api::machine_config_node::{ConfigVersionStatus, MachineConfigNodeSpec, MachineConfigNodeStatus};

    use super::*;

    fn object(conditions: Vec<Condition>, desired: &str) -> MachineConfigNode {
        let mut object = MachineConfigNode::new("n", MachineConfigNodeSpec::default());
        object.status = Some(MachineConfigNodeStatus {
            conditions,
            config_version: Some(ConfigVersionStatus {
                current: "a".to_owned(),
                desired: desired.to_owned(),
            }),
            ..MachineConfigNodeStatus::default()
        });
        object
    }

    #[test]
    fn an_update_is_begun_once_per_target() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let begun = node_progress::report(
            &[],
            &UpdatePhase::NeedsUpdate,
            "n",
            "b",
            &now,
            ImageModeStatus::Off,
        )
        .unwrap_or_default();
        let object = |desired: &str| object(begun.clone(), desired);
        assert!(is_under_way(&object("b"), "b"));
        assert!(
            !is_under_way(&object("b"), "c"),
            "another target is another update"
        );
        assert!(
            !is_under_way(&object("not-yet-set"), "b"),
            "nothing was reported about it yet"
        );
        let empty = MachineConfigNode::new("n", MachineConfigNodeSpec::default());
        assert!(!is_under_way(&empty, "b"));
    }

    #[test]
    fn a_retry_of_a_degraded_node_changes_nothing() {
        let view = NodeAnnotations {
            current_config: Some("a".to_owned()),
            desired_config: Some("b".to_owned()),
            state: "Degraded".to_owned(),
            reason: "disk full".to_owned(),
            ..NodeAnnotations::default()
        };
        let failed = UpdatePhase::Failed {
            error: "disk full".to_owned(),
        };
        let empty = MachineConfigNode::new("n", MachineConfigNodeSpec::default());
        let status = after_steps(
            &empty,
            "n",
            &[UpdatePhase::NeedsUpdate, failed],
            &view,
            ImageModeStatus::Off,
        )
        .unwrap();
        let conditions: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap();
        let known = object(conditions, "not-yet-set");
        assert_eq!(
            after_steps(
                &known,
                "n",
                &[UpdatePhase::NeedsUpdate],
                &view,
                ImageModeStatus::Off
            ),
            None
        );
    }
}
