//! What image builds need besides the builder: copies of Secrets that it may read, and the MachineConfigs of images that
//! came with the installation.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::vocabulary::conditions::{machine_os_config as condition, status};
use mco_api::vocabulary::names::{self, secret};
use mco_api::vocabulary::{annotations, labels};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use serde_json::json;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed};

const OPAQUE: &str = "Opaque";
const CREDENTIALS: &str = "kubernetes.io/dockerconfigjson";

/// Returns whether the builder is needed: a MachineOSConfig exists, or builds of deleted ones remain.
pub(crate) async fn are_wanted(cluster: &OperatorClient) -> Result<bool, ClusterError> {
    if !configs(cluster).await?.is_empty() {
        return Ok(true);
    }
    let builds = cluster
        .all::<MachineOSBuild>()
        .list(&ListParams::default().limit(1))
        .await;
    let builds = builds.map_err(failed("listing", || "MachineOSBuilds".to_owned()))?;
    Ok(!builds.items.is_empty())
}

async fn configs(cluster: &OperatorClient) -> Result<Vec<MachineOSConfig>, ClusterError> {
    let found = cluster
        .all::<MachineOSConfig>()
        .list(&ListParams::default())
        .await;
    let found = found.map_err(failed("listing", || "MachineOSConfigs".to_owned()))?;
    Ok(found.items)
}

/// Brings the side objects of all pools with a MachineOSConfig up to date, and removes those of the others.
pub(crate) async fn sync(cluster: &OperatorClient) -> Result<(), ClusterError> {
    let configs = configs(cluster).await?;
    let layered: BTreeSet<&str> = configs
        .iter()
        .map(|config| config.spec.machine_config_pool.name.as_str())
        .collect();
    let pull = cluster
        .secret(names::CONFIG_NAMESPACE, secret::PULL_SECRET)
        .await?;
    let pull = pull.filter(|_| !layered.is_empty()).and_then(|pull| pull.data);
    copy(cluster, secret::GLOBAL_PULL_SECRET_COPY, CREDENTIALS, pull, None).await?;
    let source = cluster
        .secret(names::CONFIG_MANAGED_NAMESPACE, secret::ENTITLEMENT)
        .await?;
    let source = source.and_then(|source| source.data);
    let pools = cluster
        .all::<MachineConfigPool>()
        .list(&ListParams::default())
        .await;
    for pool in pools.map_err(failed("listing", || "MachineConfigPools".to_owned()))? {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let data = source.clone().filter(|_| layered.contains(name.as_str()));
        copy(cluster, &secret::entitlement_of(&name), OPAQUE, data, Some(&pool)).await?;
    }
    if !layered.is_empty() {
        registry_certificates(cluster).await?;
    }
    Ok(())
}

/// Copies the certificates of image registries to our namespace, where the Jobs of builds mount them. The keys are hosts,
/// with two dots before the port.
async fn registry_certificates(cluster: &OperatorClient) -> Result<(), ClusterError> {
    let Some(config) = cluster.find::<ControllerConfig>(CONTROLLER_CONFIG_NAME).await? else {
        return Ok(());
    };
    let spec = config.spec;
    let bundles = spec
        .image_registry_bundle_data
        .into_iter()
        .chain(spec.image_registry_bundle_user_data);
    let data: BTreeMap<String, String> = bundles
        .map(|bundle| {
            let host = bundle.file.replace(':', "..");
            (host, String::from_utf8_lossy(&bundle.data.0).into_owned())
        })
        .collect();
    let name = names::config_map::MERGED_TRUSTED_IMAGE_REGISTRY_CA;
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": names::NAMESPACE},
            "data": data,
        }))
        .await?;
    Ok(())
}

/// Writes a Secret in our namespace if it has data, and deletes it otherwise.
async fn copy(
    cluster: &OperatorClient,
    name: &str,
    type_: &str,
    data: Option<BTreeMap<String, ByteString>>,
    owner: Option<&MachineConfigPool>,
) -> Result<(), ClusterError> {
    let present = cluster.secret(names::NAMESPACE, name).await?;
    let Some(data) = data else {
        if present.is_none() {
            return Ok(());
        }
        let api = cluster.within::<Secret>(names::NAMESPACE);
        return match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            answer => answer
                .map(|_| ())
                .map_err(failed("deleting", || format!("Secret {name}"))),
        };
    };
    if present.as_ref().and_then(|present| present.data.as_ref()) == Some(&data) {
        return Ok(());
    }
    let owners = owner.map(|pool| {
        json!([{
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "name": pool.metadata.name,
            "uid": pool.metadata.uid,
        }])
    });
    cluster
        .apply(&json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": names::NAMESPACE, "ownerReferences": owners},
            "type": type_,
            "data": data,
        }))
        .await?;
    Ok(())
}

/// Creates the MachineConfig of each image that came with the installation, so that a pool is rendered in the cluster
/// as it was during the installation. It is never changed, and deleted when its pool has no MachineOSConfig any more.
pub(crate) async fn pre_built_images(cluster: &OperatorClient) -> Result<(), ClusterError> {
    let configs = configs(cluster).await?;
    let api = cluster.all::<MachineConfig>();
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(failed("listing", || "MachineConfigs".to_owned()))?;
    let present: BTreeSet<String> = listed
        .into_iter()
        .filter(|one| has_annotation(&one.metadata, annotations::PRE_BUILT_IMAGE))
        .filter_map(|one| one.metadata.name)
        .collect();
    let mut wanted = BTreeSet::new();
    for config in &configs {
        let pool = config.spec.machine_config_pool.name.as_str();
        let name = names::pre_built_image(pool);
        wanted.insert(name.clone());
        if present.contains(&name) {
            continue;
        }
        let image = config.metadata.annotations.as_ref();
        let image = image
            .and_then(|all| all.get(annotations::PRE_BUILT_IMAGE))
            .filter(|image| !image.is_empty());
        match image {
            Some(image) => create_pre_built_image(&api, &name, pool, image).await?,
            None if is_seeded(config) => {
                return Err(ClusterError::PreBuiltImage {
                    config: config.metadata.name.clone().unwrap_or_default(),
                    pool: pool.to_owned(),
                    name,
                });
            }
            None => {}
        }
    }
    // Of these names only: the annotation alone may be on a MachineConfig of a user.
    let prefix = names::pre_built_image("");
    for name in present
        .iter()
        .filter(|name| name.starts_with(&prefix) && !wanted.contains(*name))
    {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            answer => {
                answer.map_err(failed("deleting", || format!("MachineConfig {name}")))?;
            }
        }
    }
    Ok(())
}

async fn create_pre_built_image(
    api: &Api<MachineConfig>,
    name: &str,
    pool: &str,
    image: &str,
) -> Result<(), ClusterError> {
    let mut object = MachineConfig::new(
        name,
        MachineConfigSpec {
            os_image_url: image.to_owned(),
            ..MachineConfigSpec::default()
        },
    );
    let labels = object.metadata.labels.get_or_insert_default();
    labels.insert(labels::ROLE.to_owned(), pool.to_owned());
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(annotations::PRE_BUILT_IMAGE.to_owned(), image.to_owned());
    let created = api.create(&OPERATOR.post_params(), &object).await;
    created.map_err(failed("creating", || format!("MachineConfig {name}")))?;
    Ok(())
}

fn has_annotation(metadata: &ObjectMeta, key: &str) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(key))
}

fn is_seeded(config: &MachineOSConfig) -> bool {
    let conditions = config.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|one| one.type_ == condition::SEEDED && one.status == status::TRUE)
}
