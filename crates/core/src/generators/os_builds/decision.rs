//! The next step for the builds of one MachineOSConfig.
//!
//! Level-triggered: the same objects always give the same step, so that a builder that was stopped at any moment
//! continues. A step that depends on the registry is preceded by [`BuildStep::Inspect`]; the answer is an argument of
//! the next call.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::{self, build as annotation};
use mco_api::vocabulary::conditions::{self, pool as pool_condition};
use mco_api::vocabulary::labels;
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};

use super::identity::{self, IdentityError};
use super::rebuild::{ImageInputs, rebuild_reason};
use super::status::{BuildState, build_state};

/// A rendered config, and what an image depends on in it.
#[derive(Debug, Clone, Copy)]
pub struct RenderedView<'a> {
    pub object: &'a MachineConfig,
    pub inputs: &'a ImageInputs,
}

/// What the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct BuildView<'a> {
    pub config: &'a MachineOSConfig,
    pub pool: &'a MachineConfigPool,
    /// The pool's target.
    pub target: RenderedView<'a>,
    /// The config that all nodes of the pool have reached, if it exists.
    pub reached: Option<RenderedView<'a>>,
    /// The builds of this MachineOSConfig.
    pub builds: &'a [&'a MachineOSBuild],
    /// After this time an interrupted build is started again; never if absent.
    pub retry_interrupted: Option<Duration>,
    pub now: Timestamp,
}

/// Whether a registry has an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePresence {
    Present,
    Missing,
    /// The registry cannot be asked, or refuses to answer.
    Unknown(String),
}

/// The registry's answers by image reference.
pub type RegistryAnswers = BTreeMap<String, ImagePresence>;

#[derive(Debug, Clone, PartialEq)]
pub enum BuildStep {
    /// Nothing to do until an object changes.
    Idle,
    /// Nothing to do until this time has passed.
    Wait(Duration),
    /// No build is started, for this reason.
    Blocked(String),
    /// Ask the registry for this image, with the push Secret of the MachineOSConfig.
    Inspect {
        reference: String,
    },
    /// Record the image that came with the installation as if it had been built.
    Seed {
        build: Box<MachineOSBuild>,
        image: String,
    },
    /// Remove the annotation with the image that came with the installation; it is recorded.
    ForgetPreBuiltImage,
    Create(Box<MachineOSBuild>),
    /// Delete a build with its Job and image.
    Delete {
        name: String,
        reason: &'static str,
    },
    /// Create the objects of a build.
    Start {
        name: String,
    },
    /// Complete a build with the image of an earlier one.
    Reuse {
        name: String,
        image: String,
    },
    /// Make this the current build of the MachineOSConfig, and its image the pool's.
    Point {
        name: String,
    },
}

/// Returns the next step.
pub fn decide(view: &BuildView<'_>, answers: &RegistryAnswers) -> Result<BuildStep, IdentityError> {
    let current = annotation_of(view.config, annotation::CURRENT_MACHINE_OS_BUILD);
    let pre_built = annotation_of(view.config, annotations::PRE_BUILT_IMAGE);
    let image = current_image(view.config);
    if let Some(pre_built) = pre_built {
        if current.is_none() {
            return seed(view, pre_built);
        }
        if !image.is_empty() {
            return Ok(BuildStep::ForgetPreBuiltImage);
        }
    }
    let wanted = identity::machine_os_build(view.pool, view.config, view.target.object)?;
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let existing = view.builds.iter().find(|build| name_of(build) == name);
    let Some(build) = existing else {
        return Ok(match blocked(view, &name) {
            Some(reason) => BuildStep::Blocked(reason),
            None => BuildStep::Create(Box::new(wanted)),
        });
    };
    if build.metadata.deletion_timestamp.is_some() {
        // Its deletion enqueues the MachineOSConfig.
        return Ok(BuildStep::Idle);
    }
    let state = build_state(build);
    let is_rebuild = view
        .config
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(annotation::REBUILD));
    if is_rebuild && state.is_final() {
        // Its image is not deleted for a build that cannot start.
        return Ok(match blocked(view, &name) {
            Some(reason) => BuildStep::Blocked(reason),
            None => delete(build, "a rebuild was requested"),
        });
    }
    if let Some(superseded) = superseded(view, &name) {
        return Ok(delete(superseded, "it was superseded"));
    }
    match state {
        BuildState::New => Ok(start_or_reuse(view, &name, build, answers)),
        BuildState::Prepared | BuildState::Building => Ok(if is_current(view.config, &name) && !is_rebuild {
            BuildStep::Idle
        } else {
            BuildStep::Point { name }
        }),
        BuildState::Succeeded => Ok(use_image(view, build, answers)),
        BuildState::Failed => Ok(BuildStep::Idle),
        BuildState::Interrupted => Ok(retry(view, build)),
    }
}

fn delete(build: &MachineOSBuild, reason: &'static str) -> BuildStep {
    BuildStep::Delete {
        name: name_of(build).to_owned(),
        reason,
    }
}

/// The build of an image that came with the installation keeps the push spec of the MachineOSConfig.
fn seed(view: &BuildView<'_>, image: &str) -> Result<BuildStep, IdentityError> {
    let mut build = identity::machine_os_build(view.pool, view.config, view.target.object)?;
    let labels = build.metadata.labels.get_or_insert_default();
    labels.insert(labels::build::PRE_BUILT_IMAGE.to_owned(), "true".to_owned());
    build
        .spec
        .rendered_image_push_spec
        .clone_from(&view.config.spec.rendered_image_push_spec);
    Ok(BuildStep::Seed {
        build: Box::new(build),
        image: image.to_owned(),
    })
}

/// Builds for a degraded pool are not started: the failure might be part of the image. A failed build does not count,
/// and neither does a build that reuses an image.
fn blocked(view: &BuildView<'_>, name: &str) -> Option<String> {
    if reusable_image(view, name).is_some() {
        return None;
    }
    let conditions = view
        .pool
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let is_degraded = [
        pool_condition::NODE_DEGRADED,
        pool_condition::RENDER_DEGRADED,
        pool_condition::PINNED_IMAGE_SETS_DEGRADED,
        "PoolSynchronizerDegraded",
    ]
    .into_iter()
    .find(|type_| pool_condition::holds(conditions, type_))?;
    let pool = view.pool.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "MachineConfigPool {pool} is degraded due to non-build issues ({is_degraded}); the image is built when it is not"
    ))
}

/// Returns another build that has not succeeded: nothing needs its result any more.
fn superseded<'a>(view: &BuildView<'a>, name: &str) -> Option<&'a MachineOSBuild> {
    let mut others = view.builds.iter().filter(|build| {
        name_of(build) != name
            && build.metadata.deletion_timestamp.is_none()
            && build_state(build) != BuildState::Succeeded
    });
    others.next().copied()
}

fn start_or_reuse(
    view: &BuildView<'_>,
    name: &str,
    build: &MachineOSBuild,
    answers: &RegistryAnswers,
) -> BuildStep {
    let name = name.to_owned();
    if has_label(build, labels::build::PRE_BUILT_IMAGE) {
        return BuildStep::Idle;
    }
    if let Some(image) = reusable_image(view, &name) {
        match answers.get(image) {
            None => {
                return BuildStep::Inspect {
                    reference: image.to_owned(),
                };
            }
            Some(ImagePresence::Present) => {
                return BuildStep::Reuse {
                    name,
                    image: image.to_owned(),
                };
            }
            Some(ImagePresence::Unknown(why)) => {
                return BuildStep::Blocked(format!(
                    "cannot determine whether image {image} can be reused: {why}"
                ));
            }
            Some(ImagePresence::Missing) => {}
        }
    }
    match blocked(view, &name) {
        Some(reason) => BuildStep::Blocked(reason),
        None => BuildStep::Start { name },
    }
}

/// Returns the image of the config that the nodes have, if the target differs from it only in what is not part of an
/// image. The name of its build proves that the MachineOSConfig is still the same.
fn reusable_image<'a>(view: &BuildView<'a>, name: &str) -> Option<&'a str> {
    let reached = view.reached?;
    if reached.object.metadata.name == view.target.object.metadata.name
        || rebuild_reason(reached.inputs, view.target.inputs).is_some()
    {
        return None;
    }
    let configuration = &view.pool.status.as_ref()?.configuration;
    let former = identity::name(view.config, configuration, reached.object).ok()?;
    if former == name {
        return None;
    }
    let build = view.builds.iter().find(|build| name_of(build) == former)?;
    let image = image_of(build);
    let is_usable = build_state(build) == BuildState::Succeeded && !image.is_empty();
    is_usable.then_some(image)
}

/// A build that this builder has just completed is used at once. Going back to an earlier one needs its image.
fn use_image(view: &BuildView<'_>, build: &MachineOSBuild, answers: &RegistryAnswers) -> BuildStep {
    let name = name_of(build).to_owned();
    let image = image_of(build);
    if image.is_empty() {
        return delete(build, "it has no image");
    }
    if is_current(view.config, &name) {
        let is_recorded = current_image(view.config) == image && recorded_build(view.config) == name;
        return if is_recorded {
            BuildStep::Idle
        } else {
            BuildStep::Point { name }
        };
    }
    match answers.get(image) {
        None => BuildStep::Inspect {
            reference: image.to_owned(),
        },
        Some(ImagePresence::Present) => BuildStep::Point { name },
        Some(ImagePresence::Missing) => delete(build, "its image is missing from the registry"),
        Some(ImagePresence::Unknown(why)) => BuildStep::Blocked(format!(
            "cannot determine whether image {image} can be reused: {why}"
        )),
    }
}

fn retry(view: &BuildView<'_>, build: &MachineOSBuild) -> BuildStep {
    let Some(delay) = view.retry_interrupted else {
        return BuildStep::Idle;
    };
    let conditions = build.status.iter().flat_map(|status| &status.conditions);
    let since = conditions
        .filter(|condition| condition.type_ == conditions::machine_os_build::INTERRUPTED)
        .map(|condition| condition.last_transition_time.0)
        .next();
    let due = since.and_then(|since| since.checked_add(delay).ok());
    match due {
        Some(due) if due > view.now => {
            let left = due.duration_since(view.now);
            BuildStep::Wait(Duration::try_from(left).unwrap_or(delay))
        }
        _ => delete(build, "it was interrupted and is started again"),
    }
}

fn is_current(config: &MachineOSConfig, name: &str) -> bool {
    annotation_of(config, annotation::CURRENT_MACHINE_OS_BUILD) == Some(name)
}

fn recorded_build(config: &MachineOSConfig) -> &str {
    let reference = config
        .status
        .as_ref()
        .and_then(|status| status.machine_os_build.as_ref());
    reference.map_or("", |reference| reference.name.as_str())
}

fn current_image(config: &MachineOSConfig) -> &str {
    let status = config.status.as_ref();
    status.map_or("", |status| status.current_image_pull_spec.as_str())
}

fn image_of(build: &MachineOSBuild) -> &str {
    let status = build.status.as_ref();
    status.map_or("", |status| status.digested_image_push_spec.as_str())
}

fn name_of(build: &MachineOSBuild) -> &str {
    build.metadata.name.as_deref().unwrap_or_default()
}

fn annotation_of<'a>(config: &'a MachineOSConfig, key: &str) -> Option<&'a str> {
    let value = config.metadata.annotations.as_ref()?.get(key)?;
    (!value.is_empty()).then_some(value.as_str())
}

fn has_label(build: &MachineOSBuild, key: &str) -> bool {
    let labels = build.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(key))
}
