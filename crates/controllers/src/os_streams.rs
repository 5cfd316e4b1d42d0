//! Publishes the cluster's OSImageStream: the operating system streams that its release offers to pools, as
//! [`mco_core::generators::os_streams`] decides. A cluster without a source for streams gets no object.

use std::sync::Arc;

use mco_api::vocabulary::{annotations, names};
use mco_api::{ControllerConfig, OSImageStream};
use mco_core::generators::os_streams::published::{self, StreamDecision, StreamRelease, StreamSources};
use mco_runtime::{FieldManager, Requeue, is_already_exists};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-os-image-stream");

/// Writes the OSImageStream if it has changed.
pub(crate) async fn reconcile(ctx: Arc<Context>, (): ()) -> Result<Requeue, Error> {
    let Some(base) = ctx.base() else {
        return Ok(Requeue::OnChange);
    };
    let existing = ctx.stores.os_streams.get(names::SINGLETON);
    let is_being_deleted = existing
        .as_ref()
        .is_some_and(|object| object.metadata.deletion_timestamp.is_some());
    if is_being_deleted || !mco_core::generators::os_streams::are_on(&base.feature_gates) {
        return Ok(Requeue::OnChange);
    }
    let version = ctx.stores.cluster_versions.get(names::CLUSTER_VERSION);
    let release = StreamRelease::of(version.as_deref());
    let own_version = &ctx.options.source_version;
    let decision = sources(&ctx).and_then(|sources| {
        published::decide(existing.as_deref(), &sources, release, own_version)
            .map_err(|problem| problem.to_string())
    });
    let problem = match decision {
        Ok(StreamDecision::Nothing) => None,
        Ok(StreamDecision::Publish(wanted)) => {
            publish(&ctx, existing.as_deref(), &wanted).await?;
            None
        }
        Ok(StreamDecision::Wait(why)) | Err(why) => Some(why),
    };
    set_problem(&ctx, problem);
    Ok(Requeue::OnChange)
}

/// Records why the object is not up to date and enqueues the renders: those of another release must report it.
fn set_problem(ctx: &Context, problem: Option<String>) {
    {
        let mut recorded = ctx.stream_problem.write();
        if *recorded == problem {
            return;
        }
        if let Some(why) = &problem {
            warn!("OSImageStream not updated: {why}");
        }
        *recorded = problem;
    }
    ctx.enqueue_all_renders();
}

/// Why a pool cannot be rendered with the streams of the object.
pub(crate) enum StaleStreams {
    /// They are about to be published.
    Awaited(String),
    /// The administrator has to record those of the release.
    Unknown(String),
}

/// Returns whether the object has the streams of another release than the one that configs are rendered for.
pub(crate) fn stale(
    ctx: &Context,
    object: &OSImageStream,
    controller_config: &ControllerConfig,
) -> Option<StaleStreams> {
    let version = ctx.stores.cluster_versions.get(names::CLUSTER_VERSION);
    let annotations = controller_config.metadata.annotations.as_ref();
    let rendered = annotations.and_then(|all| all.get(annotations::RELEASE_IMAGE_VERSION));
    let release = StreamRelease::of(version.as_deref());
    let why = published::stale(object, release, rendered.map(String::as_str))?;
    Some(match ctx.stream_problem.read().clone() {
        Some(problem) => StaleStreams::Unknown(problem),
        None => StaleStreams::Awaited(why),
    })
}

/// Returns the sources of streams, or why they are malformed.
fn sources(ctx: &Context) -> Result<StreamSources, String> {
    let key = format!("{}/{}", names::NAMESPACE, names::config_map::OS_IMAGE_URL);
    let entries = ctx.stores.os_images.get(&key);
    let entries = entries.as_ref().and_then(|entries| entries.data.as_ref());
    let sources = entries.map_or_else(|| Ok(StreamSources::default()), StreamSources::read);
    match sources {
        Ok(sources) => {
            for left_out in &sources.discovered.left_out {
                debug!(
                    "ignored in the OS image streams: {}: {}",
                    left_out.what, left_out.why
                );
            }
            Ok(sources)
        }
        Err(problem) => Err(format!("ConfigMap {key}: {problem}")),
    }
}

/// Writes the status before the annotations: our version there means that the status is up to date.
async fn publish(
    ctx: &Context,
    existing: Option<&OSImageStream>,
    wanted: &OSImageStream,
) -> Result<(), Error> {
    let streams = ctx.api::<OSImageStream>();
    if existing.is_none() {
        match streams.create(&MANAGER.post_params(), wanted).await {
            Ok(_) => {}
            Err(problem) if is_already_exists(&problem) => return Ok(()),
            Err(problem) => return Err(Error::api("creating OSImageStream cluster")(problem)),
        }
    }
    let offered = existing.and_then(|object| object.status.as_ref());
    if offered != wanted.status.as_ref() {
        let patch = json!({"status": wanted.status});
        let store = &ctx.stores.os_streams;
        let written = store
            .patch_status(&streams, names::SINGLETON, MANAGER, &patch)
            .await;
        written.map_err(Error::api("writing OSImageStream cluster"))?;
        log_streams(wanted);
    }
    if let Some(existing) = existing {
        let mut annotations = existing.metadata.annotations.clone().unwrap_or_default();
        annotations.extend(wanted.metadata.annotations.clone().unwrap_or_default());
        if Some(&annotations) != existing.metadata.annotations.as_ref() {
            let patch = json!({"metadata": {"annotations": annotations}});
            let store = &ctx.stores.os_streams;
            let written = store.patch(&streams, names::SINGLETON, MANAGER, &patch).await;
            written.map_err(Error::api("writing OSImageStream cluster"))?;
        }
    }
    Ok(())
}

fn log_streams(wanted: &OSImageStream) {
    let Some(status) = &wanted.status else { return };
    let names = status.available_streams.iter().map(|stream| stream.name.as_str());
    info!(
        streams = names.collect::<Vec<_>>().join(", "),
        default = status.default_stream,
        "published the available OS image streams"
    );
}
