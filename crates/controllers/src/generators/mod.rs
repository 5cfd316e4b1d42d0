//! Runs the generators of [`mco_core::pipeline`] when their sources change, writes the MachineConfigs that they return,
//! and reports on the objects they are from.

mod status;
mod user_configs;

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::vocabulary::events::registries as reasons;
use mco_api::vocabulary::{events, labels, names};
use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use mco_core::config::node_versions::NodeVersions;
use mco_core::generators::credential_provider::CredentialProviderOutcome;
use mco_core::generators::generated::{Generator, generator_of_name};
use mco_core::pipeline::{
    self, BaseConfigs, ClusterObjects, ClusterStage, ExistingConfigs, GeneratedConfig, GenerationResult,
    GeneratorInputs, SkippedObject,
};
use mco_core::rollout::PlannedEvent;
use mco_runtime::{Requeue, object_name, run_blocking};
use tracing::{error, warn};

use crate::context::{Context, SOURCES_POLL};
use crate::error::Error;
use crate::events::Reporter;
use crate::generated_configs::{self, PublishResult};
use crate::template_controller;

const KUBELET_SUBCONTROLLER: &str = "machine-config-controller-kubelet-config";
const RUNTIME_SUBCONTROLLER: &str = "machine-config-controller-container-runtime-config";

/// Runs one generator.
pub(crate) async fn reconcile(ctx: Arc<Context>, generator: Generator) -> Result<Requeue, Error> {
    match generator {
        Generator::Templates => template_controller::reconcile(ctx).await,
        Generator::Kubelet => kubelet(ctx).await,
        Generator::ContainerRuntime => container_runtime(ctx).await,
        Generator::Registries => registries(ctx).await,
        Generator::CredentialProvider => credential_provider(ctx).await,
    }
}

/// Generates the kubelet configuration of all pools.
async fn kubelet(ctx: Arc<Context>) -> Result<Requeue, Error> {
    let Some((base, objects, mut result)) = run(&ctx, Generator::Kubelet).await? else {
        return Ok(not_ready(&ctx));
    };
    if let (Some(message), Some(settings)) = (&result.prohibited_profile, &objects.node) {
        warn!("{message}");
        let event = PlannedEvent::normal(events::render::ACTION_PROHIBITED, message.clone());
        ctx.events.record(Reporter::Kubelet, settings, event);
    }
    let kubelet_configs = &ctx.stores.kubelet_configs;
    let recorded = user_configs::record_names::<KubeletConfig>(&ctx, &mut result, kubelet_configs).await;
    let published = publish(&ctx, Generator::Kubelet, &result, &base).await;
    let reported = user_configs::report::<KubeletConfig>(&ctx, &result, &published, kubelet_configs).await;
    let outcome = published.outcome().and(reported).and(recorded);
    outcome.map(|()| Requeue::OnChange)
}

/// Generates the container runtime configuration of all pools.
async fn container_runtime(ctx: Arc<Context>) -> Result<Requeue, Error> {
    let Some((base, _, mut result)) = run(&ctx, Generator::ContainerRuntime).await? else {
        return Ok(not_ready(&ctx));
    };
    let configs = &ctx.stores.runtime_configs;
    let recorded = user_configs::record_names::<ContainerRuntimeConfig>(&ctx, &mut result, configs).await;
    let published = publish(&ctx, Generator::ContainerRuntime, &result, &base).await;
    let reported = user_configs::report::<ContainerRuntimeConfig>(&ctx, &result, &published, configs).await;
    let outcome = published.outcome().and(reported).and(recorded);
    outcome.map(|()| Requeue::OnChange)
}

/// Generates the registry configuration of the built-in pools.
async fn registries(ctx: Arc<Context>) -> Result<Requeue, Error> {
    let Some((base, objects, result)) = run(&ctx, Generator::Registries).await? else {
        return Ok(not_ready(&ctx));
    };
    for skipped in &result.skipped {
        report_skipped(&ctx, &objects, skipped);
    }
    for warning in &result.warnings {
        warn!("{warning}");
    }
    let published = publish(&ctx, Generator::Registries, &result, &base).await;
    // A failed generator reports no conflicts, so the status of policies stays as it is.
    let reported = if result.failures.is_empty() {
        status::image_policies(&ctx, &result.conflicts).await
    } else {
        Ok(())
    };
    published.outcome().and(reported)?;
    Ok(Requeue::OnChange)
}

/// Generates the credential provider configuration of the built-in pools.
async fn credential_provider(ctx: Arc<Context>) -> Result<Requeue, Error> {
    let Some((base, objects, result)) = run(&ctx, Generator::CredentialProvider).await? else {
        return Ok(not_ready(&ctx));
    };
    let published = publish(&ctx, Generator::CredentialProvider, &result, &base).await;
    let written = published.outcome();
    if let (Some(config), Some(outcome)) = (&objects.credential_provider, result.credential_provider) {
        let outcome = match (&written, outcome) {
            (Err(problem), CredentialProviderOutcome::Applied { .. }) => {
                CredentialProviderOutcome::NotRendered(problem.to_string())
            }
            (_, outcome) => outcome,
        };
        status::credential_provider(&ctx, config, &outcome).await?;
    }
    written.map(|()| Requeue::OnChange)
}

/// Computes the configs of a generator; `None` if its inputs are not complete yet.
async fn run(
    ctx: &Arc<Context>,
    generator: Generator,
) -> Result<Option<(Arc<BaseConfigs>, Arc<ClusterObjects>, GenerationResult)>, Error> {
    let Some(base) = ctx.base() else {
        return Ok(None);
    };
    if !ctx.sources_are_current() {
        return Ok(None);
    }
    ctx.stores.require_readable_inputs(generator)?;
    let objects = Arc::new(gather(ctx));
    let computed = {
        let (ctx, base, objects) = (Arc::clone(ctx), Arc::clone(&base), Arc::clone(&objects));
        run_blocking("generator", format!("{generator:?} configs"), move || {
            let inputs = GeneratorInputs {
                objects: &objects,
                base: &base,
                version: &ctx.options.source_version,
                stage: ClusterStage::Cluster,
            };
            pipeline::run_generator(generator, &inputs, ctx.as_ref())
        })
    };
    let result = computed
        .await
        .map_err(|failed| Error::Invalid(failed.to_string()))?;
    log_failures(&result);
    record_metrics(ctx, &result);
    Ok(Some((base, objects, result)))
}

fn not_ready(ctx: &Context) -> Requeue {
    match ctx.base() {
        None => Requeue::OnChange,
        Some(_) => Requeue::NotReady(Some(SOURCES_POLL)),
    }
}

/// Returns copies of the objects that generators read.
fn gather(ctx: &Context) -> ClusterObjects {
    macro_rules! singleton {
        ($field:ident) => {
            ctx.stores
                .$field
                .get(names::SINGLETON)
                .map(Arc::unwrap_or_clone)
        };
    }
    let plain_digest = ctx.stores.plain_digest_mirrors.sorted();
    let plain_tag = ctx.stores.plain_tag_mirrors.sorted();
    let mut digest_mirrors = ctx.stores.digest_mirrors.sorted();
    digest_mirrors.extend(plain_digest.into_iter().map(Into::into));
    let mut tag_mirrors = ctx.stores.tag_mirrors.sorted();
    tag_mirrors.extend(plain_tag.into_iter().map(Into::into));
    ClusterObjects {
        pools: ctx.stores.pools.sorted(),
        controller_config: ctx.base().map(|base| Arc::clone(&base.controller_config)),
        kubelet_configs: ctx.stores.kubelet_configs.sorted(),
        runtime_configs: ctx.stores.runtime_configs.sorted(),
        digest_mirrors,
        tag_mirrors,
        content_policies: ctx.stores.content_policies.sorted(),
        cluster_policies: ctx.stores.cluster_image_policies.sorted(),
        policies: ctx.stores.image_policies.sorted(),
        credential_provider: singleton!(credential_providers),
        os_configs: ctx.stores.os_configs.sorted(),
        image: singleton!(images),
        feature_gate: singleton!(feature_gates),
        node: singleton!(node_settings),
        api_server: singleton!(api_servers),
        cluster_version: ctx
            .stores
            .cluster_versions
            .get(names::CLUSTER_VERSION)
            .map(Arc::unwrap_or_clone),
        os_image_stream: singleton!(os_streams),
        nodes: node_versions(ctx),
    }
}

/// Returns the versions of the nodes, on a base whose configs depend on them.
fn node_versions(ctx: &Context) -> Vec<NodeVersions> {
    if !ctx.base().is_some_and(|base| base.base.is_additive()) {
        return Vec::new();
    }
    let nodes = ctx.stores.nodes.all();
    let mut versions: Vec<NodeVersions> = nodes.iter().map(|node| NodeVersions::of(node)).collect();
    versions.sort_by(|a, b| a.name.cmp(&b.name));
    versions
}

impl ExistingConfigs for Context {
    fn exists(&self, name: &str) -> bool {
        self.stores.config_metadata.get(name).is_some()
    }

    /// Returns the config as it was generated last, whether or not it was edited since, or as this controller found it.
    fn in_force(&self, name: &str) -> Option<Arc<MachineConfig>> {
        let generated = self.generated.get(name).map(|config| Arc::clone(&config.object));
        generated.or_else(|| self.current_source(name))
    }

    fn of_generator(&self, generator: Generator) -> Vec<Arc<MachineConfig>> {
        if let Some(configs) = self.generated.of_generator(generator) {
            return configs
                .values()
                .map(|config| Arc::clone(&config.object))
                .collect();
        }
        let found = self.stores.config_metadata.all();
        let names = found.iter().map(|metadata| object_name(&metadata.metadata));
        names
            .filter(|name| generator_of_name(name) == Some(generator))
            .filter_map(|name| self.current_source(name))
            .collect()
    }
}

async fn publish(
    ctx: &Context,
    generator: Generator,
    result: &GenerationResult,
    base: &Arc<BaseConfigs>,
) -> PublishResult {
    let configs = generated_configs::parse(ctx, &result.configs);
    generated_configs::publish(ctx, generator, configs, base).await
}

/// Logs failures that no object reports in its own status.
fn log_failures(result: &GenerationResult) {
    for failure in &result.failures {
        let is_reported = result
            .reports
            .iter()
            .any(|report| failure.object == format!("{} {:?}", report.kind, report.name));
        if !is_reported {
            error!("generation failed, the current configs stay in force: {failure}");
        }
    }
}

fn record_metrics(ctx: &Context, result: &GenerationResult) {
    let now = ctx.now();
    let generated = result.configs.iter().filter(|config| config.origin.is_some());
    for config in generated {
        let Some((subcontroller, action)) = action_of(config) else {
            continue;
        };
        let labels = config.object.metadata.labels.as_ref();
        let pool = labels.and_then(|all| all.get(labels::ROLE));
        let pool = pool.map(String::as_str).unwrap_or_default();
        ctx.options.metrics.acted(subcontroller, action, pool, now);
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

/// Records an event on an object that is ignored because it is invalid.
fn report_skipped(ctx: &Context, objects: &ClusterObjects, skipped: &SkippedObject) {
    warn!(
        "{} {} is ignored in the registry configuration: {}",
        skipped.kind, skipped.name, skipped.error
    );
    let event = || PlannedEvent::warning(reasons::INVALID, skipped.error.to_string());
    macro_rules! record {
        ($($kind:literal: $field:ident),*) => {
            match skipped.kind {
                $($kind => {
                    let mut all = objects.$field.iter();
                    let found = all.find(|object| {
                        object.metadata.name.as_deref() == Some(&skipped.name)
                            && object.metadata.namespace == skipped.namespace
                    });
                    if let Some(object) = found {
                        ctx.events.record(Reporter::Registries, object, event());
                    }
                })*
                _ => {}
            }
        };
    }
    record!(
        "ImageDigestMirrorSet": digest_mirrors,
        "ImageTagMirrorSet": tag_mirrors,
        "ImageContentSourcePolicy": content_policies,
        "ClusterImagePolicy": cluster_policies,
        "ImagePolicy": policies
    );
}
