//! Prepared documents: one immutable buffer per pool, Ignition version and encoding, shared by all connections.
//!
//! A document is composed at its first request, and again before a changed pool replaces the old one, so that a burst
//! of booting machines costs only writes to sockets. Requests hold a reference to the documents they started with;
//! replacing them never affects a transfer.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use mco_ignition::SpecVersion;
use mco_runtime::run_blocking;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tracing::{error, info, warn};

use crate::compose::{PoolSource, compose};
use crate::http::PANIC_COMPONENT;
use crate::negotiate::SERVED;

/// The content encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    Identity,
    Gzip,
}

const ENCODINGS: [BodyEncoding; 2] = [BodyEncoding::Identity, BodyEncoding::Gzip];

/// A body ready to be sent. Cloning it copies two pointers.
#[derive(Clone, Debug)]
pub struct PreparedBody {
    pub bytes: Bytes,
    /// A strong validator: equal tags mean equal bytes.
    pub etag: HeaderValue,
}

/// Why a pool has no document. The variants differ in the status code, and so in what a booting machine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// It may appear later: the machine retries.
    NotYet(String),
    /// It exists but cannot be used; an administrator has to repair it while the machine retries.
    Broken(String),
    /// This server does not serve it; another one will take over the address.
    Refused,
}

/// A body composed by its first request, or the error.
type PreparedCell = OnceCell<Result<PreparedBody, Arc<str>>>;

/// All versions of the document of one pool.
#[derive(Debug)]
pub struct PreparedPool {
    pool: String,
    source: PoolSource,
    bodies: [[PreparedCell; ENCODINGS.len()]; SERVED.len()],
}

impl PreparedPool {
    fn new(pool: String, source: PoolSource) -> Self {
        Self {
            pool,
            source,
            bodies: Default::default(),
        }
    }

    fn cell(
        &self,
        version: SpecVersion,
        encoding: BodyEncoding,
    ) -> Option<&OnceCell<Result<PreparedBody, Arc<str>>>> {
        let version = SERVED.iter().position(|served| *served == version)?;
        self.bodies.get(version)?.get(match encoding {
            BodyEncoding::Identity => 0,
            BodyEncoding::Gzip => 1,
        })
    }

    /// Returns the body for a machine that supports `version`, composed now at the first request.
    pub async fn body(
        self: &Arc<Self>,
        version: SpecVersion,
        encoding: BodyEncoding,
    ) -> Result<PreparedBody, Arc<str>> {
        let Some(cell) = self.cell(version, encoding) else {
            return Err(Arc::from(format!("version {version} is not served")));
        };
        if let Some(prepared) = cell.get() {
            return prepared.clone();
        }
        // One of the concurrent requests composes it, on a blocking thread so that no other request is delayed.
        cell.get_or_init(|| async {
            let pool = Arc::clone(self);
            let name = self.pool.clone();
            isolated(&name, move || pool.compose_body(version, encoding)).await
        })
        .await
        .clone()
    }

    fn compose_body(&self, version: SpecVersion, encoding: BodyEncoding) -> Result<PreparedBody, Arc<str>> {
        if encoding == BodyEncoding::Gzip {
            let identity = match self.cell(version, BodyEncoding::Identity).and_then(OnceCell::get) {
                Some(prepared) => prepared.clone()?,
                None => self.compose_body(version, BodyEncoding::Identity)?,
            };
            return gzip(&identity.bytes).map_err(|error| Arc::from(format!("cannot compress: {error}")));
        }
        let composed = compose(&self.source, version).map_err(|error| {
            error!(pool = self.pool, %version, "cannot serve: {error}");
            Arc::from(error.to_string())
        })?;
        for warning in &composed.warnings {
            warn!(pool = self.pool, %version, "{warning}");
        }
        let bytes = serde_json::to_vec(&composed.document)
            .map_err(|error| Arc::from(format!("failed to marshal {version} config: {error}")))?;
        info!(pool = self.pool, config = self.source.config_name(), %version, bytes = bytes.len(), "prepared");
        Ok(body(bytes))
    }

    /// Composes the bodies that `old` had, so that no machine waits for them.
    fn warm_like(&self, old: &Self) {
        for version in SERVED {
            for encoding in ENCODINGS {
                let was_composed = old.cell(version, encoding).is_some_and(OnceCell::initialized);
                if was_composed && let Some(cell) = self.cell(version, encoding) {
                    // The cell is empty: this value is not published yet.
                    let _ = cell.set(self.compose_body(version, encoding));
                }
            }
        }
    }
}

/// Composes on a blocking thread. A panic is counted and becomes the error of this pool.
async fn isolated(
    pool: &str,
    compose: impl FnOnce() -> Result<PreparedBody, Arc<str>> + Send + 'static,
) -> Result<PreparedBody, Arc<str>> {
    let composed = run_blocking(PANIC_COMPONENT, format!("pool {pool:?}"), compose).await;
    composed.unwrap_or_else(|panicked| Err(Arc::from(format!("cannot compose the document: {panicked}"))))
}

fn body(bytes: Vec<u8>) -> PreparedBody {
    let digest = Sha256::digest(&bytes);
    let tag = mco_core::config::hex::encode(&digest[..16]);
    PreparedBody {
        bytes: Bytes::from(bytes.into_boxed_slice()),
        etag: HeaderValue::from_str(&format!("\"{tag}\""))
            .unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
    }
}

fn gzip(bytes: &[u8]) -> std::io::Result<PreparedBody> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(body(encoder.finish()?))
}

/// The documents of all pools at one moment.
#[derive(Debug)]
pub struct PreparedConfigs {
    pools: HashMap<String, Result<Arc<PreparedPool>, Unavailable>>,
    others: Unavailable,
}

impl PreparedConfigs {
    /// Returns the documents of a pool, or why there are none.
    pub fn pool(&self, name: &str) -> Result<&Arc<PreparedPool>, &Unavailable> {
        match self.pools.get(name) {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(unavailable)) => Err(unavailable),
            None => Err(&self.others),
        }
    }

    /// Whether a pool of this name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }
}

/// The inputs of every pool's documents, or why there are none.
pub type PoolSources = BTreeMap<String, Result<PoolSource, Unavailable>>;

/// The current documents, replaced as a whole.
#[derive(Debug, Default)]
pub struct PreparedStore {
    current: RwLock<Option<Arc<PreparedConfigs>>>,
}

impl PreparedStore {
    /// Returns the current documents; `None` before the first publication.
    pub fn current(&self) -> Option<Arc<PreparedConfigs>> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the documents; `others` applies to pools that are not among them. Unchanged pools keep their bodies,
    /// changed ones are composed first, which blocks the thread.
    pub fn publish(&self, sources: PoolSources, others: Unavailable) {
        let old = self.current();
        let pools = sources
            .into_iter()
            .map(|(name, source)| {
                let before = old.as_ref().and_then(|old| old.pools.get(&name));
                let answers = source.map(|source| match before {
                    Some(Ok(before)) if before.source == source => Arc::clone(before),
                    before => {
                        let answers = PreparedPool::new(name.clone(), source);
                        if let Some(Ok(before)) = before {
                            answers.warm_like(before);
                        }
                        Arc::new(answers)
                    }
                });
                report(&name, before, &answers);
                (name, answers)
            })
            .collect();
        let answers = Arc::new(PreparedConfigs { pools, others });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(answers);
    }
}

/// Logs what has changed about a pool.
fn report(
    name: &str,
    before: Option<&Result<Arc<PreparedPool>, Unavailable>>,
    after: &Result<Arc<PreparedPool>, Unavailable>,
) {
    match (before, after) {
        (Some(Ok(before)), Ok(after)) if Arc::ptr_eq(before, after) => {}
        (_, Ok(after)) => info!(pool = name, config = after.source.config_name(), "serving"),
        (Some(Err(before)), Err(after)) if before == after => {}
        (_, Err(Unavailable::NotYet(reason))) => warn!(pool = name, "not available yet: {reason}"),
        (_, Err(Unavailable::Broken(reason))) => error!(pool = name, "cannot be served: {reason}"),
        (_, Err(Unavailable::Refused)) => info!(pool = name, "not served by this server"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use k8s_openapi::ByteString;
    use mco_api::ControllerConfig;
    use serde_json::json;

    use super::*;
    use crate::compose::{ComposeContext, ConfigOrigin};

    fn source(ca: &str) -> PoolSource {
        let config = serde_json::from_value(json!({
            "metadata": {"name": "rendered-worker-1"},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}},
        }))
        .unwrap();
        let context = ComposeContext {
            kubelet_ca: ByteString(ca.as_bytes().to_vec()),
            ..ComposeContext::of(&ControllerConfig::default(), ConfigOrigin::Cluster)
        };
        PoolSource::new(Arc::new(config), context).unwrap()
    }

    fn publish(store: &PreparedStore, ca: &str) {
        let sources = [("worker".to_owned(), Ok(source(ca)))].into();
        store.publish(sources, Unavailable::NotYet("unknown".to_owned()));
    }

    async fn fetch(store: &PreparedStore, encoding: BodyEncoding) -> PreparedBody {
        let answers = store.current().unwrap();
        let pool = answers.pool("worker").unwrap();
        pool.body(SpecVersion::V3_5, encoding).await.unwrap()
    }

    #[tokio::test]
    async fn every_request_shares_one_buffer_until_the_pool_changes() {
        let store = PreparedStore::default();
        publish(&store, "one");
        let first = fetch(&store, BodyEncoding::Identity).await;
        publish(&store, "one");
        let second = fetch(&store, BodyEncoding::Identity).await;
        assert_eq!(
            first.bytes.as_ptr(),
            second.bytes.as_ptr(),
            "an unchanged pool keeps its buffer"
        );

        publish(&store, "two");
        let answers = store.current().unwrap();
        let cell = answers
            .pool("worker")
            .unwrap()
            .cell(SpecVersion::V3_5, BodyEncoding::Identity);
        assert!(cell.unwrap().initialized(), "made before it was published");
        let third = fetch(&store, BodyEncoding::Identity).await;
        assert_ne!(first.etag, third.etag);
        assert_ne!(first.bytes, third.bytes);
    }

    #[tokio::test]
    async fn a_panic_while_composing_was_not_counted() {
        let panicked = isolated("worker", || panic!("contents of a secret file"));
        let text = panicked.await.unwrap_err();
        assert_eq!(
            &*text,
            "cannot compose the document: server of pool \"worker\" panicked; the log contains the cause"
        );
    }

    #[tokio::test]
    async fn gzip_carries_the_same_document_under_its_own_tag() {
        let store = PreparedStore::default();
        publish(&store, "one");
        let plain = fetch(&store, BodyEncoding::Identity).await;
        let packed = fetch(&store, BodyEncoding::Gzip).await;
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&packed.bytes[..])
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(plain.bytes, text);
        assert_ne!(plain.etag, packed.etag);
    }

    #[test]
    fn unknown_pools_get_what_was_decided_for_them() {
        let store = PreparedStore::default();
        assert!(store.current().is_none());
        store.publish(PoolSources::new(), Unavailable::Refused);
        assert_eq!(
            store.current().unwrap().pool("x").unwrap_err(),
            &Unavailable::Refused
        );
    }
}
