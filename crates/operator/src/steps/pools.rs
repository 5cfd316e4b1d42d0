//! The built-in pools.

use std::collections::BTreeMap;

use kube::api::{ListParams, Patch};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::{names, topology};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use mco_core::config::feature_gates::FeatureGates;
use mco_core::config::pools;
use mco_core::generators::os_images;
use mco_core::generators::os_streams::ReleaseStreams;
use mco_core::generators::os_streams::published::{self, StreamRelease};
use mco_core::pipeline::offline;
use mco_runtime::{Lenient, list_lenient};
use serde_json::json;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed};
use crate::cluster_operator::{self, PoolOrigin, Reported};
use crate::facts::ObservedFacts;

/// Creates missing pools. Of existing ones only the labels are reconciled: the rest belongs to the user.
pub async fn required(cluster: &OperatorClient, facts: &ObservedFacts) -> Result<(), ClusterError> {
    for name in required_names(facts) {
        let wanted = offline::built_in_pool(name);
        let Some(found) = cluster.find::<MachineConfigPool>(name).await? else {
            cluster.create_if_absent(&wanted).await?;
            continue;
        };
        let missing = missing_labels(&found, &wanted);
        if !missing.is_empty() {
            let patch = Patch::Merge(json!({"metadata": {"labels": missing}}));
            let api = cluster.all::<MachineConfigPool>();
            let answer = api.patch(name, &OPERATOR.patch_params(), &patch).await;
            answer.map_err(failed("updating", || format!("MachineConfigPool {name}")))?;
        }
    }
    Ok(())
}

/// Returns all pools, by name.
pub async fn all(cluster: &OperatorClient) -> Result<Vec<MachineConfigPool>, ClusterError> {
    let api = cluster.all::<Lenient<MachineConfigPool>>();
    let pools = list_lenient(&api, &ListParams::default()).await;
    let pools = pools.map_err(failed("listing", || "MachineConfigPools".to_owned()))?;
    let mut pools = pools.logged();
    pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(pools)
}

/// Returns the origin of the configs that required pools report. `known` caches the images of rendered ones, which are
/// large and immutable.
pub async fn reported(
    cluster: &OperatorClient,
    pools: &[MachineConfigPool],
    known: &mut BTreeMap<String, String>,
) -> Result<Reported, ClusterError> {
    let names = cluster_operator::reported_configs(pools);
    known.retain(|name, _| names.contains(name));
    if names.is_empty() {
        return Ok(Reported::new());
    }
    let configs = cluster.all::<MachineConfig>();
    let found = configs.list_metadata(&ListParams::default()).await;
    let found = found.map_err(failed("listing", || "MachineConfigs".to_owned()))?;
    let mut reported: Reported = found
        .items
        .into_iter()
        .filter_map(|config| {
            let annotations = config.metadata.annotations.unwrap_or_default();
            let origin = PoolOrigin {
                annotations,
                ..PoolOrigin::default()
            };
            Some((config.metadata.name?, origin))
        })
        .collect();
    for rendered in names {
        let Some(origin) = reported.get_mut(&rendered) else {
            continue;
        };
        if !known.contains_key(&rendered)
            && let Some(found) = cluster.find::<MachineConfig>(&rendered).await?
        {
            known.insert(rendered.clone(), found.spec.os_image_url);
        }
        origin.os_image = known.get(&rendered).cloned().unwrap_or_default();
    }
    Ok(reported)
}

/// The operating system images that pools have to have.
#[derive(Debug, Default)]
pub struct ExpectedImages {
    /// By required pool. A pool whose image cannot be determined is left out; rendering reports why.
    pub by_pool: BTreeMap<String, String>,
    /// Why the published streams are not those of the release.
    pub stale_streams: Option<String>,
}

/// Returns the expected operating system image of each required pool, from the release or its stream.
pub async fn os_images(
    cluster: &OperatorClient,
    pools: &[MachineConfigPool],
    facts: &ObservedFacts,
    release: &str,
) -> Result<ExpectedImages, ClusterError> {
    let Some(config) = cluster.find::<ControllerConfig>(CONTROLLER_CONFIG_NAME).await? else {
        return Ok(ExpectedImages::default());
    };
    let Ok(gates) = FeatureGates::in_force(facts.feature_gate.as_ref(), &config, None) else {
        return Ok(ExpectedImages::default());
    };
    let object = cluster.find::<OSImageStream>(names::SINGLETON).await?;
    let streams = ReleaseStreams::of(object.as_ref(), &gates);
    let named = |name: &str| {
        let mut pools = pools.iter();
        pools.find(|pool| pool.metadata.name.as_deref() == Some(name))
    };
    let worker = named(pools::WORKER);
    let required = pools.iter().filter(|pool| cluster_operator::is_required(pool));
    let images = required.filter_map(|pool| {
        let stream = streams.of_pool(pool, worker).ok()?;
        let images = stream.map_or_else(
            || os_images::from_controller_config(&config),
            |stream| stream.images,
        );
        Some((pool.metadata.name.clone()?, images.os.to_owned()))
    });
    let target = StreamRelease::of(facts.cluster_version.as_ref());
    let used = object.as_ref().filter(|_| streams.are_published());
    Ok(ExpectedImages {
        by_pool: images.collect(),
        stale_streams: used.and_then(|object| published::stale(object, target, Some(release))),
    })
}

/// Returns the names of the required pools.
pub fn required_names(facts: &ObservedFacts) -> Vec<&'static str> {
    let mut names = vec![pools::MASTER, pools::WORKER];
    if has_arbiters(facts) {
        names.push(pools::ARBITER);
    }
    names
}

/// Returns whether the cluster has arbiters, by its Infrastructure or its nodes.
fn has_arbiters(facts: &ObservedFacts) -> bool {
    let infrastructure = facts.infrastructure.as_ref();
    let status = infrastructure.and_then(|infrastructure| infrastructure.status.as_ref());
    let declared =
        status.is_some_and(|status| status.control_plane_topology == topology::HIGHLY_AVAILABLE_ARBITER);
    declared || facts.control_plane.has_arbiters
}

fn missing_labels<'a>(
    found: &MachineConfigPool,
    wanted: &'a MachineConfigPool,
) -> BTreeMap<&'a str, &'a str> {
    let has = |key: &str| {
        let labels = found.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(key))
    };
    let wanted = wanted.metadata.labels.iter().flatten();
    wanted
        .filter(|(key, _)| !has(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;

    use super::*;

    const NAME: &str = "rendered-master-1";

    /// A cluster with one MachineConfig, which is listed, but found only when `exists`.
    fn cluster(exists: &Arc<AtomicBool>) -> OperatorClient {
        let exists = Arc::clone(exists);
        let service = tower::service_fn(move |request: Request<Body>| {
            let metadata = json!({"name": NAME});
            let is_list = !request.uri().path().ends_with(NAME);
            let (code, answer) = if is_list {
                let list = json!({"metadata": {}, "items": [{"metadata": metadata}]});
                (StatusCode::OK, list)
            } else if exists.load(Ordering::SeqCst) {
                let config = json!({"metadata": metadata, "spec": {"osImageURL": "os:1"}});
                (StatusCode::OK, config)
            } else {
                let status = json!({"status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                (StatusCode::NOT_FOUND, status)
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        OperatorClient::new(Client::new(service, "default"))
    }

    #[tokio::test]
    async fn a_config_that_was_not_found_once_is_asked_for_again() {
        let exists = Arc::new(AtomicBool::new(false));
        let cluster = cluster(&exists);
        let mut master = offline::built_in_pool(pools::MASTER);
        let status = json!({"configuration": {"name": NAME}});
        master.status = Some(serde_json::from_value(status).unwrap());
        let mut known = BTreeMap::new();
        for (found, image) in [(false, ""), (true, "os:1")] {
            exists.store(found, Ordering::SeqCst);
            let reported = reported(&cluster, std::slice::from_ref(&master), &mut known).await;
            assert_eq!(reported.unwrap()[NAME].os_image, image);
        }
    }
}
