//! Serving a directory written by an offline render, for the first machines of a cluster and for machines without one.
//!
//! The directory is polled and reloaded when a file changes. It is never written to.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use mco_core::config::manifest;
use mco_runtime::run_blocking;
use serde::de::DeserializeOwned;
use tracing::info;

use crate::choose;
use crate::compose::{ComposeContext, ConfigOrigin, PoolSource, RegistryCertificate};
use crate::http::{IgnitionApp, PANIC_COMPONENT, is_pool_name};
use crate::prepared::{PoolSources, Unavailable};

/// Polling costs a few stat calls; a second is not noticed by a booting machine.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The files of an offline render.
#[derive(Clone, Debug)]
pub struct DirectoryBackend {
    pub base: PathBuf,
    pub kubeconfig: PathBuf,
    /// Registry hosts and their certificate files, relative to the base directory.
    pub certificates: Vec<(String, PathBuf)>,
    /// The pools that are served; requests of other machines fail with 5xx until the cluster serves them.
    pub pools: Vec<String>,
}

/// The metadata of the files when they were read.
type DirectoryFingerprint = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

impl DirectoryBackend {
    /// Publishes the files and every change of them, without end.
    pub async fn follow(self, app: Arc<IgnitionApp>) {
        let directory = Arc::new(self);
        let mut seen = None;
        loop {
            let (directory, app, before) = (Arc::clone(&directory), Arc::clone(&app), seen.clone());
            let checked = run_blocking(PANIC_COMPONENT, "the served directory", move || {
                // Taken before reading, so that a change in between is detected the next time.
                let now = directory.fingerprint();
                if before.as_ref() != Some(&now) {
                    app.store.publish(directory.read(), Unavailable::Refused);
                }
                now
            })
            .await;
            // A panic is counted and logged; the former documents stay.
            if let Ok(now) = checked {
                seen = Some(now);
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns the inputs of all served pools.
    pub fn read(&self) -> PoolSources {
        self.pools
            .iter()
            .map(|pool| (pool.clone(), self.source(pool)))
            .collect()
    }

    fn source(&self, pool: &str) -> Result<PoolSource, Unavailable> {
        let pool_file = self.pool_file(pool);
        let pool_object: MachineConfigPool = object(&pool_file)?
            .ok_or_else(|| Unavailable::NotYet(format!("{} does not exist", pool_file.display())))?;
        let name = choose::bootstrap_config_name(&pool_object).ok_or_else(|| {
            Unavailable::NotYet(format!("{}: status.configuration is empty", pool_file.display()))
        })?;
        if !is_pool_name(name) {
            return Err(Unavailable::Broken(format!(
                "{}: {name:?} is not the name of a MachineConfig",
                pool_file.display()
            )));
        }
        let config_file = self.base.join("machine-configs").join(format!("{name}.yaml"));
        let config: MachineConfig = object(&config_file)?
            .ok_or_else(|| Unavailable::NotYet(format!("{} does not exist", config_file.display())))?;
        let controller_file = self.controller_config_file();
        let controller_config: ControllerConfig = object(&controller_file)?.ok_or_else(|| {
            Unavailable::Broken(format!(
                "could not find controller config on initial bootstrap: {} does not exist",
                controller_file.display()
            ))
        })?;
        info!(pool, "read {} and {}", pool_file.display(), config_file.display());
        let context = ComposeContext {
            kubeconfig: bytes(&self.kubeconfig)?,
            registry_certificates: self
                .certificates
                .iter()
                .map(|(host, file)| {
                    let pem = bytes(&self.base.join(file))?;
                    let host = host.clone();
                    Ok(RegistryCertificate { host, pem })
                })
                .collect::<Result<_, Unavailable>>()?,
            ..ComposeContext::of(&controller_config, ConfigOrigin::Files)
        };
        PoolSource::new(Arc::new(config), context).map_err(|error| Unavailable::Broken(error.to_string()))
    }

    fn pool_file(&self, pool: &str) -> PathBuf {
        self.base.join("machine-pools").join(format!("{pool}.yaml"))
    }

    fn controller_config_file(&self) -> PathBuf {
        self.base
            .join("controller-config")
            .join(format!("{CONTROLLER_CONFIG_NAME}.yaml"))
    }

    fn fingerprint(&self) -> DirectoryFingerprint {
        let mut files = vec![self.kubeconfig.clone(), self.controller_config_file()];
        files.extend(self.pools.iter().map(|pool| self.pool_file(pool)));
        files.extend(self.certificates.iter().map(|(_, file)| self.base.join(file)));
        let configs = fs::read_dir(self.base.join("machine-configs"));
        files.extend(
            configs
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path())),
        );
        files
            .into_iter()
            .map(|file| {
                let state = fs::metadata(&file)
                    .and_then(|metadata| Ok((metadata.modified()?, metadata.len())))
                    .ok();
                (file, state)
            })
            .collect()
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, Unavailable> {
    fs::read(path).map_err(|error| Unavailable::Broken(format!("failed to read {}: {error}", path.display())))
}

/// Returns the only object of a file; `None` if the file does not exist.
fn object<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Unavailable> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Unavailable::Broken(format!(
                "failed to read {}: {error}",
                path.display()
            )));
        }
        Ok(text) => text,
    };
    let name = path.display().to_string();
    let objects = manifest::read(&name, &text).map_err(|error| Unavailable::Broken(error.to_string()))?;
    let [object] = objects.as_slice() else {
        return Err(Unavailable::Broken(format!(
            "{name}: expected one object, found {}",
            objects.len()
        )));
    };
    object
        .decode()
        .map(Some)
        .map_err(|error| Unavailable::Broken(error.to_string()))
}
