//! The values of the Secrets of a rendered config, for one of the nodes whose pool uses it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, ListParams};
use mco_api::vocabulary::names::{self, NAMESPACE};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::node_files::{
    NodeFiles, SecretAnswer, SecretFile, SecretValue, check_access, value_of, version,
};
use mco_core::config::parsed_config::ParsedConfig;
use thiserror::Error;

/// The key of the Secret with the key of all versions.
pub(super) const KEY: &str = "key";

/// Why a node does not get values.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretRefusal {
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    /// Another rendered config is on its way.
    #[error("{0}")]
    Changed(String),
    #[error("{0}")]
    Unavailable(String),
}

impl SecretRefusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Changed(_) => StatusCode::CONFLICT,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

pub(super) fn failed(attempt: &'static str) -> impl FnOnce(kube::Error) -> SecretRefusal {
    move |error| SecretRefusal::Unavailable(format!("cannot {attempt}: {error}"))
}

/// Returns the values of all Secrets of a config. `node` is authenticated.
pub async fn values(client: &kube::Client, node: &str, config: &str) -> Result<SecretAnswer, SecretRefusal> {
    let files = files(client, node, config).await?;
    let key = read_key(client).await?;
    let key =
        key.ok_or_else(|| SecretRefusal::NotFound("the versions of Secrets have no key yet".to_owned()))?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let mut read: BTreeMap<String, Secret> = BTreeMap::new();
    let mut answer = SecretAnswer::default();
    for file in files {
        let name = file.secret.name.clone();
        if !read.contains_key(&name) {
            let found = secrets.get_opt(&name).await.map_err(failed("read a Secret"))?;
            let missing = || SecretRefusal::NotFound(format!("Secret {name} does not exist"));
            read.insert(name.clone(), found.ok_or_else(missing)?);
        }
        if let Some(secret) = read.get(&name) {
            answer.files.push(value(&key, secret, file)?);
        }
    }
    Ok(answer)
}

/// Returns the files with Secrets of a config that the node may have.
async fn files(client: &kube::Client, node: &str, config: &str) -> Result<Vec<SecretFile>, SecretRefusal> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes
        .get_metadata_opt(node)
        .await
        .map_err(failed("read the node"))?;
    let node = found.ok_or_else(|| SecretRefusal::Forbidden(format!("there is no node {node}")))?;
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let found = configs
        .get_opt(config)
        .await
        .map_err(failed("read the MachineConfig"))?;
    // The same answer as for the config of another pool.
    let found =
        found.ok_or_else(|| SecretRefusal::Forbidden(format!("MachineConfig {config} does not exist")))?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pools = pools
        .list(&ListParams::default())
        .await
        .map_err(failed("list the pools"))?;
    check_access(&node.metadata, &pools.items, &found.metadata).map_err(SecretRefusal::Forbidden)?;
    let parsed = ParsedConfig::applicable(found);
    let parsed = parsed.map_err(|invalid| SecretRefusal::NotFound(invalid.to_string()))?;
    Ok(NodeFiles::of(&parsed.ignition).secrets)
}

/// Returns a value in the version that the config has: a file of a config always has the same contents.
fn value(key: &[u8], secret: &Secret, file: SecretFile) -> Result<SecretValue, SecretRefusal> {
    let name = &file.secret.name;
    let bytes = value_of(secret, &file.secret.key)
        .map_err(|why| SecretRefusal::NotFound(format!("Secret {name}: {why}")))?;
    if version(key, &file.secret, bytes) != file.version {
        return Err(SecretRefusal::Changed(format!(
            "key {} of Secret {name} has changed since this config was rendered; wait for the next rendered config, or \
             write the former value back",
            file.secret.key
        )));
    }
    Ok(SecretValue {
        path: file.path,
        version: file.version,
        value: STANDARD.encode(bytes),
    })
}

/// Returns the key of all versions; `None` before there is any.
pub(super) async fn read_key(client: &kube::Client) -> Result<Option<Vec<u8>>, SecretRefusal> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let found = secrets.get_opt(names::secret::SECRET_VERSIONS_KEY).await;
    let found = found.map_err(failed("read the key of the versions"))?;
    Ok(found
        .and_then(|secret| secret.data?.remove(KEY))
        .map(|key| key.0)
        .filter(|key| !key.is_empty()))
}
