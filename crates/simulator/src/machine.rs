//! The daemon of one machine, as the cluster sees it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use mco_api::MachineConfigNode;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::{node_state, topology};
use mco_core::rollout::NodeView;
use mco_core::rollout::image_mode_status::ImageModeStatus;
use mco_core::rollout::node_progress::{self, Applied, UpdatePhase};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::debug;

use super::FIELD_MANAGER;
use super::{Behaviour, Pools, SimulatedFailure};

/// Retry interval while the API server does not respond.
const PAUSE: Duration = Duration::from_millis(200);
/// Polling interval while the machine's pool has no config.
const INSTALL_POLL: Duration = Duration::from_millis(200);

pub(super) struct SimulatedNode {
    client: Client,
    name: String,
    behaviour: Behaviour,
    pools: Arc<Pools>,
}

type ObservedNode = watch::Receiver<Option<Arc<Node>>>;

/// The Node was deleted.
struct Gone;

impl SimulatedNode {
    pub fn new(client: Client, name: String, behaviour: Behaviour, pools: Arc<Pools>) -> Self {
        Self {
            client,
            name,
            behaviour,
            pools,
        }
    }

    /// Runs until the Node is deleted.
    pub async fn live(self, mut seen: ObservedNode) {
        loop {
            if self.step(&mut seen).await.is_err() {
                return;
            }
        }
    }

    /// Performs the next step, or waits for a change.
    async fn step(&self, seen: &mut ObservedNode) -> Result<(), Gone> {
        let node = current(seen)?;
        let view = NodeView::new(&node);
        if view.current_config.is_empty() {
            return self.install(seen, &node).await;
        }
        if view.desired_config.is_empty() || (view.is_done() && !has_open_drain(&node)) {
            return changed(seen).await;
        }
        let target = view.desired_config.to_owned();
        let same = view.current_config == target && view.current_image == view.desired_image;
        match self
            .behaviour
            .fails
            .as_ref()
            .and_then(|fails| fails(&self.name, &target))
        {
            Some(SimulatedFailure::Early(why)) => return self.fail(seen, &why).await,
            Some(SimulatedFailure::Late(why)) if !same => {
                if self.prepare(seen, &target).await? {
                    return self.fail(seen, &why).await;
                }
                return Ok(());
            }
            _ => {}
        }
        // A change that was reverted before it was applied only needs an uncordon.
        if !same && !self.prepare(seen, &target).await? {
            return Ok(());
        }
        if !same {
            self.apply(seen).await?;
        }
        self.finish(seen, &target).await
    }

    /// The first boot, which records the initial config as current.
    async fn install(&self, seen: &mut ObservedNode, node: &Node) -> Result<(), Gone> {
        if let Some(config) = self.pools.config_for(node).await {
            let wanted = NodeView::new(node).desired_config;
            let desired = if wanted.is_empty() {
                config.as_str()
            } else {
                wanted
            };
            self.annotate(json!({
                annotation::CURRENT_CONFIG: config,
                annotation::DESIRED_CONFIG: desired,
                annotation::STATE: node_state::DONE,
            }))
            .await;
            return wait_for(seen, |node| !NodeView::new(node).current_config.is_empty()).await;
        }
        tokio::select! {
            () = tokio::time::sleep(INSTALL_POLL) => Ok(()),
            changed = changed(seen) => changed,
        }
    }

    /// Announces the change and waits for the drain. Returns false when the desired config changes meanwhile.
    async fn prepare(&self, seen: &mut ObservedNode, target: &str) -> Result<bool, Gone> {
        let node = current(seen)?;
        let view = NodeView::new(&node);
        let alone = view.annotation(annotation::CONTROL_PLANE_TOPOLOGY) == Some(topology::SINGLE_REPLICA);
        let mut changes = json!({});
        if !view.is_degraded() && view.state != node_state::WORKING {
            changes[annotation::STATE] = json!(node_state::WORKING);
        }
        let drains = self.behaviour.drain && !alone;
        let request = annotation::drain::drain(target);
        if drains {
            changes[annotation::DESIRED_DRAIN] = json!(request);
        }
        let prepared = UpdatePhase::Prepared {
            post_actions: Vec::new(),
            drain_required: drains,
        };
        // Written before the drain, whose steps come next.
        self.steps(view.current_config, &[UpdatePhase::NeedsUpdate, prepared])
            .await;
        self.annotate(changes).await;
        if drains {
            wait_for(seen, |node| {
                let view = NodeView::new(node);
                view.desired_config != target
                    || view.annotation(annotation::LAST_APPLIED_DRAIN) == Some(request.as_str())
            })
            .await?;
        }
        Ok(NodeView::new(&*current(seen)?).desired_config == target)
    }

    /// Applies the config and reboots if configured. Cannot be interrupted.
    async fn apply(&self, seen: &mut ObservedNode) -> Result<(), Gone> {
        let node = current(seen)?;
        let before = NodeView::new(&node).current_config;
        self.steps(before, &[UpdatePhase::Applying(Applied::FilesAndOs)])
            .await;
        tokio::time::sleep(self.behaviour.apply).await;
        let applied = UpdatePhase::Applied(Applied::FilesAndOs);
        let Some(away) = self.behaviour.reboot else {
            self.steps(before, &[applied]).await;
            return Ok(());
        };
        self.steps(before, &[applied, UpdatePhase::RebootPending]).await;
        self.set_ready(false).await;
        tokio::time::sleep(away).await;
        self.set_ready(true).await;
        wait_for(seen, |node| NodeView::new(node).is_kubelet_healthy()).await?;
        self.steps(before, &[UpdatePhase::Rebooted, UpdatePhase::Resumed])
            .await;
        Ok(())
    }

    /// Requests an uncordon and reports the config as done.
    async fn finish(&self, seen: &mut ObservedNode, target: &str) -> Result<(), Gone> {
        let node = current(seen)?;
        let view = NodeView::new(&node);
        let asked = view.annotation(annotation::DESIRED_DRAIN).is_some();
        if asked {
            let request = annotation::drain::uncordon(target);
            self.annotate(json!({annotation::DESIRED_DRAIN: request})).await;
            wait_for(seen, |node| {
                NodeView::new(node).annotation(annotation::LAST_APPLIED_DRAIN) == Some(request.as_str())
            })
            .await?;
        }
        self.annotate(json!({
            annotation::CURRENT_CONFIG: target,
            // Removed together with the desired one.
            annotation::CURRENT_IMAGE: view.desired_image,
            annotation::STATE: node_state::DONE,
            annotation::REASON: "",
        }))
        .await;
        self.steps(target, &[UpdatePhase::Succeeded, UpdatePhase::Updated])
            .await;
        wait_for(seen, |node| {
            let view = NodeView::new(node);
            view.current_config == target && view.state == node_state::DONE
        })
        .await
    }

    async fn fail(&self, seen: &mut ObservedNode, why: &str) -> Result<(), Gone> {
        let node = current(seen)?;
        let view = NodeView::new(&node);
        if view.state != node_state::DEGRADED || view.reason != why {
            self.annotate(json!({annotation::STATE: node_state::DEGRADED, annotation::REASON: why}))
                .await;
            let failed = UpdatePhase::Failed {
                error: why.to_owned(),
            };
            self.steps(view.current_config, &[failed]).await;
        }
        let target = view.desired_config.to_owned();
        tokio::select! {
            () = tokio::time::sleep(self.behaviour.retry) => Ok(()),
            changed = wait_for(seen, |node| NodeView::new(node).desired_config != target) => changed,
        }
    }

    async fn annotate(&self, annotations: Value) {
        if annotations.as_object().is_some_and(serde_json::Map::is_empty) {
            return;
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        while let Err(problem) = nodes
            .patch(&self.name, &FIELD_MANAGER.patch_params(), &Patch::Merge(&patch))
            .await
        {
            if is_final(&problem) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn set_ready(&self, is_ready: bool) {
        let patch = json!({"status": {"conditions": [ready(is_ready)]}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        while let Err(problem) = nodes
            .patch_status(&self.name, &FIELD_MANAGER.patch_params(), &Patch::Merge(&patch))
            .await
        {
            if is_final(&problem) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reports steps in the MachineConfigNode, in one write, if it exists. `current` is the config on disk.
    async fn steps(&self, current: &str, phases: &[UpdatePhase]) {
        if !self.behaviour.report_steps {
            return;
        }
        let objects: Api<MachineConfigNode> = Api::all(self.client.clone());
        for _ in 0..5 {
            let Ok(Some(object)) = objects.get_opt(&self.name).await else {
                return;
            };
            let status = object.status.clone().unwrap_or_default();
            let desired = object.spec.config_version.desired.as_str();
            let now = Time(Timestamp::now());
            let mut conditions = status.conditions.clone();
            let mode = ImageModeStatus::of_conditions(&conditions).unwrap_or_default();
            for phase in phases {
                let after = node_progress::report(&conditions, phase, &self.name, desired, &now, mode);
                conditions = after.unwrap_or(conditions);
            }
            let version = node_progress::config_version(current, desired, &conditions);
            let observed =
                node_progress::observed_generation(status.observed_generation, object.metadata.generation);
            let patch = json!({
                "metadata": {"resourceVersion": object.metadata.resource_version},
                "status": {"conditions": conditions, "configVersion": version, "observedGeneration": observed},
            });
            match objects
                .patch_status(&self.name, &FIELD_MANAGER.patch_params(), &Patch::Merge(patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(problem) => return debug!("a simulated machine cannot report: {problem}"),
                Ok(_) => return,
            }
        }
    }
}

pub(super) fn ready(is_ready: bool) -> Value {
    let (status, reason) = if is_ready {
        ("True", "KubeletReady")
    } else {
        ("False", "Rebooting")
    };
    json!({"type": "Ready", "status": status, "reason": reason})
}

fn current(seen: &ObservedNode) -> Result<Arc<Node>, Gone> {
    seen.borrow().clone().ok_or(Gone)
}

async fn changed(seen: &mut ObservedNode) -> Result<(), Gone> {
    seen.changed().await.map_err(|_| Gone)
}

async fn wait_for(seen: &mut ObservedNode, holds: impl Fn(&Node) -> bool) -> Result<(), Gone> {
    let node = seen
        .wait_for(|node| node.as_ref().is_none_or(|node| holds(node)))
        .await
        .map_err(|_| Gone)?;
    node.as_ref().map(|_| ()).ok_or(Gone)
}

fn has_open_drain(node: &Node) -> bool {
    let view = NodeView::new(node);
    let asked = view.annotation(annotation::DESIRED_DRAIN);
    asked.is_some_and(|request| request.starts_with(annotation::drain::DRAIN))
}

/// Returns whether an error is permanent: the Node was deleted or the request is invalid.
fn is_final(problem: &kube::Error) -> bool {
    matches!(problem, kube::Error::Api(status) if status.is_not_found() || status.is_invalid())
}
