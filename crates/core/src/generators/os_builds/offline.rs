//! Plans the builds of a directory of manifests, without a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use mco_api::vocabulary::names::{self, config_map, secret};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use serde::Serialize;
use serde_json::Value;

use super::architecture::{self, Architecture};
use super::credentials::empty_credentials;
use super::decision::{BuildStep, BuildView, ImagePresence, RegistryAnswers, RenderedView, decide};
use super::identity;
use super::objects::{BuildInputs, BuildObjects, objects};
use super::rebuild::{ImageInputs, rebuild_reason};
use super::status::{BuildState, build_state};
use crate::config::pools::NodePools;

/// The objects that builds depend on.
#[derive(Debug, Clone, Default)]
pub struct OfflineObjects {
    pub configs: Vec<MachineOSConfig>,
    pub builds: Vec<MachineOSBuild>,
    pub pools: Vec<MachineConfigPool>,
    /// Rendered MachineConfigs, as they are stored.
    pub rendered: Vec<Value>,
    pub controller_config: ControllerConfig,
    pub secrets: Vec<Secret>,
    pub config_maps: Vec<ConfigMap>,
    pub nodes: Vec<Node>,
    /// The image in which builds run.
    pub builder_image: Option<String>,
}

/// What would be built for one MachineOSConfig.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfflineBuild {
    #[serde(rename = "machineOSConfig")]
    pub machine_os_config: String,
    /// The name of the build; empty if it has none because of an error.
    #[serde(rename = "machineOSBuild")]
    pub machine_os_build: String,
    pub image_push_spec: String,
    pub requires_build: bool,
    pub reason: String,
    /// The image that is used without a build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reused_image: String,
    pub containerfile: String,
    pub objects: Vec<Value>,
    /// What the plan could not take into account.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why there is no build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Returns one entry per MachineOSConfig, in the order of their names. The registry is not asked: images of earlier
/// builds are assumed to exist.
pub fn plan(found: &OfflineObjects, default_architecture: Architecture) -> Vec<OfflineBuild> {
    let mut configs: Vec<&MachineOSConfig> = found.configs.iter().collect();
    configs.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let planned = configs.into_iter().map(|config| {
        let mut entry = OfflineBuild {
            machine_os_config: config.metadata.name.clone().unwrap_or_default(),
            ..OfflineBuild::default()
        };
        if let Err(error) = fill(&mut entry, found, config, default_architecture) {
            entry.error = error;
        }
        entry
    });
    planned.collect()
}

fn fill(
    entry: &mut OfflineBuild,
    found: &OfflineObjects,
    config: &MachineOSConfig,
    default_architecture: Architecture,
) -> Result<(), String> {
    let pool_name = &config.spec.machine_config_pool.name;
    let pool = found
        .pools
        .iter()
        .find(|pool| pool.metadata.name.as_ref() == Some(pool_name));
    let pool = pool.ok_or_else(|| format!("there is no MachineConfigPool {pool_name:?}"))?;
    let target = Rendered::find(found, pool.target_name())?;
    let build =
        identity::machine_os_build(pool, config, &target.object).map_err(|error| error.to_string())?;
    entry.machine_os_build = build.metadata.name.clone().unwrap_or_default();
    entry
        .image_push_spec
        .clone_from(&build.spec.rendered_image_push_spec);
    need(entry, found, config, pool, &target)?;
    let (objects, warnings) = build_objects(found, config, pool, &target, &build, default_architecture)?;
    entry.warnings = warnings;
    entry.containerfile = objects.containerfile;
    let encode = |error: serde_json::Error| error.to_string();
    for object in &objects.config_maps {
        entry.objects.push(typed(
            "v1",
            "ConfigMap",
            serde_json::to_value(object).map_err(encode)?,
        ));
    }
    for object in &objects.secrets {
        entry.objects.push(typed(
            "v1",
            "Secret",
            serde_json::to_value(object).map_err(encode)?,
        ));
    }
    entry.objects.push(typed(
        "batch/v1",
        "Job",
        serde_json::to_value(&objects.job).map_err(encode)?,
    ));
    Ok(())
}

fn typed(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

struct Rendered<'a> {
    object: MachineConfig,
    stored: &'a Value,
    inputs: ImageInputs,
}

impl<'a> Rendered<'a> {
    fn find(found: &'a OfflineObjects, name: &str) -> Result<Self, String> {
        let is_it = |stored: &&Value| stored["metadata"]["name"] == name;
        let stored = found.rendered.iter().find(is_it);
        let stored = stored.ok_or_else(|| format!("there is no rendered MachineConfig {name:?}"))?;
        let decode = |error: serde_json::Error| format!("rendered MachineConfig {name:?}: {error}");
        Ok(Self {
            object: serde_json::from_value(stored.clone()).map_err(decode)?,
            inputs: ImageInputs::of(stored).map_err(decode)?,
            stored,
        })
    }

    fn view(&self) -> RenderedView<'_> {
        RenderedView {
            object: &self.object,
            inputs: &self.inputs,
        }
    }
}

/// Decides as the builder does, and explains the result.
fn need(
    entry: &mut OfflineBuild,
    found: &OfflineObjects,
    config: &MachineOSConfig,
    pool: &MachineConfigPool,
    target: &Rendered<'_>,
) -> Result<(), String> {
    let reached_name = pool
        .status
        .as_ref()
        .map_or("", |status| status.configuration.name());
    let reached = Rendered::find(found, reached_name).ok();
    let name = entry.machine_os_config.as_str();
    let builds: Vec<&MachineOSBuild> = found
        .builds
        .iter()
        .filter(|build| build.spec.machine_os_config.name == name)
        .collect();
    let images = builds.iter().filter_map(|build| build.status.as_ref());
    let answers: RegistryAnswers = images
        .map(|status| (status.digested_image_push_spec.clone(), ImagePresence::Present))
        .collect::<BTreeMap<_, _>>();
    let mut with_wanted = builds.clone();
    let wanted =
        identity::machine_os_build(pool, config, &target.object).map_err(|error| error.to_string())?;
    let exists = builds
        .iter()
        .any(|build| build.metadata.name == wanted.metadata.name);
    if !exists {
        with_wanted.push(&wanted);
    }
    let running = |build: &&MachineOSBuild| build_state(build) != BuildState::Succeeded;
    // Superseded builds are deleted first, which does not change what is built.
    with_wanted.retain(|build| build.metadata.name == wanted.metadata.name || !running(build));
    let view = BuildView {
        config,
        pool,
        target: target.view(),
        reached: reached.as_ref().map(Rendered::view),
        builds: &with_wanted,
        retry_interrupted: None,
        now: k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
    };
    let step = decide(&view, &answers).map_err(|error| error.to_string())?;
    let (requires_build, reused, reason) =
        explain(&step, &with_wanted, entry, reached.as_ref(), target, config);
    entry.requires_build = requires_build;
    entry.reused_image = reused;
    entry.reason = reason;
    Ok(())
}

fn explain(
    step: &BuildStep,
    builds: &[&MachineOSBuild],
    entry: &OfflineBuild,
    reached: Option<&Rendered<'_>>,
    target: &Rendered<'_>,
    config: &MachineOSConfig,
) -> (bool, String, String) {
    let build = entry.machine_os_build.as_str();
    let image_of = |name: &str| {
        let found = builds
            .iter()
            .find(|one| one.metadata.name.as_deref() == Some(name));
        let status = found.and_then(|found| found.status.as_ref());
        status.map_or_else(String::new, |status| status.digested_image_push_spec.clone())
    };
    match step {
        BuildStep::Start { .. } | BuildStep::Create(_) => {
            let former = config
                .status
                .as_ref()
                .is_some_and(|status| !status.current_image_pull_spec.is_empty());
            let difference = reached.and_then(|reached| rebuild_reason(&reached.inputs, &target.inputs));
            let reason = match (former, difference) {
                (true, Some(field)) => format!("{field} of the rendered MachineConfig changes"),
                (true, None) => "the MachineOSConfig or the base image changes".to_owned(),
                (false, _) => "the pool has no built image yet".to_owned(),
            };
            (true, String::new(), reason)
        }
        BuildStep::Reuse { image, .. } => (
            false,
            image.clone(),
            "only files, units or keys change, which are not part of the image".to_owned(),
        ),
        BuildStep::Point { name } => (false, image_of(name), format!("MachineOSBuild {name} exists")),
        BuildStep::Seed { image, .. } => (
            false,
            image.clone(),
            "the image came with the installation".to_owned(),
        ),
        BuildStep::Delete { reason, .. } => (
            true,
            String::new(),
            format!("MachineOSBuild {build} is deleted: {reason}"),
        ),
        BuildStep::Blocked(reason) => (true, String::new(), reason.clone()),
        BuildStep::Idle | BuildStep::Wait(_) | BuildStep::Inspect { .. } | BuildStep::ForgetPreBuiltImage => {
            (false, image_of(build), format!("MachineOSBuild {build} exists"))
        }
    }
}

fn build_objects(
    found: &OfflineObjects,
    config: &MachineOSConfig,
    pool: &MachineConfigPool,
    target: &Rendered<'_>,
    build: &MachineOSBuild,
    default_architecture: Architecture,
) -> Result<(BuildObjects, Vec<String>), String> {
    let mut warnings = Vec::new();
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let in_namespace = |namespace: Option<&String>| namespace.is_none_or(|one| one == names::NAMESPACE);
    let secret_named = |name: &str| {
        let mut all = found.secrets.iter();
        all.find(|one| {
            one.metadata.name.as_deref() == Some(name) && in_namespace(one.metadata.namespace.as_ref())
        })
    };
    let config_map_named = |name: &str| {
        let mut all = found.config_maps.iter();
        all.find(|one| {
            one.metadata.name.as_deref() == Some(name) && in_namespace(one.metadata.namespace.as_ref())
        })
    };
    // Manifests are often kept without Secrets.
    let has_secrets = !found.secrets.is_empty();
    let required = |name: &str| match secret_named(name) {
        Some(secret) => Ok(secret.clone()),
        None if has_secrets => Err(format!("there is no Secret {}/{name}", names::NAMESPACE)),
        None => Ok(empty_credentials(name)),
    };
    if !has_secrets {
        warnings
            .push("the manifests have no Secret, so the credentials of the build are left empty".to_owned());
    }
    let base = config
        .spec
        .base_image_pull_secret
        .as_ref()
        .map_or(secret::GLOBAL_PULL_SECRET_COPY, |reference| {
            reference.name.as_str()
        });
    if found.builder_image.is_none() {
        warnings.push(
            "without --builder-image the Job of this plan has no image, and a builder starts no build"
                .to_owned(),
        );
    }
    let base_secret = required(base)?;
    let push_secret = required(&config.spec.rendered_image_push_secret.name)?;
    let membership = NodePools::new(&found.pools);
    let is_member = |node: &&Node| membership.is_member(node.metadata.labels.as_ref(), pool_name);
    let members = found.nodes.iter().filter(is_member);
    let architectures = architecture::of_nodes(members);
    let inputs = BuildInputs {
        pool: pool_name,
        config,
        build,
        rendered: &target.object,
        stored: target.stored,
        controller_config: &found.controller_config,
        base_secret: &base_secret,
        push_secret: &push_secret,
        has_entitlement: secret_named(&secret::entitlement_of(pool_name)).is_some(),
        has_yum_repos: config_map_named(config_map::YUM_REPOS).is_some(),
        has_rpm_keys: secret_named(secret::RPM_KEYS).is_some(),
        builder_image: found.builder_image.as_deref().unwrap_or_default(),
        architectures: &architectures,
        default_architecture,
    };
    let objects = objects(&inputs).map_err(|error| error.to_string())?;
    Ok((objects, warnings))
}
