//! Renders one pool: merges its MachineConfigs into one whose name depends on its content alone, and sets it as the
//! pool's target. Rollouts update the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_api::vocabulary::{annotations, events, finalizers, names};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use mco_core::config::parsed_config::{ParsedConfig, SourceConfig};
use mco_core::config::pools::{self, SelectError};
use mco_core::config::reconcilable::Overrides;
use mco_core::config::render::{RenderIdentity, Rendered, Size};
use mco_core::config::skew::{self, ControllerVersions};
use mco_core::generators::os_streams::ReleaseStreams;
use mco_core::pipeline::{self, BaseConfigs, PoolInputs, RenderFailure, RenderedPool};
use mco_core::rollout::PlannedEvent;
use mco_runtime::{
    ErrorClass, FieldManager, ReconcileError as _, Requeue, is_already_exists, object_name, run_blocking,
};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::context::{Context, SOURCES_POLL};
use crate::error::Error;
use crate::events::Reporter;
use crate::generated_configs::GeneratedConfigs;
use crate::os_streams::{self, StaleStreams};
use crate::render_state::{GeneratorProgress, MissingSources, RenderResult};
use crate::source_cache::CachedSource;
use crate::target;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-render");

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// Renders the pool and sets the result as its target.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(pool) = ctx.stores.pools.get(&name) else {
        return Ok(Requeue::OnChange);
    };
    let started = Instant::now();
    let result = match gather(&ctx, &pool).await? {
        GatheredInputs::Wait(why) => {
            record(&ctx, &name, &RenderResult::Waiting(why));
            return Ok(Requeue::NotReady(None));
        }
        GatheredInputs::Blocked(why) => return blocked(&ctx, &pool, why).await,
        // Polled, because a source that turns out to be unchanged enqueues nothing.
        GatheredInputs::Incomplete => return Ok(Requeue::NotReady(Some(SOURCES_POLL))),
        GatheredInputs::Failed(why) => RenderResult::Failed(why),
        GatheredInputs::Complete(inputs) => {
            match run_blocking("render", format!("pool {name:?}"), move || inputs.render()).await {
                Ok(Ok(rendered)) => {
                    finish(&ctx, &pool, rendered, started).await?;
                    RenderResult::Rendered
                }
                Ok(Err(RenderFailure::Skew(other_version))) => {
                    return blocked(&ctx, &pool, other_version.to_string()).await;
                }
                Ok(Err(RenderFailure::Select(SelectError::SelectsEverything { .. }))) => {
                    return selects_everything(&ctx, &pool).await;
                }
                // The contents enqueue the pool when they arrive, or when they cannot be fetched.
                Ok(Err(fetching @ RenderFailure::Fetching(_))) => {
                    return blocked(&ctx, &pool, fetching.to_string()).await;
                }
                Ok(Err(failure)) => RenderResult::Failed(failure.to_string()),
                Err(failed) => RenderResult::Failed(failed.to_string()),
            }
        }
    };
    record(&ctx, &name, &result);
    if matches!(result, RenderResult::Failed(_)) {
        target::restore_last_target(&ctx, &pool).await?;
    }
    Ok(Requeue::OnChange)
}

/// Keeps the last target while another component has to act first.
async fn blocked(ctx: &Context, pool: &MachineConfigPool, why: String) -> Result<Requeue, Error> {
    target::restore_last_target(ctx, pool).await?;
    record(ctx, object_name(&pool.metadata), &RenderResult::Waiting(why));
    Ok(Requeue::NotReady(None))
}

async fn selects_everything(ctx: &Context, pool: &MachineConfigPool) -> Result<Requeue, Error> {
    let message = "This machineconfigpool is selecting all machineconfigs. A non-empty selector is required.";
    let event = PlannedEvent::warning(events::rollout::SELECTING_ALL, message.to_owned());
    ctx.events.record(Reporter::Render, pool, event);
    target::restore_last_target(ctx, pool).await?;
    Ok(Requeue::OnChange)
}

/// Writes the rendered config and sets it as the pool's target.
async fn finish(
    ctx: &Context,
    pool: &MachineConfigPool,
    RenderedPool {
        rendered,
        stream,
        size,
    }: RenderedPool,
    started: Instant,
) -> Result<(), Error> {
    let name = object_name(&pool.metadata);
    let overridden = is_overridden(&rendered.config.object);
    ctx.renders.set_stream(name, stream.filter(|_| !overridden));
    ctx.options.metrics.rendered(name, overridden, started.elapsed());
    if let Size::NearLimit { bytes } = size {
        warn!(
            pool = name,
            bytes, "the rendered config is close to the size limit of the API server"
        );
    }
    for warning in &rendered.warnings {
        debug!(pool = name, configs = ?warning.sources, "{}", warning.problem);
    }
    if let Err(problem) = publish(ctx, pool, &rendered).await {
        // A conflict is no failure; the retry is soon.
        if problem.class() != ErrorClass::Conflict {
            record(ctx, name, &RenderResult::Failed(problem.to_string()));
        }
        target::restore_last_target(ctx, pool).await?;
        return Err(problem);
    }
    ctx.renders.set_target_config(name, Arc::new(rendered.config));
    Ok(())
}

/// Records the result for the pool's status, and enqueues the rollout that writes it.
fn record(ctx: &Context, pool: &str, result: &RenderResult) {
    if ctx.renders.record(pool, result.clone()) {
        match result {
            RenderResult::Rendered => debug!(pool, "rendered"),
            RenderResult::Waiting(why) => info!(pool, "cannot render yet: {why}"),
            RenderResult::Failed(why) => error!(pool, "rendering failed: {why}"),
        }
        ctx.queues.rollout.enqueue(pool);
    }
}

enum GatheredInputs {
    Complete(Box<RenderInputs>),
    /// Another component has to act first, and its change enqueues this pool soon.
    Wait(String),
    /// Another component or the administrator has to act first, perhaps not soon.
    Blocked(String),
    Failed(String),
    /// A changed source is being fetched, or a generator is running.
    Incomplete,
}

/// Everything that a render reads.
struct RenderInputs {
    pool: Arc<MachineConfigPool>,
    worker: Option<Arc<MachineConfigPool>>,
    controller_config: Arc<ControllerConfig>,
    sources: Vec<Arc<SourceConfig>>,
    streams: ReleaseStreams,
    os_image_stream: Option<Arc<OSImageStream>>,
    /// The config of the pool's current target.
    current: Option<Arc<ParsedConfig>>,
    overrides: Overrides,
    /// The versions of this controller.
    build_version: String,
    source_version: String,
}

impl RenderInputs {
    fn render(&self) -> Result<RenderedPool, RenderFailure> {
        pipeline::render_pool(&PoolInputs {
            pool: &self.pool,
            worker: self.worker.as_deref(),
            controller_config: Some(&self.controller_config),
            sources: &self.sources,
            streams: &self.streams,
            os_image_stream: self.os_image_stream.as_deref(),
            current: self.current.as_deref(),
            overrides: self.overrides,
            identity: RenderIdentity {
                controller_version: &self.source_version,
                release_version: "",
            },
            versions: Some(ControllerVersions {
                raw: &self.build_version,
                hash: &self.source_version,
            }),
        })
    }
}

/// The inputs that all pools share.
struct SharedInputs {
    controller_config: Arc<ControllerConfig>,
    base: Arc<BaseConfigs>,
    generated: GeneratedConfigs,
}

/// Returns the shared inputs, once all of them were produced from the current ControllerConfig.
fn shared_inputs(ctx: &Context) -> Result<SharedInputs, GatheredInputs> {
    let wait = |why: &str| GatheredInputs::Wait(why.to_owned());
    let controller_config = ctx
        .controller_config()
        .ok_or_else(|| wait("the operator has not written the ControllerConfig yet"))?;
    skew::check_controller_config(&controller_config, ctx.options.versions())
        .map_err(|other_version| GatheredInputs::Blocked(other_version.to_string()))?;
    let generation = |config: &ControllerConfig| config.metadata.generation;
    let base = ctx
        .base()
        .filter(|base| generation(&base.controller_config) == generation(&controller_config))
        .ok_or_else(|| match ctx.base_problem.read().as_ref() {
            Some(problem) => {
                GatheredInputs::Blocked(format!("the base configs cannot be rendered: {problem}"))
            }
            None => wait("the base configs are not rendered yet"),
        })?;
    let generated = ctx
        .generated
        .complete(&base)
        .ok_or_else(|| wait("the generated configs are not complete yet"))?;
    Ok(SharedInputs {
        controller_config,
        base,
        generated,
    })
}

async fn gather(ctx: &Context, pool: &Arc<MachineConfigPool>) -> Result<GatheredInputs, Error> {
    // An invalid selector is reported by the render.
    let selector = pools::config_selector(pool).ok();
    let selects = |labels: Option<&BTreeMap<String, String>>| {
        selector.as_ref().is_some_and(|selector| selector.matches(labels))
    };
    let name = object_name(&pool.metadata);
    // Checked before their configs are read.
    let generators = if ctx.generators_have_seen(ctx.renders.waiting_since(name)) {
        GeneratorProgress::Done
    } else {
        GeneratorProgress::Running
    };
    let SharedInputs {
        controller_config,
        base,
        generated,
    } = match shared_inputs(ctx) {
        Ok(inputs) => inputs,
        Err(instead) => {
            ctx.renders.stop_waiting(name);
            return Ok(instead);
        }
    };
    let mut sources: Vec<Arc<SourceConfig>> = generated.values().cloned().collect();
    let mut missing = MissingSources::new();
    let mut malformed = None;
    for metadata in ctx.stores.config_metadata.all() {
        let metadata = &metadata.metadata;
        let source = object_name(metadata);
        let is_source = pipeline::is_user_source(metadata) && !generated.contains_key(source);
        if !is_source || !selects(metadata.labels.as_ref()) {
            continue;
        }
        let cached = ctx.sources.get(source);
        let is_current = |cached: &CachedSource| cached.is_current(metadata.resource_version.as_ref());
        if !cached.as_ref().is_some_and(is_current) {
            let versions = cached.as_ref().map(|cached| cached.versions().clone());
            missing.insert(source.to_owned(), versions);
        }
        match cached.map(|cached| cached.config) {
            None => {}
            Some(Err(problem)) => malformed = malformed.or(Some(problem)),
            Some(Ok(config)) => sources.push(config),
        }
    }
    if ctx.renders.must_wait(name, generators, &missing) {
        return Ok(GatheredInputs::Incomplete);
    }
    if let Some(problem) = malformed {
        return Ok(GatheredInputs::Failed(problem));
    }
    let settings = ctx.stores.machine_configuration();
    let overrides = settings
        .map(|settings| Overrides::of(&settings))
        .unwrap_or_default();
    let published = ctx.stores.os_streams.get(names::SINGLETON);
    let streams = ReleaseStreams::of(published.as_deref(), &base.feature_gates);
    if let Some(object) = published.as_deref().filter(|_| streams.are_published()) {
        match os_streams::stale(ctx, object, &controller_config) {
            None => {}
            Some(StaleStreams::Awaited(why)) => return Ok(GatheredInputs::Blocked(why)),
            Some(StaleStreams::Unknown(why)) => return Ok(GatheredInputs::Failed(why)),
        }
    }
    Ok(GatheredInputs::Complete(Box::new(RenderInputs {
        pool: Arc::clone(pool),
        worker: ctx.stores.pools.get(names::pool::WORKER),
        controller_config,
        sources,
        streams,
        os_image_stream: published,
        current: current(ctx, pool).await?,
        overrides: overrides.under(&base.feature_gates),
        build_version: ctx.options.build_version.clone(),
        source_version: ctx.options.source_version.clone(),
    })))
}

/// Returns the config of the pool's current target, ignoring targets that other clients have written. `None` before
/// the first render, and when it was deleted or cannot be parsed: a comparison with it would block every render.
async fn current(ctx: &Context, pool: &MachineConfigPool) -> Result<Option<Arc<ParsedConfig>>, Error> {
    let last_target = ctx.renders.last_target(object_name(&pool.metadata));
    let name = last_target.as_ref().unwrap_or(&pool.spec.configuration).name();
    if name.is_empty() || ctx.stores.config_metadata.get(name).is_none() {
        return Ok(None);
    }
    if let Some(config) = ctx.renders.target_config(object_name(&pool.metadata), name) {
        return Ok(Some(config));
    }
    let found = ctx
        .api::<MachineConfig>()
        .get_opt(name)
        .await
        .map_err(Error::api(format!("fetching MachineConfig {name}")))?;
    let parsed = found.and_then(|config| ParsedConfig::applicable(config).ok());
    Ok(parsed.map(Arc::new))
}

async fn publish(ctx: &Context, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), Error> {
    store(ctx, pool, rendered).await?;
    let sources = rendered.provenance.sources().iter().map(|name| ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some("MachineConfig".to_owned()),
        name: Some(name.clone()),
        ..ObjectReference::default()
    });
    let configuration = MachineConfigPoolConfiguration {
        reference: ObjectReference {
            name: Some(rendered.name().to_owned()),
            ..ObjectReference::default()
        },
        source: sources.collect(),
    };
    target::set_target(ctx, pool, configuration).await
}

/// Writes the rendered config, or restores it if another client has edited it.
async fn store(ctx: &Context, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), Error> {
    let name = rendered.name();
    let mut wanted = MachineConfig::clone(&rendered.config.object);
    wanted.metadata.finalizers = Some(vec![finalizers::RENDERED_CONFIG_IN_USE.to_owned()]);
    let configs = ctx.api::<MachineConfig>();
    let Some(existing) = ctx.stores.config_metadata.get(name) else {
        match configs.create(&MANAGER.post_params(), &wanted).await {
            Ok(_) => {
                record_generated(ctx, pool, &wanted);
                return Ok(());
            }
            Err(problem) if is_already_exists(&problem) => return restore(ctx, &wanted).await,
            Err(problem) => return Err(Error::api(format!("creating MachineConfig {name}"))(problem)),
        }
    };
    let existing = &existing.metadata;
    withdraw(existing, &mut wanted);
    let annotated = wanted.metadata.annotations.iter().flatten().all(|(key, value)| {
        let found = existing.annotations.as_ref().and_then(|all| all.get(key));
        found == Some(value)
    });
    // The name is a hash of the content, so a config that was never edited is right.
    let pristine = existing.generation == Some(1);
    if pristine && annotated {
        return Ok(());
    }
    restore(ctx, &wanted).await
}

/// Empties the annotations of an existing rendered config that its sources or its pool no longer set.
fn withdraw(existing: &ObjectMeta, wanted: &mut MachineConfig) {
    for key in [annotations::ALLOW_GUARDED_PATHS, annotations::SSH_USER] {
        if existing
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key(key))
        {
            let all = wanted.metadata.annotations.get_or_insert_default();
            all.entry(key.to_owned()).or_default();
        }
    }
}

async fn restore(ctx: &Context, wanted: &MachineConfig) -> Result<(), Error> {
    let name = object_name(&wanted.metadata);
    let configs = ctx.api::<MachineConfig>();
    let attempt = format!("restoring MachineConfig {name}");
    let actual = configs.get(name).await.map_err(Error::api(attempt))?;
    let edited = actual.spec != wanted.spec;
    if crate::restore::restore(&configs, MANAGER, &actual, wanted)
        .await?
        .is_some()
        && edited
    {
        warn!(
            config = name,
            "another client edited this rendered MachineConfig; reverted"
        );
    }
    Ok(())
}

fn record_generated(ctx: &Context, pool: &MachineConfigPool, config: &MachineConfig) {
    let name = object_name(&config.metadata);
    let annotation = |key: &str| {
        let all = config.metadata.annotations.as_ref();
        all.and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let message = format!(
        "{name} successfully generated (release version: {}, controller version: {})",
        annotation(annotations::RELEASE_IMAGE_VERSION),
        annotation(annotations::GENERATED_BY_CONTROLLER_VERSION)
    );
    let event = PlannedEvent::normal(events::render::RENDERED_CONFIG_GENERATED, message);
    ctx.events.record(Reporter::Render, pool, event);
    if is_overridden(config) {
        let message = format!("OSImageURL was overridden via machineconfig in {name}");
        let event = PlannedEvent::normal(events::render::OS_IMAGE_URL_OVERRIDDEN, message);
        ctx.events.record(Reporter::Render, config, event);
        if !config.spec.os_image_url.contains("sha256:") {
            warn!(
                config = name,
                image = config.spec.os_image_url,
                "osImageURL has no digest"
            );
        }
    }
}

fn is_overridden(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(annotations::OS_IMAGE_URL_OVERRIDDEN))
}
