//! The template controller: renders the base configs of every role from the ControllerConfig. The other generators
//! build on them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use mco_api::ControllerConfig;
use mco_api::controller_config::ControllerConfigStatus;
use mco_api::vocabulary::names;
use mco_core::config::skew;
use mco_core::generators::generated::Generator;
use mco_core::generators::templates;
use mco_core::generators::templates::status::{self, TemplateOutcome};
use mco_core::pipeline::{BaseConfigs, BaseSettings, ClusterObjects, GeneratedConfig};
use mco_runtime::{
    ErrorClass, FieldManager, ReconcileError as _, Requeue, is_not_found, object_name, run_blocking,
};
use serde_json::json;
use tracing::{error, info};

use crate::certificates;
use crate::context::Context;
use crate::error::Error;
use crate::generated_configs;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-templates");
const PULL_SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";
const PULL_SECRET_KEY: &str = ".dockerconfigjson";

/// Renders the base configs and writes them.
pub(crate) async fn reconcile(ctx: Arc<Context>) -> Result<Requeue, Error> {
    let Some(config) = ctx.controller_config() else {
        info!("waiting for the ControllerConfig, which the operator writes");
        return Ok(Requeue::OnChange);
    };
    if let Err(other_version) = skew::check_controller_config(&config, ctx.options.versions()) {
        info!("waiting: {other_version}");
        set_problem(&ctx, Some(other_version.to_string()));
        return Ok(Requeue::OnChange);
    }
    let (config, begun) = match begin(&ctx, &config).await {
        Ok(written) => (written.unwrap_or(config), Ok(())),
        // Rendering does not depend on the status.
        Err(problem) => (config, Err(problem)),
    };
    let attempt = match render(&ctx, &config).await {
        Ok(base) => publish(&ctx, base).await.map_err(TemplateFailure::Writing),
        Err(failure) => Err(failure),
    };
    let why = match &attempt {
        Ok(()) => None,
        Err(TemplateFailure::Inputs(why)) => {
            error!("cannot render the base configs: {why}");
            Some(why.clone())
        }
        Err(TemplateFailure::Context(_)) => Some("the API server does not answer".to_owned()),
        // Another client wrote at the same time, which is no failure; the retry is soon.
        Err(TemplateFailure::Writing(problem)) if problem.class() == ErrorClass::Conflict => {
            return after(attempt);
        }
        Err(TemplateFailure::Writing(problem)) => Some(problem.to_string()),
    };
    let problem = match &attempt {
        Ok(()) | Err(TemplateFailure::Writing(_)) => None,
        Err(TemplateFailure::Inputs(_) | TemplateFailure::Context(_)) => why.clone(),
    };
    set_problem(&ctx, problem);
    let outcome = why
        .as_deref()
        .map_or(TemplateOutcome::Completed, TemplateOutcome::Failed);
    let reported = report(&ctx, &config, outcome).await;
    let again = after(attempt)?;
    begun.and(reported).map(|()| again)
}

/// Records why there are no base configs and enqueues the renders that wait for them: they report the problem.
fn set_problem(ctx: &Context, problem: Option<String>) {
    {
        let mut recorded = ctx.base_problem.write();
        if *recorded == problem {
            return;
        }
        *recorded = problem;
    }
    ctx.enqueue_all_renders();
}

enum TemplateFailure {
    /// The inputs are invalid.
    Inputs(String),
    Context(Error),
    Writing(Error),
}

/// Invalid inputs are not retried before they change.
fn after(attempt: Result<(), TemplateFailure>) -> Result<Requeue, Error> {
    match attempt {
        Ok(()) | Err(TemplateFailure::Inputs(_)) => Ok(Requeue::OnChange),
        Err(TemplateFailure::Context(problem) | TemplateFailure::Writing(problem)) => Err(problem),
    }
}

/// Publishes the base configs and enqueues the other generators. They do not wait for a config that cannot be written,
/// because renders do not read it from the API server. A retry with the same configs enqueues nothing.
async fn publish(ctx: &Context, rendered: BaseConfigs) -> Result<(), Error> {
    let unchanged = ctx.base().filter(|published| published.is_like(&rendered));
    let is_new = unchanged.is_none();
    let base = unchanged.unwrap_or_else(|| Arc::new(rendered));
    let generated: Vec<GeneratedConfig> = base
        .templates
        .iter()
        .map(|config| config.generated.clone().into())
        .collect();
    let configs = generated_configs::parse(ctx, &generated);
    let written = generated_configs::publish(ctx, Generator::Templates, configs, &base)
        .await
        .outcome();
    if is_new {
        *ctx.base.write() = Some(base);
        ctx.enqueue_generators();
        ctx.queues.os_streams.enqueue(());
    }
    written
}

/// Renders on another thread, because templates take longer than a request may wait.
async fn render(ctx: &Arc<Context>, config: &Arc<ControllerConfig>) -> Result<BaseConfigs, TemplateFailure> {
    let pull_secret = pull_secret(ctx, config).await?;
    let singleton = names::SINGLETON;
    let objects = ClusterObjects {
        feature_gate: ctx.stores.feature_gates.get(singleton).map(Arc::unwrap_or_clone),
        api_server: ctx.stores.api_servers.get(singleton).map(Arc::unwrap_or_clone),
        ..ClusterObjects::default()
    };
    let (ctx, config) = (Arc::clone(ctx), Arc::clone(config));
    let rendered = run_blocking("templates", "the base configs", move || {
        let settings = BaseSettings {
            templates: &ctx.options.templates,
            pull_secret: &pull_secret,
            version: &ctx.options.source_version,
            payload_version: ctx.options.release_version.as_deref(),
        };
        BaseConfigs::render(&objects, &config, &settings)
    });
    match rendered.await {
        Ok(rendered) => rendered.map_err(|problem| TemplateFailure::Inputs(problem.to_string())),
        Err(failed) => Err(TemplateFailure::Context(Error::Invalid(failed.to_string()))),
    }
}

/// Returns the registry credentials as compact JSON; empty when the cluster has none. They appear in no message.
async fn pull_secret(ctx: &Context, config: &ControllerConfig) -> Result<String, TemplateFailure> {
    let Some(reference) = &config.spec.pull_secret else {
        return Ok(String::new());
    };
    let namespace = reference.namespace.as_deref().unwrap_or(names::CONFIG_NAMESPACE);
    let name = reference.name.as_deref().unwrap_or(names::secret::PULL_SECRET);
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    let secret = match secrets.get(name).await {
        Ok(secret) => secret,
        Err(problem) if is_not_found(&problem) => {
            return Err(TemplateFailure::Inputs(format!(
                "secret {namespace}/{name} does not exist"
            )));
        }
        Err(problem) => {
            let attempt = format!("reading secret {namespace}/{name}");
            return Err(TemplateFailure::Context(Error::api(attempt)(problem)));
        }
    };
    let found = secret.type_.as_deref().unwrap_or_default();
    if found != PULL_SECRET_TYPE {
        return Err(TemplateFailure::Inputs(format!(
            "secret {namespace}/{name}: expected secret type {PULL_SECRET_TYPE} found {found}"
        )));
    }
    secret
        .data
        .as_ref()
        .and_then(|data| templates::compact_json(&data.get(PULL_SECRET_KEY)?.0))
        .ok_or_else(|| {
            TemplateFailure::Inputs(format!(
                "secret {namespace}/{name}: {PULL_SECRET_KEY} is not valid JSON"
            ))
        })
}

/// Reports in the status that rendering has begun. Returns the ControllerConfig as written; `None` if nothing had to be
/// written.
async fn begin(ctx: &Context, config: &ControllerConfig) -> Result<Option<Arc<ControllerConfig>>, Error> {
    let before = config.status.clone().unwrap_or_default();
    let generation = config.metadata.generation.unwrap_or_default();
    let version = &ctx.options.source_version;
    match status::begin(&before, generation, version, &ctx.time()) {
        Some(begun) => write(ctx, config, &begun).await,
        None => Ok(None),
    }
}

async fn report(ctx: &Context, config: &ControllerConfig, outcome: TemplateOutcome<'_>) -> Result<(), Error> {
    let before = config.status.clone().unwrap_or_default();
    let after = status::report(
        &before,
        outcome,
        config.metadata.generation.unwrap_or_default(),
        &ctx.options.source_version,
        certificates::of(&config.spec),
        &ctx.time(),
    );
    if after != before {
        write(ctx, config, &after).await?;
    }
    Ok(())
}

async fn write(
    ctx: &Context,
    config: &ControllerConfig,
    status: &ControllerConfigStatus,
) -> Result<Option<Arc<ControllerConfig>>, Error> {
    let name = object_name(&config.metadata);
    let store = &ctx.stores.controller_configs;
    let patch = json!({ "status": status });
    let written = store.patch_status(&ctx.api(), name, MANAGER, &patch).await;
    written.map_err(Error::api(format!(
        "writing the status of ControllerConfig {name}"
    )))
}
