//! Renders one pool: select, check version skew, validate, resolve the OS image stream, merge, check the container
//! runtime, the size and the transition from the current config.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::cluster_base::UnknownBase;
use mco_api::vocabulary::annotations;
use mco_api::{ClusterBase, ControllerConfig, MachineConfigPool, OSImageStream};
use thiserror::Error;

use crate::config::guarded::{self, Allowance};
use crate::config::merge::DefaultImages;
use crate::config::parsed_config::{ParsedConfig, SourceConfig};
use crate::config::pools::{self, SelectError};
use crate::config::problem::InvalidObject;
use crate::config::reconcilable::Overrides;
use crate::config::render::{self, RenderError, RenderIdentity, Rendered, Size};
use crate::config::rendered_configs;
use crate::config::runtime_check::{self, RuntimeCheckError};
use crate::config::skew::{self, ControllerVersions, SkewError};
use crate::config::transition::{self, TransitionError};
use crate::generators::generated::generator_of;
use crate::generators::os_images::{self, StreamError};
use crate::generators::os_streams::ReleaseStreams;
use crate::generators::templates::TemplateConfig;

/// All inputs of a render of one pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolInputs<'a> {
    pub pool: &'a MachineConfigPool,
    /// The worker pool, whose OS image stream custom pools follow.
    pub worker: Option<&'a MachineConfigPool>,
    /// `None` if the pool is rendered only from MachineConfigs.
    pub controller_config: Option<&'a ControllerConfig>,
    /// All MachineConfigs that are sources of renders, generated and user-provided; the pool selects among them.
    pub sources: &'a [Arc<SourceConfig>],
    pub streams: &'a ReleaseStreams,
    pub os_image_stream: Option<&'a OSImageStream>,
    /// The config that the pool's nodes have or are being updated to; `None` before the first render.
    pub current: Option<&'a ParsedConfig>,
    /// Sections with irreconcilable changes that the administrator accepts.
    pub overrides: Overrides,
    /// The identity of the renderer. The release is the ControllerConfig's, if that names one.
    pub identity: RenderIdentity<'a>,
    /// The versions whose objects the renderer may use; `None` accepts all.
    pub versions: Option<ControllerVersions<'a>>,
}

/// The rendered config of a pool.
#[derive(Debug, Clone)]
pub struct RenderedPool {
    pub rendered: Rendered,
    /// The OS image stream that the pool follows, if the cluster has any.
    pub stream: Option<String>,
    pub size: Size,
}

/// Why a pool cannot be rendered. Its nodes keep their config.
#[derive(Debug, Error)]
pub enum RenderFailure {
    #[error(transparent)]
    Base(#[from] UnknownBase),
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The objects were written by another version of the controllers, during an upgrade.
    #[error(transparent)]
    Skew(#[from] SkewError),
    #[error("could not generate rendered MachineConfig: {}", join(.0))]
    Invalid(Vec<InvalidObject>),
    /// Sources whose remote contents are not fetched yet.
    #[error("waiting for remote contents: {}", join(.0))]
    Fetching(Vec<InvalidObject>),
    /// Sources that change guarded paths of nodes that this cluster has not installed.
    #[error("{}", .0.join("\n"))]
    Guarded(Vec<String>),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("could not generate rendered MachineConfig: {0}")]
    Merge(RenderError),
    #[error(transparent)]
    Runtime(#[from] RuntimeCheckError),
    #[error("size validation failed: {0}")]
    Size(RenderError),
    #[error(transparent)]
    Transition(#[from] TransitionError),
}

fn join(invalid: &[InvalidObject]) -> String {
    let lines: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Renders a pool. The same inputs result in the same name and bytes, in any order of the sources.
pub fn render_pool(inputs: &PoolInputs<'_>) -> Result<RenderedPool, RenderFailure> {
    let pool = inputs.pool;
    let base = inputs
        .controller_config
        .map_or(Ok(ClusterBase::default()), ControllerConfig::base)?;
    let selected = select(pool, inputs.sources, base)?;
    check_skew(inputs, &selected)?;
    let parsed = validate(&selected)?;
    check_guarded(inputs.controller_config, &parsed)?;
    let stream = inputs.streams.of_pool(pool, inputs.worker)?;
    let images = match (stream, inputs.controller_config) {
        (Some(stream), _) => stream.images,
        // Where no release provides the operating system, a pool has an image only if a MachineConfig names it.
        (None, Some(_)) if !base.has_templates() => DefaultImages::default(),
        (None, Some(config)) => os_images::from_controller_config(config),
        (None, None) => DefaultImages::default(),
    };
    let identity = RenderIdentity {
        release_version: release_version(inputs.controller_config).unwrap_or(inputs.identity.release_version),
        ..inputs.identity
    };
    let rendered = if parsed.is_empty() {
        render::render_empty(pool, identity)
    } else {
        render::render(pool, &parsed, images, identity)
    };
    let rendered = rendered.map_err(RenderFailure::Merge)?;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    // An image that a MachineConfig names is not of the pool's stream, but perhaps of another one.
    let os = rendered.config.object.spec.os_image_url.as_str();
    let stream_of_os = if os == images.os {
        stream.map(|stream| stream.name)
    } else {
        inputs.streams.of_image(os)
    };
    runtime_check::check(name, &rendered.config.ignition, stream_of_os)?;
    let size = render::check_size(&rendered).map_err(RenderFailure::Size)?;
    if let Some(current) = inputs.current.filter(|current| current.name() != rendered.name()) {
        transition::check(current, &rendered, &parsed, inputs.overrides)?;
    }
    Ok(RenderedPool {
        rendered,
        stream: stream.map(|stream| stream.name.to_owned()),
        size,
    })
}

/// Whether a MachineConfig is a user-provided source of renders. Rendered configs are no sources, nor are configs
/// that belong to a generator which no longer or not yet generates them, even while the API server has them.
pub fn is_user_source(metadata: &ObjectMeta) -> bool {
    rendered_configs::pool_of(metadata).is_none() && generator_of(metadata).is_none()
}

fn select<'s>(
    pool: &MachineConfigPool,
    sources: &'s [Arc<SourceConfig>],
    base: ClusterBase,
) -> Result<Vec<&'s SourceConfig>, SelectError> {
    let selector = pools::config_selector(pool)?;
    let matching = sources
        .iter()
        .filter(|source| selector.matches(source.object.metadata.labels.as_ref()))
        // The base configs of another base are no sources, even while the API server still has them.
        .filter(|source| base.has_templates() || !TemplateConfig::is_of_cluster(&source.object));
    let selected: Vec<&SourceConfig> = matching.map(Arc::as_ref).collect();
    if selected.is_empty() && base.has_templates() {
        let pool = pool.metadata.name.clone().unwrap_or_default();
        return Err(SelectError::SelectsNothing { pool });
    }
    Ok(selected)
}

fn check_skew(inputs: &PoolInputs<'_>, selected: &[&SourceConfig]) -> Result<(), SkewError> {
    let Some(versions) = inputs.versions else {
        return Ok(());
    };
    if let Some(config) = inputs.controller_config {
        skew::check_controller_config(config, versions)?;
    }
    for source in selected {
        skew::check_machine_config(&source.object, versions)?;
    }
    match inputs.os_image_stream.filter(|_| inputs.streams.are_published()) {
        Some(stream) => skew::check_os_image_stream(stream, versions),
        None => Ok(()),
    }
}

fn validate<'s>(selected: &[&'s SourceConfig]) -> Result<Vec<&'s ParsedConfig>, RenderFailure> {
    let mut invalid: Vec<InvalidObject> = selected
        .iter()
        .filter_map(|source| source.parsed.as_ref().err().cloned())
        .collect();
    if invalid.is_empty() {
        let parsed = selected.iter().filter_map(|source| source.parsed.as_deref().ok());
        return Ok(parsed.collect());
    }
    invalid.sort_by(|a, b| a.name.cmp(&b.name));
    if selected
        .iter()
        .all(|source| source.parsed.is_ok() || source.is_pending)
    {
        return Err(RenderFailure::Fetching(invalid));
    }
    Err(RenderFailure::Invalid(invalid))
}

/// Rejects sources that change guarded paths without an allowance, where nodes are not installed from a base of ours.
/// On a base with templates the same paths are part of it.
fn check_guarded(config: Option<&ControllerConfig>, parsed: &[&ParsedConfig]) -> Result<(), RenderFailure> {
    let base = config.map(ControllerConfig::base).and_then(Result::ok);
    if base.unwrap_or_default().has_templates() {
        return Ok(());
    }
    let refused = parsed.iter().filter_map(|config| {
        let allowance = Allowance::of(config.object.metadata.annotations.as_ref());
        let found = guarded::not_allowed(&config.ignition, &allowance);
        let refusal = || format!("MachineConfig {:?}: {}", config.name(), guarded::refusal(&found));
        (!found.is_empty()).then(refusal)
    });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(RenderFailure::Guarded(refused))
    }
}

fn release_version(config: Option<&ControllerConfig>) -> Option<&str> {
    let all = config.and_then(|config| config.metadata.annotations.as_ref())?;
    all.get(annotations::RELEASE_IMAGE_VERSION).map(String::as_str)
}
