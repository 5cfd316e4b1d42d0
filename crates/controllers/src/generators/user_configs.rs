//! Records on KubeletConfigs and ContainerRuntimeConfigs the MachineConfigs that are generated from them, and writes
//! their status.

use std::fmt::Debug;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use mco_api::kubelet_config::NodeConfigCondition;
use mco_api::vocabulary::annotations;
use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use mco_core::generators::generated::assign::Assigned;
use mco_core::generators::generated::condition::{self, GenerationOutcome};
use mco_core::generators::generated::{Generator, generator_of_name};
use mco_core::pipeline::{ExistingConfigs as _, GeneratedConfig, GenerationResult, is_generated_from};
use mco_runtime::{ErrorClass, FieldManager, ReconcileError as _, Store, object_name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::generated_configs::PublishResult;

/// A kind with which users configure what is generated for pools.
pub(super) trait UserConfigKind:
    Resource<Scope = ClusterResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    const GENERATOR: Generator;
    const MANAGER: FieldManager;

    fn conditions(&self) -> (&[NodeConfigCondition], i64);
    fn conditions_after(
        existing: &[NodeConfigCondition],
        outcome: &GenerationOutcome,
        now: &Time,
    ) -> Vec<NodeConfigCondition>;
}

impl UserConfigKind for KubeletConfig {
    const GENERATOR: Generator = Generator::Kubelet;
    const MANAGER: FieldManager = FieldManager::new("machine-config-controller-kubelet-config");

    fn conditions(&self) -> (&[NodeConfigCondition], i64) {
        let status = self.status.as_ref();
        status.map_or((&[], 0), |status| {
            (&status.conditions, status.observed_generation)
        })
    }

    fn conditions_after(
        existing: &[NodeConfigCondition],
        outcome: &GenerationOutcome,
        now: &Time,
    ) -> Vec<NodeConfigCondition> {
        condition::of_kubelet_config(existing, outcome, now)
    }
}

impl UserConfigKind for ContainerRuntimeConfig {
    const GENERATOR: Generator = Generator::ContainerRuntime;
    const MANAGER: FieldManager = FieldManager::new("machine-config-controller-container-runtime-config");

    fn conditions(&self) -> (&[NodeConfigCondition], i64) {
        let status = self.status.as_ref();
        status.map_or((&[], 0), |status| {
            (&status.conditions, status.observed_generation)
        })
    }

    fn conditions_after(
        existing: &[NodeConfigCondition],
        outcome: &GenerationOutcome,
        now: &Time,
    ) -> Vec<NodeConfigCondition> {
        condition::of_container_runtime_config(existing, outcome, now)
    }
}

/// Records the names of generated configs on the objects, before any config of those names is written. An object that
/// cannot be written keeps the configs that it has, and no other waits for it.
pub(super) async fn record_names<K: UserConfigKind>(
    ctx: &Context,
    result: &mut GenerationResult,
    objects: &Store<K>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    for report in std::mem::take(&mut result.reports) {
        let Some(object) = objects.get(&report.name) else {
            continue;
        };
        match record_assigned(ctx, object.as_ref(), &report.assigned, objects).await {
            Ok(()) => result.reports.push(report),
            Err(problem) => {
                let recorded = object.meta().finalizers.as_deref().unwrap_or_default();
                let names = report
                    .assigned
                    .configs
                    .iter()
                    .filter_map(|(_, name)| name.as_ref().ok());
                for name in names.filter(|name| !recorded.contains(name)) {
                    result.configs.retain(|config| config.name() != name);
                    let present = ctx.in_force(name);
                    let present =
                        present.filter(|config| is_generated_from(config, report.kind, &report.name));
                    let present = present.map(|object| GeneratedConfig { object, origin: None });
                    result.configs.extend(present);
                }
                outcome = Err(problem);
            }
        }
    }
    outcome
}

async fn record_assigned<K: UserConfigKind>(
    ctx: &Context,
    object: &K,
    assigned: &Assigned,
    objects: &Store<K>,
) -> Result<(), Error> {
    let mut metadata = serde_json::Map::new();
    if let Some(suffix) = &assigned.suffix {
        metadata.insert(
            "annotations".to_owned(),
            json!({annotations::MC_NAME_SUFFIX: suffix}),
        );
    }
    if let Some(finalizers) = &assigned.finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        metadata.insert(
            "resourceVersion".to_owned(),
            json!(object.meta().resource_version),
        );
    }
    if !metadata.is_empty() {
        patch(ctx, objects, object, &json!({ "metadata": metadata })).await?;
    }
    Ok(())
}

/// Removes our finalizers from objects that are being deleted, and writes the status of the others. An object whose
/// configs could not be written reports that, and one whose configs could not be deleted stays.
pub(super) async fn report<K: UserConfigKind>(
    ctx: &Context,
    result: &GenerationResult,
    published: &PublishResult,
    objects: &Store<K>,
) -> Result<(), Error> {
    let mut reported = Ok(());
    for (_, name) in &result.deleted {
        if let Some(object) = objects.get(name) {
            reported = reported.and(remove_finalizers(ctx, object.as_ref(), published, objects).await);
        }
    }
    for report in &result.reports {
        let Some(object) = objects.get(&report.name) else {
            continue;
        };
        let configs = &report.assigned.configs;
        let mut names = configs.iter().filter_map(|(_, name)| name.as_ref().ok());
        let failed = names.find_map(|name| published.failed.get(name));
        let outcome = match (&report.outcome, failed) {
            // Another client wrote at the same time, which is no failure; the retry is soon.
            (GenerationOutcome::Success, Some(problem)) if problem.class() == ErrorClass::Conflict => {
                continue;
            }
            (GenerationOutcome::Success, Some(problem)) => &GenerationOutcome::error(problem.to_string()),
            (outcome, _) => outcome,
        };
        reported = reported.and(report_one(ctx, object.as_ref(), outcome, objects).await);
    }
    reported
}

async fn remove_finalizers<K: UserConfigKind>(
    ctx: &Context,
    object: &K,
    published: &PublishResult,
    objects: &Store<K>,
) -> Result<(), Error> {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    let kept: Vec<&String> = finalizers
        .iter()
        .filter(|name| generator_of_name(name) != Some(K::GENERATOR) || published.failed.contains_key(*name))
        .collect();
    if kept.len() == finalizers.len() {
        return Ok(());
    }
    let metadata = json!({"finalizers": kept, "resourceVersion": object.meta().resource_version});
    patch(ctx, objects, object, &json!({ "metadata": metadata })).await?;
    info!(object = %described::<K>(object.meta()), "removed the finalizers of a deleted object");
    Ok(())
}

async fn report_one<K: UserConfigKind>(
    ctx: &Context,
    object: &K,
    outcome: &GenerationOutcome,
    objects: &Store<K>,
) -> Result<(), Error> {
    let (existing, observed) = object.conditions();
    let generation = object.meta().generation.unwrap_or_default();
    let conditions = K::conditions_after(existing, outcome, &ctx.time());
    let same = |a: &NodeConfigCondition, b: &NodeConfigCondition| {
        (&a.type_, &a.status, &a.message) == (&b.type_, &b.status, &b.message)
    };
    let unchanged = observed == generation
        && conditions.len() == existing.len()
        && conditions.iter().zip(existing).all(|(a, b)| same(a, b));
    if unchanged {
        return Ok(());
    }
    match outcome {
        GenerationOutcome::Success => info!(object = %described::<K>(object.meta()), "in force"),
        GenerationOutcome::Failure { message } => warn!(object = %described::<K>(object.meta()), "{message}"),
    }
    let name = object_name(object.meta());
    let status = json!({"status": {"observedGeneration": generation, "conditions": conditions}});
    let written = objects.patch_status(&ctx.api(), name, K::MANAGER, &status).await;
    let attempt = format!("writing the status of {}", described::<K>(object.meta()));
    written.map_err(Error::api(attempt))?;
    Ok(())
}

async fn patch<K: UserConfigKind>(
    ctx: &Context,
    objects: &Store<K>,
    object: &K,
    patch: &Value,
) -> Result<(), Error> {
    let name = object_name(object.meta());
    let written = objects.patch(&ctx.api(), name, K::MANAGER, patch).await;
    let attempt = format!("updating the metadata of {}", described::<K>(object.meta()));
    written.map_err(Error::api(attempt))?;
    Ok(())
}

fn described<K: UserConfigKind>(metadata: &ObjectMeta) -> String {
    format!("{} {:?}", K::kind(&()), object_name(metadata))
}
