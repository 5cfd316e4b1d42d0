//! A fleet in memory: nodes whose daemons follow their side of the annotation protocol, the two controllers as thin
//! shells over the functions under test, and people who interfere.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mco_api::rollout_policy::RolloutPolicyStatus;
use mco_api::{MachineConfigPool, RolloutPolicy};
use mco_core::rollout::drain::{self, DrainDecision};
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::policy::{self, GateObservation};
use mco_core::rollout::{NodeView, RolloutPlan, RolloutView, plan};
use serde_json::Value;

use crate::drain::merge;
use crate::fixtures::*;

/// Configs with these prefixes fail: before any change, and after the drain.
pub const BAD: &str = "bad-";
pub const BAD_LATE: &str = "late-";

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Idle,
    Draining { config: String },
    Rebooting { config: String, boots_in: u8 },
    Uncordoning { config: String },
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub node: Node,
    step: Step,
    /// Whether the current cordon was set by a person.
    pub cordoned_by_a_person: bool,
    pub kubelet_is_dead: bool,
    pub reboots: u32,
}

#[derive(Debug, Clone)]
pub struct Fleet {
    pub pools: Vec<MachineConfigPool>,
    pub machines: BTreeMap<String, Machine>,
    pub policies: Vec<RolloutPolicy>,
    /// Seconds since the start of the simulation.
    pub clock: i64,
    pub start: Timestamp,
}

impl Fleet {
    pub fn new(pools: Vec<MachineConfigPool>, nodes: Vec<Node>) -> Self {
        let machines = nodes
            .into_iter()
            .map(|node| (node.metadata.name.clone().unwrap(), Machine::new(node)));
        Self {
            pools,
            machines: machines.collect(),
            policies: Vec::new(),
            clock: 0,
            start: at(0),
        }
    }

    pub fn nodes(&self) -> Vec<Node> {
        self.machines
            .values()
            .map(|machine| machine.node.clone())
            .collect()
    }

    pub fn now(&self) -> Timestamp {
        self.start
            .checked_add(SignedDuration::from_secs(self.clock))
            .unwrap()
    }

    /// Reconciles the status of every policy. `check` is asked for the gates that are due.
    pub fn policy_controller(&mut self, mut check: impl FnMut(&str, Timestamp) -> Result<bool, String>) {
        let (nodes, now) = (self.nodes(), self.now());
        for index in 0..self.policies.len() {
            let view = RolloutView::new(&self.pools, &nodes).with_policies(&self.policies, now, None);
            let report = policy::next_status(&view, &self.policies[index]);
            // As it is written: times have whole seconds.
            let mut status: RolloutPolicyStatus = from(serde_json::to_value(&report.status).unwrap());
            if report.needs_gates {
                let due = policy::gates_due(&self.policies[index], now);
                for (gate, _) in due.iter().filter(|(_, due)| *due <= now) {
                    let observation = GateObservation {
                        gate: gate.name.clone(),
                        at: now,
                        outcome: check(&gate.name, now),
                        message: "the simulated check".to_owned(),
                    };
                    let result = policy::merge_gate(&status.gates, &observation);
                    status.gates.retain(|other| other.name != gate.name);
                    status.gates.push(result);
                }
            }
            self.policies[index].status = Some(status);
        }
    }

    /// Reconciles the cluster by executing the plan, and returns the plan.
    pub fn rollout_controller(&mut self) -> RolloutPlan {
        let nodes = self.nodes();
        let view = RolloutView::new(&self.pools, &nodes).with_policies(&self.policies, self.now(), None);
        let plan = plan(&view);
        for (name, actions) in plan.actions_by_node() {
            let machine = self.machines.get_mut(name).unwrap();
            if let Some(patch) = merge_patch(&machine.node, actions) {
                machine.patch(&patch);
            }
        }
        plan
    }

    /// Reconciles one node's drain request. All pods are evicted at once.
    pub fn drain_controller(&mut self, name: &str) {
        self.clock += 1;
        let now = self.now();
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        let decision = drain::decide(&machine.node, drain::DrainPreparation::default(), now).unwrap();
        if let Some(patch) = decision.patch() {
            machine.patch(&patch);
        }
        if let DrainDecision::Evict(record) = decision
            && let Some(patch) = drain::complete(&machine.node, &record).patch()
        {
            machine.patch(&patch);
        }
    }

    pub fn daemon(&mut self, name: &str) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.daemon();
        }
    }

    /// Runs all controllers and daemons once.
    pub fn round(&mut self) -> RolloutPlan {
        let plan = self.rollout_controller();
        let names: Vec<String> = self.machines.keys().cloned().collect();
        for name in &names {
            self.daemon(name);
            self.drain_controller(name);
        }
        plan
    }

    pub fn pool_mut(&mut self, name: &str) -> &mut MachineConfigPool {
        self.pools
            .iter_mut()
            .find(|pool| pool.metadata.name.as_deref() == Some(name))
            .unwrap()
    }
}

impl Machine {
    fn new(node: Node) -> Self {
        Self {
            node,
            step: Step::Idle,
            cordoned_by_a_person: false,
            kubelet_is_dead: false,
            reboots: 0,
        }
    }

    /// Whether the node is unavailable or about to be, by the simulation's own state: no code under test is called.
    pub fn is_disturbed(&self) -> bool {
        let cordoned = self.node.spec.as_ref().and_then(|spec| spec.unschedulable);
        let asked = self.annotation("currentConfig") != self.annotation("desiredConfig");
        let working = matches!(self.step, Step::Draining { .. } | Step::Rebooting { .. });
        working || self.kubelet_is_dead || cordoned == Some(true) || asked
    }

    pub fn view(&self) -> NodeView<'_> {
        NodeView::new(&self.node)
    }

    pub fn patch(&mut self, patch: &Value) {
        let mut value = serde_json::to_value(&self.node).unwrap();
        merge(&mut value, patch);
        self.node = from(value);
        if !self.view().is_unschedulable() {
            self.cordoned_by_a_person = false;
        }
    }

    /// Cordons the node as a person does. No-op if it is cordoned.
    pub fn cordon(&mut self) {
        if !self.view().is_unschedulable() {
            self.set_unschedulable(true);
            self.cordoned_by_a_person = true;
        }
    }

    pub fn uncordon(&mut self) {
        self.set_unschedulable(false);
        self.cordoned_by_a_person = false;
    }

    /// Changes a file by hand; the daemon reports it until the file is restored.
    pub fn drift(&mut self) {
        if self.step == Step::Idle && self.annotation("state") == "Done" {
            self.annotate(&[("state", "Degraded"), ("reason", "content mismatch")]);
        }
    }

    pub fn set_kubelet(&mut self, dead: bool) {
        self.kubelet_is_dead = dead;
        let away = dead || matches!(self.step, Step::Rebooting { .. });
        self.set_ready(!away);
    }

    // Changes by nodes and people are written directly into the object; only the controllers' writes, which are under
    // test, use a real patch.

    fn set_unschedulable(&mut self, unschedulable: bool) {
        let spec = self.node.spec.get_or_insert_default();
        spec.unschedulable = unschedulable.then_some(true);
    }

    fn set_ready(&mut self, ready: bool) {
        let status = self.node.status.get_or_insert_default();
        for condition in status.conditions.iter_mut().flatten() {
            let status = if ready { "True" } else { "False" };
            status.clone_into(&mut condition.status);
        }
    }

    fn annotate(&mut self, pairs: &[(&str, &str)]) {
        let annotations = self.node.metadata.annotations.get_or_insert_default();
        annotations.extend(pairs.iter().map(|(name, value)| (key(name), (*value).to_owned())));
    }

    fn annotation(&self, name: &str) -> String {
        let annotations = self.node.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(&key(name)));
        value.cloned().unwrap_or_default()
    }

    /// One step of the daemon on this node.
    fn daemon(&mut self) {
        if self.kubelet_is_dead {
            return;
        }
        let (current, desired) = (self.annotation("currentConfig"), self.annotation("desiredConfig"));
        let next = match self.step.clone() {
            Step::Idle if current.is_empty() => {
                // First start: the file from the provisioning records the config on disk.
                let desired = if desired.is_empty() { "v0" } else { &desired };
                self.annotate(&[
                    ("currentConfig", "v0"),
                    ("desiredConfig", desired),
                    ("state", "Done"),
                ]);
                Step::Idle
            }
            Step::Idle if current == desired => self.settle(&current),
            Step::Idle => self.begin(&desired),
            Step::Draining { config } if config != desired => Step::Idle,
            Step::Draining { config } => {
                if self.annotation("lastAppliedDrain") != self.annotation("desiredDrain") {
                    Step::Draining { config }
                } else if config.starts_with(BAD_LATE) {
                    self.annotate(&[("state", "Degraded"), ("reason", "cannot write")]);
                    Step::Idle
                } else {
                    self.set_ready(false);
                    self.reboots += 1;
                    Step::Rebooting { config, boots_in: 1 }
                }
            }
            Step::Rebooting { config, boots_in: 0 } => {
                self.set_ready(true);
                if config == desired {
                    self.annotate(&[("desiredDrain", &format!("uncordon-{config}"))]);
                    Step::Uncordoning { config }
                } else {
                    self.annotate(&[("currentConfig", &config)]);
                    Step::Idle
                }
            }
            Step::Rebooting { config, boots_in } => Step::Rebooting {
                config,
                boots_in: boots_in - 1,
            },
            Step::Uncordoning { config } => {
                if self.annotation("lastAppliedDrain") == self.annotation("desiredDrain") {
                    self.annotate(&[("currentConfig", &config), ("state", "Done"), ("reason", "")]);
                    Step::Idle
                } else {
                    Step::Uncordoning { config }
                }
            }
        };
        self.step = next;
    }

    /// Completes the update; after a failure or a cancelled drain the node must be uncordoned first.
    fn settle(&mut self, current: &str) -> Step {
        if self.annotation("state") == "Done" && !self.annotation("desiredDrain").starts_with("drain-") {
            return Step::Idle;
        }
        self.annotate(&[("desiredDrain", &format!("uncordon-{current}"))]);
        Step::Uncordoning {
            config: current.to_owned(),
        }
    }

    fn begin(&mut self, desired: &str) -> Step {
        if desired.starts_with(BAD) {
            self.annotate(&[("state", "Degraded"), ("reason", "cannot read")]);
            return Step::Idle;
        }
        if !self.view().is_degraded() {
            self.annotate(&[("state", "Working")]);
        }
        self.annotate(&[("desiredDrain", &format!("drain-{desired}"))]);
        Step::Draining {
            config: desired.to_owned(),
        }
    }
}
