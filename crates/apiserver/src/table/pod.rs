//! The row of a pod, whose status combines several sources.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::TableRow;
use super::age::{elapsed, human_duration, parse, since};

const NONE: &str = "<none>";

pub(super) fn row(pod: &Value, now: Timestamp) -> TableRow {
    let summary = ContainerSummary::of(pod);
    let restarts = match summary.last_restart.filter(|_| summary.restarts != 0) {
        Some(moment) => format!(
            "{} ({} ago)",
            summary.restarts,
            human_duration(elapsed(moment, now))
        ),
        None => summary.restarts.to_string(),
    };
    let or_none = |pointer: &str| {
        let text = text(pod, pointer);
        Value::from(if text.is_empty() { NONE } else { text })
    };
    TableRow {
        cells: vec![
            Value::from(text(pod, "/metadata/name")),
            Value::from(format!("{}/{}", summary.ready, summary.total)),
            Value::from(summary.reason),
            Value::from(restarts),
            Value::from(since(pod.pointer("/metadata/creationTimestamp"), now)),
            or_none("/status/podIPs/0/ip"),
            or_none("/spec/nodeName"),
            or_none("/status/nominatedNodeName"),
            Value::from(readiness_gates(pod)),
        ],
        conditions: completion(text(pod, "/status/phase")),
    }
}

/// The combined state of a pod's containers.
struct ContainerSummary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl ContainerSummary {
    fn of(pod: &Value) -> Self {
        let mut summary = Self {
            reason: initial_reason(pod),
            ready: 0,
            total: items(pod, "/spec/containers").len(),
            restarts: 0,
            last_restart: None,
        };
        let sidecars: Vec<&str> = items(pod, "/spec/initContainers")
            .iter()
            .filter(|container| text(container, "/restartPolicy") == "Always")
            .map(|container| text(container, "/name"))
            .collect();
        summary.total += sidecars.len();
        let initializing = summary.add_init_containers(pod, &sidecars);
        if !initializing || has_condition(pod, "Initialized") {
            summary.add_containers(pod, &sidecars);
        }
        summary.consider_deletion(pod);
        summary
    }

    /// Returns whether an init container still has to finish.
    fn add_init_containers(&mut self, pod: &Value, sidecars: &[&str]) -> bool {
        for (index, status) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let is_sidecar = sidecars.contains(&text(status, "/name"));
            let terminated = status
                .pointer("/state/terminated")
                .filter(|state| !state.is_null());
            if terminated.is_some_and(|state| number(state, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar && status.get("started") == Some(&Value::Bool(true)) {
                self.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = if let Some(state) = terminated {
                format!("Init:{}", termination(state))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", items(pod, "/spec/initContainers").len())
            };
            return true;
        }
        false
    }

    fn add_containers(&mut self, pod: &Value, sidecars: &[&str]) {
        // Restarts of init containers no longer count; those of sidecars do.
        self.restarts = 0;
        self.last_restart = None;
        let init_statuses = items(pod, "/status/initContainerStatuses");
        for status in init_statuses
            .iter()
            .filter(|status| sidecars.contains(&text(status, "/name")))
        {
            self.count_restarts(status);
        }
        let mut has_running = false;
        let mut failure: Option<String> = None;
        for status in items(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            let terminated = status
                .pointer("/state/terminated")
                .filter(|state| !state.is_null());
            let running = status
                .pointer("/state/running")
                .is_some_and(|state| !state.is_null());
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(state) = terminated {
                self.reason = termination(state);
                if number(state, "/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if running && status.get("ready") == Some(&Value::Bool(true)) {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && has_condition(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if has_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }

    fn consider_deletion(&mut self, pod: &Value) {
        if pod
            .pointer("/metadata/deletionTimestamp")
            .is_none_or(Value::is_null)
        {
            return;
        }
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut self.reason);
        } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut self.reason);
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "/restartCount");
        let finished = parse(text(status, "/lastState/terminated/finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn initial_reason(pod: &Value) -> String {
    let gated = items(pod, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    });
    if gated {
        return "SchedulingGated".to_owned();
    }
    match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

fn termination(state: &Value) -> String {
    match (text(state, "/reason"), number(state, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    format!("{open}/{}", gates.len())
}

fn completion(phase: &str) -> Vec<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": message})]
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    let condition = items(pod, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == kind);
    condition.is_some_and(|condition| text(condition, "/status") == "True")
}

pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}
