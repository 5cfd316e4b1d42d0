//! The pages of RolloutPolicies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixtures;

use std::sync::Arc;

use fixtures::{HOSTILE, at, frame, harmless, node, object, pool};
use mco_api::RolloutPolicy;
use mco_client::Snapshot;
use mco_client::snapshot::ImageObjects;
use mco_console::views::html;
use mco_console::views::policy::{policies, policy};
use mco_console::views::pool::{NodeFilter, pool as pool_view};
use serde_json::{Value, json};

const OLD: &str = "rendered-worker-1";
const NEW: &str = "rendered-worker-2";

/// Six workers, the first of which has the new config, and the second failed on it.
fn snapshot(spec: &Value, status: &Value) -> Snapshot {
    snapshot_of(&json!({"metadata": {"name": "workers", "generation": 1}, "spec": spec, "status": status}))
}

fn snapshot_of(policy: &Value) -> Snapshot {
    let pools = [Arc::new(pool("worker", &json!([])))];
    let mut nodes = vec![
        node("worker-0", NEW, NEW, "Done"),
        node("worker-1", OLD, NEW, "Degraded"),
    ];
    nodes.extend((2..6).map(|index| node(&format!("worker-{index}"), OLD, OLD, "Done")));
    for (index, node) in nodes.iter_mut().enumerate() {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("zone".to_owned(), format!("z{}", index % 2));
        labels.insert("canary".to_owned(), (index < 2).to_string());
    }
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    let progress: [Arc<mco_api::MachineConfigNode>; 0] = [];
    let policy: RolloutPolicy = object(policy.clone());
    Snapshot::of(
        &pools,
        &nodes,
        &progress,
        &[Arc::new(policy)],
        ImageObjects::default(),
        at(300),
    )
}

fn rules() -> Value {
    json!({
        "poolSelector": {},
        "waves": [
            {"name": "canary", "selector": {"matchLabels": {"canary": "true"}}, "soak": "30m"},
            {"limit": "50%"},
        ],
        "gates": [
            {"name": "storage", "prometheus": {"url": "https://prometheus", "expr": "ceph_health_status == 0"}},
            {"name": "alerts", "prometheus": {"url": "https://prometheus", "noFiring": "severity=\"critical\""}},
            {"name": "ticket", "webhook": {"url": "https://change.example.com/approved"}},
            {"name": "control-plane", "controlPlane": {}},
        ],
        "windows": [
            {"from": "22:00", "to": "04:00", "timeZone": "UTC"},
            {"at": "0 12 * * *", "for": "2h"},
        ],
        "budgets": [{"maxUnavailable": 3}, {"maxUnavailable": 1, "groupBy": "zone", "reasons": ["Drain", "Reboot"]}],
        "after": ["control-plane"],
    })
}

fn page(snapshot: &Snapshot) -> String {
    html(&policy(frame(), snapshot, "workers", at(300)).unwrap())
}

#[track_caller]
fn shows(page: &str, expected: &[&str]) {
    let page = page.replace("&#34;", "\"");
    for expected in expected {
        assert!(page.contains(expected), "{expected} in\n{page}");
    }
}

#[test]
fn a_halted_rollout_names_its_nodes_on_the_pages_of_policy_and_pool() {
    let mut spec = rules();
    spec["maxFailures"] = json!({"count": 1});
    let status = json!({"pools": [{"name": "worker", "target": NEW, "phase": "Halted"}]});
    let snapshot = snapshot(&spec, &status);
    let sentence = "halted: 1 of 1 allowed failure, worker-1: content mismatch for file \"/etc/a\"";
    let halted = [
        sentence,
        "badge bad",
        "Halted",
        "1 of 6 nodes updated, 1 of 1 allowed failures",
        "<a href=\"/nodes/worker-1\">worker-1</a> failed: content mismatch",
    ];
    let policy = page(&snapshot);
    let pool = html(&pool_view(frame(), &snapshot, "worker", NodeFilter::default(), at(300)).unwrap());
    shows(&policy, &halted);
    shows(&pool, &halted);
    shows(&pool, &["<a href=\"/policies/workers\">Policy workers</a>"]);
    let all = html(&policies(frame(), &snapshot));
    shows(&all, &["<a href=\"/policies/workers\">workers</a>", sentence]);
}

#[test]
fn waves_gates_windows_and_budgets_are_shown_with_their_state() {
    let status = json!({
        "pools": [{"name": "worker", "target": NEW,
            "completedWaves": [{"nodes": 2, "at": "1970-01-01T00:04:00Z"}]}],
        "gates": [
            {"name": "storage", "passed": false, "reachable": true, "message": "the expression has no result",
             "checkedAt": "1970-01-01T00:04:30Z", "since": "1970-01-01T00:04:00Z"},
            {"name": "alerts", "passed": true, "reachable": true, "message": "no alert fires",
             "checkedAt": "1970-01-01T00:04:30Z", "since": "1970-01-01T00:04:00Z"},
            {"name": "ticket", "passed": false, "reachable": false, "message": "connection refused",
             "checkedAt": "1970-01-01T00:04:30Z", "since": "1970-01-01T00:04:00Z"},
        ],
    });
    let mut spec = rules();
    spec.as_object_mut().unwrap().remove("after");
    shows(
        &page(&snapshot(&spec, &status)),
        &[
            "soaks after wave 1 (canary), ends in 29 min",
            "<strong>wave 1 (canary)</strong> updated, soaks: 2 nodes <span class=\"muted\">canary=true, soaks 30m",
            "<strong>wave 2</strong> to come",
            "at most 50% of the nodes",
            "<strong>the last wave</strong> to come",
            "<th scope=\"row\">storage</th><td>Prometheus: ceph_health_status == 0</td>",
            "not passed: the expression has no result <span class=\"muted\">30s ago</span>",
            "no firing alert with severity=\"critical\"",
            "passed: no alert fires",
            "webhook https://change.example.com/approved",
            "cannot be checked: connection refused",
            "not checked, because no node waits for it",
            "22:00-04:00 UTC",
            "open, closes in 3 h 55 min",
            "closed, opens in 11 h 55 min",
            "at most 3 nodes</th><td>1 of 3</td>",
            "at most 1 node per zone, for Drain and Reboot</th><td>z1: 1 of 1, z0: 0 of 1</td>",
        ],
    );
}

#[test]
fn a_policy_that_cannot_be_applied_and_one_that_waits_for_another_say_so() {
    let mut spec = rules();
    spec["budgets"] = json!([{"maxUnavailable": 0}]);
    let invalid = page(&snapshot(&spec, &json!({})));
    shows(&invalid, &["spec.budgets[0].maxUnavailable", "role=\"alert\""]);
    shows(
        &page(&snapshot(&rules(), &json!({}))),
        &[
            "waits for RolloutPolicy control-plane, which does not exist",
            "<a class=\"chip\" href=\"/policies/control-plane\">control-plane</a>",
        ],
    );
    let nothing = snapshot(
        &json!({"poolSelector": {"matchLabels": {"no": "pool"}}}),
        &json!({}),
    );
    shows(&page(&nothing), &["The policy selects no pool."]);
}

#[test]
fn hostile_policies_are_harmless() {
    let hostile = json!({
        "metadata": {"name": HOSTILE},
        "spec": {
            "poolSelector": {},
            "waves": [{"name": HOSTILE, "selector": {"matchLabels": {HOSTILE: HOSTILE}}, "soak": HOSTILE}],
            "gates": [{"name": HOSTILE, "webhook": {"url": HOSTILE}}],
            "budgets": [{"maxUnavailable": HOSTILE, "groupBy": HOSTILE}],
            "after": [HOSTILE],
            "maxFailures": {"count": 5},
        },
        "status": {
            "pools": [{"name": "worker", "target": NEW, "skipped": [{"node": HOSTILE, "message": HOSTILE}]}],
            "gates": [{"name": HOSTILE, "passed": false, "reachable": true, "message": HOSTILE,
                "checkedAt": "1970-01-01T00:04:30Z", "since": "1970-01-01T00:04:00Z"}],
        },
    });
    let snapshot = snapshot_of(&hostile);
    let pages = [
        html(&policies(frame(), &snapshot)),
        html(&policy(frame(), &snapshot, HOSTILE, at(300)).unwrap()),
        html(&pool_view(frame(), &snapshot, "worker", NodeFilter::default(), at(300)).unwrap()),
    ];
    for page in pages {
        assert!(page.contains("&#60;script"), "{page}");
        harmless("a page of policies", &page);
    }
}
