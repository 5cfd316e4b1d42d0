//! Reconciles one MachineOSConfig: the state of its Jobs becomes the status of its builds, then step by step the image
//! of the pool's target becomes its current image.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use mco_api::vocabulary::annotations::{build as annotation, node as node_annotation};
use mco_api::vocabulary::events::build as event;
use mco_api::vocabulary::names;
use mco_api::{MachineConfig, MachineOSBuild, MachineOSConfig};
use mco_core::config::pools::NodePools;
use mco_core::generators::os_builds::{
    BuildState, BuildStep, BuildView, ImageInputs, ImageReference, JobView, RegistryAnswers, RenderedView,
    build_state, decide, job_state, status_with_state,
};
use mco_runtime::{ErrorClass, ReconcileError as _, Requeue, object_name};
use serde_json::{Value, json};
use tracing::info;

use crate::context::{Context, FIELD_MANAGER, annotation as annotation_of};
use crate::error::Error;
use crate::{cleanup, images, steps};

/// The digest is published before the Job is complete, but the watch may deliver it later.
const DIGEST_RETRY: Duration = Duration::from_secs(2);
/// No MachineOSConfig needs more steps in a row; the next reconcile continues.
const MAX_STEPS: usize = 16;
/// How often a blocked build is tried again.
const BLOCKED_RETRY: Duration = Duration::from_secs(15);

pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let config = ctx
        .configs
        .get(&name)
        .filter(|config| config.metadata.deletion_timestamp.is_none());
    let Some(config) = config else {
        return cleanup::delete_builds_of(&ctx, &name).await;
    };
    cleanup::delete_builds_of_predecessors(&ctx, &config).await?;
    let mut requeue = Requeue::OnChange;
    for build in ctx.builds_of(&name) {
        if sync_status(&ctx, &config, &build).await? == Sync::DigestMissing {
            requeue = Requeue::After(DIGEST_RETRY);
        }
    }
    let next = advance(&ctx, &name, &config).await;
    if let Err(error) = &next
        && error.class() != ErrorClass::Conflict
    {
        let message = format!("Failed to reconcile MachineOSConfig spec change: {error}");
        steps::report_obstacle(&ctx, &config, message, &error.to_string()).await;
    }
    let next = next?;
    report(&ctx, &name);
    cleanup::prune(&ctx, &name).await?;
    Ok(match next {
        Requeue::OnChange => requeue,
        next => next,
    })
}

/// Takes the steps that are possible now.
async fn advance(ctx: &Context, name: &str, config: &MachineOSConfig) -> Result<Requeue, Error> {
    let pool_name = &config.spec.machine_config_pool.name;
    let Some(pool) = ctx.pools.get(pool_name) else {
        return Err(Error::Invalid(format!(
            "MachineOSConfig {name:?} references non-existent pool {pool_name:?}"
        )));
    };
    let reached_name = pool
        .status
        .as_ref()
        .map_or("", |status| status.configuration.name());
    if pool.target_name().is_empty() {
        return Ok(Requeue::OnChange);
    }
    let target = Rendered::read(ctx, pool.target_name()).await?;
    let target = target.ok_or_else(|| {
        Error::Invalid(format!(
            "rendered MachineConfig {:?} does not exist",
            pool.target_name()
        ))
    })?;
    let reached = match reached_name {
        "" => None,
        name => Rendered::read(ctx, name).await?,
    };
    let mut answers = RegistryAnswers::new();
    for _ in 0..MAX_STEPS {
        // Read again: the step before has changed it.
        let Some(config) = ctx.configs.get(name) else {
            return Ok(Requeue::OnChange);
        };
        let builds = ctx.builds_of(name);
        let views: Vec<&MachineOSBuild> = builds.iter().map(AsRef::as_ref).collect();
        let view = BuildView {
            config: &config,
            pool: &pool,
            target: target.view(),
            reached: reached.as_ref().map(Rendered::view),
            builds: &views,
            retry_interrupted: ctx.options.retry_interrupted,
            now: ctx.now(),
        };
        let step = decide(&view, &answers)?;
        match &step {
            BuildStep::Idle => return Ok(Requeue::OnChange),
            BuildStep::Wait(delay) => return Ok(Requeue::After(*delay)),
            BuildStep::Blocked(reason) => {
                info!(config = name, "no build is started: {reason}");
                steps::report_obstacle(ctx, &config, reason.clone(), reason).await;
                return Ok(Requeue::After(BLOCKED_RETRY));
            }
            BuildStep::Inspect { reference } => {
                let secret = &config.spec.rendered_image_push_secret.name;
                let presence = images::presence(ctx, reference, secret).await;
                answers.insert(reference.clone(), presence);
            }
            _ => {
                info!(config = name, ?step, "next step");
                if !steps::act(ctx, &config, &target, &step).await? {
                    return Ok(Requeue::OnChange);
                }
            }
        }
    }
    Ok(Requeue::After(Duration::ZERO))
}

/// A rendered config, as it is stored and as it is understood.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub stored: Value,
    pub object: MachineConfig,
    inputs: ImageInputs,
}

impl Rendered {
    pub async fn read(ctx: &Context, name: &str) -> Result<Option<Self>, Error> {
        let attempt = format!("reading rendered MachineConfig {name}");
        let Some(stored) = ctx.stored_config(name).await.map_err(Error::api(attempt))? else {
            return Ok(None);
        };
        let invalid = |error: serde_json::Error| Error::Invalid(format!("MachineConfig {name:?}: {error}"));
        Ok(Some(Self {
            object: serde_json::from_value(stored.clone()).map_err(invalid)?,
            inputs: ImageInputs::of(&stored).map_err(invalid)?,
            stored,
        }))
    }

    fn view(&self) -> RenderedView<'_> {
        RenderedView {
            object: &self.object,
            inputs: &self.inputs,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Sync {
    Done,
    /// The Job has succeeded, but its digest is not visible yet.
    DigestMissing,
}

/// Writes the state of a build's Job to its status.
async fn sync_status(ctx: &Context, config: &MachineOSConfig, build: &MachineOSBuild) -> Result<Sync, Error> {
    let name = object_name(&build.metadata);
    let before = build_state(build);
    if before.is_final() || build.metadata.deletion_timestamp.is_some() {
        return Ok(Sync::Done);
    }
    let job = ctx.job_of(name).filter(|job| is_job_of(job, build));
    let state = match &job {
        Some(job) => job_state(JobView::from(&**job)),
        // The Job was deleted.
        None if before.is_running() => BuildState::Interrupted,
        None => return Ok(Sync::Done),
    };
    if before == BuildState::New && state == BuildState::Interrupted {
        return Ok(Sync::Done);
    }
    let Some(mut status) = status_with_state(build, state, job.as_deref(), &ctx.time()) else {
        return Ok(Sync::Done);
    };
    if state == BuildState::Succeeded {
        match digest(ctx, config, name).await? {
            Some(image) => status.digested_image_push_spec = image,
            None => return Ok(Sync::DigestMissing),
        }
    }
    let patch = json!({"status": status});
    let attempt = format!("writing the status of MachineOSBuild {name}");
    ctx.builds
        .patch_status(&ctx.cluster_api(), name, FIELD_MANAGER, &patch)
        .await
        .map_err(Error::api(attempt))?;
    report_change(
        ctx,
        config,
        build,
        state,
        job.as_deref(),
        &status.digested_image_push_spec,
    );
    Ok(Sync::Done)
}

/// A Job of a deleted build of the same name does not count.
fn is_job_of(job: &Job, build: &MachineOSBuild) -> bool {
    let owners = job.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| Some(&owner.uid) == build.metadata.uid.as_ref())
}

/// Returns the image by digest, from what the Job has published.
async fn digest(ctx: &Context, config: &MachineOSConfig, build: &str) -> Result<Option<String>, Error> {
    let name = names::build::digest(build);
    let found = ctx.api::<ConfigMap>().get_opt(&name).await;
    let found = found.map_err(Error::api(format!("reading ConfigMap {name}")))?;
    let Some(digest) = found.and_then(|found| found.data?.remove("digest")) else {
        return Ok(None);
    };
    let image = ImageReference::parse(&config.spec.rendered_image_push_spec)
        .and_then(|reference| reference.with_digest(digest.trim()))
        .map_err(|error| Error::Invalid(format!("ConfigMap {name}: {error}")))?;
    Ok(Some(image.to_string()))
}

fn report_change(
    ctx: &Context,
    config: &MachineOSConfig,
    build: &MachineOSBuild,
    state: BuildState,
    job: Option<&Job>,
    image: &str,
) {
    let name = object_name(&build.metadata);
    let pool = config.spec.machine_config_pool.name.as_str();
    let job_name = names::build::job(name);
    let events = &ctx.events;
    match state {
        BuildState::Building => {
            events.normal(
                build,
                event::JOB_STARTED,
                format!("Build job started: {job_name}"),
            );
            events.normal(build, event::BUILD_BUILDING, "Build is now in progress");
        }
        BuildState::Succeeded => {
            events.normal(
                build,
                event::JOB_COMPLETED,
                format!("Build job completed: {job_name}"),
            );
            let message = format!("Build completed successfully, image: {image}");
            events.normal(build, event::BUILD_COMPLETED, message);
            if is_build_degraded(ctx, pool) {
                let message = format!("Build for pool {pool:?} recovered from degraded state");
                events.normal(config, event::BUILD_RECOVERED, message);
            }
        }
        BuildState::Failed => {
            let details = format!("see MachineOSBuild {name:?} status conditions for details");
            events.warning(
                build,
                event::JOB_FAILED,
                format!("Build job {job_name:?} failed; {details}"),
            );
            steps::report_failure(ctx, config, build);
        }
        BuildState::Interrupted => {
            events.normal(
                build,
                event::JOB_DELETED,
                format!("Build job deleted: {job_name}"),
            );
            events.warning(
                build,
                event::BUILD_INTERRUPTED,
                "Build interrupted: build job was deleted",
            );
        }
        BuildState::New | BuildState::Prepared => {}
    }
    if state.is_final() {
        let created = build.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let job_created = job.and_then(|job| Some(job.metadata.creation_timestamp.as_ref()?.0));
        ctx.options
            .metrics
            .ended(pool, state, (created, job_created), ctx.now());
        let failed = job.map_or(0, |job| JobView::from(job).failed);
        ctx.options.metrics.count_retries(pool, failed.min(3));
    }
}

fn is_build_degraded(ctx: &Context, pool: &str) -> bool {
    use mco_api::vocabulary::conditions::pool as condition;
    let pool = ctx.pools.get(pool);
    let status = pool.as_ref().and_then(|pool| pool.status.as_ref());
    status.is_some_and(|status| condition::holds(&status.conditions, condition::IMAGE_BUILD_DEGRADED))
}

/// Sets the gauges about the pool.
fn report(ctx: &Context, config: &str) {
    let Some(config) = ctx.configs.get(config) else {
        return;
    };
    let pool = config.spec.machine_config_pool.name.as_str();
    let current = annotation_of(&config.metadata, annotation::CURRENT_MACHINE_OS_BUILD);
    if let Some(build) = ctx.builds.get(current) {
        ctx.options.metrics.set_state(pool, build_state(&build));
    }
    let pools = ctx.pools.all();
    let membership = NodePools::new(pools.iter().map(AsRef::as_ref));
    let nodes = ctx.nodes.all();
    let layered = nodes.iter().filter(|node| {
        membership.is_member(node.metadata.labels.as_ref(), pool)
            && !annotation_of(&node.metadata, node_annotation::CURRENT_IMAGE).is_empty()
    });
    let layered = layered.count();
    let status = ctx
        .pools
        .get(pool)
        .and_then(|pool| pool.status.clone())
        .unwrap_or_default();
    ctx.options
        .metrics
        .set_rollout(pool, status.updated_machine_count, status.machine_count, layered);
}
