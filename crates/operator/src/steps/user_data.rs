//! The user data Secrets of new machines: one pointer config per pool.
//!
//! `<pool>-user-data-managed` is ours and always current. Others, of an installer or an administrator, belong to their
//! creators; only what a machine could not boot without follows the config server's: its CA, and the token where one is
//! required.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::api::{ListParams, Patch};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::{labels, names};
use mco_core::config::pools;
use mco_core::config::semantic;
use mco_core::generators::pointer::{PointerConfig, PointerError, pointer};
use mco_core::generators::user_data;
use mco_ignition::SpecVersion;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::warn;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed, metadata};
use crate::controller_config::config_server;
use crate::facts::ObservedFacts;
use crate::options::{IgnitionTokens, OperatorOptions};
use crate::steps::ignition_tokens::{self, IgnitionTokenError};
use crate::steps::serving;

pub(super) const USER_DATA: &str = "userData";
const DISABLE_TEMPLATING: &str = "disableTemplating";
pub(super) const NAMESPACE: &str = names::MACHINE_API_NAMESPACE;

#[derive(Debug, Error)]
pub enum UserDataError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the tokens for the config server: {0}")]
    Tokens(#[from] IgnitionTokenError),
    #[error("the pointer config of pool {pool}: {source}")]
    Pointer {
        pool: String,
        #[source]
        source: PointerError,
    },
}

/// Reconciles every pool's user data. The error of one pool is returned after all others were processed.
pub async fn user_data(
    cluster: &OperatorClient,
    pools: &[MachineConfigPool],
    facts: &ObservedFacts,
    options: &OperatorOptions,
) -> Result<(), UserDataError> {
    let infrastructure = serving::effective_infrastructure(facts, options);
    let Some(server) = config_server(infrastructure.as_ref(), options) else {
        return Ok(());
    };
    let authorities = serving::authorities(cluster, facts).await?;
    let names: Vec<&str> = pools
        .iter()
        .filter_map(|pool| pool.metadata.name.as_deref())
        .collect();
    let tokens = match options.ignition_tokens {
        IgnitionTokens::Required => ignition_tokens::present(cluster, &names, Timestamp::now()).await?,
        IgnitionTokens::Optional => BTreeMap::new(),
    };
    let mut result = Ok(());
    let mut wanted = UserDataContext {
        authorities,
        tokens: BTreeMap::new(),
    };
    for pool in pools {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let pointer = PointerConfig {
            pool: name,
            server: &server,
            authorities: wanted.authorities.as_bytes(),
            token: tokens.get(name).map(String::as_str),
            version: SpecVersion::NEWEST,
        };
        match of_pool(cluster, pool, &pointer).await {
            Ok(document) => wanted
                .tokens
                .extend(source(&document).zip(tokens.get(name).cloned())),
            Err(error) => result = Err(error),
        }
    }
    follow(cluster, &wanted).await?;
    result
}

/// What the user data of other creators has to contain.
struct UserDataContext {
    authorities: String,
    /// The tokens by the URL for which they are valid; empty where none is required.
    tokens: BTreeMap<String, String>,
}

/// Returns the URL of a pointer config of ours.
fn source(document: &Value) -> Option<String> {
    let source = document.pointer("/ignition/config/merge/0/source")?;
    source.as_str().map(str::to_owned)
}

/// Writes the pointer config of a pool and returns it.
async fn of_pool(
    cluster: &OperatorClient,
    pool: &MachineConfigPool,
    wanted: &PointerConfig<'_>,
) -> Result<Value, UserDataError> {
    let name = wanted.pool;
    let document = pointer(wanted).map_err(|source| UserDataError::Pointer {
        pool: name.to_owned(),
        source,
    })?;
    let managed_name = names::secret::user_data(name);
    let found = cluster.secret(NAMESPACE, &managed_name).await?;
    let managed = secret(&managed_name, &document);
    let managed = with_spelling_of(found.as_ref(), managed, &document);
    cluster.apply(&owned(managed, pool)).await?;
    if matches!(name, pools::MASTER | pools::WORKER) {
        // An installer creates these two; where it did not, we do.
        let usual = secret(&format!("{name}-user-data"), &document);
        cluster.create_if_absent(&usual).await?;
    }
    Ok(document)
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

/// Keeps the spelling of the pointer config in `found` if it is semantically equal: other implementations write empty
/// objects into it.
fn with_spelling_of(found: Option<&Secret>, mut secret: Secret, document: &Value) -> Secret {
    let found = found.and_then(|found| found.data.as_ref()?.get(USER_DATA));
    let written: Option<Value> = found.and_then(|text| serde_json::from_slice(&text.0).ok());
    let means_the_same =
        written.is_some_and(|written| semantic::pruned(&written) == semantic::pruned(document));
    if means_the_same && let (Some(found), Some(data)) = (found, &mut secret.data) {
        data.insert(USER_DATA.to_owned(), found.clone());
    }
    secret
}

/// Makes the pool the owner of the Secret, and our bundle the only one in it.
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

/// Updates the pointer configs of other creators. One that cannot be updated is logged and does not affect the rest.
async fn follow(cluster: &OperatorClient, wanted: &UserDataContext) -> Result<(), ClusterError> {
    let secrets = cluster.within::<Secret>(NAMESPACE);
    let others = ListParams::default().labels(&format!("!{}", labels::MANAGED_CA_BUNDLE));
    let found = secrets.list(&others).await;
    let found = found.map_err(failed("listing", || format!("Secrets in {NAMESPACE}")))?;
    let mut result = Ok(());
    for secret in found {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let data = secret.data.as_ref().and_then(|data| data.get(USER_DATA));
        let Some(change) = data.and_then(|data| change(&name, &data.0, wanted)) else {
            continue;
        };
        let patch = json!({
            // The resource version makes a concurrent write win; the next sync starts from it.
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": {USER_DATA: BASE64.encode(&change)},
        });
        let answer = secrets
            .patch(&name, &OPERATOR.patch_params(), &Patch::Merge(patch))
            .await;
        if let Err(error) = answer.map_err(failed("updating", || format!("Secret {NAMESPACE}/{name}"))) {
            result = Err(error);
        }
    }
    result
}

/// Returns the user data with the CA and the token of the config server; `None` if it has both. Its version stays: only
/// machines whose boot image was replaced are known to support another one.
fn change(name: &str, found: &[u8], wanted: &UserDataContext) -> Option<Vec<u8>> {
    let trusting = user_data::with_authorities(found, &wanted.authorities).unwrap_or_else(|why| {
        warn!("Secret {NAMESPACE}/{name} is left unchanged: {why}");
        None
    });
    let so_far = trusting.as_deref().unwrap_or(found);
    let token_of = |source: &str| wanted.tokens.get(source).map(String::as_str);
    let authorized = user_data::with_token(so_far, token_of).unwrap_or_else(|why| {
        warn!("Secret {NAMESPACE}/{name} gets no token: {why}");
        None
    });
    authorized.or(trusting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"ignition": {"version": "2.2.0",
        "config": {"append": [{"source": "https://old/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": [{"source": "data:,old"}]}}}}"#;

    fn changed(found: &str, tokens: BTreeMap<String, String>) -> Option<Value> {
        let wanted = UserDataContext {
            authorities: "NEW".to_owned(),
            tokens,
        };
        let change = change("worker-user-data", found.as_bytes(), &wanted)?;
        Some(serde_json::from_slice(&change).unwrap())
    }

    #[test]
    fn the_authority_follows_and_the_version_was_changed_for_machines_with_old_images() {
        let authority = format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode("NEW"));
        let document = changed(OLD, BTreeMap::new()).unwrap();
        assert_eq!(
            document,
            json!({"ignition": {
                "version": "2.2.0",
                "config": {"append": [{"source": "https://old/config/worker"}]},
                "security": {"tls": {"certificateAuthorities": [{"source": authority}]}},
            }})
        );
        assert_eq!(changed(&document.to_string(), BTreeMap::new()), None);
    }

    #[test]
    fn a_pointer_config_gets_the_token_of_its_pool_if_its_version_has_request_headers() {
        let tokens = || BTreeMap::from([("https://old/config/worker".to_owned(), "secret".to_owned())]);
        let document = changed(OLD, tokens()).unwrap();
        assert!(
            !document.to_string().contains("secret"),
            "2.2.0 has no request headers"
        );
        let new = OLD.replace("2.2.0", "3.2.0").replace("append", "merge");
        let document = changed(&new, tokens()).unwrap();
        assert_eq!(
            document["ignition"]["config"]["merge"][0]["httpHeaders"],
            json!([{"name": "Authorization", "value": "Bearer secret"}])
        );
    }

    #[test]
    fn a_pointer_config_was_rewritten_because_its_empty_objects_were_gone() {
        let ours = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": "https://s/config/worker"}]}}});
        let theirs = r#"{"ignition":{"config":{"merge":[{"source":"https://s/config/worker","verification":{}}]},"version":"3.5.0"},"passwd":{}}"#;
        let other = theirs.replace("config/worker", "config/infra");
        for (found, expected) in [(theirs, theirs.to_owned()), (other.as_str(), ours.to_string())] {
            let mut before = secret("worker-user-data-managed", &ours);
            let data = before.data.get_or_insert_default();
            data.insert(USER_DATA.to_owned(), ByteString(found.as_bytes().to_vec()));
            let after = with_spelling_of(Some(&before), secret("worker-user-data-managed", &ours), &ours);
            assert_eq!(after.data.unwrap()[USER_DATA].0, expected.into_bytes());
        }
    }
}
