//! Telling people how far the node is, through its `MachineConfigNode`. What each step says is decided in
//! `mco_core::node_progress`. The wire protocol are the annotations, so a failure here stops nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use mco_api::MachineConfigNode;
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
