//! The target of a pool, and whether it is ready to roll out: in a layered pool the image must be built first.

use std::fmt;

use mco_api::vocabulary::annotations::build;
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use serde::{Deserialize, Serialize};

use crate::generators::os_builds;

/// A rendered config and, in a layered pool, the image built from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutTarget {
    pub config: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub image: Option<String>,
}

impl fmt::Display for RolloutTarget {
    /// Formats the target with the wording of the pool's conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineConfig {}", self.config)?;
        match &self.image {
            Some(image) => write!(f, " / Image {image}"),
            None => Ok(()),
        }
    }
}

/// The MachineOSConfig of a pool and its build for the pool's current target.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Layering<'a> {
    pub config: Option<&'a MachineOSConfig>,
    pub build: Option<&'a MachineOSBuild>,
    /// Whether the MachineOSConfig names a build that is deleted or was for another config; the annotation should be
    /// removed.
    pub names_stale_build: bool,
}

pub use crate::generators::os_builds::BuildState;

/// Whether the nodes of a pool can be updated to its target now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetGate {
    Open(RolloutTarget),
    /// Nothing has been rendered yet.
    NoTarget,
    /// The image is not ready yet.
    Wait(String),
    /// The image build failed and is not retried.
    Failed(String),
}

impl<'a> Layering<'a> {
    /// Finds the pool's MachineOSConfig and the build that it names for the pool's target, else any build for both.
    pub fn of_pool(
        pool: &MachineConfigPool,
        configs: impl IntoIterator<Item = &'a MachineOSConfig>,
        builds: impl IntoIterator<Item = &'a MachineOSBuild>,
    ) -> Self {
        let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
        let of_this_pool = |config: &&MachineOSConfig| config.spec.machine_config_pool.name == pool_name;
        let Some(config) = configs.into_iter().find(of_this_pool) else {
            return Self::default();
        };
        let name = config.metadata.name.as_deref();
        let target = pool.target_name();
        let annotations = config.metadata.annotations.as_ref();
        let named = annotations.and_then(|all| all.get(build::CURRENT_MACHINE_OS_BUILD));
        let (mut named_build, mut any_build) = (None, None);
        for build in builds {
            if build.spec.machine_config.name != target {
                continue;
            }
            if build.metadata.name.as_ref() == named {
                named_build = Some(build);
            } else if Some(build.spec.machine_os_config.name.as_str()) == name {
                any_build = any_build.or(Some(build));
            }
        }
        Self {
            config: Some(config),
            build: named_build.or(any_build),
            names_stale_build: named.is_some() && named_build.is_none(),
        }
    }

    pub fn is_layered(&self) -> bool {
        self.config.is_some()
    }

    /// Returns the desired image of the pool's nodes; empty until one was built.
    pub fn image(&self) -> &'a str {
        let status = self.config.and_then(|config| config.status.as_ref());
        status.map_or("", |status| status.current_image_pull_spec.as_str())
    }

    pub fn build_name(&self) -> Option<&'a str> {
        self.build?.metadata.name.as_deref()
    }

    pub fn build_state(&self) -> Option<BuildState> {
        Some(os_builds::build_state(self.build?))
    }

    /// Whether the build has produced an image that is not yet the pool's desired image.
    pub fn images_differ(&self) -> bool {
        let status = self.build.and_then(|build| build.status.as_ref());
        status.is_some_and(|status| {
            !status.digested_image_push_spec.is_empty() && status.digested_image_push_spec != self.image()
        })
    }

    /// Whether the pool waits for a build, or for its result to become the desired image.
    pub fn is_building(&self) -> bool {
        match self.build_state() {
            Some(BuildState::Building | BuildState::Prepared | BuildState::Failed) => true,
            Some(BuildState::Succeeded) => self.images_differ(),
            Some(BuildState::Interrupted | BuildState::New) | None => false,
        }
    }
}

/// Returns whether the nodes of this pool can be updated to its target now, and the exact target.
pub fn gate(pool: &MachineConfigPool, layering: &Layering<'_>) -> TargetGate {
    let config = pool.target_name();
    if config.is_empty() {
        return TargetGate::NoTarget;
    }
    if !layering.is_layered() {
        return TargetGate::Open(RolloutTarget {
            config: config.to_owned(),
            image: None,
        });
    }
    let Some(state) = layering.build_state() else {
        return TargetGate::Wait("no image build for this config has started".to_owned());
    };
    let build = layering.build_name().unwrap_or_default();
    let image = layering.image();
    match state {
        _ if image.is_empty() => TargetGate::Wait(format!("image build {build} has no image yet")),
        BuildState::Succeeded if digest_of(layering) == image => TargetGate::Open(RolloutTarget {
            config: config.to_owned(),
            image: Some(image.to_owned()),
        }),
        BuildState::Succeeded => TargetGate::Wait(format!(
            "the image of build {build} is not yet the desired image of the pool"
        )),
        BuildState::Failed => TargetGate::Failed(format!("image build {build} failed")),
        BuildState::Prepared | BuildState::Building | BuildState::Interrupted | BuildState::New => {
            TargetGate::Wait(format!("image build {build} has not finished"))
        }
    }
}

/// Returns the target that counts as updated in the pool's status, also while its image is being rebuilt. `None`
/// while no node can have reached it.
pub fn reached_target(pool: &MachineConfigPool, layering: &Layering<'_>) -> Option<RolloutTarget> {
    let config = pool.target_name();
    let image = layering.image();
    if config.is_empty() || (layering.is_layered() && (image.is_empty() || layering.build.is_none())) {
        return None;
    }
    Some(RolloutTarget {
        config: config.to_owned(),
        image: layering.is_layered().then(|| image.to_owned()),
    })
}

fn digest_of<'a>(layering: &Layering<'a>) -> &'a str {
    let status = layering.build.and_then(|build| build.status.as_ref());
    status.map_or("", |status| status.digested_image_push_spec.as_str())
}
