//! The writes of each step.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;
use mco_api::vocabulary::annotations::{self, build as annotation};
use mco_api::vocabulary::conditions::{machine_os_config as condition, status};
use mco_api::vocabulary::events::build as event;
use mco_api::vocabulary::reasons::machine_os_config as reason;
use mco_api::{MachineOSBuild, MachineOSConfig};
use mco_core::generators::os_builds::{
    BuildObjects, BuildState, BuildStep, build_state, status_conditions, status_with_state,
};
use mco_runtime::{is_already_exists, object_name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use crate::context::{Context, FIELD_MANAGER, annotation as annotation_of};
use crate::error::Error;
use crate::reconcile::Rendered;
use crate::{cleanup, inputs};

/// Carries out a step. Returns whether the next step can be decided at once; otherwise a watch event enqueues it.
pub(crate) async fn act(
    ctx: &Context,
    config: &MachineOSConfig,
    target: &Rendered,
    step: &BuildStep,
) -> Result<bool, Error> {
    match step {
        BuildStep::Create(build) => create(ctx, config, build).await,
        BuildStep::Start { name } => start(ctx, config, target, name).await,
        BuildStep::Reuse { name, image } => reuse(ctx, config, name, image).await,
        BuildStep::Point { name } => point(ctx, config, name).await,
        BuildStep::Delete { name, reason } => {
            let Some(build) = ctx.builds.get(name) else {
                return Ok(false);
            };
            if config
                .metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all.contains_key(annotation::REBUILD))
            {
                let message = "Rebuild requested: rebuild annotation applied";
                ctx.events.normal(config, event::REBUILD_REQUESTED, message);
            }
            cleanup::delete(ctx, &build, reason).await
        }
        BuildStep::Seed { build, image } => seed(ctx, config, build, image).await,
        BuildStep::ForgetPreBuiltImage => {
            let patch = json!({"metadata": {"annotations": {annotations::PRE_BUILT_IMAGE: null}}});
            patch_config(ctx, config, &patch).await?;
            Ok(true)
        }
        BuildStep::Idle | BuildStep::Wait(_) | BuildStep::Blocked(_) | BuildStep::Inspect { .. } => Ok(false),
    }
}

async fn create(ctx: &Context, config: &MachineOSConfig, build: &MachineOSBuild) -> Result<bool, Error> {
    let name = object_name(&build.metadata);
    let api = ctx.cluster_api::<MachineOSBuild>();
    match api.create(&FIELD_MANAGER.post_params(), build).await {
        Ok(created) => {
            ctx.builds.observe_write(created);
            let message = "MachineOSConfig spec change detected and reconciled: new build created or reused";
            ctx.events.normal(config, event::CONFIG_RECONCILED, message);
            Ok(true)
        }
        // A build of this name is still being deleted, or the watch has not delivered it yet.
        Err(error) if is_already_exists(&error) => Ok(false),
        Err(error) => Err(Error::api(format!("creating MachineOSBuild {name}"))(error)),
    }
}

async fn start(
    ctx: &Context,
    config: &MachineOSConfig,
    target: &Rendered,
    name: &str,
) -> Result<bool, Error> {
    let Some(build) = ctx.builds.get(name) else {
        return Ok(false);
    };
    let pool = config.spec.machine_config_pool.name.as_str();
    let objects = match inputs::objects(ctx, config, &build, target).await? {
        Ok(objects) => objects,
        Err(error) if error.is_final() => {
            fail(ctx, config, &build, &error.to_string()).await?;
            return Ok(true);
        }
        Err(error) => return Err(Box::new(error).into()),
    };
    let rendered = &build.spec.machine_config.name;
    let message = format!("Started build for pool {pool:?} with config {rendered:?}");
    ctx.events.normal(&*build, event::BUILD_STARTED, message);
    let message = format!("Preparing build: creating build job for pool {pool:?}");
    ctx.events.normal(&*build, event::BUILD_PREPARING, message);
    if !create_objects(ctx, &build, &objects).await? {
        return Ok(false);
    }
    let created = build.metadata.creation_timestamp.as_ref().map(|time| time.0);
    ctx.options.metrics.started(pool, created, ctx.now());
    point(ctx, config, name).await?;
    // The watch delivers the Job's status.
    ctx.queue.enqueue(object_name(&config.metadata));
    Ok(false)
}

/// Marks a build as failed that never had a Job, and records the reason on it.
async fn fail(
    ctx: &Context,
    config: &MachineOSConfig,
    build: &MachineOSBuild,
    why: &str,
) -> Result<(), Error> {
    let name = object_name(&build.metadata);
    let patch = json!({"metadata": {"annotations": {annotation::FAILURE: why}}});
    patch_build(ctx, name, &patch).await?;
    let Some(status) = status_with_state(build, BuildState::Failed, None, &ctx.time()) else {
        return Ok(());
    };
    patch_build_status(ctx, name, &json!({"status": status})).await?;
    // The pool reports the failure of its current build; an earlier one may exist for the same config.
    point(ctx, config, name).await?;
    let pool = config.spec.machine_config_pool.name.as_str();
    let created = build.metadata.creation_timestamp.as_ref().map(|time| time.0);
    ctx.options
        .metrics
        .ended(pool, BuildState::Failed, (created, None), ctx.now());
    ctx.options.metrics.set_state(pool, BuildState::Failed);
    report_failure(ctx, config, build);
    ctx.events
        .warning(config, event::CONFIG_RECONCILE_FAILED, why.to_owned());
    Ok(())
}

pub(crate) fn report_failure(ctx: &Context, config: &MachineOSConfig, build: &MachineOSBuild) {
    let (name, pool) = (
        object_name(&build.metadata),
        &config.spec.machine_config_pool.name,
    );
    let message = format!("Build failed; see MachineOSBuild {name:?} status conditions for details");
    ctx.events.warning(build, event::BUILD_FAILED, message);
    let message =
        format!("Build for pool {pool:?} degraded; see MachineOSBuild status conditions for details");
    ctx.events.warning(config, event::BUILD_DEGRADED, message);
}

/// Reports why no build is started: by an event, and on the build that waits, where clients show it until it starts.
pub(crate) async fn report_obstacle(ctx: &Context, config: &MachineOSConfig, message: String, why: &str) {
    ctx.events
        .warning(config, event::CONFIG_RECONCILE_FAILED, message);
    for build in ctx.builds_of(object_name(&config.metadata)) {
        let is_waiting =
            build_state(&build) == BuildState::New && build.metadata.deletion_timestamp.is_none();
        if !is_waiting || annotation_of(&build.metadata, annotation::FAILURE) == why {
            continue;
        }
        let patch = json!({"metadata": {"annotations": {annotation::FAILURE: why}}});
        if let Err(error) = patch_build(ctx, object_name(&build.metadata), &patch).await {
            warn!("cannot record why the build is not started: {error}");
        }
    }
}

/// Creates the inputs and the Job, and makes the Job their owner. Returns false if a Job of a former build of this name
/// is still being deleted.
async fn create_objects(
    ctx: &Context,
    build: &MachineOSBuild,
    objects: &BuildObjects,
) -> Result<bool, Error> {
    for object in &objects.config_maps {
        create_unless_present(ctx, object).await?;
    }
    for object in &objects.secrets {
        create_unless_present(ctx, object).await?;
    }
    let name = object_name(&objects.job.metadata);
    let api = ctx.api::<Job>();
    let job = match api.create(&FIELD_MANAGER.post_params(), &objects.job).await {
        Ok(created) => {
            ctx.events
                .normal(build, event::JOB_CREATED, format!("Created build job: {name}"));
            created
        }
        Err(error) if is_already_exists(&error) => {
            let attempt = format!("reading Job {name}");
            let existing = api.get_opt(name).await.map_err(Error::api(attempt))?;
            let owners = |job: &Job| job.metadata.owner_references.clone().unwrap_or_default();
            match existing {
                Some(job)
                    if owners(&job)
                        .iter()
                        .any(|owner| Some(&owner.uid) == build.metadata.uid.as_ref()) =>
                {
                    job
                }
                _ => return Ok(false),
            }
        }
        Err(error) => return Err(Error::api(format!("creating Job {name}"))(error)),
    };
    let uid = job.metadata.uid.clone().unwrap_or_default();
    ctx.jobs.observe_write(job);
    let patch = json!({"metadata": {"annotations": {annotation::JOB_UID: uid, annotation::FAILURE: null}}});
    patch_build(ctx, object_name(&build.metadata), &patch).await?;
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
        "controller": false, "blockOwnerDeletion": false,
    }]}});
    for object in &objects.config_maps {
        own::<ConfigMap>(ctx, object_name(&object.metadata), &owner).await?;
    }
    for object in &objects.secrets {
        own::<Secret>(ctx, object_name(&object.metadata), &owner).await?;
    }
    Ok(true)
}

async fn create_unless_present<K>(ctx: &Context, object: &K) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    match ctx.api::<K>().create(&FIELD_MANAGER.post_params(), object).await {
        Ok(_) => Ok(()),
        Err(error) if is_already_exists(&error) => Ok(()),
        Err(error) => {
            let attempt = format!("creating {} {}", K::kind(&()), object_name(object.meta()));
            Err(Error::api(attempt)(error))
        }
    }
}

async fn own<K>(ctx: &Context, name: &str, owner: &Value) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let attempt = format!("setting the owner of {} {name}", K::kind(&()));
    mco_runtime::patch::merge(&ctx.api::<K>(), name, FIELD_MANAGER, owner)
        .await
        .map_err(Error::api(attempt))?;
    Ok(())
}

async fn reuse(ctx: &Context, config: &MachineOSConfig, name: &str, image: &str) -> Result<bool, Error> {
    let Some(build) = ctx.builds.get(name) else {
        return Ok(false);
    };
    let Some(mut status) = status_with_state(&build, BuildState::Succeeded, None, &ctx.time()) else {
        return Ok(true);
    };
    image.clone_into(&mut status.digested_image_push_spec);
    // Before the status: from then on the build may be pruned, with its image if that is ours.
    let origin = cleanup::is_of_installation(ctx, image).then_some(image);
    let patch = json!({"metadata": {"annotations": {
        annotation::FAILURE: null,
        annotations::PRE_BUILT_IMAGE: origin,
    }}});
    patch_build(ctx, name, &patch).await?;
    patch_build_status(ctx, name, &json!({"status": status})).await?;
    let message = format!("Build completed successfully, image: {image}");
    ctx.events.normal(&*build, event::BUILD_COMPLETED, message);
    point(ctx, config, name).await
}

/// Makes a build the current one, and its image the pool's once there is one.
pub(crate) async fn point(ctx: &Context, config: &MachineOSConfig, name: &str) -> Result<bool, Error> {
    let config_name = object_name(&config.metadata);
    let patch = json!({"metadata": {"annotations": {
        annotation::CURRENT_MACHINE_OS_BUILD: name,
        annotation::REBUILD: null,
    }}});
    patch_config(ctx, config, &patch).await?;
    let build = ctx.builds.get(name);
    let image = build.as_ref().and_then(|build| build.status.as_ref());
    let image = image.map_or("", |status| status.digested_image_push_spec.as_str());
    let mut status = json!({"observedGeneration": config.metadata.generation.unwrap_or_default()});
    if !image.is_empty() {
        status["currentImagePullSpec"] = image.into();
        status["machineOSBuild"] = reference(name);
    }
    let attempt = format!("writing the status of MachineOSConfig {config_name}");
    ctx.configs
        .patch_status(
            &ctx.cluster_api(),
            config_name,
            FIELD_MANAGER,
            &json!({"status": status}),
        )
        .await
        .map_err(Error::api(attempt))?;
    Ok(true)
}

fn reference(build: &str) -> Value {
    json!({"group": "machineconfiguration.openshift.io", "resource": "machineosbuilds", "name": build})
}

async fn seed(
    ctx: &Context,
    config: &MachineOSConfig,
    build: &MachineOSBuild,
    image: &str,
) -> Result<bool, Error> {
    let name = object_name(&build.metadata);
    let secret = &config.spec.rendered_image_push_secret.name;
    if inputs::secret(ctx, secret).await?.is_none() {
        return Err(Error::Invalid(format!(
            "secret {secret} from {} is not found. Did you use the right secret name?",
            object_name(&config.metadata)
        )));
    }
    if ctx.builds.get(name).is_none() && !create(ctx, config, build).await? {
        return Ok(false);
    }
    let now = ctx.time();
    let end = now
        .0
        .checked_add(std::time::Duration::from_secs(1))
        .unwrap_or(now.0);
    let conditions = status_conditions(&[], BuildState::Succeeded, &now)
        .into_iter()
        .map(|one| Condition {
            reason: reason::PRE_BUILT_IMAGE_SEEDED.to_owned(),
            message: if one.status == status::TRUE {
                format!("Pre-built image {image:?} successfully seeded")
            } else {
                "Skipped: using pre-built image".to_owned()
            },
            ..one
        });
    let status = json!({"status": {
        "buildStart": now,
        "buildEnd": Time(end),
        "digestedImagePushSpec": image,
        "conditions": conditions.collect::<Vec<_>>(),
    }});
    patch_build_status(ctx, name, &status).await?;
    point(ctx, config, name).await?;
    let seeded = json!({"status": {"conditions": [{
        "type": condition::SEEDED,
        "status": status::TRUE,
        "reason": reason::PRE_BUILT_IMAGE_SEEDED,
        "message": format!("MachineOSConfig seeded with pre-built image {image:?}"),
        "lastTransitionTime": now,
    }]}});
    let config_name = object_name(&config.metadata);
    ctx.configs
        .patch_status(&ctx.cluster_api(), config_name, FIELD_MANAGER, &seeded)
        .await
        .map_err(Error::api(format!(
            "writing the status of MachineOSConfig {config_name}"
        )))?;
    Ok(true)
}

async fn patch_config(ctx: &Context, config: &MachineOSConfig, patch: &Value) -> Result<(), Error> {
    let name = object_name(&config.metadata);
    let attempt = format!("writing MachineOSConfig {name}");
    ctx.configs
        .patch(&ctx.cluster_api(), name, FIELD_MANAGER, patch)
        .await
        .map_err(Error::api(attempt))?;
    Ok(())
}

async fn patch_build(ctx: &Context, name: &str, patch: &Value) -> Result<(), Error> {
    let attempt = format!("writing MachineOSBuild {name}");
    ctx.builds
        .patch(&ctx.cluster_api(), name, FIELD_MANAGER, patch)
        .await
        .map_err(Error::api(attempt))?;
    Ok(())
}

async fn patch_build_status(ctx: &Context, name: &str, patch: &Value) -> Result<(), Error> {
    let attempt = format!("writing the status of MachineOSBuild {name}");
    ctx.builds
        .patch_status(&ctx.cluster_api(), name, FIELD_MANAGER, patch)
        .await
        .map_err(Error::api(attempt))?;
    Ok(())
}
