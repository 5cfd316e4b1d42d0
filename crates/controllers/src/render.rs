//! Renders one pool: its MachineConfigs become one, under a name that depends on nothing but the content, and the pool is
//! pointed at it. Nothing here touches a machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_api::vocabulary::{annotations, events, finalizers, names};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use mco_core::config::parsed_config::{ParsedConfig, SourceConfig};
use mco_core::config::pools::{self, SelectError};
use mco_core::config::reconcilable::Overrides;
use mco_core::config::render::{Identity, Rendered, Size};
use mco_core::config::skew::{self, Versions};
use mco_core::generators::os_streams::Streams;
use mco_core::pipeline::{self, PoolInputs, RenderFailure, RenderedPool};
use mco_core::rollout::Event;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::contents::Content;
use crate::error::{Class, Error, is_already_there};
use crate::events::Reporter;
use crate::foundation::Foundation;
use crate::name_of;
use crate::owned::Share;
use crate::queue::Again;
use crate::renders::{Generators, Missing, Outcome};
use crate::target;

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";

/// Renders the pool and points it at the result.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let Some(pool) = cluster.pools.get(&name) else {
        return Ok(Again::OnChange);
    };
    let started = Instant::now();
    let outcome = match gather(&cluster, &pool).await? {
        Gathered::Wait(why) => {
            tell(&cluster, &name, &Outcome::Waiting(why));
            return Ok(Again::NotYet(None));
        }
        Gathered::Stuck(why) => return stuck(&cluster, &pool, why).await,
        // It comes in a moment, and may turn out to be the same, which enqueues nothing.
        Gathered::OnTheWay => return Ok(Again::NotYet(Some(SOURCES_POLL))),
        Gathered::Failed(why) => Outcome::Failed(why),
        Gathered::Inputs(inputs) => match tokio::task::spawn_blocking(move || inputs.render()).await {
            Ok(Ok(rendered)) => {
                finish(&cluster, &pool, rendered, started).await?;
                Outcome::Rendered
            }
            Ok(Err(RenderFailure::Skew(other_version))) => {
                return stuck(&cluster, &pool, other_version.to_string()).await;
            }
            Ok(Err(RenderFailure::Select(SelectError::SelectsEverything { .. }))) => {
                return selects_everything(&cluster, &pool).await;
            }
            Ok(Err(failure)) => Outcome::Failed(failure.to_string()),
            Err(ended) => Outcome::Failed(format!("rendering ended: {ended}")),
        },
    };
    tell(&cluster, &name, &outcome);
    if matches!(outcome, Outcome::Failed(_)) {
        target::stand_by(&cluster, &pool).await?;
    }
    Ok(Again::OnChange)
}

/// Another component has to act first, perhaps not soon.
async fn stuck(cluster: &Cluster, pool: &MachineConfigPool, why: String) -> Result<Again, Error> {
    target::stand_by(cluster, pool).await?;
    tell(cluster, name_of(&pool.metadata), &Outcome::Waiting(why));
    Ok(Again::NotYet(None))
}

async fn selects_everything(cluster: &Cluster, pool: &MachineConfigPool) -> Result<Again, Error> {
    let message = "This machineconfigpool is selecting all machineconfigs. A non-empty selector is required.";
    let event = Event::warning(events::rollout::SELECTING_ALL, message.to_owned());
    cluster.events.tell(Reporter::Render, pool, event);
    target::stand_by(cluster, pool).await?;
    Ok(Again::OnChange)
}

/// Writes what was rendered.
async fn finish(
    cluster: &Cluster,
    pool: &MachineConfigPool,
    RenderedPool {
        rendered,
        stream,
        size,
    }: RenderedPool,
    started: Instant,
) -> Result<(), Error> {
    let name = name_of(&pool.metadata);
    let overridden = is_overridden(&rendered.config.object);
    cluster.renders.follows(name, stream.filter(|_| !overridden));
    cluster
        .options
        .metrics
        .rendered(name, overridden, started.elapsed());
    if let Size::NearLimit { bytes } = size {
        warn!(
            pool = name,
            bytes, "the rendered config is close to the largest the API server stores"
        );
    }
    for warning in &rendered.warnings {
        debug!(pool = name, configs = ?warning.sources, "{}", warning.problem);
    }
    if let Err(problem) = publish(cluster, pool, &rendered).await {
        // A conflict is no failure and is retried at once.
        if problem.class() != Class::Conflict {
            tell(cluster, name, &Outcome::Failed(problem.to_string()));
        }
        target::stand_by(cluster, pool).await?;
        return Err(problem);
    }
    cluster.renders.keep_config(name, Arc::new(rendered.config));
    Ok(())
}

/// Tells whoever reports about the pool, if it is news.
fn tell(cluster: &Cluster, pool: &str, outcome: &Outcome) {
    if cluster.renders.report(pool, outcome.clone()) {
        match outcome {
            Outcome::Rendered => debug!(pool, "rendered"),
            Outcome::Waiting(why) => info!(pool, "rendering waits: {why}"),
            Outcome::Failed(why) => error!(pool, "rendering fails: {why}"),
        }
        cluster.queues.rollout.wake(pool);
    }
}

enum Gathered {
    Inputs(Box<Inputs>),
    /// Something happens first, in a moment, and will wake this pool.
    Wait(String),
    /// Somebody has to do something first, perhaps not soon.
    Stuck(String),
    Failed(String),
    /// A source has changed and is being fetched, or a generator is at work on what has changed.
    OnTheWay,
}

/// Everything a render is made from.
struct Inputs {
    pool: Arc<MachineConfigPool>,
    worker: Option<Arc<MachineConfigPool>>,
    controller_config: Arc<ControllerConfig>,
    sources: Vec<Arc<SourceConfig>>,
    streams: Streams,
    os_image_stream: Option<Arc<OSImageStream>>,
    /// The config that the pool's machines go to now.
    current: Option<Arc<ParsedConfig>>,
    overrides: Overrides,
    /// Of this controller.
    build_version: String,
    source_version: String,
}

impl Inputs {
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
            identity: Identity {
                controller_version: &self.source_version,
                release_version: "",
            },
            versions: Some(Versions {
                raw: &self.build_version,
                hash: &self.source_version,
            }),
        })
    }
}

/// What all pools have in common.
struct Base {
    controller_config: Arc<ControllerConfig>,
    foundation: Arc<Foundation>,
    /// Whatever generators make of it.
    own: Share,
}

/// The base, once all of it is of the present ControllerConfig; until then, what a render has to do.
fn base(cluster: &Cluster) -> Result<Base, Gathered> {
    let wait = |why: &str| Gathered::Wait(why.to_owned());
    let controller_config = cluster
        .controller_config()
        .ok_or_else(|| wait("the operator has not written the ControllerConfig yet"))?;
    skew::check_controller_config(&controller_config, cluster.options.versions())
        .map_err(|other_version| Gathered::Stuck(other_version.to_string()))?;
    let generation = |config: &ControllerConfig| config.metadata.generation;
    let foundation = cluster
        .foundation()
        .filter(|made| generation(&made.controller_config) == generation(&controller_config))
        .ok_or_else(|| match cluster.base_problem.read().as_ref() {
            Some(problem) => Gathered::Stuck(format!("the base configuration cannot be made: {problem}")),
            None => wait("the base configuration is being made"),
        })?;
    let own = cluster
        .owned
        .whole(&foundation)
        .ok_or_else(|| wait("the generated configuration is being made"))?;
    Ok(Base {
        controller_config,
        foundation,
        own,
    })
}

async fn gather(cluster: &Cluster, pool: &Arc<MachineConfigPool>) -> Result<Gathered, Error> {
    // A selector that cannot be used is reported by the render.
    let selector = pools::config_selector(pool).ok();
    let selects = |labels: Option<&BTreeMap<String, String>>| {
        selector.as_ref().is_some_and(|selector| selector.matches(labels))
    };
    let name = name_of(&pool.metadata);
    // Before what they have made is read.
    let generators = if cluster.generators_have_seen(cluster.renders.waits_since(name)) {
        Generators::Done
    } else {
        Generators::AtWork
    };
    let Base {
        controller_config,
        foundation,
        own,
    } = match base(cluster) {
        Ok(base) => base,
        Err(instead) => {
            cluster.renders.waits_no_more(name);
            return Ok(instead);
        }
    };
    let mut sources: Vec<Arc<SourceConfig>> = own.values().cloned().collect();
    let mut missing = Missing::new();
    let mut unreadable = None;
    for metadata in cluster.config_metadata.all() {
        let metadata = &metadata.metadata;
        let source = name_of(metadata);
        let is_source = pipeline::is_user_source(metadata) && !own.contains_key(source);
        if !is_source || !selects(metadata.labels.as_ref()) {
            continue;
        }
        let content = cluster.contents.get(source);
        let is_current = |content: &Content| content.is_of(metadata.resource_version.as_ref());
        if !content.as_ref().is_some_and(is_current) {
            let so_far = content.as_ref().map(|content| content.versions().clone());
            missing.insert(source.to_owned(), so_far);
        }
        match content.map(|content| content.config) {
            None => {}
            Some(Err(problem)) => unreadable = unreadable.or(Some(problem)),
            Some(Ok(config)) => sources.push(config),
        }
    }
    if cluster.renders.must_wait(name, generators, &missing) {
        return Ok(Gathered::OnTheWay);
    }
    if let Some(problem) = unreadable {
        return Ok(Gathered::Failed(problem));
    }
    let settings = cluster.machine_configurations.get(names::SINGLETON);
    let overrides = settings
        .map(|settings| Overrides::of(&settings))
        .unwrap_or_default();
    let published = cluster.os_streams.get(names::SINGLETON);
    Ok(Gathered::Inputs(Box::new(Inputs {
        pool: Arc::clone(pool),
        worker: cluster.pools.get(names::pool::WORKER),
        controller_config,
        sources,
        streams: Streams::of(published.as_deref(), &foundation.feature_gates),
        os_image_stream: published,
        current: current(cluster, pool).await?,
        overrides: overrides.under(&foundation.feature_gates),
        build_version: cluster.options.build_version.clone(),
        source_version: cluster.options.source_version.clone(),
    })))
}

/// The config that the pool's machines go to now, whatever was written into the pool since; none before the first render,
/// when it was deleted, and when it cannot be parsed: it would otherwise keep the pool on it for ever.
async fn current(cluster: &Cluster, pool: &MachineConfigPool) -> Result<Option<Arc<ParsedConfig>>, Error> {
    let given = cluster.renders.given(name_of(&pool.metadata));
    let name = given.as_ref().unwrap_or(&pool.spec.configuration).name();
    if name.is_empty() || cluster.config_metadata.get(name).is_none() {
        return Ok(None);
    }
    if let Some(known) = cluster.renders.config(name_of(&pool.metadata), name) {
        return Ok(Some(known));
    }
    let found = cluster
        .api::<MachineConfig>()
        .get_opt(name)
        .await
        .map_err(Error::api(format!("fetching MachineConfig {name}")))?;
    let parsed = found.and_then(|config| ParsedConfig::applicable(config).ok());
    Ok(parsed.map(Arc::new))
}

async fn publish(cluster: &Cluster, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), Error> {
    store(cluster, pool, rendered).await?;
    let sources = rendered.provenance.sources().iter().map(|name| ObjectReference {
        api_version: Some(OWN_GROUP.to_owned()),
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
    target::give(cluster, pool, configuration).await
}

/// Puts the rendered config where machines find it, and puts it right if somebody changed it.
async fn store(cluster: &Cluster, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), Error> {
    let name = rendered.name();
    let mut wanted = MachineConfig::clone(&rendered.config.object);
    wanted.metadata.finalizers = Some(vec![finalizers::RENDERED_CONFIG_IN_USE.to_owned()]);
    let configs = cluster.api::<MachineConfig>();
    let Some(known) = cluster.config_metadata.get(name) else {
        match configs.create(&PostParams::default(), &wanted).await {
            Ok(_) => {
                announce(cluster, pool, &wanted);
                return Ok(());
            }
            Err(problem) if is_already_there(&problem) => return restore(cluster, &wanted).await,
            Err(problem) => return Err(Error::api(format!("creating MachineConfig {name}"))(problem)),
        }
    };
    let known = &known.metadata;
    let annotated = wanted.metadata.annotations.iter().flatten().all(|(key, value)| {
        let found = known.annotations.as_ref().and_then(|all| all.get(key));
        found == Some(value)
    });
    // Its content is in its name, so what was never changed is right.
    let pristine = known.generation == Some(1);
    if pristine && annotated {
        return Ok(());
    }
    restore(cluster, &wanted).await
}

async fn restore(cluster: &Cluster, wanted: &MachineConfig) -> Result<(), Error> {
    let name = name_of(&wanted.metadata);
    let configs = cluster.api::<MachineConfig>();
    let attempt = format!("restoring MachineConfig {name}");
    let actual = configs.get(name).await.map_err(Error::api(attempt))?;
    let edited = actual.spec != wanted.spec;
    if crate::restore::restore(&configs, &actual, wanted)
        .await?
        .is_some()
        && edited
    {
        warn!(
            config = name,
            "somebody changed this rendered MachineConfig; it is as it was again"
        );
    }
    Ok(())
}

fn announce(cluster: &Cluster, pool: &MachineConfigPool, config: &MachineConfig) {
    let name = name_of(&config.metadata);
    let annotation = |key: &str| {
        let all = config.metadata.annotations.as_ref();
        all.and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let message = format!(
        "{name} successfully generated (release version: {}, controller version: {})",
        annotation(annotations::RELEASE_IMAGE_VERSION),
        annotation(annotations::GENERATED_BY_CONTROLLER_VERSION)
    );
    let event = Event::normal(events::render::RENDERED_CONFIG_GENERATED, message);
    cluster.events.tell(Reporter::Render, pool, event);
    if is_overridden(config) {
        let message = format!("OSImageURL was overridden via machineconfig in {name}");
        let event = Event::normal(events::render::OS_IMAGE_URL_OVERRIDDEN, message);
        cluster.events.tell(Reporter::Render, config, event);
        if !config.spec.os_image_url.contains("sha256:") {
            warn!(
                config = name,
                image = config.spec.os_image_url,
                "the image is not named by its digest"
            );
        }
    }
}

fn is_overridden(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(annotations::OS_IMAGE_URL_OVERRIDDEN))
}
