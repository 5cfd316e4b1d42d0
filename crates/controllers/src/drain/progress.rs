//! Reports the steps of a drain in the node's MachineConfigNode. No component depends on it, so failures are only
//! logged.

use mco_api::MachineConfigNode;
use mco_core::rollout::drain::DrainRecord;
use mco_core::rollout::image_mode_status::ImageModeStatus;
use mco_core::rollout::node_progress::{self, UpdatePhase};
use mco_runtime::is_conflict;
use serde_json::json;
use tracing::debug;

use super::MANAGER;
use crate::context::Context;
use crate::feature_gates;

/// The daemon writes the same list, so a conflict is likely and the list is read again.
const ATTEMPTS: usize = 4;

/// Returns the step of a running drain.
pub(super) fn draining(record: &DrainRecord) -> UpdatePhase {
    match &record.waiting_for {
        Some(what) => UpdatePhase::DrainBlocked {
            waits_for: what.clone(),
        },
        None => UpdatePhase::Draining,
    }
}

/// Writes steps in one patch. The list of conditions has several writers, so the patch names the version that was read.
pub(super) async fn report(ctx: &Context, node: &str, phases: &[UpdatePhase]) {
    let api = ctx.api::<MachineConfigNode>();
    for _ in 0..ATTEMPTS {
        let object = match api.get_opt(node).await {
            Ok(Some(object)) => object,
            Ok(None) => return,
            Err(problem) => {
                debug!(node, "cannot report the progress of the drain: {problem}");
                return;
            }
        };
        let status = object.status.clone().unwrap_or_default();
        let target = &object.spec.config_version.desired;
        let mode = ImageModeStatus::of_conditions(&status.conditions)
            .unwrap_or_else(|| feature_gates::image_mode_status(ctx));
        let after = node_progress::report_all(&status.conditions, phases, node, target, &ctx.time(), mode);
        let Some(conditions) = after else {
            return;
        };
        let observed =
            node_progress::observed_generation(status.observed_generation, object.metadata.generation);
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "status": {"conditions": conditions, "observedGeneration": observed},
        });
        let store = &ctx.stores.machine_config_nodes;
        match store.patch_status(&api, node, MANAGER, &patch).await {
            Ok(_) => return,
            Err(problem) if is_conflict(&problem) => {}
            Err(problem) => {
                debug!(node, "cannot report the progress of the drain: {problem}");
                return;
            }
        }
    }
}
