//! The source MachineConfigs, parsed. Of all MachineConfigs only the metadata is watched, because rendered ones are
//! large and many; sources are fetched by name when their metadata changes.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use kube::api::PartialObjectMeta;
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::names::{NAMESPACE, config_map};
use mco_core::config::node_files::SecretVersions;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::config::remote::RemoteContents;
use mco_core::config::rendered_configs;
use mco_runtime::{Requeue, run_blocking};
use parking_lot::RwLock;

use crate::contents;
use crate::context::Context;
use crate::error::Error;

#[derive(Debug, Default)]
pub(crate) struct SourceCache {
    sources: RwLock<HashMap<String, CachedSource>>,
}

/// The resource version of the metadata that caused the fetch, and of the fetched object, which may be newer.
pub(crate) type SourceVersions = [Option<String>; 2];

/// One fetched MachineConfig.
#[derive(Debug, Clone)]
pub(crate) struct CachedSource {
    versions: SourceVersions,
    /// The parsed config, or why it is malformed.
    pub config: Result<Arc<SourceConfig>, String>,
}

impl CachedSource {
    /// Returns true if this is the version that the metadata has.
    pub fn is_current(&self, version: Option<&String>) -> bool {
        self.versions.iter().any(|cached| cached.as_ref() == version)
    }

    pub fn versions(&self) -> &SourceVersions {
        &self.versions
    }
}

impl SourceCache {
    pub fn get(&self, name: &str) -> Option<CachedSource> {
        self.sources.read().get(name).cloned()
    }
}

/// Fetches one changed MachineConfig and enqueues what depends on it.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let metadata = ctx.stores.config_metadata.get(&name);
    let Some(metadata) = metadata.filter(|metadata| rendered_configs::pool_of(&metadata.metadata).is_none())
    else {
        let old = ctx.sources.sources.write().remove(&name);
        if let Some(old) = old {
            contents::observe(&ctx, &name, &[]).await;
            enqueue_dependents(&ctx, &name, Some(&old), None);
        }
        return Ok(Requeue::OnChange);
    };
    let configs: Api<MachineConfig> = Api::all(ctx.client.clone());
    let config = match configs.get_opt(&name).await {
        Ok(Some(mut config)) => {
            config.metadata.managed_fields = None;
            parse(config, contents_of(&ctx)).await
        }
        // The watch of metadata reports the deletion.
        Ok(None) => return Ok(Requeue::OnChange),
        Err(kube::Error::SerdeError(problem)) => {
            Err(format!("MachineConfig {name:?} cannot be read: {problem}"))
        }
        Err(problem) => return Err(Error::api(format!("fetching MachineConfig {name}"))(problem)),
    };
    let references = config.as_ref().map(|config| config.remote.as_slice());
    contents::observe(&ctx, &name, references.unwrap_or_default()).await;
    let own = config
        .as_ref()
        .ok()
        .and_then(|config| config.object.metadata.resource_version.clone());
    let source = CachedSource {
        versions: [metadata.metadata.resource_version.clone(), own],
        config,
    };
    let old = ctx.sources.sources.write().insert(name.clone(), source.clone());
    enqueue_dependents(&ctx, &name, old.as_ref(), Some(&source));
    Ok(Requeue::OnChange)
}

/// Returns what is known about remote contents and about the versions of Secrets.
fn contents_of(ctx: &Context) -> RemoteContents {
    let key = format!("{NAMESPACE}/{}", config_map::SECRET_VERSIONS);
    let published = ctx.stores.secret_versions.get(&key);
    let versions = published.as_deref().map(SecretVersions::of_config_map);
    ctx.contents.known().with_secrets(versions.unwrap_or_default())
}

/// Enqueues the sources whose files have values of Secrets.
pub(crate) fn enqueue_with_secrets(ctx: &Context) {
    for (name, source) in ctx.sources.sources.read().iter() {
        let config = source.config.as_ref().ok();
        if config.is_some_and(|config| annotation(&config.object, annotations::SECRET_FILES).is_some()) {
            ctx.queues.sources.enqueue(name.clone());
        }
    }
}

fn annotation<'c>(config: &'c MachineConfig, key: &str) -> Option<&'c String> {
    config.metadata.annotations.as_ref()?.get(key)
}

/// Parses on another thread, because a large config would block the others.
async fn parse(config: MachineConfig, contents: RemoteContents) -> Result<Arc<SourceConfig>, String> {
    let name = config.metadata.name.clone().unwrap_or_default();
    run_blocking("source-cache", format!("MachineConfig {name:?}"), move || {
        Arc::new(SourceConfig::with_contents(config, &contents))
    })
    .await
    .map_err(|failed| failed.to_string())
}

/// Applies the response of a write of this process, so that no reader takes the replaced version for the current one.
pub(crate) fn observe_write(ctx: &Context, mut written: MachineConfig) {
    let Some(name) = written.metadata.name.clone() else {
        return;
    };
    written.metadata.managed_fields = None;
    let metadata: PartialObjectMeta<MachineConfig> = PartialObjectMeta {
        metadata: written.metadata.clone(),
        ..PartialObjectMeta::default()
    };
    let version = written.metadata.resource_version.clone();
    let source = CachedSource {
        versions: [version.clone(), version],
        config: Ok(Arc::new(SourceConfig::new(written))),
    };
    ctx.sources.sources.write().insert(name.clone(), source);
    ctx.stores.config_metadata.observe_write(metadata);
    // Fetched again, because this may have replaced a newer version that another client wrote meanwhile.
    ctx.queues.sources.enqueue(name);
}

fn enqueue_dependents(ctx: &Context, name: &str, old: Option<&CachedSource>, new: Option<&CachedSource>) {
    ctx.queues.enforcement.enqueue(name);
    if ctx.generated.get(name).is_some() {
        return;
    }
    let config =
        |source: Option<&CachedSource>| source.and_then(|source| source.config.as_ref().ok().cloned());
    let (old_config, new_config) = (config(old), config(new));
    let same = |old: &MachineConfig, new: &MachineConfig| {
        old.spec == new.spec
            && old.metadata.labels == new.metadata.labels
            && [
                annotations::GENERATED_BY_CONTROLLER_VERSION,
                annotations::SECRET_FILES,
                annotations::NODE_VALUES,
            ]
            .iter()
            .all(|key| annotation(old, key) == annotation(new, key))
    };
    let is_complete = |config: &SourceConfig| {
        config.remote.is_empty() && annotation(&config.object, annotations::SECRET_FILES).is_none()
    };
    let same_contents = |old: &SourceConfig, new: &SourceConfig| {
        (is_complete(old) && is_complete(new))
            || (old.parsed == new.parsed && old.is_pending == new.is_pending)
    };
    match (&old_config, &new_config) {
        (Some(old), Some(new)) if same(&old.object, &new.object) && same_contents(old, new) => {}
        (None, _) | (_, None) => ctx.enqueue_all_renders(),
        (Some(old), Some(new)) => {
            ctx.enqueue_renders_selecting(old.object.metadata.labels.as_ref());
            ctx.enqueue_renders_selecting(new.object.metadata.labels.as_ref());
        }
    }
}
