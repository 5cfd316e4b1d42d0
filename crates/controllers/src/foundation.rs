//! The base configuration of every role, made from the ControllerConfig. Everything else that is generated is laid over
//! it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::ControllerConfigStatus;
use mco_api::vocabulary::names;
use mco_core::config::skew;
use mco_core::generators::generated::Generator;
use mco_core::generators::templates;
use mco_core::generators::templates::status::{self, Outcome};
use mco_core::pipeline::{BaseSettings, ClusterObjects, GeneratedConfig};
use serde_json::json;
use tracing::{error, info};

use crate::certificates;
use crate::cluster::{Cluster, WHOLE};
use crate::error::{Class, Error, is_not_found};
use crate::owned;
use crate::queue::Again;

const PULL_SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";
const PULL_SECRET_KEY: &str = ".dockerconfigjson";

/// The base that the other generators build on.
pub(crate) type Foundation = mco_core::pipeline::Base;

/// Makes the base configuration again.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let Some(config) = cluster.controller_config() else {
        info!("waiting for the ControllerConfig, which the operator writes");
        return Ok(Again::OnChange);
    };
    if let Err(other_version) = skew::check_controller_config(&config, cluster.options.versions()) {
        info!("waiting: {other_version}");
        learn_problem(&cluster, Some(other_version.to_string()));
        return Ok(Again::OnChange);
    }
    let (config, begun) = match begin(&cluster, &config).await {
        Ok(told) => (told.unwrap_or(config), Ok(())),
        // Nobody waits for what is only told.
        Err(problem) => (config, Err(problem)),
    };
    let attempt = match make(&cluster, &config).await {
        Ok(foundation) => lay(&cluster, foundation).await.map_err(Failure::Writing),
        Err(failure) => Err(failure),
    };
    let why = match &attempt {
        Ok(()) => None,
        Err(Failure::Inputs(why)) => {
            error!("the base configuration cannot be made: {why}");
            Some(why.clone())
        }
        Err(Failure::Cluster(_)) => Some("the API server does not answer".to_owned()),
        // Somebody was faster, which is no failure; the next look is soon.
        Err(Failure::Writing(problem)) if problem.class() == Class::Conflict => return after(attempt),
        Err(Failure::Writing(problem)) => Some(problem.to_string()),
    };
    let problem = match &attempt {
        Ok(()) | Err(Failure::Writing(_)) => None,
        Err(Failure::Inputs(_) | Failure::Cluster(_)) => why.clone(),
    };
    learn_problem(&cluster, problem);
    let outcome = why.as_deref().map_or(Outcome::Completed, Outcome::Failed);
    let reported = report(&cluster, &config, outcome).await;
    let again = after(attempt)?;
    begun.and(reported).map(|()| again)
}

/// Renders that wait for the base configuration need not wait for one that does not come, and go on when it may.
fn learn_problem(cluster: &Cluster, problem: Option<String>) {
    {
        let mut known = cluster.base_problem.write();
        if *known == problem {
            return;
        }
        *known = problem;
    }
    cluster.wake_all_renders();
}

enum Failure {
    /// Somebody has to change something.
    Inputs(String),
    Cluster(Error),
    Writing(Error),
}

/// What only somebody's change can repair is not tried again without one.
fn after(attempt: Result<(), Failure>) -> Result<Again, Error> {
    match attempt {
        Ok(()) | Err(Failure::Inputs(_)) => Ok(Again::OnChange),
        Err(Failure::Cluster(problem) | Failure::Writing(problem)) => Err(problem),
    }
}

/// Writes the base configuration and lets the other generators build on it. They need not wait for what cannot be
/// written: renders take it from us. Whoever tries to write the same again wakes nobody.
async fn lay(cluster: &Cluster, made: Foundation) -> Result<(), Error> {
    let known = cluster.foundation().filter(|known| known.is_like(&made));
    let is_new = known.is_none();
    let foundation = known.unwrap_or_else(|| Arc::new(made));
    let generated: Vec<GeneratedConfig> = foundation
        .templates
        .iter()
        .map(|config| config.generated.clone().into())
        .collect();
    let share = owned::share(cluster, &generated);
    let written = owned::publish(cluster, Generator::Templates, share, &foundation)
        .await
        .outcome();
    if is_new {
        *cluster.foundation.write() = Some(foundation);
        for queue in cluster.queues.generators() {
            queue.wake(WHOLE);
        }
        cluster.queues.os_streams.wake(WHOLE);
    }
    written
}

async fn make(cluster: &Cluster, config: &Arc<ControllerConfig>) -> Result<Foundation, Failure> {
    let pull_secret = pull_secret(cluster, config).await?;
    let singleton = names::SINGLETON;
    let objects = ClusterObjects {
        feature_gate: cluster.feature_gates.get(singleton).map(Arc::unwrap_or_clone),
        api_server: cluster.api_servers.get(singleton).map(Arc::unwrap_or_clone),
        ..ClusterObjects::default()
    };
    let settings = BaseSettings {
        templates: &cluster.options.templates,
        pull_secret: &pull_secret,
        version: &cluster.options.source_version,
        payload_version: cluster.options.release_version.as_deref(),
    };
    Foundation::render(&objects, config, &settings).map_err(|problem| Failure::Inputs(problem.to_string()))
}

/// The registry credentials as compact JSON; empty when the cluster has none. No text repeats them.
async fn pull_secret(cluster: &Cluster, config: &ControllerConfig) -> Result<String, Failure> {
    let Some(reference) = &config.spec.pull_secret else {
        return Ok(String::new());
    };
    let namespace = reference.namespace.as_deref().unwrap_or(names::CONFIG_NAMESPACE);
    let name = reference.name.as_deref().unwrap_or(names::secret::PULL_SECRET);
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    let secret = match secrets.get(name).await {
        Ok(secret) => secret,
        Err(problem) if is_not_found(&problem) => {
            return Err(Failure::Inputs(format!(
                "secret {namespace}/{name} does not exist"
            )));
        }
        Err(problem) => {
            let attempt = format!("reading secret {namespace}/{name}");
            return Err(Failure::Cluster(Error::api(attempt)(problem)));
        }
    };
    let found = secret.type_.as_deref().unwrap_or_default();
    if found != PULL_SECRET_TYPE {
        return Err(Failure::Inputs(format!(
            "secret {namespace}/{name}: expected secret type {PULL_SECRET_TYPE} found {found}"
        )));
    }
    secret
        .data
        .as_ref()
        .and_then(|data| templates::compact_json(&data.get(PULL_SECRET_KEY)?.0))
        .ok_or_else(|| {
            Failure::Inputs(format!(
                "secret {namespace}/{name}: {PULL_SECRET_KEY} is not valid JSON"
            ))
        })
}

/// Says that something new is being made, and returns the ControllerConfig that says so; none if it says so already.
async fn begin(cluster: &Cluster, config: &ControllerConfig) -> Result<Option<Arc<ControllerConfig>>, Error> {
    let before = config.status.clone().unwrap_or_default();
    let generation = config.metadata.generation.unwrap_or_default();
    let version = &cluster.options.source_version;
    match status::begin(&before, generation, version, &cluster.time()) {
        Some(begun) => Ok(Some(Arc::new(write(cluster, config, &begun).await?))),
        None => Ok(None),
    }
}

async fn report(cluster: &Cluster, config: &ControllerConfig, outcome: Outcome<'_>) -> Result<(), Error> {
    let before = config.status.clone().unwrap_or_default();
    let after = status::report(
        &before,
        outcome,
        config.metadata.generation.unwrap_or_default(),
        &cluster.options.source_version,
        certificates::of(&config.spec),
        &cluster.time(),
    );
    if after != before {
        write(cluster, config, &after).await?;
    }
    Ok(())
}

async fn write(
    cluster: &Cluster,
    config: &ControllerConfig,
    status: &ControllerConfigStatus,
) -> Result<ControllerConfig, Error> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({ "status": status }));
    let written = cluster
        .api::<ControllerConfig>()
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map_err(Error::api(format!(
            "writing the status of ControllerConfig {name}"
        )))?;
    cluster.controller_configs.learn(written.clone());
    Ok(written)
}
