//! Local nodes: simulated machines in directories, each with a real daemon.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use mco_api::vocabulary::{labels, names};
use mco_daemon::{agent, member};
use mco_host::Machine;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::FIELD_MANAGER;

/// The kubelet version of the Kubernetes release that the API server follows.
const KUBELET_VERSION: &str = "v1.36.0";
/// The maximum number of local nodes, for a laptop.
const MAX_NODES: usize = 50;
const RETRY: Duration = Duration::from_secs(2);

/// The number of local nodes, as in `masters=1,workers=3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fleet {
    pub masters: usize,
    pub workers: usize,
}

impl FromStr for Fleet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut fleet = Self {
            masters: 0,
            workers: 0,
        };
        for part in text.split(',').filter(|part| !part.is_empty() && *part != "none") {
            let number = part
                .split_once('=')
                .and_then(|(role, number)| Some((role, number.parse().ok()?)));
            match number {
                Some(("masters", number)) => fleet.masters = number,
                Some(("workers", number)) => fleet.workers = number,
                _ => return Err(format!("{part:?} is not masters=N or workers=N")),
            }
        }
        if fleet.masters + fleet.workers > MAX_NODES {
            return Err(format!(
                "more than {MAX_NODES} local nodes; use --simulate for large fleets"
            ));
        }
        Ok(fleet)
    }
}

impl Fleet {
    pub fn nodes(self) -> impl Iterator<Item = LocalNode> {
        let masters = (0..self.masters).map(|index| LocalNode::new(names::pool::MASTER, index));
        masters.chain((0..self.workers).map(|index| LocalNode::new(names::pool::WORKER, index)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNode {
    pub name: String,
    pool: &'static str,
}

impl LocalNode {
    fn new(pool: &'static str, index: usize) -> Self {
        Self {
            name: format!("{pool}-{index}"),
            pool,
        }
    }

    /// Creates the machine if it is new, and runs its daemon until the stop, restarting it after errors.
    pub async fn run(
        self,
        kubelet: Client,
        daemon: Client,
        root: PathBuf,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        std::fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
        let live = async {
            loop {
                if let Err(error) = self.live(&kubelet, &daemon, &root, &stop).await {
                    warn!(node = self.name, "restarting the node: {error:#}");
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            () = live => Ok(()),
        }
    }

    async fn live(
        &self,
        kubelet: &Client,
        daemon: &Client,
        root: &std::path::Path,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let machine = Arc::new(Machine::create_directory(root)?);
        self.register(kubelet).await?;
        member::provision(kubelet, &machine, self.pool).await?;
        let options = agent::AgentOptions::default();
        agent::run(daemon.clone(), machine, self.name.as_str(), options, stop.clone()).await?;
        Ok(())
    }

    /// Simulates the kubelet: the Node exists and is ready.
    async fn register(&self, client: &Client) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        if nodes.get_opt(&self.name).await?.is_none() {
            let node = serde_json::from_value(json!({
                "metadata": {"name": self.name, "labels": self.labels()},
            }))?;
            nodes.create(&FIELD_MANAGER.post_params(), &node).await?;
        }
        let now = jiff::Timestamp::now();
        let ready = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "simulated by a directory", "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {"architecture": std::env::consts::ARCH, "bootID": "", "containerRuntimeVersion": "none://",
                "kernelVersion": "none", "kubeProxyVersion": "", "kubeletVersion": KUBELET_VERSION, "machineID": "",
                "operatingSystem": "linux", "osImage": "a directory of mco up", "systemUUID": ""},
        }});
        let patch = Patch::Merge(&ready);
        nodes
            .patch_status(&self.name, &FIELD_MANAGER.patch_params(), &patch)
            .await?;
        Ok(())
    }

    fn labels(&self) -> serde_json::Value {
        let mut all = json!({
            "kubernetes.io/hostname": self.name,
            labels::node::OS: "linux",
            labels::node_role(self.pool): "",
        });
        if self.pool == names::pool::MASTER {
            all[labels::node::ROLE_CONTROL_PLANE] = json!("");
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_written_as_roles_and_numbers() {
        let names = |text: &str| -> Result<Vec<String>, String> {
            Ok(text.parse::<Fleet>()?.nodes().map(|node| node.name).collect())
        };
        assert_eq!(
            names("masters=1,workers=2"),
            Ok(vec!["master-0".into(), "worker-0".into(), "worker-1".into()])
        );
        assert_eq!(names("none"), Ok(vec![]));
        assert_eq!(
            names("infra=1"),
            Err("\"infra=1\" is not masters=N or workers=N".to_owned())
        );
        assert!(names("workers=51").is_err());
    }
}
