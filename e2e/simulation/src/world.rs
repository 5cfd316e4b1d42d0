//! What all parts of a simulation share: the API server, the log, and the invariants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_apiserver::ApiServer;
use mco_apiserver::store::ObjectKey;
use mco_core::rollout::NodeView;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::determinism::elapsed;
use crate::story::Story;

/// The lines that are printed of a failed simulation.
const KEPT_LINES: usize = 60;
/// A controller may act for this long on what it has seen before: the longest delay of an event, a reconcile, and the
/// longest time for which it may be cut off.
const STALENESS: Duration = Duration::from_mins(1);

/// What all parts of a simulation share.
pub struct World {
    pub story: Story,
    pub server: ApiServer,
    is_chaos: AtomicBool,
    state: Mutex<WorldState>,
    /// Signalled by the first violation.
    pub violated: Notify,
}

#[derive(Default)]
struct WorldState {
    /// The newest writes.
    lines: VecDeque<String>,
    /// Of all requests and their outcomes.
    digest: std::hash::DefaultHasher,
    requests: u64,
    failures: u64,
    writes: u64,
    nodes: BTreeMap<String, NodeState>,
    /// Nodes that the administrator has cordoned.
    cordoned: BTreeSet<String>,
    /// Pools that the administrator has paused, and since when.
    paused: BTreeMap<String, Duration>,
    /// Replicas of the controllers that lead.
    leaders: BTreeSet<String>,
    /// When each replica stopped leading.
    led_until: BTreeMap<String, Duration>,
    violation: Option<String>,
}

/// A Node as the last write left it.
#[derive(Clone)]
struct NodeState {
    pool: &'static str,
    is_ready: bool,
    was_ready: bool,
    is_unschedulable: bool,
    current: String,
    desired: String,
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Report {
    pub violation: Option<String>,
    pub lines: VecDeque<String>,
    /// Equal for equal sequences of requests.
    pub digest: u64,
    pub requests: u64,
    /// Of requests and watches.
    pub failures: u64,
    pub writes: u64,
}

impl World {
    pub fn new(story: Story, server: ApiServer) -> Arc<Self> {
        Arc::new(Self {
            story,
            server,
            is_chaos: AtomicBool::new(false),
            state: Mutex::default(),
            violated: Notify::new(),
        })
    }

    pub fn is_chaos(&self) -> bool {
        self.is_chaos.load(Ordering::Relaxed)
    }

    pub fn set_chaos(&self, is_chaos: bool) {
        self.is_chaos.store(is_chaos, Ordering::Relaxed);
    }

    /// Adds a line to the log. Only writes and incidents are printed; reads are counted and are part of the digest.
    pub fn log(&self, mut line: String, is_printed: bool) {
        let mut state = self.state.lock();
        (elapsed(), &line).hash(&mut state.digest);
        state.requests += 1;
        if is_printed {
            state.writes += 1;
            line.insert_str(0, &format!("{:>9.3} ", elapsed().as_secs_f64()));
            state.lines.push_back(line);
            if state.lines.len() > KEPT_LINES {
                state.lines.pop_front();
            }
        }
    }

    pub fn count_failure(&self) {
        self.state.lock().failures += 1;
    }

    pub fn violate(&self, what: String) {
        let mut state = self.state.lock();
        if state.violation.is_none() {
            let line = format!("{:>9.3} VIOLATION: {what}", elapsed().as_secs_f64());
            state.lines.push_back(line);
            state.violation = Some(what);
            drop(state);
            self.violated.notify_one();
        }
    }

    pub fn report(&self) -> Report {
        let state = self.state.lock();
        Report {
            violation: state.violation.clone(),
            lines: state.lines.clone(),
            digest: state.digest.finish(),
            requests: state.requests,
            failures: state.failures,
            writes: state.writes,
        }
    }

    /// Reads an object as it is stored.
    pub fn object<K: DeserializeOwned>(&self, resource: &str, name: &str) -> Option<K> {
        let key = ObjectKey::new(&Arc::from(resource), "", name);
        let stored = self.server.registry().store.get(&key)?;
        serde_json::from_slice(stored.json()).ok()
    }

    /// Reads all objects of a resource.
    pub fn objects<K: DeserializeOwned>(&self, resource: &str) -> Vec<K> {
        let objects = self.server.registry().store.list(resource, "").objects;
        let read = objects
            .iter()
            .filter_map(|stored| serde_json::from_slice(stored.json()).ok());
        read.collect()
    }

    pub fn pool(&self, name: &str) -> Option<MachineConfigPool> {
        self.object("machineconfigpools.machineconfiguration.openshift.io", name)
    }

    /// Records what the administrator wants of a node. Returns whether that is a change.
    pub fn set_cordoned(&self, node: &str, is_cordoned: bool) -> bool {
        let mut state = self.state.lock();
        if is_cordoned {
            state.cordoned.insert(node.to_owned())
        } else {
            state.cordoned.remove(node)
        }
    }

    pub fn set_paused(&self, pool: &str, is_paused: bool) {
        let mut state = self.state.lock();
        if is_paused {
            state.paused.insert(pool.to_owned(), elapsed());
        } else {
            state.paused.remove(pool);
        }
    }

    /// Records that a replica of the controllers leads, until the value is dropped. At most one may.
    pub fn lead(self: &Arc<Self>, client: &str) -> Leadership {
        self.log(format!("{client} leads"), true);
        let leaders: Vec<String> = {
            let mut state = self.state.lock();
            state.leaders.insert(client.to_owned());
            state.leaders.iter().cloned().collect()
        };
        if leaders.len() > 1 {
            self.violate(format!("{} lead at once", leaders.join(" and ")));
        }
        Leadership {
            world: Arc::clone(self),
            client: client.to_owned(),
        }
    }

    /// Checks the invariants after a write of a client.
    pub fn observe(&self, client: &str, path: &str) {
        if let Some(violation) = self.state.lock().leadership(client, path) {
            return self.violate(violation);
        }
        let Some(rest) = path.strip_prefix("/api/v1/nodes/") else {
            return;
        };
        let name = rest.split('/').next().unwrap_or_default();
        let Some(node) = self.object::<Node>("nodes", name) else {
            return;
        };
        let violation = {
            let mut state = self.state.lock();
            let before = state.nodes.get(name).cloned();
            let now = NodeState::new(&node, before.as_ref());
            state.nodes.insert(name.to_owned(), now.clone());
            state
                .cordons(name, &now)
                .or_else(|| state.pauses(name, before.as_ref(), &now))
                .or_else(|| WorldState::reboots(name, before.as_ref(), &now))
                .or_else(|| state.budget(now.pool, self.limit(now.pool)))
        };
        if let Some(violation) = violation {
            self.violate(format!("{violation} (after a write of {client})"));
        }
    }

    fn limit(&self, pool: &str) -> usize {
        if pool == "master" {
            1
        } else {
            self.story.max_unavailable
        }
    }
}

/// A replica of the controllers that leads.
pub struct Leadership {
    world: Arc<World>,
    client: String,
}

impl Drop for Leadership {
    fn drop(&mut self) {
        let mut state = self.world.state.lock();
        state.leaders.remove(&self.client);
        state.led_until.insert(self.client.clone(), elapsed());
    }
}

impl WorldState {
    /// Replicas that do not lead write nothing but the lease. Requests end at the instant at which the leader stops.
    fn leadership(&self, client: &str, path: &str) -> Option<String> {
        let is_controller = client.starts_with("controller-") && !path.contains("/leases/");
        let leads = self.leaders.contains(client) || self.led_until.get(client) == Some(&elapsed());
        let is_violated = is_controller && !path.ends_with("/leases") && !leads;
        is_violated.then(|| format!("{client} wrote {path} and does not lead"))
    }

    fn cordons(&self, name: &str, now: &NodeState) -> Option<String> {
        let is_lifted = self.cordoned.contains(name) && !now.is_unschedulable;
        is_lifted.then(|| format!("node {name} was uncordoned, which the administrator had cordoned"))
    }

    /// In a paused pool no node is sent to another config.
    fn pauses(&self, name: &str, before: Option<&NodeState>, now: &NodeState) -> Option<String> {
        let since = self.paused.get(now.pool)?;
        let is_sent =
            before.is_some_and(|before| !before.desired.is_empty() && before.desired != now.desired);
        let is_new = now.desired != now.current;
        let is_violated = is_sent && is_new && elapsed() > *since + STALENESS;
        is_violated.then(|| format!("node {name} was sent to {}, and its pool is paused", now.desired))
    }

    /// A node that drains does not reboot while pods can be scheduled on it.
    fn reboots(name: &str, before: Option<&NodeState>, now: &NodeState) -> Option<String> {
        let goes_away = before.is_some_and(|before| before.is_ready) && !now.is_ready;
        let is_violated = goes_away && !now.is_unschedulable;
        is_violated.then(|| format!("node {name} rebooted without being cordoned"))
    }

    /// No more nodes of a pool are away because of us than allowed.
    fn budget(&self, pool: &str, limit: usize) -> Option<String> {
        let is_away = |name: &str, node: &NodeState| {
            let is_ours = node.is_unschedulable && !self.cordoned.contains(name);
            let is_sent = !node.current.is_empty() && node.desired != node.current;
            node.pool == pool && (is_sent || is_ours || (node.was_ready && !node.is_ready))
        };
        let away: Vec<&str> = self
            .nodes
            .iter()
            .filter(|(name, node)| is_away(name, node))
            .map(|(name, _)| name.as_str())
            .collect();
        let is_violated = away.len() > limit;
        is_violated.then(|| format!("{} are away at once; pool {pool} allows {limit}", away.join(", ")))
    }
}

impl NodeState {
    fn new(node: &Node, before: Option<&Self>) -> Self {
        let view = NodeView::new(node);
        let is_ready = view.is_kubelet_healthy();
        let is_master = view.label("node-role.kubernetes.io/master").is_some();
        Self {
            pool: if is_master { "master" } else { "worker" },
            is_ready,
            was_ready: is_ready || before.is_some_and(|before| before.was_ready),
            is_unschedulable: view.is_unschedulable(),
            current: view.current_config.to_owned(),
            desired: view.desired_config.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_lead_writes_only_the_lease() {
        let mut state = WorldState::default();
        state.leaders.insert("controller-0".to_owned());
        let check = |client: &str, path: &str| state.leadership(client, path).is_some();
        let node = "/api/v1/nodes/worker-0";
        let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
        assert!(check("controller-1", node));
        assert!(!check("controller-1", leases), "it is created");
        assert!(!check("controller-1", &format!("{leases}/b")), "it is renewed");
        assert!(!check("controller-0", node), "it leads");
        assert!(!check("worker-0", node), "daemons have no leader");
    }
}
