//! Pulls missing images concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use mco_core::generators::registries::REGISTRIES_CONF;
use mco_core::rollout::pinned_images_on_node::{
    self, Credential, CredentialsError, PULL_SECRET, RESERVE, Room,
};
use mco_host::runtime::RuntimeError;
use mco_host::{FsError, Machine, RootedPath};

use super::ImagesError;

/// The size limit of credential and registries files.
const LARGEST: u64 = 16 << 20;

/// The resources a fetch may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Allocatable storage in bytes, as reported by the kubelet.
    pub allocatable: Option<u64>,
    /// The number of concurrent pulls.
    pub at_once: usize,
}

/// The result of a fetch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FetchResult {
    /// The error of each image that failed. Images that were not attempted are absent.
    pub failures: BTreeMap<String, String>,
}

/// Pulls images if they fit on the disk. A failed image does not stop the others, except when the disk is full. Once
/// `given_up` is set, no further pull begins.
pub fn fetch(
    machine: &Machine,
    missing: &BTreeSet<String>,
    terms: Terms,
    given_up: &AtomicBool,
) -> Result<FetchResult, ImagesError> {
    let images: Vec<&String> = missing.iter().collect();
    let room = Room {
        allocatable: terms.allocatable,
        free: machine.runtime.free_space(&machine.root),
    };
    if room != Room::default() {
        let compressed = compressed_size(machine, &images, terms.at_once, given_up);
        pinned_images_on_node::check_storage(room, RESERVE, compressed)?;
    }
    let wallet = Wallet::read(machine)?;
    let failures = Mutex::new(BTreeMap::new());
    let full = AtomicBool::new(false);
    in_parallel(terms.at_once, &images, |image| {
        if given_up.load(Ordering::Relaxed) || full.load(Ordering::Relaxed) {
            return;
        }
        if let Err(failure) = pull(machine, image, &wallet) {
            full.fetch_or(failure.disk_is_full, Ordering::Relaxed);
            if let Ok(mut failures) = failures.lock() {
                failures.insert((*image).clone(), failure.text);
            }
        }
    });
    Ok(FetchResult {
        failures: failures.into_inner().unwrap_or_default(),
    })
}

struct PullFailure {
    text: String,
    disk_is_full: bool,
}

fn pull(machine: &Machine, image: &str, wallet: &Wallet) -> Result<(), PullFailure> {
    let credential = wallet.credential(image).map_err(|error| PullFailure {
        text: error.to_string(),
        disk_is_full: false,
    })?;
    let encoded = credential.as_ref().map(Credential::encoded);
    machine
        .runtime
        .pull(&machine.root, image, encoded)
        .map_err(|error| PullFailure {
            text: error.to_string(),
            disk_is_full: matches!(error, RuntimeError::Full(_)),
        })
}

/// Returns the compressed size according to the registries, each layer counted once. An image whose size cannot be
/// fetched counts as empty; its pull then reports the error.
fn compressed_size(machine: &Machine, images: &[&String], at_once: usize, given_up: &AtomicBool) -> u64 {
    let layers = Mutex::new(BTreeMap::new());
    in_parallel(at_once, images, |image| {
        if given_up.load(Ordering::Relaxed) {
            return;
        }
        match machine.runtime.layers(&machine.root, image) {
            Ok(found) => {
                if let Ok(mut layers) = layers.lock() {
                    layers.extend(found.into_iter().map(|layer| (layer.digest, layer.size)));
                }
            }
            Err(error) => tracing::debug!(image, %error, "could not determine the image's size"),
        }
    });
    let layers = layers.into_inner().unwrap_or_default();
    layers.values().fold(0, |sum, size| sum.saturating_add(*size))
}

/// The machine's pull secrets and the registries configuration that selects among them.
struct Wallet {
    pull_secret: Option<Vec<u8>>,
    registries_conf: String,
}

impl Wallet {
    fn read(machine: &Machine) -> Result<Self, FsError> {
        let root = &machine.root;
        Ok(Self {
            pull_secret: root.read(&RootedPath::new(PULL_SECRET)?, LARGEST)?,
            registries_conf: root
                .read_text(&RootedPath::new(REGISTRIES_CONF)?, LARGEST)?
                .unwrap_or_default(),
        })
    }

    fn credential(&self, image: &str) -> Result<Option<Credential>, CredentialsError> {
        match &self.pull_secret {
            Some(secret) => pinned_images_on_node::credential(secret, &self.registries_conf, image),
            None => Ok(None),
        }
    }
}

/// Runs `work` on each item with up to `at_once` threads, the current one included.
fn in_parallel<T: Sync>(at_once: usize, items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..at_once.min(items.len()) {
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}
