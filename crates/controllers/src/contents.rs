//! The MachineConfigs that pools are rendered from, whole. Of all MachineConfigs only the metadata is watched, because
//! rendered ones are large and many; those that are sources are fetched by name when they change.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use kube::api::PartialObjectMeta;
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::config::rendered_configs;
use parking_lot::RwLock;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::queue::Again;

#[derive(Debug, Default)]
pub(crate) struct Contents {
    known: RwLock<HashMap<String, Content>>,
}

/// The resource version of the metadata for which something was fetched, and of the object itself, which may be later.
pub(crate) type Versions = [Option<String>; 2];

/// One MachineConfig as it was fetched, parsed.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    versions: Versions,
    /// Or why it cannot be read.
    pub config: Result<Arc<SourceConfig>, String>,
}

impl Content {
    /// Whether it is the state that the metadata describes.
    pub fn is_of(&self, version: Option<&String>) -> bool {
        self.versions.iter().any(|known| known.as_ref() == version)
    }

    pub fn versions(&self) -> &Versions {
        &self.versions
    }
}

impl Contents {
    pub fn get(&self, name: &str) -> Option<Content> {
        self.known.read().get(name).cloned()
    }
}

/// Fetches one MachineConfig that changed, and wakes whoever depends on it.
pub(crate) async fn fetch(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let metadata = cluster.config_metadata.get(&name);
    let Some(metadata) = metadata.filter(|metadata| rendered_configs::pool_of(&metadata.metadata).is_none())
    else {
        if let Some(old) = cluster.contents.known.write().remove(&name) {
            wake(&cluster, &name, Some(&old), None);
        }
        return Ok(Again::OnChange);
    };
    let configs: Api<MachineConfig> = Api::all(cluster.client.clone());
    let config = match configs.get_opt(&name).await {
        Ok(Some(mut config)) => {
            config.metadata.managed_fields = None;
            parse(config).await
        }
        // Its metadata will say so.
        Ok(None) => return Ok(Again::OnChange),
        Err(kube::Error::SerdeError(problem)) => {
            Err(format!("MachineConfig {name:?} cannot be read: {problem}"))
        }
        Err(problem) => return Err(Error::api(format!("fetching MachineConfig {name}"))(problem)),
    };
    let own = config
        .as_ref()
        .ok()
        .and_then(|config| config.object.metadata.resource_version.clone());
    let content = Content {
        versions: [metadata.metadata.resource_version.clone(), own],
        config,
    };
    let old = cluster
        .contents
        .known
        .write()
        .insert(name.clone(), content.clone());
    wake(&cluster, &name, old.as_ref(), Some(&content));
    Ok(Again::OnChange)
}

/// A large config takes a while to parse.
async fn parse(config: MachineConfig) -> Result<Arc<SourceConfig>, String> {
    let name = config.metadata.name.clone().unwrap_or_default();
    tokio::task::spawn_blocking(|| Arc::new(SourceConfig::new(config)))
        .await
        .map_err(|ended| format!("MachineConfig {name:?} cannot be parsed: {ended}"))
}

/// Takes in the answer to a write of ours, so that nobody takes what it replaced for the present state.
pub(crate) fn learn(cluster: &Cluster, mut written: MachineConfig) {
    let Some(name) = written.metadata.name.clone() else {
        return;
    };
    written.metadata.managed_fields = None;
    let metadata: PartialObjectMeta<MachineConfig> = PartialObjectMeta {
        metadata: written.metadata.clone(),
        ..PartialObjectMeta::default()
    };
    let version = written.metadata.resource_version.clone();
    let content = Content {
        versions: [version.clone(), version],
        config: Ok(Arc::new(SourceConfig::new(written))),
    };
    cluster.contents.known.write().insert(name.clone(), content);
    cluster.config_metadata.learn(metadata);
    // Somebody may have been faster, and this took the place of a later state.
    cluster.queues.contents.wake(name);
}

fn wake(cluster: &Cluster, name: &str, old: Option<&Content>, new: Option<&Content>) {
    cluster.queues.keeper.wake(name);
    if cluster.owned.get(name).is_some() {
        return;
    }
    let config =
        |content: Option<&Content>| content.and_then(|content| content.config.as_ref().ok().cloned());
    let (old_config, new_config) = (config(old), config(new));
    let same = |old: &MachineConfig, new: &MachineConfig| {
        old.spec == new.spec && old.metadata.labels == new.metadata.labels && maker(old) == maker(new)
    };
    match (&old_config, &new_config) {
        (Some(old), Some(new)) if same(&old.object, &new.object) => {}
        (None, _) | (_, None) => cluster.wake_all_renders(),
        (Some(old), Some(new)) => {
            cluster.wake_renders_selecting(old.object.metadata.labels.as_ref());
            cluster.wake_renders_selecting(new.object.metadata.labels.as_ref());
        }
    }
}

/// Who made a config, by which renders tell whether it is ours and of our version.
fn maker(config: &MachineConfig) -> Option<&String> {
    let all = config.metadata.annotations.as_ref()?;
    all.get(annotations::GENERATED_BY_CONTROLLER_VERSION)
}
