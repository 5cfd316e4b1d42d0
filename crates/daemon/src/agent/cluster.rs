//! The objects that a node reads from its cluster, each fetched by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, PartialObjectMeta, Patch};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::node_adoption::{NodeAdoptionSpec, NodeAdoptionStatus};
use mco_api::vocabulary::annotations::DRIFT_POLICY;
use mco_api::vocabulary::names;
use mco_api::{
    ClusterBase, ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration,
    NodeAdoption, plain,
};
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::{DriftPolicy, NodeHealth};
use mco_runtime::{FieldManager, Lenient};
use serde_json::json;

use super::error::AgentError;
use super::report::NodeReport;
use crate::live::api_server_ca;
use crate::revert::WayBack;

/// The field manager of every write of the daemon.
pub(crate) const FIELD_MANAGER: FieldManager = FieldManager::new("machine-config-daemon");

pub(crate) struct AgentClient {
    client: kube::Client,
    node: String,
}

impl AgentClient {
    pub fn new(client: kube::Client, node: String) -> Self {
        Self { client, node }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the node's own Node.
    pub async fn read_node(&self) -> Result<Node, AgentError> {
        let node = self.nodes().get(&self.node).await;
        node.map_err(failed(format!("read node {}", self.node)))
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub fn lenient_nodes(&self) -> Api<Lenient<Node>> {
        Api::all(self.client.clone())
    }

    pub fn controller_configs(&self) -> Api<ControllerConfig> {
        Api::all(self.client.clone())
    }

    pub fn machine_config_node_metadata(&self) -> Api<PartialObjectMeta<MachineConfigNode>> {
        Api::all(self.client.clone())
    }

    pub async fn config(&self, name: &str) -> Result<MachineConfig, AgentError> {
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let found = configs
            .get_opt(name)
            .await
            .map_err(failed(format!("read MachineConfig {name}")))?;
        found.ok_or_else(|| AgentError::NoSuchConfig(name.to_owned()))
    }

    /// Returns the node disruption rules. A cluster without a MachineConfiguration has the built-in rules.
    pub async fn rules(&self) -> Result<AdministratorRules, AgentError> {
        let base = self.base().await?;
        let attempt = "read the disruption policies";
        let found: Option<MachineConfiguration> = self.singleton(names::SINGLETON, attempt).await?;
        let found = if found.is_some() {
            found
        } else {
            let plain: Option<plain::MachineConfiguration> =
                self.singleton(names::SINGLETON, attempt).await?;
            plain.map(MachineConfiguration::from)
        };
        let Some(found) = found else {
            return Ok(AdministratorRules::of_base(base));
        };
        let generation = found.metadata.generation.unwrap_or_default();
        let is_stale = found.status.as_ref().is_some_and(|status| {
            status.node_disruption_policy_status.is_some() && status.observed_generation != generation
        });
        if is_stale {
            return Err(AgentError::PolicyNotReady { generation });
        }
        Ok(AdministratorRules::in_force(&found, base))
    }

    /// Returns the base of the cluster. An unknown one has no rules, so that every change reboots.
    async fn base(&self) -> Result<ClusterBase, AgentError> {
        let config: Option<ControllerConfig> = self
            .singleton(CONTROLLER_CONFIG_NAME, "read the ControllerConfig")
            .await?;
        Ok(config.map_or_else(ClusterBase::default, |config| {
            config.base().unwrap_or(ClusterBase::None)
        }))
    }

    /// Returns a cluster-wide object; `None` if it or its kind does not exist.
    async fn singleton<K>(&self, name: &str, attempt: &str) -> Result<Option<K>, AgentError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        match Api::<K>::all(self.client.clone()).get_opt(name).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            found => found.map_err(failed(attempt.to_owned())),
        }
    }

    /// Returns what reverting from a built image needs. A cluster without a ControllerConfig has no image of ours.
    pub async fn way_back(&self) -> Result<WayBack, AgentError> {
        let found = self.controller_configs().get_opt(CONTROLLER_CONFIG_NAME).await;
        let config = found.map_err(failed("read the ControllerConfig".to_owned()))?;
        Ok(WayBack::of(&config.unwrap_or_default())?)
    }

    /// Returns the CA bundle with which machines verify the API server; `None` if the cluster publishes none, or an
    /// earlier release of the operator has not granted access to it.
    pub async fn api_server_ca(&self) -> Result<Option<Vec<u8>>, AgentError> {
        let all: Api<ConfigMap> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        match all.get_opt(names::config_map::KUBECONFIG_DATA).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            found => {
                let found = found.map_err(failed("read the CA of the API server".to_owned()))?;
                Ok(found.as_ref().and_then(api_server_ca::of_config_map))
            }
        }
    }

    /// Returns the pool that the node belongs to according to its MachineConfigNode.
    pub async fn pool(&self) -> Result<Option<MachineConfigPool>, AgentError> {
        let nodes: Api<MachineConfigNode> = Api::all(self.client.clone());
        let attempt = || failed(format!("find the pool of node {}", self.node));
        let Some(node) = nodes.get_opt(&self.node).await.map_err(attempt())? else {
            return Ok(None);
        };
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        pools.get_opt(&node.spec.pool.name).await.map_err(attempt())
    }

    /// Returns the pool's drift policy. Without one, or if it cannot be read, the default applies: nothing on the
    /// machine is changed.
    pub async fn drift_policy(&self) -> DriftPolicy {
        let pool = match self.pool().await {
            Ok(pool) => pool,
            Err(error) => {
                tracing::warn!(%error, "could not read the pool's drift policy; using the default");
                None
            }
        };
        pool.and_then(|pool| pool.metadata.annotations?.remove(DRIFT_POLICY))
            .map(|value| DriftPolicy::from_annotation(&value))
            .unwrap_or_default()
    }

    /// Publishes the status of the node's adoption, unless it is already published.
    pub async fn publish_adoption(
        &self,
        uid: Option<&str>,
        status: &NodeAdoptionStatus,
    ) -> Result<(), AgentError> {
        let all: Api<NodeAdoption> = Api::all(self.client.clone());
        let attempt = || failed(format!("write NodeAdoption {}", self.node));
        match all.get_opt(&self.node).await.map_err(attempt())? {
            Some(known) if known.status.as_ref() == Some(status) => return Ok(()),
            Some(_) => {}
            None => {
                let mut object = NodeAdoption::new(&self.node, NodeAdoptionSpec::default());
                // Deleted with its Node.
                object.metadata.owner_references = uid.map(|uid| {
                    vec![OwnerReference {
                        api_version: "v1".to_owned(),
                        kind: "Node".to_owned(),
                        name: self.node.clone(),
                        uid: uid.to_owned(),
                        ..OwnerReference::default()
                    }]
                });
                let created = all.create(&FIELD_MANAGER.post_params(), &object).await;
                created.map_err(attempt())?;
            }
        }
        // The whole status is replaced, because a merge would keep the fields that are absent now.
        let patch = Patch::Json::<()>(
            serde_json::from_value(json!([{"op": "add", "path": "/status", "value": status}]))
                .unwrap_or_default(),
        );
        let written = all
            .patch_status(&self.node, &FIELD_MANAGER.patch_params(), &patch)
            .await;
        written.map(|_| ()).map_err(attempt())
    }

    /// Patches the node's annotations (a value of `None` removes one) and returns the updated Node.
    pub async fn write(&self, report: &NodeReport) -> Result<Node, AgentError> {
        self.annotate(json!(report)).await
    }

    /// Returns the node's health in this boot.
    pub async fn health(&self, boot_id: &str) -> Result<NodeHealth, AgentError> {
        Ok(NodeHealth::of_node(&self.read_node().await?, boot_id))
    }

    pub async fn introduce(&self, annotations: &BTreeMap<String, String>) -> Result<Node, AgentError> {
        self.annotate(json!(annotations)).await
    }

    async fn annotate(&self, annotations: serde_json::Value) -> Result<Node, AgentError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.nodes()
            .patch(&self.node, &FIELD_MANAGER.patch_params(), &patch)
            .await
            .map_err(failed(format!("annotate node {}", self.node)))
    }
}

fn failed(attempted: String) -> impl FnOnce(kube::Error) -> AgentError {
    move |source| AgentError::Api {
        attempted,
        source: Box::new(source),
    }
}
