//! The predicates of one Node.

use mco_core::rollout::{NodeView, changes};
use serde_json::json;

use crate::fixtures::*;

#[test]
fn when_a_node_can_take_work() {
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status});
    let cases = [
        ("no conditions at all", json!([]), false, None),
        ("ready", json!([condition("Ready", "True")]), false, None),
        (
            "not ready",
            json!([condition("Ready", "False")]),
            false,
            Some("NotReady=False"),
        ),
        (
            "not reported",
            json!([condition("Ready", "Unknown")]),
            false,
            Some("NotReady=Unknown"),
        ),
        (
            "a full disk alone",
            json!([condition("DiskPressure", "True")]),
            false,
            Some("OutOfDisk=True"),
        ),
        (
            "no network",
            json!([condition("NetworkUnavailable", "True")]),
            false,
            Some("NetworkUnavailable=True"),
        ),
        (
            "pressure that does not count",
            json!([
                condition("MemoryPressure", "True"),
                condition("PIDPressure", "True")
            ]),
            false,
            None,
        ),
        (
            "unschedulable",
            json!([condition("Ready", "True")]),
            true,
            Some("Unschedulable"),
        ),
        (
            "not ready comes before unschedulable",
            json!([condition("Ready", "False")]),
            true,
            Some("NotReady=False"),
        ),
    ];
    for (name, conditions, unschedulable, expected) in cases {
        let node = from(json!({
            "metadata": {"name": "n"}, "spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions},
        }));
        let view = NodeView::new(&node);
        let expected = expected.map(|what| format!("node n is reporting {what}"));
        assert_eq!(view.unready(), expected, "{name}");
        assert_eq!(view.is_ready(), expected.is_none(), "{name}");
    }
}

#[test]
fn when_a_node_counts_as_unavailable_and_when_it_takes_room() {
    let cases = [
        ("n v0/v0", false, false),
        ("n v0/v0 NotReady", true, true),
        ("n v0/v0 cordoned", true, true),
        ("n v0/v1", true, true),
        ("n v0/v1 Working", true, true),
        ("n v0/v1 Degraded", false, true),
        ("n v0/v1 Unreconcilable", false, true),
        ("n v0/v1 Degraded NotReady", true, true),
        ("n v0/v0 Degraded", true, true),
        ("n v0/v0 Working", true, true),
        ("n new", true, true),
        ("n v0/v0 image=a/a", false, false),
        ("n v0/v0 image=a/b", true, true),
        ("n v0/v0 image=a/b Degraded", true, true),
        ("n v0/v0 image=-/b", true, true),
        ("n v0/v0 image=a/-", true, true),
    ];
    for (text, unavailable, holds) in cases {
        let node = node(text);
        let view = NodeView::new(&node);
        assert_eq!(view.is_unavailable(), unavailable, "{text}");
        assert_eq!(view.holds_a_slot(), holds, "{text}");
    }
}

#[test]
fn heartbeats_do_not_matter_and_everything_a_decision_reads_does() {
    let before = node("n v0/v0");
    let mut heartbeat = before.clone();
    heartbeat.metadata.resource_version = Some("2".to_owned());
    heartbeat.status.as_mut().unwrap().images = Some(vec![]);
    assert!(!changes::matter(&before, &heartbeat));
    for after in [
        "n v0/v1",
        "n v0/v0 Working",
        "n v0/v0 NotReady",
        "n v0/v0 cordoned",
        "n v0/v0 zone=a",
        "n v0/v0 tainted",
        "n v0/v0 image=-/i",
        "n v0/v0 why=x",
    ] {
        assert!(changes::matter(&before, &node(after)), "{after}");
    }
}

#[test]
fn changed_annotations_cause_events() {
    let messages: Vec<String> =
        changes::annotation_events(&node("n v0/v0 image=a/a"), &node("n v0/v1 image=a/-"))
            .into_iter()
            .map(|event| event.message)
            .collect();
    assert_eq!(
        messages,
        [
            format!("Node n now has {}=v1", key("desiredConfig")),
            format!("Node n no longer has {}", key("desiredImage")),
        ]
    );
}
