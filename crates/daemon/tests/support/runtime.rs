//! A fake container runtime that records requests, and fails or stalls on demand.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mco_host::runtime::{ContainerRuntime, Layer, RuntimeError};
use mco_host::{CommandError, Root};

/// Returns an image reference by digest, as the CRD requires.
pub fn image(name: &str) -> String {
    let digest = "0123456789abcdef".repeat(4);
    format!("{name}@sha256:{digest}")
}

#[derive(Debug, Default)]
pub struct Registry {
    stored: Mutex<BTreeSet<String>>,
    /// The pulled images, with the credentials used.
    pulls: Mutex<Vec<(String, Option<String>)>>,
    refused: Mutex<BTreeMap<String, String>>,
    /// The size of the one layer of each image; all have the same digest if they are shared.
    size: Mutex<u64>,
    absent: Mutex<Option<String>>,
    stalled: Mutex<bool>,
    moved_on: Condvar,
}

impl Registry {
    pub fn pulls(&self) -> Vec<(String, Option<String>)> {
        self.pulls.lock().unwrap().clone()
    }

    pub fn pulled(&self) -> Vec<String> {
        self.pulls().into_iter().map(|(image, _)| image).collect()
    }

    pub fn store(&self, image: &str) {
        self.stored.lock().unwrap().insert(image.to_owned());
    }

    /// Sets the error of all pulls of this image; `None` clears it.
    pub fn refuse(&self, image: &str, why: Option<&str>) {
        let mut refused = self.refused.lock().unwrap();
        match why {
            Some(why) => refused.insert(image.to_owned(), why.to_owned()),
            None => refused.remove(image),
        };
    }

    pub fn set_size(&self, bytes: u64) {
        *self.size.lock().unwrap() = bytes;
    }

    pub fn set_absent(&self, why: Option<&str>) {
        *self.absent.lock().unwrap() = why.map(str::to_owned);
    }

    /// While set, new pulls wait until it is unset.
    pub fn stall(&self, stalled: bool) {
        *self.stalled.lock().unwrap() = stalled;
        self.moved_on.notify_all();
    }

    fn check_present(&self) -> Result<(), RuntimeError> {
        match &*self.absent.lock().unwrap() {
            Some(why) => Err(RuntimeError::Absent(why.clone())),
            None => Ok(()),
        }
    }
}

impl ContainerRuntime for Registry {
    fn images(&self, _: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        self.check_present()?;
        Ok(self.stored.lock().unwrap().clone())
    }

    fn layers(&self, _: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError> {
        let layer = |digest: &str, size| Layer {
            digest: digest.to_owned(),
            size,
        };
        let size = *self.size.lock().unwrap();
        Ok(vec![layer(image, size), layer("shared", size)])
    }

    fn pull(&self, _: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError> {
        self.check_present()?;
        let credential =
            credential.map(|encoded| String::from_utf8(BASE64.decode(encoded).unwrap()).unwrap());
        self.pulls.lock().unwrap().push((image.to_owned(), credential));
        let mut stalled = self.stalled.lock().unwrap();
        while *stalled {
            stalled = self.moved_on.wait(stalled).unwrap();
        }
        drop(stalled);
        if let Some(why) = self.refused.lock().unwrap().get(image) {
            let error = CommandError::Failed {
                command: "crictl pull".to_owned(),
                code: Some(1),
                complaint: why.clone(),
            };
            return Err(if why.contains("no space left") {
                RuntimeError::Full(error)
            } else {
                RuntimeError::Command(error)
            });
        }
        self.store(image);
        Ok(())
    }

    fn free_space(&self, _: &Root) -> Option<u64> {
        None
    }
}
