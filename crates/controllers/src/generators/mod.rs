//! Runs the generators of [`mco_core::pipeline`] when their sources change, writes the MachineConfigs that they return,
//! and reports on the objects they are from.

mod status;
mod user_configs;

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::vocabulary::events::registries as reasons;
use mco_api::vocabulary::{events, labels, names};
use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use mco_core::generators::credential_provider::Outcome as CredentialProviderOutcome;
use mco_core::generators::generated::{Generator, generator_of_name};
use mco_core::pipeline::{
    self, ClusterObjects, ExistingConfigs, GeneratedConfig, GenerationResult, GeneratorInputs, SkippedObject,
    Stage,
};
use mco_core::rollout::Event;
use tracing::{error, warn};

use crate::cluster::{Cluster, SOURCES_POLL};
use crate::error::Error;
use crate::events::Reporter;
use crate::foundation::Foundation;
use crate::name_of;
use crate::owned::{self, Published};
use crate::queue::Again;

const KUBELET_SUBCONTROLLER: &str = "machine-config-controller-kubelet-config";
const RUNTIME_SUBCONTROLLER: &str = "machine-config-controller-container-runtime-config";

/// Generates the kubelet configuration of all pools.
pub(crate) async fn kubelet(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some((foundation, objects, mut result)) = run(&cluster, Generator::Kubelet).await? else {
        return Ok(not_ready(&cluster));
    };
    if let (Some(message), Some(settings)) = (&result.prohibited_profile, &objects.node) {
        warn!("{message}");
        let event = Event::normal(events::render::ACTION_PROHIBITED, message.clone());
        cluster.events.tell(Reporter::Kubelet, settings, event);
    }
    let kubelet_configs = &cluster.kubelet_configs;
    let recorded = user_configs::record_names::<KubeletConfig>(&cluster, &mut result, kubelet_configs).await;
    let published = publish(&cluster, Generator::Kubelet, &result, &foundation).await;
    let reported =
        user_configs::report::<KubeletConfig>(&cluster, &result, &published, kubelet_configs).await;
    let outcome = published.outcome().and(reported).and(recorded);
    outcome.map(|()| Again::OnChange)
}

/// Generates the container runtime configuration of all pools.
pub(crate) async fn container_runtime(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some((foundation, _, mut result)) = run(&cluster, Generator::ContainerRuntime).await? else {
        return Ok(not_ready(&cluster));
    };
    let configs = &cluster.runtime_configs;
    let recorded = user_configs::record_names::<ContainerRuntimeConfig>(&cluster, &mut result, configs).await;
    let published = publish(&cluster, Generator::ContainerRuntime, &result, &foundation).await;
    let reported =
        user_configs::report::<ContainerRuntimeConfig>(&cluster, &result, &published, configs).await;
    let outcome = published.outcome().and(reported).and(recorded);
    outcome.map(|()| Again::OnChange)
}

/// Generates the registry configuration of the built-in pools.
pub(crate) async fn registries(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some((foundation, objects, result)) = run(&cluster, Generator::Registries).await? else {
        return Ok(not_ready(&cluster));
    };
    for skipped in &result.skipped {
        report_skipped(&cluster, &objects, skipped);
    }
    for warning in &result.warnings {
        warn!("{warning}");
    }
    let published = publish(&cluster, Generator::Registries, &result, &foundation).await;
    // Without knowing the conflicts, what the policies say about them stays.
    let reported = if result.failures.is_empty() {
        status::image_policies(&cluster, &result.conflicts).await
    } else {
        Ok(())
    };
    published.outcome().and(reported)?;
    Ok(Again::OnChange)
}

/// Generates the credential provider configuration of the built-in pools.
pub(crate) async fn credential_provider(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some((foundation, objects, result)) = run(&cluster, Generator::CredentialProvider).await? else {
        return Ok(not_ready(&cluster));
    };
    let published = publish(&cluster, Generator::CredentialProvider, &result, &foundation).await;
    let written = published.outcome();
    if let (Some(config), Some(outcome)) = (&objects.credential_provider, result.credential_provider) {
        let outcome = match (&written, outcome) {
            (Err(problem), CredentialProviderOutcome::Applied { .. }) => {
                CredentialProviderOutcome::NotRendered(problem.to_string())
            }
            (_, outcome) => outcome,
        };
        status::credential_provider(&cluster, config, &outcome).await?;
    }
    written.map(|()| Again::OnChange)
}

/// Runs a generator; none if its inputs are not complete yet.
async fn run(
    cluster: &Arc<Cluster>,
    generator: Generator,
) -> Result<Option<(Arc<Foundation>, Arc<ClusterObjects>, GenerationResult)>, Error> {
    let Some(foundation) = cluster.foundation() else {
        return Ok(None);
    };
    if !cluster.sources_are_known() {
        return Ok(None);
    }
    let objects = Arc::new(gather(cluster));
    let computed = {
        let (cluster, foundation, objects) =
            (Arc::clone(cluster), Arc::clone(&foundation), Arc::clone(&objects));
        tokio::task::spawn_blocking(move || {
            let inputs = GeneratorInputs {
                objects: &objects,
                base: &foundation,
                version: &cluster.options.source_version,
                stage: Stage::Cluster,
            };
            pipeline::run_generator(generator, &inputs, cluster.as_ref())
        })
    };
    let result = computed
        .await
        .map_err(|ended| Error::Invalid(format!("generating {generator:?} configs ended: {ended}")))?;
    log_failures(&result);
    count(cluster, &result);
    Ok(Some((foundation, objects, result)))
}

fn not_ready(cluster: &Cluster) -> Again {
    match cluster.foundation() {
        None => Again::OnChange,
        Some(_) => Again::NotYet(Some(SOURCES_POLL)),
    }
}

/// The objects that generators read, as they are now.
fn gather(cluster: &Cluster) -> ClusterObjects {
    macro_rules! singleton {
        ($field:ident) => {
            cluster
                .$field
                .get(names::SINGLETON)
                .map(Arc::unwrap_or_clone)
        };
    }
    ClusterObjects {
        pools: cluster.pools.sorted(),
        controller_config: cluster
            .foundation()
            .map(|made| Arc::clone(&made.controller_config)),
        kubelet_configs: cluster.kubelet_configs.sorted(),
        runtime_configs: cluster.runtime_configs.sorted(),
        digest_mirrors: cluster.digest_mirrors.sorted(),
        tag_mirrors: cluster.tag_mirrors.sorted(),
        content_policies: cluster.content_policies.sorted(),
        cluster_policies: cluster.wide_image_policies.sorted(),
        policies: cluster.image_policies.sorted(),
        credential_provider: singleton!(credential_providers),
        os_configs: cluster.os_configs.sorted(),
        image: singleton!(images),
        feature_gate: singleton!(feature_gates),
        node: singleton!(node_settings),
        api_server: singleton!(api_servers),
        cluster_version: cluster
            .releases
            .get(names::CLUSTER_VERSION)
            .map(Arc::unwrap_or_clone),
        os_image_stream: singleton!(os_streams),
    }
}

impl ExistingConfigs for Cluster {
    fn exists(&self, name: &str) -> bool {
        self.config_metadata.get(name).is_some()
    }

    /// As it was generated last, whatever was made of it since, or as this controller found it.
    fn in_force(&self, name: &str) -> Option<Arc<MachineConfig>> {
        let generated = self.owned.get(name).map(|config| Arc::clone(&config.object));
        generated.or_else(|| self.current_content(name))
    }

    fn of_generator(&self, generator: Generator) -> Vec<Arc<MachineConfig>> {
        if let Some(share) = self.owned.share_of(generator) {
            return share.values().map(|config| Arc::clone(&config.object)).collect();
        }
        let found = self.config_metadata.all();
        let names = found.iter().map(|metadata| name_of(&metadata.metadata));
        names
            .filter(|name| generator_of_name(name) == Some(generator))
            .filter_map(|name| self.current_content(name))
            .collect()
    }
}

async fn publish(
    cluster: &Cluster,
    generator: Generator,
    result: &GenerationResult,
    foundation: &Arc<Foundation>,
) -> Published {
    let share = owned::share(cluster, &result.configs);
    owned::publish(cluster, generator, share, foundation).await
}

/// KubeletConfigs and ContainerRuntimeConfigs report their failures in their own status.
fn log_failures(result: &GenerationResult) {
    for failure in &result.failures {
        let is_reported = result
            .reports
            .iter()
            .any(|report| failure.object == format!("{} {:?}", report.kind, report.name));
        if !is_reported {
            error!("cannot be generated, so the present configuration stays: {failure}");
        }
    }
}

fn count(cluster: &Cluster, result: &GenerationResult) {
    let now = cluster.now();
    let generated = result.configs.iter().filter(|config| config.origin.is_some());
    for config in generated {
        let Some((subcontroller, action)) = action_of(config) else {
            continue;
        };
        let labels = config.object.metadata.labels.as_ref();
        let pool = labels.and_then(|all| all.get(labels::ROLE));
        let pool = pool.map(String::as_str).unwrap_or_default();
        cluster.options.metrics.acted(subcontroller, action, pool, now);
    }
}

fn action_of(config: &GeneratedConfig) -> Option<(&'static str, &'static str)> {
    let name = config.name();
    Some(match generator_of_name(name)? {
        Generator::Templates => return None,
        Generator::Kubelet if name.starts_with("97-") => (KUBELET_SUBCONTROLLER, "Sync NodeConfig"),
        Generator::Kubelet if name.starts_with("98-") => (KUBELET_SUBCONTROLLER, "Sync FeatureSet"),
        Generator::Kubelet => (KUBELET_SUBCONTROLLER, "Sync Kubelet Config"),
        Generator::ContainerRuntime => (RUNTIME_SUBCONTROLLER, "Sync Container Runtime Config"),
        Generator::Registries => (RUNTIME_SUBCONTROLLER, "Sync Image Config"),
        Generator::CredentialProvider => (RUNTIME_SUBCONTROLLER, "Sync CRIO Credential Provider Config"),
    })
}

/// Reports on an object itself that it is left out of the registry settings.
fn report_skipped(cluster: &Cluster, objects: &ClusterObjects, skipped: &SkippedObject) {
    warn!(
        "{} {} is left out of the registry settings: {}",
        skipped.kind, skipped.name, skipped.error
    );
    let event = || Event::warning(reasons::INVALID, skipped.error.to_string());
    macro_rules! tell {
        ($($kind:literal: $field:ident),*) => {
            match skipped.kind {
                $($kind => {
                    let mut all = objects.$field.iter();
                    let found = all.find(|object| {
                        object.metadata.name.as_deref() == Some(&skipped.name)
                            && object.metadata.namespace == skipped.namespace
                    });
                    if let Some(object) = found {
                        cluster.events.tell(Reporter::Registries, object, event());
                    }
                })*
                _ => {}
            }
        };
    }
    tell!(
        "ImageDigestMirrorSet": digest_mirrors,
        "ImageTagMirrorSet": tag_mirrors,
        "ImageContentSourcePolicy": content_policies,
        "ClusterImagePolicy": cluster_policies,
        "ImagePolicy": policies
    );
}
