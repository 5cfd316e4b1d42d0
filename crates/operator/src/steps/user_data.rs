//! The secrets that new machines are created with: one pointer config per pool.
//!
//! `<pool>-user-data-managed` is ours and always current. What others made (an installer, an administrator) belongs to
//! them; only the authority in it follows the config server's, because a machine could not boot with an old one.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::api::{ListParams, Patch, PatchParams};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::{labels, names};
use mco_core::pointer::{Pointer, PointerError, pointer};
use mco_core::pools;
use mco_ignition::SpecVersion;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::warn;

use crate::cluster::{Cluster, ClusterError, failed, metadata};
use crate::controller_config::config_server;
use crate::facts::Facts;
use crate::options::Options;
use crate::steps::serving;

const USER_DATA: &str = "userData";
const DISABLE_TEMPLATING: &str = "disableTemplating";
const NAMESPACE: &str = names::MACHINE_API_NAMESPACE;

#[derive(Debug, Error)]
pub enum UserDataError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the pointer config of pool {pool}: {source}")]
    Pointer {
        pool: String,
        #[source]
        source: PointerError,
    },
}

/// Makes every pool's user data current. What goes wrong with one pool is reported after all others were done.
pub async fn user_data(
    cluster: &Cluster,
    pools: &[MachineConfigPool],
    facts: &Facts,
    options: &Options,
) -> Result<(), UserDataError> {
    let infrastructure = serving::effective_infrastructure(facts, options);
    let Some(server) = config_server(infrastructure.as_ref(), options) else {
        return Ok(());
    };
    let authorities = serving::authorities(cluster, facts).await?;
    let mut result = Ok(());
    for pool in pools {
        if let Err(error) = of_pool(cluster, pool, &server, &authorities).await {
            result = Err(error);
        }
    }
    follow_authorities(cluster, &authorities).await?;
    result
}

async fn of_pool(
    cluster: &Cluster,
    pool: &MachineConfigPool,
    server: &str,
    authorities: &str,
) -> Result<(), UserDataError> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let document = pointer(&Pointer {
        pool: name,
        server,
        authorities: authorities.as_bytes(),
        token: None,
        version: SpecVersion::V3_5,
    });
    let document = document.map_err(|source| UserDataError::Pointer {
        pool: name.to_owned(),
        source,
    })?;
    let managed = secret(&names::secret::user_data(name), &document);
    cluster.apply(&owned(managed, pool)).await?;
    if matches!(name, pools::MASTER | pools::WORKER) {
        // An installer makes these two; where there was none, what is written about them still holds.
        let usual = secret(&format!("{name}-user-data"), &document);
        cluster.create_if_absent(&usual).await?;
    }
    Ok(())
}

fn secret(name: &str, document: &Value) -> Secret {
    let data = [
        (DISABLE_TEMPLATING.to_owned(), b"true\n".to_vec()),
        (USER_DATA.to_owned(), document.to_string().into_bytes()),
    ];
    Secret {
        metadata: metadata(Some(NAMESPACE), name),
        type_: Some("Opaque".to_owned()),
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key, ByteString(value)))
                .collect(),
        ),
        ..Secret::default()
    }
}

/// The secret goes away with its pool, and our bundle is the only one in it.
fn owned(mut secret: Secret, pool: &MachineConfigPool) -> Secret {
    secret.metadata.labels = Some(BTreeMap::from([(
        labels::MANAGED_CA_BUNDLE.to_owned(),
        String::new(),
    )]));
    secret.metadata.owner_references = pool.metadata.uid.clone().map(|uid| {
        vec![OwnerReference {
            api_version: MachineConfigPool::api_version(&()).into_owned(),
            kind: MachineConfigPool::kind(&()).into_owned(),
            name: pool.metadata.name.clone().unwrap_or_default(),
            uid,
            ..OwnerReference::default()
        }]
    });
    secret
}

/// Puts the current authorities into the pointer configs that others made.
async fn follow_authorities(cluster: &Cluster, authorities: &str) -> Result<(), ClusterError> {
    let secrets = cluster.within::<Secret>(NAMESPACE);
    let others = ListParams::default().labels(&format!("!{}", labels::MANAGED_CA_BUNDLE));
    let found = secrets.list(&others).await;
    let found = found.map_err(failed("listing", || format!("Secrets in {NAMESPACE}")))?;
    for secret in found {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let data = secret.data.as_ref().and_then(|data| data.get(USER_DATA));
        let updated = match data.map(|data| with_authorities(&data.0, authorities)) {
            Some(Ok(Some(updated))) => updated,
            Some(Err(SeveralAuthorities)) => {
                warn!(
                    "Secret {NAMESPACE}/{name} names several certificate authorities; which one is ours is unclear, so it is left alone"
                );
                continue;
            }
            _ => continue,
        };
        let patch = Patch::Merge(json!({"data": {USER_DATA: BASE64.encode(updated)}}));
        let answer = secrets.patch(&name, &PatchParams::default(), &patch).await;
        answer.map_err(failed("updating", || format!("Secret {NAMESPACE}/{name}")))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct SeveralAuthorities;

/// The document with the current authorities; none if it has them, or is no pointer config with an authority at all.
fn with_authorities(user_data: &[u8], authorities: &str) -> Result<Option<Vec<u8>>, SeveralAuthorities> {
    let Ok(mut document) = serde_json::from_slice::<Value>(user_data) else {
        return Ok(None);
    };
    let place = "/ignition/security/tls/certificateAuthorities";
    let Some(named) = document.pointer_mut(place).and_then(Value::as_array_mut) else {
        return Ok(None);
    };
    let first = match named.as_mut_slice() {
        [] => return Ok(None),
        [first] => first,
        _ => return Err(SeveralAuthorities),
    };
    let current = format!(
        "data:text/plain;charset=utf-8;base64,{}",
        BASE64.encode(authorities)
    );
    if authorities.is_empty() || first.get("source").and_then(Value::as_str) == Some(&current) {
        return Ok(None);
    }
    first["source"] = Value::String(current);
    Ok(Some(document.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_authority_of_a_pointer_is_replaced() {
        let pointer = |sources: &[&str]| {
            let sources: Vec<Value> = sources.iter().map(|source| json!({"source": source})).collect();
            json!({"ignition": {"version": "2.2.0", "config": {"append": [{"source": "https://old/config/worker"}]},
                "security": {"tls": {"certificateAuthorities": sources}}}})
        };
        let current = format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode("NEW"));
        let bytes = |document: &Value| document.to_string().into_bytes();
        let updated = with_authorities(&bytes(&pointer(&["data:,old"])), "NEW")
            .unwrap()
            .unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&updated).unwrap(),
            pointer(&[&current]),
            "version and address stay"
        );
        for (name, document, expected) in [
            ("is current", bytes(&pointer(&[&current])), Ok(None)),
            ("has none", bytes(&pointer(&[])), Ok(None)),
            (
                "has several",
                bytes(&pointer(&["a", "b"])),
                Err(SeveralAuthorities),
            ),
            ("is no JSON", b"#cloud-config".to_vec(), Ok(None)),
            ("is no pointer", b"{\"ignition\": 3}".to_vec(), Ok(None)),
        ] {
            assert_eq!(with_authorities(&document, "NEW"), expected, "{name}");
        }
    }
}
