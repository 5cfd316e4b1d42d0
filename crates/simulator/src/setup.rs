//! Prepares a cluster for controllers without an operator: CRDs, the namespace, the two built-in pools, and a
//! ControllerConfig with documented defaults.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::{ByteString, ClusterResourceScope};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::{annotations, names};
use mco_core::pipeline::bootstrap;
use mco_core::pipeline::offline;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FIELD_MANAGER;

/// The release version in the ControllerConfig.
pub const RELEASE: &str = "1.0";
const POLL: Duration = Duration::from_millis(50);

/// Prepares the cluster for controllers of this version. Existing objects are left unchanged.
pub async fn prepare(client: &Client, version: &str) -> Result<(), kube::Error> {
    for definition in mco_api::crds() {
        ensure(client, &definition).await?;
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(names::NAMESPACE.to_owned());
    ensure(client, &namespace).await?;
    // A kind is served shortly after its CRD is accepted.
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    while pools.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(POLL).await;
    }
    for pool in offline::built_in_pools() {
        ensure(client, &pool).await?;
    }
    let mut config = bootstrap::default_controller_config();
    // Simulated machines verify nothing, but the API server rejects empty certificates.
    config.spec.root_ca_data = ByteString(b"\n".to_vec());
    config.spec.kube_api_server_serving_ca_data = ByteString(b"\n".to_vec());
    let own = [
        (annotations::GENERATED_BY_VERSION, version),
        (annotations::RELEASE_IMAGE_VERSION, RELEASE),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    config.metadata.annotations = Some(own.into());
    while let Err(problem) = ensure(client, &config).await {
        if !matches!(&problem, kube::Error::Api(status) if status.code == 404) {
            return Err(problem);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn ensure<K>(client: &Client, object: &K) -> Result<(), kube::Error>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    match api.create(&FIELD_MANAGER.post_params(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(|_| ()),
    }
}
