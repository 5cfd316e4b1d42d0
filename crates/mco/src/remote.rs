//! Fetches the remote contents of MachineConfigs for commands with `--resolve`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mco_core::config::manifest::{Manifest, ManifestOrigin};
use mco_core::config::remote::{
    self, ContentKey, ContentState, LARGEST_REMOTE, RemoteContents, RemoteReference,
};
use mco_core::config::remote_store;
use mco_http::fetch::{self, FetchSettings, Network, ProxySettings};
use mco_http::pki;
use serde_json::{Value, json};

use crate::cli::ResolveArguments;
use crate::runtime;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The remote contents of one MachineConfig.
#[derive(Debug, Default)]
pub struct ResolvedContents {
    /// Fetched contents, as the ConfigMaps in which a cluster stores them.
    pub stored: Vec<Manifest>,
    /// References without a hash, with the hash of what was fetched, or why nothing was.
    pub unverified: Vec<(RemoteReference, Result<String, String>)>,
    /// References whose contents cannot be fetched or have another hash.
    pub failed: Vec<(RemoteReference, String)>,
}

/// Fetches all remote contents of a MachineConfig; none of other kinds.
pub fn resolve(manifest: &Manifest, arguments: &ResolveArguments) -> anyhow::Result<ResolvedContents> {
    let config = manifest.value.pointer("/spec/config");
    match config.filter(|_| arguments.resolve && manifest.kind == "MachineConfig") {
        Some(config) => {
            let settings = settings(arguments.contents_ca.as_deref(), &arguments.contents_networks)?;
            runtime::block_on(async { Ok(fetch_all(config, &settings).await) })
        }
        None => Ok(ResolvedContents::default()),
    }
}

/// Fetches one document and verifies its hash, which has the form of `verification.hash`.
pub fn fetch_verified(
    url: &str,
    hash: &str,
    authorities: Option<&Path>,
    networks: &[Network],
) -> anyhow::Result<Vec<u8>> {
    let settings = settings(authorities, networks)?;
    let shown = remote::shown_url(url);
    let fetched = runtime::block_on(async { Ok(fetch::fetch(&settings, url, &[]).await) })?;
    let bytes = fetched.with_context(|| format!("cannot fetch {shown}"))?;
    let key = ContentKey {
        hash: hash.to_owned(),
        compression: String::new(),
    };
    key.verify(&bytes)
        .with_context(|| format!("{shown} is not applied"))?;
    Ok(bytes.to_vec())
}

fn settings(authorities: Option<&Path>, networks: &[Network]) -> anyhow::Result<FetchSettings> {
    let mut certificates = fetch::system_certificates();
    if let Some(path) = authorities {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let own = pki::certificates(&text).with_context(|| format!("{}", path.display()))?;
        certificates.extend(own.iter().map(|certificate| certificate.to_vec()));
    }
    Ok(FetchSettings {
        certificates,
        proxy: ProxySettings::from_environment(),
        allowed_networks: networks.to_vec(),
        limit: LARGEST_REMOTE,
        timeout: TIMEOUT,
    })
}

/// Fetches until nothing new is found: a config that was fetched may refer to others.
async fn fetch_all(config: &Value, settings: &FetchSettings) -> ResolvedContents {
    let mut result = ResolvedContents::default();
    let mut contents = RemoteContents::default();
    let mut seen: Vec<(String, Option<ContentKey>)> = Vec::new();
    loop {
        let mut references = remote::resolve(config, &contents).references;
        references.extend(remote::unverified_references(config));
        let is_new =
            |reference: &RemoteReference| !seen.contains(&(reference.url.clone(), reference.key.clone()));
        let Some(reference) = references.into_iter().find(is_new) else {
            return result;
        };
        seen.push((reference.url.clone(), reference.key.clone()));
        let fetched = fetch::fetch(settings, &reference.url, &reference.headers.0).await;
        let fetched = fetched.map_err(|error| error.to_string());
        let Some(key) = reference.key.clone() else {
            let hash = fetched.and_then(|bytes| {
                remote::hash_of(&bytes, &reference.compression).map_err(|error| error.to_string())
            });
            result.unverified.push((reference, hash));
            continue;
        };
        let verified = fetched.and_then(|bytes| {
            let added = contents.add(key.clone(), Arc::new(bytes.to_vec()));
            added.map_err(|error| error.to_string())?;
            Ok(bytes)
        });
        match verified {
            Ok(bytes) => result.stored.extend(stored(&key, &bytes)),
            Err(why) => {
                contents.set(key, ContentState::Failed(why.clone()));
                result.failed.push((reference, why));
            }
        }
    }
}

fn stored(key: &ContentKey, bytes: &[u8]) -> Option<Manifest> {
    let mut value = serde_json::to_value(remote_store::stored(key, bytes)).ok()?;
    value["apiVersion"] = json!("v1");
    value["kind"] = json!("ConfigMap");
    Some(Manifest {
        origin: ManifestOrigin {
            file: "--resolve".to_owned(),
            line: 0,
        },
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: remote_store::name(key),
        value,
    })
}
