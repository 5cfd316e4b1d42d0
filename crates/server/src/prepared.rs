//! Finished answers: one immutable buffer per pool, Ignition version and encoding, shared by every connection.
//!
//! An answer is made once, when it is first asked for, and made again before a changed pool replaces the old one, so
//! that a storm of booting machines costs nothing but copying to sockets. Requests hold a reference to the answers
//! they started with; replacing them never disturbs a transfer. Where the inputs come from is not known here.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use mco_ignition::SpecVersion;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tracing::{error, info, warn};

use crate::compose::{Source, compose};
use crate::negotiate::SERVED;

/// How a body is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
}

const ENCODINGS: [Encoding; 2] = [Encoding::Identity, Encoding::Gzip];

/// A body ready to be sent. Cloning it copies two pointers.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Bytes,
    /// A strong validator: equal tags mean equal bytes.
    pub etag: HeaderValue,
}

/// Why a pool has no answer, chosen by what it should make a booting machine do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It may come: the machine should ask again.
    NotYet(String),
    /// It is there and cannot be used; somebody has to repair it while the machine asks again.
    Broken(String),
    /// It is not served from here; another server will take over the address.
    Refused,
}

/// A body made by the first request that asks for it, or why there is none.
type Prepared = OnceCell<Result<Body, Arc<str>>>;

/// All versions of one pool's document.
#[derive(Debug)]
pub struct PoolAnswers {
    pool: String,
    source: Source,
    bodies: [[Prepared; ENCODINGS.len()]; SERVED.len()],
}

impl PoolAnswers {
    fn new(pool: String, source: Source) -> Self {
        Self {
            pool,
            source,
            bodies: Default::default(),
        }
    }

    fn cell(&self, version: SpecVersion, encoding: Encoding) -> Option<&OnceCell<Result<Body, Arc<str>>>> {
        let version = SERVED.iter().position(|served| *served == version)?;
        self.bodies.get(version)?.get(match encoding {
            Encoding::Identity => 0,
            Encoding::Gzip => 1,
        })
    }

    /// The body for a machine that understands `version`, made now if nobody has asked for it before.
    pub async fn body(self: &Arc<Self>, version: SpecVersion, encoding: Encoding) -> Result<Body, Arc<str>> {
        let Some(cell) = self.cell(version, encoding) else {
            return Err(Arc::from(format!("version {version} is not served")));
        };
        if let Some(made) = cell.get() {
            return made.clone();
        }
        // However many ask at once, one of them makes it, away from the threads that serve the others.
        cell.get_or_init(|| async {
            let answers = Arc::clone(self);
            tokio::task::spawn_blocking(move || answers.make(version, encoding))
                .await
                .unwrap_or_else(|error| Err(Arc::from(format!("cannot make the document: {error}"))))
        })
        .await
        .clone()
    }

    fn make(&self, version: SpecVersion, encoding: Encoding) -> Result<Body, Arc<str>> {
        if encoding == Encoding::Gzip {
            let identity = match self.cell(version, Encoding::Identity).and_then(OnceCell::get) {
                Some(made) => made.clone()?,
                None => self.make(version, Encoding::Identity)?,
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

    /// Makes what `old` had made, so that no machine waits for it.
    fn warm_like(&self, old: &Self) {
        for version in SERVED {
            for encoding in ENCODINGS {
                let was_made = old.cell(version, encoding).is_some_and(OnceCell::initialized);
                if was_made && let Some(cell) = self.cell(version, encoding) {
                    // Nobody else can have set it: these answers are not published yet.
                    let _ = cell.set(self.make(version, encoding));
                }
            }
        }
    }
}

fn body(bytes: Vec<u8>) -> Body {
    let digest = Sha256::digest(&bytes);
    let tag = mco_core::config::hex::encode(&digest[..16]);
    Body {
        bytes: Bytes::from(bytes.into_boxed_slice()),
        etag: HeaderValue::from_str(&format!("\"{tag}\""))
            .unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
    }
}

fn gzip(bytes: &[u8]) -> std::io::Result<Body> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(body(encoder.finish()?))
}

/// Everything that can be served at one moment.
#[derive(Debug)]
pub struct Answers {
    pools: HashMap<String, Result<Arc<PoolAnswers>, Trouble>>,
    others: Trouble,
}

impl Answers {
    /// The answers for a pool, whether it is known or not.
    pub fn pool(&self, name: &str) -> Result<&Arc<PoolAnswers>, &Trouble> {
        match self.pools.get(name) {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(trouble)) => Err(trouble),
            None => Err(&self.others),
        }
    }

    pub fn knows(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }
}

/// What a pool's documents are made from, or why there are none.
pub type Sources = BTreeMap<String, Result<Source, Trouble>>;

/// The current answers, replaced as a whole.
#[derive(Debug, Default)]
pub struct Store {
    current: RwLock<Option<Arc<Answers>>>,
}

impl Store {
    /// The answers of this moment; `None` before anything was published.
    pub fn current(&self) -> Option<Arc<Answers>> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the answers. `others` is said of pools that are not among them. Unchanged pools keep what they have;
    /// changed ones are made ready first, so this can take as long as composing them does: not for an async thread.
    pub fn publish(&self, sources: Sources, others: Trouble) {
        let old = self.current();
        let pools = sources
            .into_iter()
            .map(|(name, source)| {
                let before = old.as_ref().and_then(|old| old.pools.get(&name));
                let answers = source.map(|source| match before {
                    Some(Ok(before)) if before.source == source => Arc::clone(before),
                    before => {
                        let answers = PoolAnswers::new(name.clone(), source);
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
        let answers = Arc::new(Answers { pools, others });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(answers);
    }
}

/// Says what is new about a pool, once.
fn report(
    name: &str,
    before: Option<&Result<Arc<PoolAnswers>, Trouble>>,
    after: &Result<Arc<PoolAnswers>, Trouble>,
) {
    match (before, after) {
        (Some(Ok(before)), Ok(after)) if Arc::ptr_eq(before, after) => {}
        (_, Ok(after)) => info!(pool = name, config = after.source.config_name(), "serving"),
        (Some(Err(before)), Err(after)) if before == after => {}
        (_, Err(Trouble::NotYet(reason))) => warn!(pool = name, "not available yet: {reason}"),
        (_, Err(Trouble::Broken(reason))) => error!(pool = name, "cannot be served: {reason}"),
        (_, Err(Trouble::Refused)) => info!(pool = name, "not served from here"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use k8s_openapi::ByteString;
    use mco_api::ControllerConfig;
    use serde_json::json;

    use super::*;
    use crate::compose::{Origin, Surroundings};

    fn source(ca: &str) -> Source {
        let config = serde_json::from_value(json!({
            "metadata": {"name": "rendered-worker-1"},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}},
        }))
        .unwrap();
        let surroundings = Surroundings {
            kubelet_ca: ByteString(ca.as_bytes().to_vec()),
            ..Surroundings::of(&ControllerConfig::default(), Origin::Cluster)
        };
        Source::new(Arc::new(config), surroundings).unwrap()
    }

    fn publish(store: &Store, ca: &str) {
        let sources = [("worker".to_owned(), Ok(source(ca)))].into();
        store.publish(sources, Trouble::NotYet("unknown".to_owned()));
    }

    async fn fetch(store: &Store, encoding: Encoding) -> Body {
        let answers = store.current().unwrap();
        let pool = answers.pool("worker").unwrap();
        pool.body(SpecVersion::V3_5, encoding).await.unwrap()
    }

    #[tokio::test]
    async fn every_request_shares_one_buffer_until_the_pool_changes() {
        let store = Store::default();
        publish(&store, "one");
        let first = fetch(&store, Encoding::Identity).await;
        publish(&store, "one");
        let second = fetch(&store, Encoding::Identity).await;
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
            .cell(SpecVersion::V3_5, Encoding::Identity);
        assert!(cell.unwrap().initialized(), "made before it was published");
        let third = fetch(&store, Encoding::Identity).await;
        assert_ne!(first.etag, third.etag);
        assert_ne!(first.bytes, third.bytes);
    }

    #[tokio::test]
    async fn gzip_carries_the_same_document_under_its_own_tag() {
        let store = Store::default();
        publish(&store, "one");
        let plain = fetch(&store, Encoding::Identity).await;
        let packed = fetch(&store, Encoding::Gzip).await;
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&packed.bytes[..])
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(plain.bytes, text);
        assert_ne!(plain.etag, packed.etag);
    }

    #[test]
    fn unknown_pools_get_what_was_decided_for_them() {
        let store = Store::default();
        assert!(store.current().is_none());
        store.publish(Sources::new(), Trouble::Refused);
        assert_eq!(store.current().unwrap().pool("x").unwrap_err(), &Trouble::Refused);
    }
}
