//! Deletion of builds with their images, and retention of old ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams};
use mco_api::vocabulary::annotations::{self, build as annotation, node as node_annotation};
use mco_api::vocabulary::events::build as event;
use mco_api::vocabulary::{labels, names};
use mco_api::{MachineOSBuild, MachineOSConfig};
use mco_core::generators::os_builds::{self, BuildState, RetainedBuilds, build_state};
use mco_runtime::patch::unless_gone;
use mco_runtime::{Requeue, object_name};
use tracing::{info, warn};

use crate::context::{Context, annotation as annotation_of};
use crate::error::Error;
use crate::images;

/// Completes the deletion of a build: its image, its digest, and what its Job did not own.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(build) = ctx.deleted.lock().get(&name).cloned() else {
        return Ok(Requeue::OnChange);
    };
    // A build of the same name pushes to the same tag.
    if ctx.builds.get(&name).is_none() {
        delete_image(&ctx, &build).await;
        delete_config_map(&ctx, &names::build::digest(&name)).await?;
    }
    // Someone else may have deleted it; the queue of events suppresses a repetition.
    report_deletion(&ctx, &build);
    ctx.deleted.lock().remove(&name);
    Ok(Requeue::OnChange)
}

/// Deletes the builds of a MachineOSConfig that is gone.
pub(crate) async fn delete_builds_of(ctx: &Context, config: &str) -> Result<Requeue, Error> {
    for build in ctx.builds_of(config) {
        if build.metadata.deletion_timestamp.is_none() {
            delete(ctx, &build, "its MachineOSConfig was deleted").await?;
        }
        ctx.options
            .metrics
            .forget(crate::context::label(&build.metadata, labels::build::POOL));
    }
    Ok(Requeue::OnChange)
}

/// Deletes the builds of a MachineOSConfig of the same name that was deleted before.
pub(crate) async fn delete_builds_of_predecessors(
    ctx: &Context,
    config: &MachineOSConfig,
) -> Result<(), Error> {
    for build in ctx.builds_of(object_name(&config.metadata)) {
        let owners = build.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        let is_foreign = controllers.any(|owner| Some(&owner.uid) != config.metadata.uid.as_ref());
        if is_foreign && build.metadata.deletion_timestamp.is_none() {
            delete(ctx, &build, "its MachineOSConfig was deleted").await?;
        }
    }
    Ok(())
}

/// Deletes a build with its image, Job and objects. Returns whether it is known to be on its way.
pub(crate) async fn delete(ctx: &Context, build: &MachineOSBuild, reason: &str) -> Result<bool, Error> {
    let name = object_name(&build.metadata);
    info!(build = name, "deleting MachineOSBuild: {reason}");
    if build_state(build) == BuildState::Succeeded {
        delete_image(ctx, build).await;
    }
    delete_config_map(ctx, &names::build::digest(name)).await?;
    delete_objects(ctx, name).await?;
    let api = ctx.cluster_api::<MachineOSBuild>();
    let deleted = unless_gone(api.delete(name, &DeleteParams::foreground()).await);
    let deleted = deleted.map_err(Error::api(format!("deleting MachineOSBuild {name}")))?;
    report_deletion(ctx, build);
    let Some(deleting) = deleted else {
        return Ok(false);
    };
    // The object while it is being deleted, or the status of its deletion.
    let Some(deleting) = deleting.left() else {
        return Ok(false);
    };
    ctx.builds.observe_write(deleting);
    Ok(true)
}

fn report_deletion(ctx: &Context, build: &MachineOSBuild) {
    let message = "Build deleted: build resources removed";
    ctx.events.normal(build, event::BUILD_DELETED, message);
}

/// Deletes the Job and the inputs of a finished or superseded build.
pub(crate) async fn delete_objects(ctx: &Context, build: &str) -> Result<(), Error> {
    let job = names::build::job(build);
    let deleted = ctx.api::<Job>().delete(&job, &DeleteParams::foreground()).await;
    unless_gone(deleted).map_err(Error::api(format!("deleting Job {job}")))?;
    let ours = format!(
        "{},{}={build}",
        labels::build::EPHEMERAL,
        labels::build::MACHINE_OS_BUILD
    );
    let selected = ListParams::default().labels(&ours);
    let attempt = || Error::api(format!("deleting the inputs of MachineOSBuild {build}"));
    let api = ctx.api::<ConfigMap>();
    for object in api.list(&selected).await.map_err(attempt())? {
        let name = object_name(&object.metadata);
        if name != names::build::digest(build) {
            unless_gone(api.delete(name, &DeleteParams::default()).await).map_err(attempt())?;
        }
    }
    let api = ctx.api::<Secret>();
    for object in api.list(&selected).await.map_err(attempt())? {
        let name = object_name(&object.metadata);
        unless_gone(api.delete(name, &DeleteParams::default()).await).map_err(attempt())?;
    }
    Ok(())
}

async fn delete_config_map(ctx: &Context, name: &str) -> Result<(), Error> {
    let deleted = ctx
        .api::<ConfigMap>()
        .delete(name, &DeleteParams::default())
        .await;
    unless_gone(deleted).map_err(Error::api(format!("deleting ConfigMap {name}")))?;
    Ok(())
}

/// Deletes the image of a build unless a node, another build or a MachineOSConfig uses it. A registry that refuses does
/// not keep the build from being deleted.
async fn delete_image(ctx: &Context, build: &MachineOSBuild) {
    let name = object_name(&build.metadata);
    let image = build
        .status
        .as_ref()
        .map_or("", |status| status.digested_image_push_spec.as_str());
    // An image that came with the installation is the user's.
    if image.is_empty() || brought_by_installation(build, image) || is_used(ctx, name, image) {
        return;
    }
    let secret = annotation_of(&build.metadata, annotation::PUSH_SECRET);
    if let Err(error) = images::delete(ctx, image, &build.spec.rendered_image_push_spec, secret).await {
        warn!(build = name, "the image {image} remains in the registry: {error}");
    }
}

/// Whether a build records that this image came with the installation.
pub(crate) fn is_of_installation(ctx: &Context, image: &str) -> bool {
    let builds = ctx.builds.all();
    builds.iter().any(|build| {
        let status = build.status.as_ref();
        status.is_some_and(|status| status.digested_image_push_spec == image)
            && brought_by_installation(build, image)
    })
}

/// Whether the image of this build came with the installation: it was recorded without a build, or is used again. A build
/// that was to use it again may have built its own image later.
fn brought_by_installation(build: &MachineOSBuild, image: &str) -> bool {
    let labels = build.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(labels::build::PRE_BUILT_IMAGE))
        || annotation_of(&build.metadata, annotations::PRE_BUILT_IMAGE) == image
}

fn is_used(ctx: &Context, build: &str, image: &str) -> bool {
    let nodes = ctx.nodes.all();
    let on_node = nodes.iter().any(|node| {
        [node_annotation::CURRENT_IMAGE, node_annotation::DESIRED_IMAGE]
            .into_iter()
            .any(|key| annotation_of(&node.metadata, key) == image)
    });
    let of_other = ctx.builds.all().iter().any(|other| {
        let status = other.status.as_ref();
        object_name(&other.metadata) != build
            && status.is_some_and(|status| status.digested_image_push_spec == image)
    });
    on_node || of_other
}

/// Deletes the inputs of succeeded builds, and old builds with their images.
pub(crate) async fn prune(ctx: &Context, config_name: &str) -> Result<(), Error> {
    let Some(config) = ctx.configs.get(config_name) else {
        return Ok(());
    };
    let builds = ctx.builds_of(config_name);
    for build in &builds {
        let name = object_name(&build.metadata);
        if build_state(build) == BuildState::Succeeded && ctx.job_of(name).is_some() {
            delete_objects(ctx, name).await?;
        }
    }
    let nodes = ctx.nodes.all();
    let mut images: BTreeSet<&str> = nodes
        .iter()
        .flat_map(|node| {
            [node_annotation::CURRENT_IMAGE, node_annotation::DESIRED_IMAGE]
                .map(|key| annotation_of(&node.metadata, key))
        })
        .filter(|image| !image.is_empty())
        .collect();
    images.extend(
        config
            .status
            .as_ref()
            .map(|status| status.current_image_pull_spec.as_str()),
    );
    let current = annotation_of(&config.metadata, annotation::CURRENT_MACHINE_OS_BUILD);
    let retained = RetainedBuilds {
        names: BTreeSet::from([current]),
        images,
        kept: ctx.options.kept_builds,
    };
    for build in os_builds::prune(builds.iter().map(AsRef::as_ref), &retained) {
        delete(ctx, build, "enough newer builds exist").await?;
    }
    Ok(())
}
