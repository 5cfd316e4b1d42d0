//! Remote contents of source MachineConfigs: fetched once, verified, and stored as ConfigMaps, from which a restarted
//! controller reads them. Contents that cannot be fetched delay the pools that need them, and no other.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use mco_api::vocabulary::names;
use mco_core::config::remote::{ContentKey, ContentState, LARGEST_REMOTE, RemoteContents, RemoteReference};
use mco_core::config::remote_store;
use mco_http::fetch::{self, FetchSettings, ProxySettings};
use mco_runtime::{FieldManager, Requeue, is_already_exists, run_blocking};
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::outbound;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-render");
/// For one document with all redirects.
const TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_mins(10);
/// URLs of the same contents that are tried in one attempt.
const MAX_URLS: usize = 4;

/// The remote contents that source MachineConfigs refer to.
#[derive(Debug, Default)]
pub(crate) struct ContentCache {
    entries: Mutex<HashMap<ContentKey, ContentEntry>>,
}

#[derive(Debug, Default)]
struct ContentEntry {
    /// The references, by source MachineConfig.
    references: BTreeMap<String, RemoteReference>,
    state: Option<ContentState>,
    failures: u32,
}

impl ContentCache {
    /// Returns what is known about all contents.
    pub fn known(&self) -> RemoteContents {
        let mut known = RemoteContents::default();
        for (key, entry) in self.entries.lock().iter() {
            if let Some(state) = &entry.state {
                known.set(key.clone(), state.clone());
            }
        }
        known
    }

    /// Records what a source refers to. Returns the contents to fetch, and those that no source refers to any more.
    fn set_references(
        &self,
        source: &str,
        references: &[RemoteReference],
    ) -> (Vec<ContentKey>, Vec<ContentKey>) {
        let mut entries = self.entries.lock();
        for entry in entries.values_mut() {
            entry.references.remove(source);
        }
        let mut new = Vec::new();
        for reference in references {
            let Some(key) = &reference.key else {
                continue;
            };
            let entry = entries.entry(key.clone()).or_insert_with(|| {
                new.push(key.clone());
                ContentEntry::default()
            });
            entry.references.insert(source.to_owned(), reference.clone());
        }
        let unused: Vec<ContentKey> = entries
            .iter()
            .filter(|(_, entry)| entry.references.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in &unused {
            entries.remove(key);
        }
        (new, unused)
    }

    /// Returns the references to contents that are still to be fetched, one for each URL.
    fn to_fetch(&self, key: &ContentKey) -> Vec<RemoteReference> {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(key) else {
            return Vec::new();
        };
        if matches!(entry.state, Some(ContentState::Available(_))) {
            return Vec::new();
        }
        let mut references: Vec<RemoteReference> = Vec::new();
        for reference in entry.references.values() {
            if references.iter().all(|known| known.url != reference.url) {
                references.push(reference.clone());
            }
        }
        references
    }

    /// Records the outcome of an attempt. Returns the sources that refer to the contents, and the number of failures.
    fn record(&self, key: &ContentKey, state: ContentState) -> (Vec<String>, u32) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return (Vec::new(), 0);
        };
        if matches!(state, ContentState::Failed(_)) {
            entry.failures = entry.failures.saturating_add(1);
        }
        entry.state = Some(state);
        (entry.references.keys().cloned().collect(), entry.failures)
    }
}

/// Records the references of a source, fetches new ones, and deletes what no source refers to any more.
pub(crate) async fn observe(ctx: &Context, source: &str, references: &[RemoteReference]) {
    let (new, unused) = ctx.contents.set_references(source, references);
    for key in new {
        ctx.queues.contents.enqueue(key);
    }
    for key in unused {
        let name = remote_store::name(&key);
        if let Err(error) = config_maps(ctx).delete(&name, &DeleteParams::default()).await {
            debug!(config_map = name, "unused contents are not deleted: {error}");
        }
    }
}

/// Fetches contents and enqueues the sources that refer to them.
pub(crate) async fn reconcile(ctx: Arc<Context>, key: ContentKey) -> Result<Requeue, Error> {
    let references = ctx.contents.to_fetch(&key);
    if references.is_empty() {
        return Ok(Requeue::OnChange);
    }
    let found = match stored(&ctx, &key).await {
        Some(contents) => Ok(contents),
        None => fetched(&ctx, &key, &references).await,
    };
    let (state, failed) = match found {
        Ok(contents) => (ContentState::Available(contents), false),
        Err(why) => (ContentState::Failed(why), true),
    };
    let (sources, failures) = ctx.contents.record(&key, state);
    for source in sources {
        ctx.queues.sources.enqueue(source);
    }
    Ok(if failed {
        Requeue::After(backoff(failures, RandomState::new().build_hasher().finish()))
    } else {
        Requeue::OnChange
    })
}

fn config_maps(ctx: &Context) -> Api<ConfigMap> {
    Api::namespaced(ctx.client.clone(), names::NAMESPACE)
}

/// Returns contents that were fetched before.
async fn stored(ctx: &Context, key: &ContentKey) -> Option<Arc<Vec<u8>>> {
    let found = config_maps(ctx).get_opt(&remote_store::name(key)).await;
    let found = found.unwrap_or_else(|error| {
        debug!("stored contents cannot be read: {error}");
        None
    })?;
    let (found, contents) = remote_store::read(&found)?;
    (found == *key).then_some(contents)
}

async fn fetched(
    ctx: &Context,
    key: &ContentKey,
    references: &[RemoteReference],
) -> Result<Arc<Vec<u8>>, String> {
    let settings = settings(ctx);
    let mut last = String::new();
    for reference in references.iter().take(MAX_URLS) {
        match attempt(&settings, key, reference).await {
            Ok(contents) => {
                info!(
                    url = reference.shown_url(),
                    bytes = contents.len(),
                    "fetched remote contents"
                );
                store(ctx, key, &contents).await;
                return Ok(contents);
            }
            Err(why) => {
                warn!(url = reference.shown_url(), "cannot fetch remote contents: {why}");
                last = why;
            }
        }
    }
    Err(last)
}

async fn attempt(
    settings: &FetchSettings,
    key: &ContentKey,
    reference: &RemoteReference,
) -> Result<Arc<Vec<u8>>, String> {
    let contents = fetch::fetch(settings, &reference.url, &reference.headers.0)
        .await
        .map_err(|error| error.to_string())?;
    let key = key.clone();
    // Compressed contents may be large.
    let verified = run_blocking("remote-contents", reference.shown_url(), move || {
        let contents = Arc::new(contents.to_vec());
        let verified = key.verify(&contents).map_err(|error| error.to_string());
        verified.map(|()| contents)
    });
    verified.await.map_err(|failed| failed.to_string())?
}

/// Stores contents for a restarted controller. Without the ConfigMap it fetches them again.
async fn store(ctx: &Context, key: &ContentKey, contents: &[u8]) {
    let stored = remote_store::stored(key, contents);
    let name = remote_store::name(key);
    match config_maps(ctx).create(&MANAGER.post_params(), &stored).await {
        Ok(_) => {}
        // Only contents without their hash are fetched again, and only a deletion repairs them.
        Err(error) if is_already_exists(&error) => {
            warn!(config_map = name, "this ConfigMap was edited; delete it");
        }
        Err(error) => warn!(config_map = name, "fetched contents are not stored: {error}"),
    }
}

fn settings(ctx: &Context) -> FetchSettings {
    let config = ctx.controller_config();
    let proxy = config.as_ref().and_then(|config| config.spec.proxy.as_ref());
    let proxy = proxy.filter(|proxy| !proxy.https_proxy.is_empty());
    FetchSettings {
        certificates: outbound::certificate_authorities(ctx, outbound::Trust::Any),
        proxy: proxy.map_or_else(ProxySettings::from_environment, |proxy| ProxySettings {
            https_proxy: proxy.https_proxy.clone(),
            no_proxy: proxy.no_proxy.clone(),
        }),
        allowed_networks: ctx.options.contents_networks.clone(),
        limit: LARGEST_REMOTE,
        timeout: TIMEOUT,
    }
}

/// Returns the delay before the next attempt: doubled with every failure, and spread by a quarter in both directions.
fn backoff(failures: u32, random: u64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let delay = doubled.min(MAX_RETRY);
    let percent = 75 + u32::try_from(random % 51).unwrap_or_default();
    delay * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(hash: &str, url: &str) -> RemoteReference {
        let key = ContentKey {
            hash: hash.to_owned(),
            compression: String::new(),
        };
        RemoteReference {
            field: "spec.config.storage.files[0].contents".to_owned(),
            subject: None,
            url: url.to_owned(),
            compression: String::new(),
            key: Some(key),
            headers: mco_core::config::remote::RequestHeaders::default(),
        }
    }

    #[test]
    fn contents_are_fetched_once_and_forgotten_when_no_source_refers_to_them() {
        let cache = ContentCache::default();
        let one = reference("sha256-1", "https://a.example/1");
        let same = reference("sha256-1", "https://b.example/1");
        let key = one.key.clone().unwrap();
        let first = std::slice::from_ref(&one);
        assert_eq!(cache.set_references("a", first).0, std::slice::from_ref(&key));
        assert_eq!(cache.set_references("a", &[one]).0, [], "it is being fetched");
        assert_eq!(cache.set_references("b", &[same]).0, [], "by another source");
        let urls: Vec<String> = cache.to_fetch(&key).into_iter().map(|one| one.url).collect();
        assert_eq!(urls, ["https://a.example/1", "https://b.example/1"]);
        let (sources, failures) = cache.record(&key, ContentState::Failed("refused".to_owned()));
        assert_eq!((sources.len(), failures), (2, 1));
        cache.record(&key, ContentState::Available(Arc::default()));
        assert!(cache.to_fetch(&key).is_empty());
        assert_eq!(cache.set_references("a", &[]).1, []);
        assert_eq!(cache.set_references("b", &[]).1, [key]);
    }

    #[test]
    fn attempts_become_rarer_and_are_spread() {
        let seconds = |failures, random| backoff(failures, random).as_millis();
        assert_eq!(seconds(1, 25), 5000);
        assert_eq!(seconds(1, 0), 3750);
        assert_eq!(seconds(1, 50), 6250);
        assert_eq!(seconds(3, 25), 20_000);
        assert_eq!(seconds(u32::MAX, 25), 600_000);
    }
}
