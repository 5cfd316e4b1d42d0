//! Publishes the versions of all opted-in Secrets as a ConfigMap, whenever one of them changes.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::runtime::watcher;
use mco_api::vocabulary::labels::SECRET_FILES;
use mco_api::vocabulary::names::{self, NAMESPACE};
use mco_core::config::node_files::SecretVersions;
use mco_http::tokens;
use mco_runtime::{FieldManager, is_already_exists, patch, with_backoff};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::values::{KEY, SecretRefusal, failed, read_key};

const MANAGER: FieldManager = FieldManager::new("machine-config-operator-secret-files");
/// Several Secrets often change together.
const DEBOUNCE: Duration = Duration::from_millis(100);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Repairs what another client has written.
const RESYNC: Duration = Duration::from_mins(10);
const KEY_BYTES: usize = 32;

/// Keeps the ConfigMap up to date until `stop`.
pub(crate) async fn publish(client: kube::Client, stop: CancellationToken) {
    // Their names only: the values are read when they are needed.
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), NAMESPACE);
    let watched = watcher::Config::default().labels(&format!("{SECRET_FILES}=true"));
    let mut changes = std::pin::pin!(with_backoff(watcher::watcher(secrets, watched)));
    let mut due = Some(Instant::now());
    let mut retry = FIRST_RETRY;
    let mut resync = Instant::now() + RESYNC;
    loop {
        let next = due.unwrap_or(resync);
        tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => match change {
                None => return,
                Some(Err(error)) => warn!("the watch of Secrets for nodes was interrupted: {error}"),
                Some(Ok(_)) => due = Some(due.map_or(Instant::now() + DEBOUNCE, |due| due.min(Instant::now() + DEBOUNCE))),
            },
            () = tokio::time::sleep_until(next) => {
                resync = Instant::now() + RESYNC;
                match publish_once(&client).await {
                    Ok(()) => (due, retry) = (None, FIRST_RETRY),
                    Err(error) => {
                        warn!("cannot publish the versions of Secrets for nodes: {error}");
                        due = Some(Instant::now() + retry);
                        retry = MAX_RETRY.min(retry * 2);
                    }
                }
            }
        }
    }
}

/// Writes the versions, if they have changed.
async fn publish_once(client: &kube::Client) -> Result<(), SecretRefusal> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let all = ListParams::default().labels(&format!("{SECRET_FILES}=true"));
    let found = secrets.list(&all).await.map_err(failed("list the Secrets"))?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let name = names::config_map::SECRET_VERSIONS;
    let published = maps.get_opt(name).await.map_err(failed("read the versions"))?;
    if found.items.is_empty() && published.is_none() {
        return Ok(());
    }
    let wanted = if found.items.is_empty() {
        // Without a Secret no key is needed either.
        SecretVersions::of_secrets(&[], [])
    } else {
        let key = key(client).await?;
        SecretVersions::of_secrets(&key, &found.items)
    };
    if published.as_ref().map(SecretVersions::of_config_map).as_ref() == Some(&wanted) {
        return Ok(());
    }
    let map = wanted.to_config_map();
    let written = if published.is_some() {
        let change = serde_json::json!({"data": map.data});
        patch::merge(&maps, name, MANAGER, &change).await.map(drop)
    } else {
        maps.create(&MANAGER.post_params(), &map).await.map(drop)
    };
    written.map_err(failed("write the versions"))?;
    info!(
        secrets = found.items.len(),
        "published the versions of Secrets for nodes"
    );
    Ok(())
}

/// Returns the key of all versions, which is created with the first of them. Another key would be a rotation of every
/// Secret.
async fn key(client: &kube::Client) -> Result<Vec<u8>, SecretRefusal> {
    if let Some(key) = read_key(client).await? {
        return Ok(key);
    }
    let random = tokens::random::<KEY_BYTES>();
    let random = random.map_err(|error| SecretRefusal::Unavailable(error.to_string()))?;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(names::secret::SECRET_VERSIONS_KEY.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), ByteString(random.to_vec()))].into()),
        immutable: Some(true),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    match secrets.create(&MANAGER.post_params(), &secret).await {
        Ok(_) => Ok(random.to_vec()),
        Err(error) if is_already_exists(&error) => {
            let key = read_key(client).await?;
            key.ok_or_else(|| SecretRefusal::Unavailable("the key of the versions was deleted".to_owned()))
        }
        Err(error) => Err(failed("create the key of the versions")(error)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use mco_apiserver::{ApiServer, ApiServerOptions};
    use serde_json::json;

    use super::*;

    async fn versions(client: &kube::Client) -> Option<SecretVersions> {
        publish_once(client).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let found = maps.get_opt(names::config_map::SECRET_VERSIONS).await.unwrap();
        found.as_ref().map(SecretVersions::of_config_map)
    }

    #[tokio::test]
    async fn versions_follow_the_values_of_labelled_secrets_and_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let open = async || {
            ApiServer::open(directory.path(), ApiServerOptions::default())
                .await
                .unwrap()
        };
        let server = open().await;
        let client = kube::Client::new(server.service(), "default");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        namespaces
            .create(&MANAGER.post_params(), &namespace)
            .await
            .unwrap();
        assert_eq!(
            versions(&client).await,
            None,
            "nothing is written without a labelled Secret"
        );

        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        for (name, label) in [("vpn", "true"), ("other", "false")] {
            let secret = json!({
                "metadata": {"name": name, "labels": {SECRET_FILES: label}},
                "data": {"psk": ByteString(b"one".to_vec())},
            });
            let secret = serde_json::from_value(secret).unwrap();
            secrets.create(&MANAGER.post_params(), &secret).await.unwrap();
        }
        let reference = "vpn/psk".parse().unwrap();
        let first = versions(&client).await.unwrap();
        assert!(first.get(&"other/psk".parse().unwrap()).is_err());
        let one = first.get(&reference).unwrap().to_owned();

        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let map = maps.get(names::config_map::SECRET_VERSIONS).await.unwrap();
        assert_eq!(versions(&client).await, Some(first));
        let again = maps.get(names::config_map::SECRET_VERSIONS).await.unwrap();
        assert_eq!(
            map.metadata.resource_version, again.metadata.resource_version,
            "no second write"
        );

        let value = json!({"data": {"psk": ByteString(b"two".to_vec())}});
        patch::merge(&secrets, "vpn", MANAGER, &value).await.unwrap();
        let two = versions(&client)
            .await
            .unwrap()
            .get(&reference)
            .unwrap()
            .to_owned();
        assert_ne!(one, two);
        let value = json!({"data": {"psk": ByteString(b"one".to_vec())}});
        patch::merge(&secrets, "vpn", MANAGER, &value).await.unwrap();
        assert_eq!(versions(&client).await.unwrap().get(&reference).unwrap(), one);
        let label = json!({"metadata": {"labels": {SECRET_FILES: null}}});
        patch::merge(&secrets, "vpn", MANAGER, &label).await.unwrap();
        assert!(
            versions(&client).await.unwrap().get(&reference).is_err(),
            "the owner withdrew it"
        );
    }
}
