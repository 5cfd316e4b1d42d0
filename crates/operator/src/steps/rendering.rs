//! The ControllerConfig: written from the facts, then read for the status of the template controller.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::Patch;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::conditions::{controller_config as condition, status};
use mco_api::vocabulary::names;
use mco_api::{ClusterBase, ControllerConfig};
use mco_core::config::semantic::Blank;
use serde_json::{Value, json};
use thiserror::Error;

use crate::cluster::{ClusterError, OPERATOR, OperatorClient, failed, metadata};
use crate::controller_config;
use crate::facts::ObservedFacts;
use crate::options::OperatorOptions;
use crate::progress::SyncResult;
use crate::steps::serving;

const CA_BUNDLE: &str = "ca-bundle.crt";
/// Time after which every running machine has processed a rotation.
const ROTATION_REPORTED_FOR: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Error)]
pub enum RenderingError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("ControllerConfig {CONTROLLER_CONFIG_NAME} cannot be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("{0}")]
    Templates(String),
}

/// The time of the last observed rotation of the API server's CA.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    at: Option<Timestamp>,
}

impl Rotation {
    fn is_recent(self, now: Timestamp) -> bool {
        self.at
            .is_some_and(|at| now.duration_since(at) < ROTATION_REPORTED_FOR)
    }
}

/// Writes the ControllerConfig and returns whether the base configuration is rendered from it.
pub async fn controller_config(
    cluster: &OperatorClient,
    facts: &ObservedFacts,
    options: &OperatorOptions,
    base: ClusterBase,
    rotation: &mut Rotation,
) -> Result<SyncResult, RenderingError> {
    let now = Timestamp::now();
    let published = publish_api_server_authorities(cluster).await;
    if matches!(published, Ok(true)) {
        rotation.at = Some(now);
    }
    let authorities = serving::authorities(cluster, facts).await?;
    let mut wanted = controller_config::controller_config(facts, &authorities, options);
    controller_config::fill_authorities(&mut wanted);
    wanted.set_base(base);
    if rotation.is_recent(now) {
        controller_config::report_rotation(&mut wanted);
    }
    let manifest = controller_config::manifest(&wanted)?;
    let applied = cluster.apply_meaning(&manifest, Blank::Empty).await?;
    let applied: ControllerConfig = serde_json::from_value(serde_json::to_value(&applied)?)?;
    // Published last, because an error here must not delay our machines.
    published?;
    publish_registry_authorities(cluster, facts).await?;
    followed(&applied)
}

/// Evaluates the template controller's status of a ControllerConfig.
fn followed(config: &ControllerConfig) -> Result<SyncResult, RenderingError> {
    let reported = config.status.clone().unwrap_or_default();
    let find = |type_: &str| {
        let mut found = reported.conditions.iter().filter(|one| one.type_ == type_);
        found.next()
    };
    let holds = |type_: &str| find(type_).is_some_and(|one| one.status == status::TRUE);
    let generation = config.metadata.generation.unwrap_or_default();
    if reported.observed_generation < generation {
        return Ok(SyncResult::NotYet(format!(
            "status for ControllerConfig {CONTROLLER_CONFIG_NAME} is being reported for {}, expecting it for {generation}",
            reported.observed_generation
        )));
    }
    let [completed, running, failing] = [
        condition::TEMPLATE_CONTROLLER_COMPLETED,
        condition::TEMPLATE_CONTROLLER_RUNNING,
        condition::TEMPLATE_CONTROLLER_FAILING,
    ]
    .map(holds);
    // While it is running, the other conditions describe the previous state.
    if failing && !running {
        let message = find(condition::TEMPLATE_CONTROLLER_FAILING).map(|one| one.message.clone());
        return Err(RenderingError::Templates(message.unwrap_or_default()));
    }
    if completed && !running {
        return Ok(SyncResult::Yes);
    }
    Ok(SyncResult::NotYet(format!(
        "ControllerConfig has not completed: completed({completed}) running({running}) failing({failing})"
    )))
}

/// Publishes the CAs with which new machines verify the API server; if the cluster does not publish them, those that
/// its tokens come with. Returns whether they changed.
async fn publish_api_server_authorities(cluster: &OperatorClient) -> Result<bool, ClusterError> {
    let source = cluster
        .config_map(
            names::CONFIG_MANAGED_NAMESPACE,
            names::config_map::KUBE_API_SERVER_CA,
        )
        .await?;
    let Some(bundle) = source.and_then(|source| source.data?.remove(CA_BUNDLE)) else {
        return Ok(false);
    };
    let bundle = ByteString(bundle.into_bytes());
    let name = names::config_map::KUBECONFIG_DATA;
    let before = cluster.config_map(names::NAMESPACE, name).await?;
    let before = before.and_then(|before| before.binary_data?.remove(CA_BUNDLE));
    let is_new = before.as_ref() != Some(&bundle);
    let published = ConfigMap {
        metadata: metadata(Some(names::NAMESPACE), name),
        binary_data: Some([(CA_BUNDLE.to_owned(), bundle)].into()),
        ..ConfigMap::default()
    };
    cluster.apply(&published).await?;
    Ok(is_new)
}

/// Publishes the registry CAs of the machines for other components: those of the cluster's own registry and the user's.
/// Only on clusters with an Image and with that namespace.
async fn publish_registry_authorities(
    cluster: &OperatorClient,
    facts: &ObservedFacts,
) -> Result<(), ClusterError> {
    let namespace = names::CONFIG_MANAGED_NAMESPACE;
    if facts.image.is_none() || cluster.find::<Namespace>(namespace).await?.is_none() {
        return Ok(());
    }
    let name = names::config_map::MERGED_TRUSTED_IMAGE_REGISTRY_CA;
    let all = facts
        .registry_authorities
        .iter()
        .chain(&facts.user_registry_authorities);
    let wanted: BTreeMap<String, String> = all
        .map(|(file, authority)| (file.clone(), String::from_utf8_lossy(authority).into_owned()))
        .collect();
    let merged = ConfigMap {
        metadata: metadata(Some(namespace), name),
        data: Some(wanted.clone()),
        ..ConfigMap::default()
    };
    let applied = cluster.apply_and_read(&merged).await?;
    // A CA that is no longer trusted is removed even if another client wrote it too.
    let found = applied.data["data"].as_object().into_iter().flatten();
    let gone: BTreeMap<&String, Value> = found
        .filter(|(file, _)| !wanted.contains_key(*file))
        .map(|(file, _)| (file, Value::Null))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let maps = cluster.within::<ConfigMap>(namespace);
    let patch = Patch::Merge(json!({"data": gone}));
    let answer = maps.patch(name, &OPERATOR.patch_params(), &patch).await;
    answer
        .map(|_| ())
        .map_err(failed("updating", || format!("ConfigMap {namespace}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_controllers_status_is_reported() {
        let config = |observed: i64, conditions: serde_json::Value| -> ControllerConfig {
            serde_json::from_value(json!({
                "metadata": {"name": "machine-config-controller", "generation": 2},
                "status": {"observedGeneration": observed, "conditions": conditions},
            }))
            .unwrap()
        };
        let condition =
            |type_: &str, status: &str| json!({"type": type_, "status": status, "message": "no such key"});
        let waiting = |text: &str| Ok(SyncResult::NotYet(text.to_owned()));
        for (name, (observed, conditions), expected) in [
            (
                "an older one is described",
                (1, json!([condition("TemplateControllerCompleted", "True")])),
                waiting(
                    "status for ControllerConfig machine-config-controller is being reported for 1, expecting it for 2",
                ),
            ),
            (
                "work goes on",
                (2, json!([condition("TemplateControllerRunning", "True")])),
                waiting("ControllerConfig has not completed: completed(false) running(true) failing(false)"),
            ),
            (
                "what failed before is tried again",
                (
                    2,
                    json!([
                        condition("TemplateControllerRunning", "True"),
                        condition("TemplateControllerFailing", "True")
                    ]),
                ),
                waiting("ControllerConfig has not completed: completed(false) running(true) failing(true)"),
            ),
            (
                "another version makes it again",
                (
                    2,
                    json!([
                        condition("TemplateControllerCompleted", "True"),
                        condition("TemplateControllerRunning", "True")
                    ]),
                ),
                waiting("ControllerConfig has not completed: completed(true) running(true) failing(false)"),
            ),
            (
                "it failed",
                (2, json!([condition("TemplateControllerFailing", "True")])),
                Err("no such key".to_owned()),
            ),
            (
                "all is well",
                (
                    2,
                    json!([
                        condition("TemplateControllerCompleted", "True"),
                        condition("TemplateControllerFailing", "False")
                    ]),
                ),
                Ok(SyncResult::Yes),
            ),
        ] {
            let found = followed(&config(observed, conditions)).map_err(|error| error.to_string());
            assert_eq!(found, expected, "{name}");
        }
    }
}
