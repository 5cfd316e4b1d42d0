//! The steps of adoption and release: compares, records the empty starting point, and restores what was there before.

use std::time::Duration;

use mco_api::MachineConfigPool;
use mco_api::node_adoption::NodeAdoptionStatus;
use mco_api::vocabulary::annotations::{
    ADOPTION_REQUEST, CONFIRM_DEADLINE, DRIFT, HOOKS, NODE_FILES_PROBLEM, NODE_FILES_UPDATE, STAGED_CONFIG,
    node as annotation,
};
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::adoption::{AdoptionDecision, AdoptionPolicy, AdoptionRequest, decide};

use super::decide::{AgentStep, Observation, next};
use super::error::AgentError;
use super::report::NodeReport;
use super::run::{AfterStep, Agent, Pause};
use super::work;
use crate::adoption::{self, Comparison};
use crate::config::EMPTY;
use crate::custody::Custody;

/// How soon a node that a pool selects and has not adopted checks the pool's policy and target again, which the daemon
/// does not watch.
const RECHECK: Duration = Duration::from_mins(5);
/// The same while the pool has no rendered config yet.
const RECHECK_TARGET: Duration = Duration::from_secs(15);

/// The annotations of a managed Node. The drift policy is the user's own.
const OUR_ANNOTATIONS: [&str; 23] = [
    annotation::CURRENT_CONFIG,
    annotation::DESIRED_CONFIG,
    annotation::CURRENT_IMAGE,
    annotation::DESIRED_IMAGE,
    annotation::STATE,
    annotation::REASON,
    annotation::DESIRED_DRAIN,
    annotation::LAST_APPLIED_DRAIN,
    annotation::DRAIN_RECORD,
    annotation::POST_CONFIG_ACTION,
    annotation::OSTREE_FINALIZE_STAGED_FAILURE,
    annotation::CONTROL_PLANE_TOPOLOGY,
    annotation::FIRST_PIVOT_CONFIG,
    annotation::CUSTOM_POOL_LABELS_APPLIED,
    annotation::LAST_SYNCED_CONTROLLER_CONFIG,
    annotation::SSH,
    DRIFT,
    HOOKS,
    STAGED_CONFIG,
    CONFIRM_DEADLINE,
    NODE_FILES_UPDATE,
    NODE_FILES_PROBLEM,
    ADOPTION_REQUEST,
];

impl Agent {
    /// Handles a machine that no config was applied to. Nothing on it changes unless its pool adopts it or a user has
    /// requested it.
    pub(super) async fn await_adoption(&mut self, seen: &Observation) -> Result<AfterStep, AgentError> {
        let value = seen.node.adoption_request.clone();
        let request = value.as_deref().and_then(AdoptionRequest::parse);
        self.activity.doing(
            &self.machine.root,
            "not managed: no config was applied to this machine",
            None,
        );
        let Some(pool) = self.cluster.pool().await? else {
            if value.is_some() {
                let why = "no pool selects this node; label it as the nodeSelector of its pool requires";
                self.answer(failed(why), value).await?;
            }
            return Ok(AfterStep::Wait(Pause::UntilNews));
        };
        let released = self
            .blocking(|machine| Ok(adoption::is_released(&machine.root)?))
            .await?;
        let policy = AdoptionPolicy::of_pool(pool.metadata.annotations.as_ref());
        let waits = released || policy == AdoptionPolicy::Never;
        if request.is_none() && waits {
            return Ok(AfterStep::Wait(Pause::after(RECHECK)));
        }
        let Comparison { mut status, findings } = match self.compare_with(&pool).await {
            Ok(Some(comparison)) => comparison,
            Ok(None) => return Ok(AfterStep::Wait(Pause::after(RECHECK_TARGET))),
            Err(error) => {
                let status = incomparable(&pool, error)?;
                self.answer(status, value).await?;
                return Ok(AfterStep::Wait(Pause::after(RECHECK)));
            }
        };
        match decide(policy, request, released, &findings) {
            AdoptionDecision::Stay(why) => {
                if request == Some(AdoptionRequest::Adopt) {
                    "Failed".clone_into(&mut status.phase);
                }
                status.message = why;
                self.answer(status, value).await?;
                Ok(AfterStep::Wait(Pause::after(RECHECK)))
            }
            AdoptionDecision::Adopt => {
                self.blocking(|machine| Ok(adoption::adopt(machine)?)).await?;
                tracing::info!(
                    node = self.cluster.node(),
                    pool = status.pool,
                    "adopted the machine"
                );
                "Adopted".clone_into(&mut status.phase);
                "adopted; what was there before is kept".clone_into(&mut status.message);
                self.answer(status, value).await?;
                Ok(AfterStep::Again)
            }
        }
    }

    /// Answers a request to compare a machine that is already managed.
    pub(super) async fn compare_managed(&mut self, value: String) -> Result<(), AgentError> {
        let status = match self.cluster.pool().await? {
            None => failed("no pool selects this node"),
            Some(pool) => match self.compare_with(&pool).await {
                Err(error) => incomparable(&pool, error)?,
                Ok(None) => failed("the pool has no rendered config yet"),
                Ok(Some(Comparison { mut status, findings })) => {
                    if self.blocking(|machine| Ok(Custody::of(&machine.root)?)).await? == Custody::Adopted {
                        // A comparison does not change what has become of the node.
                        "Adopted".clone_into(&mut status.phase);
                    }
                    status.message = findings
                        .obstacle
                        .unwrap_or_else(|| "the node is already managed".to_owned());
                    status
                }
            },
        };
        self.answer(status, Some(value)).await
    }

    /// Compares the machine with the pool's rendered config; `None` if it has none yet.
    async fn compare_with(&mut self, pool: &MachineConfigPool) -> Result<Option<Comparison>, AgentError> {
        let target = pool.spec.configuration.reference.name.clone().unwrap_or_default();
        if target.is_empty() {
            return Ok(None);
        }
        let config = match self.cluster.config(&target).await {
            Err(AgentError::NoSuchConfig(_)) => return Ok(None),
            config => work::checked(config?)?,
        };
        let rules = match self.cluster.rules().await {
            Err(AgentError::PolicyNotReady { .. }) => AdministratorRules::default(),
            rules => rules?,
        };
        let mut comparison = self
            .blocking(move |machine| Ok(adoption::compare(machine, &config, &rules)?))
            .await?;
        comparison.status.pool = pool.metadata.name.clone().unwrap_or_default();
        Ok(Some(comparison))
    }

    /// Publishes the status and removes the request that it answers.
    async fn answer(
        &mut self,
        mut status: NodeAdoptionStatus,
        request: Option<String>,
    ) -> Result<(), AgentError> {
        status.request = request.clone().unwrap_or_default();
        status.message = adoption::shortened(&status.message);
        let uid = self.node.as_ref().and_then(|node| node.uid.clone());
        self.cluster.publish_adoption(uid.as_deref(), &status).await?;
        if request.is_some() {
            self.write(&NodeReport::from([(ADOPTION_REQUEST, None)])).await?;
        }
        Ok(())
    }

    /// Runs one step of a release: an ordinary update to the empty config, then the removal of our state.
    pub(super) async fn release(
        &mut self,
        mut seen: Observation,
        value: String,
    ) -> Result<AfterStep, AgentError> {
        let (custody, released) = self
            .blocking(|machine| Ok((Custody::of(&machine.root)?, adoption::is_released(&machine.root)?)))
            .await?;
        if released && seen.disk.config.is_none() {
            return self.complete_release(value).await;
        }
        match custody {
            Custody::Adopted => {}
            Custody::Installed => {
                let why = "the machine was installed from its config, so there is nothing to go back to";
                self.answer(failed(why), Some(value)).await?;
                return Ok(AfterStep::Again);
            }
            // Nothing was applied to it yet, so there is nothing to restore.
            Custody::Declared => return self.complete_release(value).await,
        }
        seen.node.desired_config = Some(EMPTY.to_owned());
        seen.node.desired_image = None;
        match next(&seen, self.verified.as_ref()) {
            AgentStep::Idle | AgentStep::ReportDone { .. } => self.complete_release(value).await,
            step => self.perform(step, seen).await,
        }
    }

    async fn complete_release(&mut self, value: String) -> Result<AfterStep, AgentError> {
        self.stop_watching();
        self.blocking(|machine| Ok(adoption::forget(machine)?)).await?;
        self.verified = None;
        self.begun = false;
        let status = NodeAdoptionStatus {
            phase: "Released".to_owned(),
            message: "what was there before is restored; the node is not managed".to_owned(),
            request: value,
            ..NodeAdoptionStatus::default()
        };
        let uid = self.node.as_ref().and_then(|node| node.uid.clone());
        self.cluster.publish_adoption(uid.as_deref(), &status).await?;
        self.write(&OUR_ANNOTATIONS.map(|key| (key, None)).into()).await?;
        self.managed = false;
        tracing::info!(node = self.cluster.node(), "released the machine");
        Ok(AfterStep::Again)
    }
}

/// Returns the answer for a machine that cannot be compared. Errors of the API server are retried instead.
fn incomparable(pool: &MachineConfigPool, error: AgentError) -> Result<NodeAdoptionStatus, AgentError> {
    if matches!(error, AgentError::Api { .. }) {
        return Err(error);
    }
    tracing::warn!(%error, "could not compare the machine with the config of its pool");
    Ok(NodeAdoptionStatus {
        pool: pool.metadata.name.clone().unwrap_or_default(),
        ..failed(&format!(
            "could not compare the machine with the config of its pool: {error}"
        ))
    })
}

fn failed(why: &str) -> NodeAdoptionStatus {
    NodeAdoptionStatus {
        phase: "Failed".to_owned(),
        message: why.to_owned(),
        ..NodeAdoptionStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mco_api::vocabulary::annotations;

    use super::*;

    /// Annotations of Nodes that a release does not remove, and why.
    const KEPT: [(&str, &str); 6] = [
        (annotations::DRIFT_POLICY, "of its administrator"),
        (annotations::HOLD_PREFIX, "of its administrator"),
        (annotations::VALUE_PREFIX, "of its administrator"),
        (
            annotations::SCALE_DOWN_DISABLED,
            "removed by the controller after the drain",
        ),
        (annotations::REBOOT_REQUEST, "of the node's own update agent"),
        (annotations::REBOOT_LOCK, "of the node's own update agent"),
    ];
    /// Not keys, but values.
    const VALUES: [&str; 1] = [annotation::REBOOTING];

    /// Returns the annotations of Nodes in the vocabulary, by their documentation or their module.
    fn of_nodes() -> BTreeSet<&'static str> {
        let source = include_str!("../../../api/src/vocabulary/annotations.rs");
        let (mut found, mut module) = (BTreeSet::new(), "");
        let mut documentation = String::new();
        for (number, line) in source.lines().enumerate() {
            let line = line.trim();
            if let Some(text) = line.strip_prefix("///") {
                documentation.push_str(text);
                continue;
            }
            if let Some(name) = line.strip_prefix("pub mod ") {
                module = name.trim_end_matches(" {");
            }
            let is_of_nodes = || {
                let mut words = documentation.split(|character: char| !character.is_ascii_alphanumeric());
                module == "node" || (module.is_empty() && words.any(|word| word == "Node"))
            };
            if line.starts_with("pub const ") && is_of_nodes() {
                // The value may be on the next line.
                let value = source
                    .lines()
                    .skip(number)
                    .find_map(|line| line.split('"').nth(1));
                found.extend(value);
            }
            documentation.clear();
        }
        found
    }

    #[test]
    fn a_release_removes_every_annotation_of_the_vocabulary_from_the_node() {
        let known: BTreeSet<&str> = OUR_ANNOTATIONS
            .into_iter()
            .chain(KEPT.map(|(key, _)| key))
            .chain(VALUES)
            .collect();
        assert_eq!(known, of_nodes());
    }
}
