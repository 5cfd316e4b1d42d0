//! The few objects a node needs of its cluster, each fetched by name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Api, Patch, PatchParams};
use mco_api::vocabulary::names;
use mco_api::{MachineConfig, MachineConfigNode, MachineConfiguration};
use mco_core::disruption::Policy;
use serde_json::json;

use super::error::AgentError;
use super::progress::StepCondition;
use super::report::Report;

#[derive(Debug, Clone)]
pub(super) struct Cluster {
    client: kube::Client,
    node: String,
}

impl Cluster {
    pub fn new(client: kube::Client, node: String) -> Self {
        Self { client, node }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    pub fn nodes(&self) -> Api<Node> {
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

    /// What changes cost here. A cluster without a MachineConfiguration has the built-in rules.
    pub async fn policy(&self) -> Result<Policy, AgentError> {
        let all: Api<MachineConfiguration> = Api::all(self.client.clone());
        let found = all.get_opt(names::SINGLETON).await;
        let Some(found) = found.map_err(failed("read the disruption policies".to_owned()))? else {
            return Ok(Policy::default());
        };
        let status = found.status.unwrap_or_default();
        let generation = found.metadata.generation.unwrap_or_default();
        match status.node_disruption_policy_status {
            Some(_) if status.observed_generation != generation => {
                Err(AgentError::PolicyNotReady { generation })
            }
            Some(policies) => Ok(Policy::default().with_cluster_policies(&policies.cluster_policies)),
            None => Ok(Policy::default()),
        }
    }

    /// Writes annotations of the node; none removes one.
    pub async fn write(&self, report: &Report) -> Result<(), AgentError> {
        if report.is_empty() {
            return Ok(());
        }
        self.annotate(json!(report)).await
    }

    pub async fn introduce(&self, annotations: &BTreeMap<String, String>) -> Result<(), AgentError> {
        self.annotate(json!(annotations)).await
    }

    async fn annotate(&self, annotations: serde_json::Value) -> Result<(), AgentError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let written = self
            .nodes()
            .patch(&self.node, &PatchParams::default(), &patch)
            .await;
        written
            .map(|_| ())
            .map_err(failed(format!("annotate node {}", self.node)))
    }

    /// Tells people how far the node is. The wire protocol are the annotations, so a failure here stops nothing.
    pub async fn progress(&self, steps: &[StepCondition], current: Option<&str>, now: Timestamp) {
        if let Err(error) = self.try_progress(steps, current, now).await {
            tracing::debug!(node = self.node, %error, "progress was not written");
        }
    }

    async fn try_progress(
        &self,
        steps: &[StepCondition],
        current: Option<&str>,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let all: Api<MachineConfigNode> = Api::all(self.client.clone());
        let attempt = || failed(format!("write the progress of node {}", self.node));
        let Some(found) = all.get_opt(&self.node).await.map_err(attempt())? else {
            return Ok(());
        };
        let status = found.status.unwrap_or_default();
        let mut conditions = status.conditions.clone();
        for step in steps {
            upsert(&mut conditions, step, now);
        }
        let mut versions = status.config_version.clone().unwrap_or_default();
        versions.desired.clone_from(&found.spec.config_version.desired);
        if let Some(current) = current {
            current.clone_into(&mut versions.current);
        }
        if conditions == status.conditions && Some(&versions) == status.config_version.as_ref() {
            return Ok(());
        }
        let generation = found.metadata.generation.unwrap_or(1);
        let patch = Patch::Merge(json!({"status": {
            "conditions": conditions, "configVersion": versions, "observedGeneration": generation,
        }}));
        all.patch_status(&self.node, &PatchParams::default(), &patch)
            .await
            .map(|_| ())
            .map_err(attempt())
    }
}

fn failed(attempted: String) -> impl FnOnce(kube::Error) -> AgentError {
    move |source| AgentError::Api {
        attempted,
        source: Box::new(source),
    }
}

/// A condition keeps its time as long as its status does not change.
fn upsert(conditions: &mut Vec<Condition>, step: &StepCondition, now: Timestamp) {
    let new = Condition {
        type_: step.type_.to_owned(),
        status: step.status.to_owned(),
        reason: step.reason.clone(),
        message: step.message.clone(),
        last_transition_time: Time(now),
        observed_generation: None,
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == new.type_)
    {
        Some(old) if old.status == new.status => {
            *old = Condition {
                last_transition_time: old.last_transition_time.clone(),
                ..new
            };
        }
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}
