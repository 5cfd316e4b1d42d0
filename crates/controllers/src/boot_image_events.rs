//! The changes that start an update of boot images, by the names that the conditions report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use mco_api::MachineConfiguration;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::machine_set::MachineSetSpec;
use mco_runtime::ObjectChange;

use crate::boot_images::is_stable;
use crate::context::Context;

/// Enqueues the update of boot images under the name of the event.
fn enqueue<K>(ctx: &Context, what: &str, change: &ObjectChange<'_, K>) {
    let event = match (change.old, change.new) {
        (None, _) => "Added",
        (Some(_), Some(_)) => "Updated",
        (Some(_), None) => "Deleted",
    };
    ctx.queues.boot_images.enqueue(format!("{what}{event}"));
}

pub(crate) fn settings(ctx: &Context, change: &ObjectChange<'_, MachineConfiguration>) {
    let shape = |settings: &Arc<MachineConfiguration>| {
        let status = settings.status.clone().unwrap_or_default();
        let mode = status
            .boot_image_skew_enforcement_status
            .map(|enforced| enforced.mode);
        let chosen = settings.spec.managed_boot_images.clone();
        (chosen, status.managed_boot_images_status, mode)
    };
    if change.old.map(shape) != change.new.map(shape) {
        enqueue(ctx, "BootImageUpdateConfiguration", change);
    }
}

pub(crate) fn source(ctx: &Context, what: &str, change: &ObjectChange<'_, ConfigMap>) {
    let data = |entries: &Arc<ConfigMap>| entries.data.clone();
    if change.old.map(data) != change.new.map(data) {
        enqueue(ctx, what, change);
    }
}

/// Machine templates change with their replicas all the time.
pub(crate) fn machine_set<K: Resource>(
    ctx: &Context,
    what: &str,
    spec: fn(&K) -> &MachineSetSpec,
    change: &ObjectChange<'_, K>,
) {
    let shape = |set: &Arc<K>| {
        let meta = set.meta();
        let template = spec(set).get("template").cloned();
        (
            meta.labels.clone(),
            meta.annotations.clone(),
            meta.owner_references.clone(),
            template,
        )
    };
    if change.old.map(shape) != change.new.map(shape) {
        enqueue(ctx, what, change);
    }
}

/// The platform, and the feature gate for the templates of the control plane.
pub(crate) fn configuration(ctx: &Context) {
    ctx.queues
        .boot_images
        .enqueue("BootImageUpdateConfigurationUpdated");
}

/// The end of an update of the cluster, during which boot images stay.
pub(crate) fn cluster_version(ctx: &Context, change: &ObjectChange<'_, ClusterVersion>) {
    let is_stable = |version: Option<&Arc<ClusterVersion>>| version.is_some_and(|version| is_stable(version));
    if is_stable(change.new) && !is_stable(change.old) {
        ctx.queues.boot_images.enqueue("ClusterVersionStable");
    }
}
