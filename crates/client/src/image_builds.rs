//! Forecast of OS image builds: the build that follows a change, or the image that is reused, and what the pool's nodes
//! are updated to afterwards. Calls the functions of the builder.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::annotations::build as annotation;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_core::config::manifest::{Manifest, ManifestError};
use mco_core::config::render::Rendered;
use mco_core::generators::os_builds::{
    Architecture, BuildState, OfflineBuild, OfflineObjects, plan_offline, status_conditions,
};
use serde::Serialize;
use serde_json::Value;

const KIND: &str = "MachineOSConfig";

/// What the forecast of builds depends on besides pools and nodes.
#[derive(Debug, Clone, Default)]
pub struct ImageContext {
    /// The MachineOSConfigs after the change.
    pub configs: Vec<MachineOSConfig>,
    /// Pools whose MachineOSConfig the change deletes.
    pub opted_out: BTreeSet<String>,
    pub builds: Vec<MachineOSBuild>,
    /// Rendered MachineConfigs as they are stored: of pools with a MachineOSConfig, what they have and what they had.
    pub rendered: Vec<Value>,
}

impl ImageContext {
    /// Reads the MachineOSConfigs before and after a change. A change of none forecasts the builds of all pools that a
    /// change of their MachineConfigs causes.
    pub fn new(before: &[Manifest], after: &[Manifest]) -> Result<Self, ManifestError> {
        let configs = configs(after)?;
        let pools: BTreeSet<&str> = configs.iter().map(pool_of).collect();
        let opted_out = self::configs(before)?
            .iter()
            .map(pool_of)
            .filter(|pool| !pools.contains(pool))
            .map(str::to_owned)
            .collect();
        Ok(Self {
            configs,
            opted_out,
            ..Self::default()
        })
    }

    /// Whether a forecast needs the builds and the rendered configs of the cluster.
    pub fn needs_builds(&self) -> bool {
        !self.configs.is_empty()
    }
}

fn configs(objects: &[Manifest]) -> Result<Vec<MachineOSConfig>, ManifestError> {
    let of_kind = objects.iter().filter(|object| object.kind == KIND);
    of_kind.map(Manifest::decode).collect()
}

fn pool_of(config: &MachineOSConfig) -> &str {
    &config.spec.machine_config_pool.name
}

/// The forecast of the OS image of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageForecast {
    /// The name of the build; empty if there is none.
    #[serde(rename = "machineOSBuild", skip_serializing_if = "String::is_empty")]
    pub machine_os_build: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_push_spec: String,
    /// Whether an image is built; otherwise `image` is used.
    pub requires_build: bool,
    pub reason: String,
    /// The image that the nodes are updated to without a build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Why no image can be built.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Whether the nodes are updated to another image than the present one.
    pub is_change: bool,
    /// The composed Containerfile of a build. It may be secret.
    #[serde(skip)]
    pub containerfile: String,
}

impl ImageForecast {
    /// Describes it: a line about what happens and why, then one per detail.
    pub fn describe(&self) -> Vec<String> {
        if !self.error.is_empty() {
            return vec![format!("cannot be built: {}", self.error)];
        }
        if self.machine_os_build.is_empty() {
            return vec![self.reason.clone()];
        }
        let build = format!("MachineOSBuild {}", self.machine_os_build);
        if self.requires_build {
            let pushed = format!("pushed to {}", self.image_push_spec);
            return vec![format!("is built: {}", self.reason), build, pushed];
        }
        let used = format!("uses {}", self.image);
        vec![format!("is reused: {}", self.reason), build, used]
    }
}

/// The build of one pool, and the objects as they are after it.
#[derive(Debug)]
pub(crate) struct ForecastBuild {
    pub forecast: ImageForecast,
    pub config: MachineOSConfig,
    pub build: Option<MachineOSBuild>,
}

/// Returns what happens to the image of a pool. `rendered` is the pool's next config, `pool` has it as its target.
pub(crate) fn forecast(
    context: &ImageContext,
    pool: &MachineConfigPool,
    rendered: &Rendered,
    nodes: &[Node],
    controller_config: Option<&ControllerConfig>,
) -> Option<ForecastBuild> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let config = context.configs.iter().find(|config| pool_of(config) == name)?;
    let present = present_image(config);
    let mut objects = OfflineObjects {
        configs: vec![config.clone()],
        builds: context.builds.clone(),
        pools: vec![pool.clone()],
        rendered: context.rendered.clone(),
        controller_config: controller_config.cloned().unwrap_or_default(),
        nodes: nodes.to_vec(),
        ..OfflineObjects::default()
    };
    let is_stored = |stored: &Value| stored["metadata"]["name"] == rendered.name();
    if !context.rendered.iter().any(is_stored) {
        objects.rendered.push(next_config(context, rendered)?);
    }
    let planned = plan_offline(&objects, default_architecture()).pop()?;
    let image = if planned.requires_build {
        planned.image_push_spec.clone()
    } else {
        planned.reused_image.clone()
    };
    // A failed build leaves the present image.
    let next = planned.error.is_empty().then_some(image);
    let is_change = next.as_ref().is_some_and(|image| image != present);
    let build = next.as_ref().map(|image| built(pool, config, &planned, image));
    let config = with_image(config, &planned.machine_os_build, next);
    let forecast = ImageForecast {
        machine_os_build: planned.machine_os_build,
        image_push_spec: planned.image_push_spec,
        requires_build: planned.requires_build,
        reason: planned.reason,
        image: planned.reused_image,
        error: planned.error,
        is_change,
        containerfile: planned.containerfile,
    };
    Some(ForecastBuild {
        forecast,
        config,
        build,
    })
}

/// Returns the forecast of a pool whose MachineOSConfig is deleted.
pub(crate) fn opted_out() -> ImageForecast {
    ImageForecast {
        reason:
            "the MachineOSConfig is deleted, so the nodes return to the osImageURL of their MachineConfig"
                .to_owned(),
        is_change: true,
        ..ImageForecast::default()
    }
}

/// Builds name the release of the rendered config, which a forecast takes over from the present one.
fn next_config(context: &ImageContext, rendered: &Rendered) -> Option<Value> {
    let mut object = MachineConfig::clone(&rendered.config.object);
    let release = context.rendered.iter().find_map(|stored| {
        let release = &stored["metadata"]["annotations"][annotations::RELEASE_IMAGE_VERSION];
        release.as_str().filter(|release| !release.is_empty())
    });
    let annotations = object.metadata.annotations.get_or_insert_default();
    if let Some(release) = release {
        annotations.insert(annotations::RELEASE_IMAGE_VERSION.to_owned(), release.to_owned());
    }
    serde_json::to_value(object).ok()
}

fn present_image(config: &MachineOSConfig) -> &str {
    let status = config.status.as_ref();
    status.map_or("", |status| status.current_image_pull_spec.as_str())
}

/// Returns the build as it is when it has succeeded.
fn built(
    pool: &MachineConfigPool,
    config: &MachineOSConfig,
    planned: &OfflineBuild,
    image: &str,
) -> MachineOSBuild {
    let mut build = MachineOSBuild::default();
    build.metadata.name = Some(planned.machine_os_build.clone());
    pool.target_name().clone_into(&mut build.spec.machine_config.name);
    build.spec.machine_os_config.name = config.metadata.name.clone().unwrap_or_default();
    let status = build.status.get_or_insert_default();
    image.clone_into(&mut status.digested_image_push_spec);
    let conditions: Vec<Condition> =
        status_conditions(&[], BuildState::Succeeded, &Time(Timestamp::UNIX_EPOCH));
    status.conditions = conditions;
    build
}

/// Returns the MachineOSConfig as it is when the build is its current one.
fn with_image(config: &MachineOSConfig, build: &str, image: Option<String>) -> MachineOSConfig {
    let mut config = config.clone();
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::CURRENT_MACHINE_OS_BUILD.to_owned(), build.to_owned());
    if let Some(image) = image {
        let status = config.status.get_or_insert_default();
        status.current_image_pull_spec = image;
    }
    config
}

/// For pools without nodes; the builder's own in a cluster.
fn default_architecture() -> Architecture {
    Architecture::from_node(std::env::consts::ARCH).unwrap_or(Architecture::Amd64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mco_core::config::manifest;
    use mco_core::config::parsed_config::ParsedConfig;
    use mco_core::config::render::RenderIdentity;
    use mco_core::generators::os_builds::machine_os_build;
    use mco_core::pipeline::{bootstrap, offline};
    use serde_json::json;

    use super::*;
    use crate::forecast::{self, Edit, PlanContext, PoolForecast};

    const IMAGE: &str =
        "registry.example.com/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const IDENTITY: RenderIdentity<'static> = RenderIdentity {
        controller_version: "1",
        release_version: "",
    };

    fn manifest(value: &Value) -> Manifest {
        manifest::read("test.json", value.to_string().as_bytes())
            .unwrap()
            .remove(0)
    }

    fn machine_config(name: &str, spec: &Value) -> Manifest {
        manifest(&json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}}, "spec": spec,
        }))
    }

    fn os_config(content: &str) -> Manifest {
        manifest(&json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
            "metadata": {"name": "worker"},
            "spec": {
                "machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": "registry.example.com/os:latest",
                "containerFile": [{"content": content}],
            },
        }))
    }

    /// A pool whose node has the rendered config of one MachineConfig.
    struct Cluster {
        objects: Vec<Manifest>,
        current: ParsedConfig,
        pool: MachineConfigPool,
        stored: Value,
        builds: Vec<MachineOSBuild>,
        node: Node,
    }

    impl Cluster {
        fn new() -> Self {
            let pool = manifest(&json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": "worker"},
                "spec": {
                    "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
                    "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
                },
            }));
            let config = machine_config("00-worker", &json!({"osImageURL": "base.example.com/os:1"}));
            let outcome = bootstrap::adopt(vec![pool, config.clone()])
                .unwrap()
                .render(IDENTITY)
                .remove(0);
            let rendered = outcome.result.unwrap().rendered;
            let pool = offline::with_target(&outcome.pool, &rendered);
            let mut stored = serde_json::to_value(&*rendered.config.object).unwrap();
            stored["metadata"]["annotations"]["machineconfiguration.openshift.io/release-image-version"] =
                "4".into();
            let mut value = serde_json::to_value(&pool).unwrap();
            value["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
            value["kind"] = "MachineConfigPool".into();
            let node = json!({"metadata": {
                "name": "worker-0", "labels": {"node-role.kubernetes.io/worker": ""},
                "annotations": {
                    "machineconfiguration.openshift.io/currentConfig": rendered.name(),
                    "machineconfiguration.openshift.io/desiredConfig": rendered.name(),
                    "machineconfiguration.openshift.io/state": "Done",
                },
            }});
            Self {
                objects: vec![manifest(&value), config],
                current: rendered.config,
                pool,
                stored,
                builds: Vec::new(),
                node: serde_json::from_value(node).unwrap(),
            }
        }

        /// The same with an image that the node runs.
        fn built() -> Self {
            let mut cluster = Self::new();
            let mut config = os_config("FROM configs AS final\n");
            let object: MachineOSConfig = config.decode().unwrap();
            let rendered: MachineConfig = serde_json::from_value(cluster.stored.clone()).unwrap();
            let mut build = machine_os_build(&cluster.pool, &object, &rendered).unwrap();
            let name = build.metadata.name.clone().unwrap();
            let status = build.status.get_or_insert_default();
            IMAGE.clone_into(&mut status.digested_image_push_spec);
            status.conditions = status_conditions(&[], BuildState::Succeeded, &Time(Timestamp::UNIX_EPOCH));
            config.value["metadata"]["annotations"] =
                json!({"machineconfiguration.openshift.io/current-machine-os-build": name});
            config.value["status"] = json!({"currentImagePullSpec": IMAGE, "machineOSBuild": {"name": name}});
            cluster.builds.push(build);
            cluster.objects.push(config);
            let annotations = cluster.node.metadata.annotations.as_mut().unwrap();
            for key in ["currentImage", "desiredImage"] {
                let key = format!("machineconfiguration.openshift.io/{key}");
                annotations.insert(key, IMAGE.to_owned());
            }
            cluster
        }

        fn plan(&self, edit: Edit) -> PoolForecast {
            let (after, refused) = forecast::edited(&self.objects, &[edit]);
            assert_eq!(refused, []);
            let images = ImageContext {
                builds: self.builds.clone(),
                rendered: vec![self.stored.clone()],
                ..ImageContext::new(&self.objects, &after).unwrap()
            };
            let situation = PlanContext {
                current: BTreeMap::from([("worker".to_owned(), self.current.clone())]),
                nodes: std::slice::from_ref(&self.node),
                images,
                ..PlanContext::default()
            };
            let after = bootstrap::adopt(after).unwrap();
            forecast::forecast(&after, IDENTITY, &situation).remove(0)
        }
    }

    fn waves(forecast: &PoolForecast) -> Vec<Vec<String>> {
        let rollout = forecast.rollout.as_ref();
        rollout.map(|rollout| rollout.waves.clone()).unwrap_or_default()
    }

    #[test]
    fn opting_in_builds_an_image_and_updates_the_nodes_to_it() {
        let forecast = Cluster::new().plan(Edit::Apply(os_config("FROM configs AS final\nLABEL a=1\n")));
        let image = forecast.image.clone().unwrap();
        assert!(
            image.requires_build && image.is_change && forecast.is_change(),
            "{image:?}"
        );
        assert_eq!(image.reason, "the pool has no built image yet");
        assert!(image.machine_os_build.starts_with("worker-"), "{image:?}");
        let pushed = format!("registry.example.com/os:{}", image.machine_os_build);
        assert_eq!(image.image_push_spec, pushed);
        assert!(image.containerfile.contains("LABEL a=1"));
        assert_eq!(waves(&forecast), [["worker-0"]]);
    }

    #[test]
    fn a_change_of_files_reuses_the_image_and_another_kernel_argument_does_not() {
        let cluster = Cluster::built();
        let file = json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/a", "contents": {"source": "data:,1"}}]}}});
        let forecast = cluster.plan(Edit::Apply(machine_config("50-file", &file)));
        let image = forecast.image.clone().unwrap();
        assert_eq!(
            (image.requires_build, image.image.as_str()),
            (false, IMAGE),
            "{image:?}"
        );
        assert!(!image.is_change && forecast.is_change());
        assert_eq!(waves(&forecast), [["worker-0"]]);

        let arguments = json!({"kernelArguments": ["quiet"]});
        let forecast = cluster.plan(Edit::Apply(machine_config("50-quiet", &arguments)));
        let image = forecast.image.clone().unwrap();
        assert!(image.requires_build && image.is_change, "{image:?}");
        assert!(
            image
                .reason
                .starts_with("kernelArguments of the rendered MachineConfig"),
            "{image:?}"
        );
        assert_ne!(
            Some(&image.machine_os_build),
            cluster.builds[0].metadata.name.as_ref()
        );
        assert_eq!(waves(&forecast), [["worker-0"]]);
    }

    #[test]
    fn an_unchanged_machine_os_config_changes_nothing_and_an_edited_one_is_built() {
        let cluster = Cluster::built();
        let forecast = cluster.plan(Edit::Apply(os_config("FROM configs AS final\n")));
        let image = forecast.image.clone().unwrap();
        assert!(
            !image.requires_build && !image.is_change && !forecast.is_change(),
            "{image:?}"
        );
        assert_eq!(waves(&forecast), Vec::<Vec<String>>::new());
        let forecast = cluster.plan(Edit::Apply(os_config("FROM configs AS final\nLABEL b=1\n")));
        let image = forecast.image.clone().unwrap();
        assert!(image.requires_build && forecast.is_change(), "{image:?}");
        assert_eq!(waves(&forecast), [["worker-0"]]);
    }

    #[test]
    fn a_mistake_in_the_containerfile_updates_no_node() {
        let forecast = Cluster::built().plan(Edit::Apply(os_config("FROM configs AS final\nENV BROKEN\n")));
        let image = forecast.image.clone().unwrap();
        assert!(
            image
                .error
                .contains("line 2: ENV instruction must use key=value form"),
            "{image:?}"
        );
        assert_eq!(waves(&forecast), Vec::<Vec<String>>::new());
    }

    #[test]
    fn opting_out_returns_the_nodes_to_the_image_of_their_config() {
        let forecast = Cluster::built().plan(Edit::Delete("worker".to_owned()));
        let image = forecast.image.clone().unwrap();
        assert!(
            !image.requires_build && image.is_change && forecast.is_change(),
            "{image:?}"
        );
        assert_eq!(waves(&forecast), [["worker-0"]]);
    }
}
