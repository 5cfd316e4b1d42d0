//! `mco rollout resume`, `promote` and `abort`: what an administrator decides about a rollout under a RolloutPolicy.

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::{Api, Client};
use mco_api::rollout_policy::{PoolRolloutStatus, RolloutPhase, RolloutPolicy};
use mco_api::vocabulary::annotations::ROLLOUT_CONTROL;
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_core::rollout::RolloutView;
use mco_core::rollout::policy::{PoolControl, PoolRolloutOverview, RolloutControl, overviews, selects};
use serde_json::json;

use super::set_paused;
use crate::cli::OnePool;
use crate::connection::{FIELD_MANAGER, list_readable, to_cli_error};
use crate::output::{self, CommandOutcome};

/// A pool and the policy that selects it.
struct Governed {
    client: Client,
    pool: MachineConfigPool,
    policy: Option<RolloutPolicy>,
}

impl Governed {
    async fn connect(arguments: &OnePool) -> anyhow::Result<Self> {
        Self::read(arguments.connection.client().await?, &arguments.pool).await
    }

    async fn read(client: Client, name: &str) -> anyhow::Result<Self> {
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let pool = to_cli_error(pools.get(name).await, &format!("read pool {name}"))?;
        // Without the kind there is no policy.
        let policies = list_readable::<RolloutPolicy>(&client, "list the RolloutPolicies").await;
        let mut policies = policies
            .unwrap_or_default()
            .into_iter()
            .filter(|policy| selects(policy, &pool));
        let policy = policies.next();
        if let (Some(one), Some(other)) = (&policy, policies.next()) {
            let policy = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
            bail!(
                "RolloutPolicies {} and {} both select pool {name}; change a poolSelector first",
                policy(&one.metadata),
                policy(&other.metadata),
            );
        }
        Ok(Self { client, pool, policy })
    }

    fn required(&self) -> anyhow::Result<&RolloutPolicy> {
        let name = self.pool.metadata.name.as_deref().unwrap_or_default();
        self.policy.as_ref().ok_or_else(|| {
            anyhow!("no RolloutPolicy selects pool {name}; stop its rollout with: mco rollout pause {name}")
        })
    }

    /// Returns the recorded state of the rollout.
    fn recorded(&self) -> Option<&PoolRolloutStatus> {
        let name = self.pool.metadata.name.as_deref()?;
        let pools = &self.policy.as_ref()?.status.as_ref()?.pools;
        pools.iter().find(|recorded| recorded.name == name)
    }

    /// Returns the rollout as the Nodes show it, because its recorded state names only some of the failed nodes. `None`
    /// without a policy.
    async fn rollout(&self) -> anyhow::Result<Option<PoolRolloutOverview>> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        let (pools, nodes, configs, builds) = tokio::join!(
            list_readable::<MachineConfigPool>(&self.client, "list the pools"),
            list_readable::<Node>(&self.client, "list the nodes"),
            list_readable::<MachineOSConfig>(&self.client, "list the MachineOSConfigs"),
            list_readable::<MachineOSBuild>(&self.client, "list the MachineOSBuilds"),
        );
        let (pools, nodes) = (pools?, nodes?);
        // Optional: not every cluster has them.
        let (configs, builds) = (configs.unwrap_or_default(), builds.unwrap_or_default());
        let view = RolloutView::new(&pools, &nodes)
            .with_images(&configs, &builds)
            .with_policies([policy], Timestamp::now(), None);
        let rollouts = overviews(&view).into_iter().flat_map(|policy| policy.pools);
        let mut rollouts = rollouts.filter(|rollout| Some(&rollout.name) == self.pool.metadata.name.as_ref());
        Ok(rollouts.next())
    }

    /// Changes what is decided about the current config of the pool.
    async fn decide(&self, change: impl FnOnce(&mut PoolControl)) -> anyhow::Result<()> {
        let policy = self.required()?;
        let (pool, target) = (
            self.pool.metadata.name.as_deref().unwrap_or_default(),
            self.pool.target_name(),
        );
        let mut control = RolloutControl::of(policy);
        change(control.entry(pool, target));
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": policy.metadata.resource_version,
            "annotations": {ROLLOUT_CONTROL: serde_json::to_string(&control)?},
        }}));
        let policies: Api<RolloutPolicy> = Api::all(self.client.clone());
        let written = policies.patch(name, &FIELD_MANAGER.patch_params(), &patch).await;
        to_cli_error(written, &format!("change RolloutPolicy {name}"))?;
        Ok(())
    }
}

pub async fn resume(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::connect(arguments).await?;
    match resume_rollout(&governed).await? {
        Some(text) => {
            output::print(&text)?;
            Ok(CommandOutcome::Done)
        }
        None => set_paused(arguments, false).await,
    }
}

/// Resumes a rollout that its policy has stopped, and returns what was done; `None` if the policy has not stopped it.
async fn resume_rollout(governed: &Governed) -> anyhow::Result<Option<String>> {
    let (name, target) = (
        governed.pool.metadata.name.as_deref().unwrap_or_default(),
        governed.pool.target_name(),
    );
    let Some(rollout) = governed.rollout().await?.filter(|_| !governed.pool.spec.paused) else {
        return Ok(None);
    };
    if rollout.phase == RolloutPhase::Reverted {
        bail!(
            "pool {name} was {}; {target} is not attempted again: correct or delete the MachineConfig that broke the \
             nodes, so that a new config is rendered",
            rollout.message
        );
    }
    let control = governed.policy.as_ref().map(RolloutControl::of);
    let control = control.and_then(|mut control| control.0.remove(name));
    let is_aborted = control.is_some_and(|control| control.aborted && control.target == target);
    let failed: Vec<String> = rollout.failed.into_iter().map(|note| note.node).collect();
    if !is_aborted && failed.is_empty() {
        return Ok(None);
    }
    governed
        .decide(|control| {
            control.aborted = false;
            control.acknowledged.extend(failed.iter().cloned());
            control.acknowledged.sort();
            control.acknowledged.dedup();
        })
        .await?;
    let ignored = match failed.len() {
        0 => String::new(),
        _ => format!("; failed nodes that no longer count: {}", failed.join(", ")),
    };
    Ok(Some(format!("pool {name} resumed{ignored}\n")))
}

pub async fn promote(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::connect(arguments).await?;
    let waves = governed.required()?.spec.waves.len();
    let recorded = governed.recorded();
    let completed = recorded.map_or(0, |recorded| recorded.completed_waves.len());
    let is_soaking = recorded.is_some_and(|recorded| recorded.phase == RolloutPhase::Soaking);
    // During a soak time the current wave has not begun.
    let promoted = if is_soaking { completed } else { completed + 1 };
    if promoted > waves {
        output::print(&format!("pool {} is in its last wave\n", arguments.pool))?;
        return Ok(CommandOutcome::Done);
    }
    let wave = u32::try_from(promoted)?;
    governed
        .decide(|control| control.promoted = control.promoted.max(wave))
        .await?;
    output::print(&format!("pool {} continues after wave {wave}\n", arguments.pool))?;
    Ok(CommandOutcome::Done)
}

pub async fn abort(arguments: &OnePool) -> anyhow::Result<CommandOutcome> {
    let governed = Governed::connect(arguments).await?;
    governed.decide(|control| control.aborted = true).await?;
    output::print(&format!(
        "pool {} aborted: no further node is updated to {}\n",
        arguments.pool,
        governed.pool.target_name()
    ))?;
    Ok(CommandOutcome::Done)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response, StatusCode};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Serves a pool of which these nodes failed on its target, under a policy with this status. Returns the client and
    /// the annotations that are written to the policy.
    fn cluster(failed: usize, status: &Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let role = "node-role.kubernetes.io/worker";
        let pool = json!({
            "metadata": {"name": "worker"},
            "spec": {"nodeSelector": {"matchLabels": {role: ""}}, "configuration": {"name": "v2"}},
        });
        let policy = json!({
            "metadata": {"name": "workers", "resourceVersion": "7"},
            "spec": {"poolSelector": {}, "maxFailures": {"count": "10%"}},
            "status": status,
        });
        let nodes = (0..failed).map(|index| {
            let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
            json!({"metadata": {"name": format!("worker-{index:02}"), "labels": {role: ""}, "annotations": {
                key("currentConfig"): "v1", key("desiredConfig"): "v2",
                key("state"): "Degraded", key("reason"): "broken",
            }}})
        });
        let nodes: Vec<Value> = nodes.collect();
        let written = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&written);
        let service = tower::service_fn(move |request: Request<Body>| {
            let writes = Arc::clone(&writes);
            let list =
                |items: Value| json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            let answer = match request.uri().path().rsplit('/').next() {
                Some("worker") => pool.clone(),
                Some("machineconfigpools") => list(json!([pool])),
                Some("rolloutpolicies") => list(json!([policy])),
                Some("workers") => policy.clone(),
                Some("nodes") => list(json!(nodes)),
                _ => list(json!([])),
            };
            async move {
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let text = body["metadata"]["annotations"][ROLLOUT_CONTROL].as_str().unwrap();
                    writes.lock().unwrap().push(serde_json::from_str(text).unwrap());
                }
                let response = Response::builder().status(StatusCode::OK);
                Ok::<_, std::convert::Infallible>(
                    response
                        .body(Body::from(answer.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        (Client::new(service, "default"), written)
    }

    /// The state of the rollout to `v2`, in which the nodes have not failed before.
    fn recorded(more: &Value) -> Value {
        let mut pool = json!({"name": "worker", "target": "v2"});
        pool.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "pools": [pool] })
    }

    #[tokio::test]
    async fn only_ten_failed_nodes_were_acknowledged() {
        let shown: Vec<Value> = (0..10)
            .map(|index| json!({"node": format!("worker-{index:02}")}))
            .collect();
        let (client, written) = cluster(25, &recorded(&json!({"phase": "Halted", "failures": shown})));
        let governed = Governed::read(client, "worker").await.unwrap();
        let text = resume_rollout(&governed).await.unwrap().unwrap();
        assert!(
            text.starts_with("pool worker resumed; failed nodes that no longer count: worker-00, "),
            "{text}"
        );
        let written = written.lock().unwrap();
        let [control] = written.as_slice() else {
            panic!("{written:?}")
        };
        let all: Vec<String> = (0..25).map(|index| format!("worker-{index:02}")).collect();
        assert_eq!(control["worker"], json!({"target": "v2", "acknowledged": all}));
    }

    #[tokio::test]
    async fn a_reverted_pool_was_already_resumed() {
        let message = "1 of 1 allowed failure, n0: broken";
        let reverted = json!({"to": "v1", "at": "2026-11-18T12:00:00Z", "message": message});
        let status = recorded(&json!({"phase": "Reverted", "reverted": reverted}));
        let (client, written) = cluster(3, &status);
        let governed = Governed::read(client, "worker").await.unwrap();
        let error = resume_rollout(&governed).await.unwrap_err().to_string();
        assert!(
            error.starts_with(
                "pool worker was reverted to v1: 1 of 1 allowed failure, n0: broken; v2 is not attempted"
            ),
            "{error}"
        );
        assert_eq!(*written.lock().unwrap(), Vec::<Value>::new());
    }
}
