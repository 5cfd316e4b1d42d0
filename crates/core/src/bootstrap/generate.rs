//! The pipeline: from a cluster's objects to all MachineConfigs that are generated from them, in a fixed order.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::{annotations, labels, names};
use mco_api::{ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool};

use super::Settings;
use super::error::BootstrapError;
use super::objects::Objects;
use crate::container_runtime;
use crate::feature_gates::FeatureGates;
use crate::generated::{ConfigOrigin, Generated, owner};
use crate::kubelet;
use crate::pools;
use crate::registries::{self, BaseFiles, RegistrySources};
use crate::templates::{self, TemplateConfig, TemplateInputs, TemplateTree, base_file};
use crate::tls_profile;

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";
const CONFIG_GROUP: &str = "config.openshift.io/v1";

/// Everything that was generated.
#[derive(Debug, Default)]
pub(super) struct Generation {
    pub configs: Vec<Generated>,
    pub warnings: Vec<String>,
    pub feature_gates: FeatureGates,
}

pub(super) fn generate(
    objects: &Objects,
    pools: &[MachineConfigPool],
    controller_config: &ControllerConfig,
    settings: &Settings<'_>,
) -> Result<Generation, Vec<BootstrapError>> {
    let embedded = TemplateTree::embedded();
    let tree = settings.templates.unwrap_or(&embedded);
    let feature_gates = FeatureGates::in_force(
        objects.feature_gate.as_ref(),
        controller_config,
        settings.payload_version,
    )
    .map_err(|error| vec![error.into()])?;
    let profile = objects
        .api_server
        .as_ref()
        .and_then(|server| server.spec.tls_security_profile.as_ref());
    let inputs = TemplateInputs {
        spec: &controller_config.spec,
        pull_secret: settings.pull_secret.unwrap_or_default(),
        tls: tls_profile::settings(profile),
        version: settings.controller_version,
        owner: Some(owner(OWN_GROUP, "ControllerConfig", &controller_config.metadata)),
    };
    let templates = templates::render(tree, &inputs).map_err(|error| vec![error.into()])?;
    let mut pipeline = Pipeline {
        objects,
        pools,
        controller_config,
        version: settings.controller_version,
        templates: &templates,
        feature_gates: &feature_gates,
        configs: templates.iter().map(|config| config.generated.clone()).collect(),
        warnings: Vec::new(),
        errors: Vec::new(),
    };
    pipeline.registries();
    pipeline.container_runtime();
    pipeline.feature_gates();
    pipeline.node();
    pipeline.kubelet();
    pipeline.pre_built_images();
    let Pipeline {
        configs,
        warnings,
        errors,
        ..
    } = pipeline;
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Generation {
        configs,
        warnings,
        feature_gates,
    })
}

struct Pipeline<'a> {
    objects: &'a Objects,
    pools: &'a [MachineConfigPool],
    controller_config: &'a ControllerConfig,
    version: &'a str,
    templates: &'a [TemplateConfig],
    feature_gates: &'a FeatureGates,
    configs: Vec<Generated>,
    warnings: Vec<String>,
    errors: Vec<BootstrapError>,
}

impl<'a> Pipeline<'a> {
    fn registries(&mut self) {
        let sources = RegistrySources {
            image: self.objects.image.as_ref(),
            digest_mirrors: &self.objects.digest_mirrors,
            tag_mirrors: &self.objects.tag_mirrors,
            content_policies: &self.objects.content_policies,
            cluster_policies: &self.objects.cluster_policies,
            policies: &self.objects.policies,
            feature_gates: self.feature_gates,
            release_image: &self.controller_config.spec.release_image,
        };
        for pool in self.pools {
            let pool = name(&pool.metadata);
            let base = BaseFiles {
                registries_conf: base_file(self.templates, pool, registries::REGISTRIES_CONF)
                    .unwrap_or_default(),
                policy_json: base_file(self.templates, pool, registries::POLICY_JSON).unwrap_or_default(),
            };
            match registries::files(&sources, base) {
                Ok(files) => {
                    let owner = owner(CONFIG_GROUP, "Image", &ObjectMeta::default());
                    self.configs
                        .push(registries::generate(pool, files.files, None, Some(owner)));
                    let conflicts = files.conflicts.iter().map(|conflict| {
                        format!(
                            "ImagePolicy \"{}/{}\": {}",
                            conflict.namespace,
                            conflict.name,
                            conflict.message()
                        )
                    });
                    let fresh: Vec<String> = files.warnings.into_iter().chain(conflicts).collect();
                    self.warn_once(fresh);
                }
                Err(error) => {
                    let error = BootstrapError::Registries(error);
                    if !self.errors.contains(&error) {
                        self.errors.push(error);
                    }
                }
            }
        }
    }

    fn container_runtime(&mut self) {
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        for object in &self.objects.runtime_configs {
            let described = describe("ContainerRuntimeConfig", &object.metadata);
            if let Err(problems) = container_runtime::validate(object) {
                self.errors.push(BootstrapError::ContainerRuntime {
                    object: described,
                    source: container_runtime::ContainerRuntimeError::Invalid(problems),
                });
                continue;
            }
            let selector = object.spec.machine_config_pool_selector.as_ref();
            for pool in self.selected(&described, selector) {
                if let Some(first) = taken.insert(pool, name(&object.metadata)) {
                    self.twice(
                        ("ContainerConfig", "ContainerConfig"),
                        pool,
                        first,
                        &object.metadata,
                    );
                    continue;
                }
                match self.container_runtime_of(object, pool) {
                    Ok(generated) => self.configs.push(generated),
                    Err(source) => self.errors.push(BootstrapError::ContainerRuntime {
                        object: described.clone(),
                        source,
                    }),
                }
            }
        }
    }

    fn container_runtime_of(
        &self,
        object: &ContainerRuntimeConfig,
        pool: &str,
    ) -> Result<Generated, container_runtime::ContainerRuntimeError> {
        let base = container_runtime::Base {
            role: pool,
            storage_conf: base_file(self.templates, pool, container_runtime::STORAGE_CONF),
            feature_gates: self.feature_gates,
            version: self.version,
        };
        let config = names::generated_container_runtime(pool, None);
        let owner = owner(OWN_GROUP, "ContainerRuntimeConfig", &ObjectMeta::default());
        container_runtime::generate(base, object, config, Some(owner))
    }

    fn feature_gates(&mut self) {
        for pool in self.pools {
            let result = self.kubelet_base(pool).and_then(kubelet::for_feature_gates);
            self.keep("FeatureGate \"cluster\"", result);
        }
    }

    fn node(&mut self) {
        let described = "Node \"cluster\" (config.openshift.io)";
        let arguments = match kubelet::kernel_arguments(self.objects.node.as_ref(), &[]) {
            Ok(arguments) => arguments,
            Err(error) => return self.keep(described, Err(error)),
        };
        for pool in self.pools {
            let result = self
                .kubelet_base(pool)
                .and_then(|base| kubelet::for_node(base, arguments.clone()));
            self.keep(described, result);
        }
    }

    fn kubelet(&mut self) {
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        for object in &self.objects.kubelet_configs {
            let described = describe("KubeletConfig", &object.metadata);
            let user = match kubelet::validate(object) {
                Ok(user) => user,
                Err(error) => {
                    self.keep(&described, Err(error));
                    continue;
                }
            };
            let selector = object.spec.machine_config_pool_selector.as_ref();
            let mut selected = self.selected(&described, selector);
            if selected.contains(&names::pool::WORKER) {
                let inheriting = kubelet::inheriting(self.pools, &self.objects.kubelet_configs);
                selected.extend(inheriting.into_iter().map(|pool| name(&pool.metadata)));
            }
            for pool_name in selected {
                if let Some(first) = taken.insert(pool_name, name(&object.metadata)) {
                    self.twice(
                        ("KubeletConfigs", "KubeletConfig"),
                        pool_name,
                        first,
                        &object.metadata,
                    );
                    continue;
                }
                let Some(pool) = self.pools.iter().find(|pool| name(&pool.metadata) == pool_name) else {
                    continue;
                };
                let result =
                    kubelet::check_for_pool(&user, pool).and_then(|()| self.kubelet_of(object, &user, pool));
                self.keep(&described, result);
            }
        }
        self.warn_about_inheritance(&taken);
    }

    fn kubelet_of(
        &self,
        object: &KubeletConfig,
        user: &kubelet::UserKubelet,
        pool: &MachineConfigPool,
    ) -> Result<Generated, kubelet::KubeletError> {
        let base = self.kubelet_base(pool)?;
        let config = names::generated_kubelet(base.role, None);
        let owner = owner(OWN_GROUP, "KubeletConfig", &ObjectMeta::default());
        kubelet::for_kubelet_config(base, object, user, config, Some(owner))
    }

    fn kubelet_base<'p>(
        &self,
        pool: &'p MachineConfigPool,
    ) -> Result<kubelet::Base<'p>, kubelet::KubeletError>
    where
        'a: 'p,
    {
        let node = self.objects.node.as_ref();
        kubelet::Base::of_pool(pool, self.templates, self.feature_gates, node, self.version)
    }

    /// A custom pool takes its MachineConfigs from the worker role, but the kubelet's file that the feature gates give
    /// it overrides the worker's. Who wrote a KubeletConfig for the workers should hear that.
    fn warn_about_inheritance(&mut self, taken: &BTreeMap<&str, &str>) {
        let Some(object) = taken.get(names::pool::WORKER) else {
            return;
        };
        let worker_label = BTreeMap::from([(labels::ROLE.to_owned(), names::pool::WORKER.to_owned())]);
        let left_out = self.pools.iter().filter(|pool| {
            let pool_name = name(&pool.metadata);
            let inherits = pools::config_selector(pool).is_ok_and(|s| s.matches(Some(&worker_label)));
            names::pool::is_custom(pool_name) && inherits && !taken.contains_key(pool_name)
        });
        let warnings = left_out.map(|pool| {
            let pool = name(&pool.metadata);
            format!(
                "KubeletConfig {object:?} selects pool worker but not pool {pool}, whose kubelet.conf therefore stays \
                 without it\n  hint: select {pool} as well, or annotate the pool with {}: \"true\"",
                kubelet::INHERIT_FROM_WORKER
            )
        });
        let warnings: Vec<String> = warnings.collect();
        self.warn_once(warnings);
    }

    /// Pools whose images were built before the cluster exists.
    fn pre_built_images(&mut self) {
        for object in &self.objects.os_configs {
            let image = object.metadata.annotations.as_ref();
            let Some(image) = image.and_then(|all| all.get(annotations::PRE_BUILT_IMAGE)) else {
                continue;
            };
            let pool = object.spec.machine_config_pool.name.as_str();
            let problem = if !is_digest_reference(image) {
                Some(format!(
                    "pre-built image {image:?} must be given by digest, as in name@sha256:<64 hex digits>"
                ))
            } else if !self.pools.iter().any(|known| name(&known.metadata) == pool) {
                Some(format!("there is no MachineConfigPool {pool:?}"))
            } else {
                None
            };
            match problem {
                Some(message) => self.errors.push(BootstrapError::PreBuiltImage {
                    name: name(&object.metadata).to_owned(),
                    message,
                }),
                None => self
                    .configs
                    .push(pre_built_image(pool, image, name(&object.metadata))),
            }
        }
    }

    /// The pools whose labels a selector matches. Neither no selector nor an empty one matches any.
    fn selected(&mut self, described: &str, selector: Option<&LabelSelector>) -> Vec<&'a str> {
        let selected: Vec<&str> = match pools::selected(self.pools, selector) {
            Ok(selected) => selected.into_iter().map(|pool| name(&pool.metadata)).collect(),
            Err(source) => {
                self.errors.push(BootstrapError::Selector {
                    object: described.to_owned(),
                    source,
                });
                return Vec::new();
            }
        };
        if selected.is_empty() {
            self.warn_once(vec![format!(
                "{described}: could not find any MachineConfigPool: its machineConfigPoolSelector matches the labels of none"
            )]);
        }
        selected
    }

    fn keep(&mut self, described: &str, result: Result<Generated, kubelet::KubeletError>) {
        match result {
            Ok(generated) => self.configs.push(generated),
            Err(source) => {
                let error = BootstrapError::Kubelet {
                    object: described.to_owned(),
                    source,
                };
                if !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
        }
    }

    fn twice(
        &mut self,
        (several, kind): (&'static str, &'static str),
        pool: &str,
        first: &str,
        second: &ObjectMeta,
    ) {
        self.errors.push(BootstrapError::Multiple {
            several,
            kind,
            pool: pool.to_owned(),
            first: first.to_owned(),
            second: name(second).to_owned(),
        });
    }

    fn warn_once(&mut self, warnings: Vec<String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn describe(kind: &str, metadata: &ObjectMeta) -> String {
    format!("{kind} {:?}", name(metadata))
}

fn is_digest_reference(image: &str) -> bool {
    image.split_once("@sha256:").is_some_and(|(repository, digest)| {
        let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        !repository.is_empty() && digest.len() == 64 && digest.bytes().all(lower_hex)
    })
}

/// Counts as the user's own, or its image would be ignored.
fn pre_built_image(pool: &str, image: &str, object: &str) -> Generated {
    let spec = MachineConfigSpec {
        os_image_url: image.to_owned(),
        ..MachineConfigSpec::default()
    };
    let mut config = MachineConfig::new(&names::pre_built_image(pool), spec);
    config.metadata.labels = Some(BTreeMap::from([(labels::ROLE.to_owned(), pool.to_owned())]));
    config.metadata.annotations = Some(BTreeMap::from([(
        annotations::PRE_BUILT_IMAGE.to_owned(),
        image.to_owned(),
    )]));
    Generated {
        config,
        origin: ConfigOrigin {
            made_from: format!("MachineOSConfig {object:?}"),
            items: BTreeMap::new(),
        },
    }
}
