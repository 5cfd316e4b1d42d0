//! Watches all nodes and records which were unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use mco_core::rollout::NodeView;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
struct Notes {
    away: BTreeSet<String>,
    /// The maximum of nodes that were unavailable at the same time, by prefix of their names.
    worst: BTreeMap<String, usize>,
    ever: BTreeSet<String>,
    /// Every desired config of each node, in order.
    sent: BTreeMap<String, Vec<String>>,
    /// Nodes whose desired config changed, in order.
    order: Vec<String>,
}

pub struct Observer {
    notes: Arc<Mutex<Notes>>,
    task: JoinHandle<()>,
}

impl Observer {
    pub fn start(nodes: Api<Node>) -> Self {
        let notes: Arc<Mutex<Notes>> = Arc::default();
        let taking = Arc::clone(&notes);
        let task = tokio::spawn(async move {
            let mut events = watcher(nodes, watcher::Config::default()).boxed();
            while let Some(Ok(event)) = events.next().await {
                if let Event::Apply(node) | Event::InitApply(node) = event {
                    taking.lock().take(&node);
                }
            }
        });
        Self { notes, task }
    }

    /// Returns the maximum of nodes with this prefix that were unavailable at the same time.
    pub fn worst(&self, prefix: &str) -> usize {
        self.notes.lock().worst.get(prefix).copied().unwrap_or_default()
    }

    /// Returns all nodes that were unavailable at some time.
    pub fn ever(&self) -> Vec<String> {
        self.notes.lock().ever.iter().cloned().collect()
    }

    /// Returns the nodes whose desired config changed, in the order of the changes.
    pub fn order(&self) -> Vec<String> {
        self.notes.lock().order.clone()
    }

    /// Returns the desired configs of a node.
    pub fn sent(&self, node: &str) -> Vec<String> {
        self.notes.lock().sent.get(node).cloned().unwrap_or_default()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notes {
    fn take(&mut self, node: &Node) {
        let view = NodeView::new(node);
        let name = view.name.to_owned();
        if view.is_unschedulable() || !view.is_kubelet_healthy() {
            self.ever.insert(name.clone());
            self.away.insert(name.clone());
        } else {
            self.away.remove(&name);
        }
        let prefix = name.split('-').next().unwrap_or_default().to_owned();
        let now = self
            .away
            .iter()
            .filter(|away| away.split('-').next() == Some(&prefix))
            .count();
        let worst = self.worst.entry(prefix).or_default();
        *worst = now.max(*worst);
        let sent = self.sent.entry(name.clone()).or_default();
        if !view.desired_config.is_empty() && sent.last().map(String::as_str) != Some(view.desired_config) {
            if !sent.is_empty() {
                self.order.push(name);
            }
            sent.push(view.desired_config.to_owned());
        }
    }
}
