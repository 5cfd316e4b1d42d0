//! The controller's side of a drain.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use mco_api::vocabulary::annotations::node::DRAIN_RECORD;
use mco_core::rollout::drain::pods::{Concern, Excuse, fate, overstays};
use mco_core::rollout::drain::timing::{RETRY, SLOW_RETRY};
use mco_core::rollout::drain::{
    Budgets, Completion, Cordon, CordonOrigin, DrainDecision, DrainMarks, DrainPace, DrainPolicy,
    DrainPreparation, DrainRecord, Eviction, Lift, OtherController, PodFate, complete, cordon, decide, pace,
    reason_patch,
};
use serde_json::{Value, json};

use crate::fixtures::*;

fn asking(desired: &str, done: &str, unschedulable: bool, record: Option<&DrainRecord>) -> Node {
    let mut annotations = json!({});
    for (name, value) in [("desiredDrain", desired), ("lastAppliedDrain", done)] {
        if !value.is_empty() {
            annotations[key(name)] = json!(value);
        }
    }
    if let Some(record) = record {
        annotations[DRAIN_RECORD] = json!(record.to_annotation());
    }
    from(
        json!({"metadata": {"name": "n", "annotations": annotations}, "spec": {"unschedulable": unschedulable}}),
    )
}

fn record(request: &str, since: i64, cordon: CordonOrigin) -> DrainRecord {
    DrainRecord {
        request: request.to_owned(),
        since: at(since),
        cordon,
        waiting_for: None,
        marks: DrainMarks::default(),
        evict_after: None,
    }
}

#[test]
fn what_a_node_asks_for() {
    use CordonOrigin::{Found, Made};
    let uncordon = |lift| DrainDecision::Uncordon {
        request: "uncordon-b".to_owned(),
        lift,
        marks: DrainMarks::default(),
    };
    let (made, found) = (record("drain-b", 5, Made), record("drain-b", 5, Found));
    let fresh = |cordon| DrainDecision::Cordon(record("drain-b", 9, cordon));
    let cases = vec![
        ("nothing", asking("", "", false, None), DrainDecision::Nothing),
        (
            "nothing more",
            asking("drain-b", "drain-b", true, Some(&made)),
            DrainDecision::Nothing,
        ),
        (
            "a drain was called off, and the request to uncordon reads like the last one that was done",
            asking("uncordon-b", "uncordon-b", true, Some(&made)),
            uncordon(Lift::Cordon),
        ),
        (
            "the same under a foreign cordon",
            asking("uncordon-b", "uncordon-b", true, Some(&found)),
            uncordon(Lift::Nothing),
        ),
        (
            "uncordoned by another client after the drain",
            asking("drain-b", "drain-b", false, Some(&made)),
            DrainDecision::Disown(found.clone()),
        ),
        (
            "uncordoned by another client after the drain, and recorded",
            asking("drain-b", "drain-b", false, Some(&found)),
            DrainDecision::Nothing,
        ),
        (
            "a drain",
            asking("drain-b", "uncordon-a", false, None),
            fresh(Made),
        ),
        (
            "a drain of a node cordoned by another client",
            asking("drain-b", "uncordon-a", true, None),
            fresh(Found),
        ),
        (
            "a drain that has begun",
            asking("drain-b", "uncordon-a", true, Some(&made)),
            DrainDecision::Evict(made.clone()),
        ),
        (
            "a drain that has begun under a foreign cordon",
            asking("drain-b", "", true, Some(&found)),
            DrainDecision::Evict(found.clone()),
        ),
        (
            "uncordoned by another client during the drain: the timeout continues",
            asking("drain-b", "uncordon-a", false, Some(&made)),
            DrainDecision::Cordon(made.clone()),
        ),
        (
            "a foreign cordon removed during the drain: now it is ours",
            asking("drain-b", "uncordon-a", false, Some(&found)),
            DrainDecision::Cordon(made.clone()),
        ),
        (
            "another drain while drained: still our cordon, another clock",
            asking("drain-b", "drain-a", true, Some(&record("drain-a", 1, Made))),
            fresh(Made),
        ),
        (
            "another target during a drain: the same pods are in the way, so the clock goes on",
            asking("drain-b", "", true, Some(&record("drain-a", 5, Made))),
            DrainDecision::Cordon(made.clone()),
        ),
        (
            "another target during a drain that another client uncordoned",
            asking("drain-b", "uncordon-x", false, Some(&record("drain-a", 5, Made))),
            DrainDecision::Cordon(made.clone()),
        ),
        (
            "another drain under a foreign cordon",
            asking("drain-b", "drain-a", true, Some(&record("drain-a", 1, Found))),
            fresh(Found),
        ),
        (
            "another drain, drained by a predecessor",
            asking("drain-b", "drain-a", true, None),
            fresh(Made),
        ),
        (
            "give back what we cordoned",
            asking("uncordon-b", "drain-b", true, Some(&made)),
            uncordon(Lift::Cordon),
        ),
        (
            "give back what a predecessor cordoned",
            asking("uncordon-b", "drain-b", true, None),
            uncordon(Lift::Cordon),
        ),
        (
            "uncordon request for a foreign cordon",
            asking("uncordon-b", "drain-b", true, Some(&found)),
            uncordon(Lift::Nothing),
        ),
        (
            "uncordon request after an update without a drain, foreign cordon",
            asking("uncordon-b", "uncordon-a", true, None),
            uncordon(Lift::Nothing),
        ),
        (
            "give back what is not cordoned",
            asking("uncordon-b", "drain-b", false, Some(&made)),
            uncordon(Lift::Nothing),
        ),
        (
            "give back in the middle of a drain",
            asking("uncordon-b", "uncordon-a", true, Some(&made)),
            uncordon(Lift::Cordon),
        ),
    ];
    for (name, node, expected) in cases {
        assert_eq!(
            decide(&node, DrainPreparation::default(), at(9)),
            Ok(expected),
            "{name}"
        );
    }
}

/// A cordon under a policy that sets both marks, and then everything that ends it.
#[test]
fn load_balancers_and_the_autoscaler_get_back_what_was_there_before() {
    const LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    let preparation = DrainPreparation {
        exclude_from_load_balancers: Some(Duration::from_secs(30)),
        protect_from_autoscaler: true,
    };
    let apply = |node: &Node, decision: &DrainDecision| -> Node {
        let mut object = serde_json::to_value(node).unwrap();
        merge(&mut object, &decision.patch().unwrap());
        from(object)
    };
    let has = |node: &Node| {
        let label = node.metadata.labels.as_ref().and_then(|all| all.get(LABEL));
        let annotation = node
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(PROTECTED));
        (label.cloned(), annotation.cloned())
    };
    let yes = || Some("true".to_owned());
    let mut asks = asking("drain-b", "uncordon-a", false, None);
    let decision = decide(&asks, preparation, at(9)).unwrap();
    let DrainDecision::Cordon(record) = &decision else {
        panic!("{decision:?}")
    };
    assert_eq!(record.evict_after, Some(at(39)), "load balancers get their time");
    let cordoned = apply(&asks, &decision);
    assert_eq!(has(&cordoned), (yes(), yes()));
    // A restarted controller, and a policy that was deleted meanwhile, still know what is ours.
    let mut ends = cordoned.clone();
    let annotations = ends.metadata.annotations.as_mut().unwrap();
    annotations.insert(key("desiredDrain"), "uncordon-b".to_owned());
    let decision = decide(&ends, DrainPreparation::default(), at(50)).unwrap();
    assert_eq!(has(&apply(&ends, &decision)), (None, None));
    // Another target in the middle of the drain neither forgets the marks nor waits again.
    let mut superseded = cordoned;
    let annotations = superseded.metadata.annotations.as_mut().unwrap();
    annotations.insert(key("desiredDrain"), "drain-c".to_owned());
    let DrainDecision::Cordon(record) = decide(&superseded, preparation, at(20)).unwrap() else {
        panic!("a new request is recorded")
    };
    assert_eq!(record.evict_after, Some(at(39)));
    assert!(record.marks.excluded_from_load_balancers && record.marks.protected_from_autoscaler);
    // An administrator has set both before: nothing waits, and nothing is removed.
    asks.metadata.labels = Some([(LABEL.to_owned(), String::new())].into());
    let annotations = asks.metadata.annotations.as_mut().unwrap();
    annotations.insert(PROTECTED.to_owned(), "true".to_owned());
    let decision = decide(&asks, preparation, at(9)).unwrap();
    let mut cordoned = apply(&asks, &decision);
    let DrainDecision::Cordon(record) = decision else {
        panic!("the node is not cordoned yet")
    };
    assert_eq!((record.evict_after, record.marks), (None, DrainMarks::default()));
    let annotations = cordoned.metadata.annotations.as_mut().unwrap();
    annotations.insert(key("desiredDrain"), "uncordon-b".to_owned());
    let decision = decide(&cordoned, preparation, at(50)).unwrap();
    assert_eq!(has(&apply(&cordoned, &decision)), (Some(String::new()), yes()));
}

#[test]
fn an_unknown_request_is_refused_by_name() {
    let error = decide(
        &asking("reboot-b", "", false, None),
        DrainPreparation::default(),
        at(0),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "node n: cannot read the drain request \"reboot-b\": it starts with neither \"drain-\" nor \"uncordon-\""
    );
}

#[test]
fn each_step_is_one_write() {
    let made = record("drain-b", 0, CordonOrigin::Made);
    let last = key("lastAppliedDrain");
    let cases = [
        (DrainDecision::Nothing, json!(null)),
        (DrainDecision::Evict(made.clone()), json!(null)),
        (
            DrainDecision::Cordon(made.clone()),
            json!({
                "metadata": {"annotations": {DRAIN_RECORD: made.to_annotation(), last.clone(): null}},
                "spec": {"unschedulable": true},
            }),
        ),
        (
            DrainDecision::Uncordon {
                request: "uncordon-b".to_owned(),
                lift: Lift::Cordon,
                marks: DrainMarks::default(),
            },
            json!({"metadata": {"annotations": {last.clone(): "uncordon-b", DRAIN_RECORD: null}}, "spec": {"unschedulable": null}}),
        ),
        (
            DrainDecision::Uncordon {
                request: "uncordon-b".to_owned(),
                lift: Lift::Nothing,
                marks: DrainMarks::default(),
            },
            json!({"metadata": {"annotations": {last.clone(): "uncordon-b", DRAIN_RECORD: null}}}),
        ),
    ];
    for (decision, expected) in cases {
        assert_eq!(json!(decision.patch()), expected, "{decision:?}");
    }
    assert_eq!(
        complete(&asking("drain-b", "", true, Some(&made)), &made).patch(),
        Some(json!({"metadata": {"annotations": {last: "drain-b"}}}))
    );
}

#[test]
fn a_drain_is_not_reported_when_the_node_was_let_loose_meanwhile() {
    let made = record("drain-b", 0, CordonOrigin::Made);
    let cases = [
        ("uncordoned", asking("drain-b", "", false, Some(&made))),
        ("another request", asking("drain-c", "", true, Some(&made))),
        (
            "reported already",
            asking("drain-b", "drain-b", true, Some(&made)),
        ),
    ];
    for (name, node) in cases {
        assert_eq!(complete(&node, &made), Completion::Overtaken, "{name}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_no_record() {
    let mut node = asking("drain-b", "", true, None);
    let annotations = node.metadata.annotations.as_mut().unwrap();
    annotations.insert(DRAIN_RECORD.to_owned(), "{}".to_owned());
    assert_eq!(
        cordon::of_node(&node),
        Cordon::Foreign,
        "when in doubt it is not ours"
    );
}

/// A node whose `spec.unschedulable` was set by this client.
fn cordoned_by(manager: &str, mut node: Node) -> Node {
    node.metadata.managed_fields = Some(from(json!([
        {"manager": "kubelet", "fieldsV1": {"f:metadata": {"f:annotations": {}}}},
        {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
    ])));
    node
}

#[test]
fn a_drain_that_the_go_controller_began_was_left_cordoned_and_is_finished() {
    use CordonOrigin::{Found, Made};
    let theirs = |node| cordoned_by("machine-config-controller", node);
    let fresh = |cordon| DrainDecision::Cordon(record("drain-b", 9, cordon));
    let uncordon = |lift| DrainDecision::Uncordon {
        request: "uncordon-b".to_owned(),
        lift,
        marks: DrainMarks::default(),
    };
    let (made, found) = (record("drain-b", 5, Made), record("drain-b", 5, Found));
    let cases = [
        (
            "their drain is under way: the cordon is the update's",
            theirs(asking("drain-b", "uncordon-a", true, None)),
            fresh(Made),
        ),
        (
            "their first drain ever",
            theirs(asking("drain-b", "", true, None)),
            fresh(Made),
        ),
        (
            "their drain was called off before it was reported",
            theirs(asking("uncordon-b", "uncordon-a", true, None)),
            uncordon(Lift::Cordon),
        ),
        (
            "a person had cordoned the node before their drain",
            cordoned_by("kubectl-cordon", asking("drain-b", "uncordon-a", true, None)),
            fresh(Found),
        ),
        (
            "a person had cordoned the node before their drain, which is finished",
            cordoned_by("kubectl", asking("uncordon-b", "drain-b", true, None)),
            uncordon(Lift::Nothing),
        ),
        (
            "our record says that the cordon was found",
            theirs(asking("uncordon-b", "drain-b", true, Some(&found))),
            uncordon(Lift::Nothing),
        ),
        (
            "a record of ours is left over, and a person has cordoned the node since",
            cordoned_by(
                "kubectl-cordon",
                asking("uncordon-b", "uncordon-b", true, Some(&made)),
            ),
            uncordon(Lift::Nothing),
        ),
        (
            "our own cordon",
            cordoned_by(
                cordon::DRAIN_MANAGER,
                asking("uncordon-b", "drain-b", true, Some(&made)),
            ),
            uncordon(Lift::Cordon),
        ),
    ];
    for (name, node, expected) in cases {
        assert_eq!(
            decide(&node, DrainPreparation::default(), at(9)),
            Ok(expected),
            "{name}"
        );
    }
}

fn pod(name: &str, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name.split('-').next()}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut pod, &more);
    from(pod)
}

pub fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(json!({})), value);
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

fn owned_by(kind: &str, name: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}]}})
}

fn and(mut a: Value, b: Value) -> Value {
    merge(&mut a, &b);
    a
}

#[test]
fn which_pods_go() {
    let finished = || json!({"status": {"phase": "Succeeded"}});
    let data = || json!({"spec": {"containers": [], "volumes": [{"name": "d", "emptyDir": {}}]}});
    let mirror = || json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}});
    let leaving = || json!({"metadata": {"deletionTimestamp": time(0)}});
    let replicated = || owned_by("ReplicaSet", "r");
    let strict = DrainPolicy {
        force: false,
        ignore_daemon_sets: false,
        delete_empty_dir_data: false,
    };
    let although = PodFate::EvictAlthough;
    // the action with the default policy, and with a policy that allows nothing
    let cases = [
        ("an ordinary pod", replicated(), PodFate::Evict, PodFate::Evict),
        (
            "a live DaemonSet pod",
            owned_by("DaemonSet", "ds"),
            PodFate::Stay(Excuse::DaemonSet),
            PodFate::Refuse(Concern::DaemonSet),
        ),
        (
            "a finished DaemonSet pod",
            and(owned_by("DaemonSet", "ds"), finished()),
            PodFate::Evict,
            PodFate::Evict,
        ),
        (
            "a pod whose DaemonSet is gone",
            owned_by("DaemonSet", "gone"),
            although(Concern::OrphanOfDaemonSet),
            PodFate::Refuse(Concern::OrphanOfDaemonSet),
        ),
        (
            "a mirror pod",
            mirror(),
            PodFate::Stay(Excuse::Mirror),
            PodFate::Stay(Excuse::Mirror),
        ),
        (
            "a pod with local data",
            and(replicated(), data()),
            although(Concern::LocalStorage),
            PodFate::Refuse(Concern::LocalStorage),
        ),
        (
            "a finished pod with local data",
            and(and(replicated(), data()), finished()),
            PodFate::Evict,
            PodFate::Evict,
        ),
        (
            "an unmanaged pod",
            json!({}),
            although(Concern::Unmanaged),
            PodFate::Refuse(Concern::Unmanaged),
        ),
        (
            "a finished unmanaged pod",
            finished(),
            PodFate::Evict,
            PodFate::Evict,
        ),
        (
            "a failed unmanaged pod",
            json!({"status": {"phase": "Failed"}}),
            PodFate::Evict,
            PodFate::Evict,
        ),
        (
            "a pod that is leaving",
            and(replicated(), leaving()),
            PodFate::Leaving,
            PodFate::Leaving,
        ),
        (
            "a live DaemonSet pod that is leaving",
            and(owned_by("DaemonSet", "ds"), leaving()),
            PodFate::Stay(Excuse::DaemonSet),
            PodFate::Refuse(Concern::DaemonSet),
        ),
    ];
    let exists = |_: &str, name: &str| name == "ds";
    for (name, more, by_default, strictly) in cases {
        let pod = pod("p", more);
        assert_eq!(fate(&pod, DrainPolicy::default(), exists), by_default, "{name}");
        assert_eq!(fate(&pod, strict, exists), strictly, "{name}, strictly");
    }
}

#[test]
fn a_drain_is_finished_when_only_pods_remain_that_may() {
    let stays = [
        pod("ds-1", owned_by("DaemonSet", "ds")),
        pod(
            "m-1",
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}),
        ),
    ];
    assert!(
        Eviction::of_pods(&stays, DrainPolicy::default(), OtherController::Ready, |_, _| {
            true
        })
        .is_finished()
    );
    let leaving = [pod("a-1", json!({"metadata": {"deletionTimestamp": time(0)}}))];
    let eviction = Eviction::of_pods(
        &leaving,
        DrainPolicy::default(),
        OtherController::Ready,
        |_, _| true,
    );
    assert!(!eviction.is_finished(), "a pod that is leaving is waited for");
    let concerned = [pod("a-1", json!({}))];
    let eviction = Eviction::of_pods(
        &concerned,
        DrainPolicy::default(),
        OtherController::Ready,
        |_, _| true,
    );
    assert_eq!(eviction.concerns, [("shop/a-1".to_owned(), Concern::Unmanaged)]);
}

#[test]
fn the_last_controller_evicted_itself_from_the_node_that_it_drained() {
    let namespace = mco_api::vocabulary::names::NAMESPACE;
    let controller = |name: &str, node: &str, ready: &str| {
        let ours = json!({
            "metadata": {"namespace": namespace, "labels": {"k8s-app": "machine-config-controller"}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        });
        pod(name, and(owned_by("ReplicaSet", "r"), ours))
    };
    let leaving = || {
        let mut pod = controller("c-2", "m", "True");
        pod.metadata.deletion_timestamp = Some(time(0));
        pod
    };
    let foreign = || {
        let mut pod = controller("c-2", "m", "True");
        pod.metadata.namespace = Some("shop".to_owned());
        pod
    };
    let here = |name: &str| controller(name, "n", "True");
    let other = || {
        let spec = json!({"spec": {"nodeName": "n", "containers": []}});
        pod("a-1", and(owned_by("ReplicaSet", "r"), spec))
    };
    // all pods, the controllers of node n that are evicted, the one that stays
    let cases = [
        ("no other", vec![here("c-1")], vec![], Some("c-1")),
        (
            "one is ready elsewhere",
            vec![here("c-1"), controller("c-2", "m", "True")],
            vec!["c-1"],
            None,
        ),
        (
            "one is not ready elsewhere",
            vec![here("c-1"), controller("c-2", "m", "False")],
            vec![],
            Some("c-1"),
        ),
        (
            "one is pending",
            vec![here("c-1"), controller("c-2", "", "False")],
            vec![],
            Some("c-1"),
        ),
        (
            "one is leaving elsewhere",
            vec![here("c-1"), leaving()],
            vec![],
            Some("c-1"),
        ),
        (
            "one of another namespace",
            vec![here("c-1"), foreign()],
            vec![],
            Some("c-1"),
        ),
        (
            "two here",
            vec![here("c-1"), here("c-2")],
            vec!["c-2"],
            Some("c-1"),
        ),
        (
            "two here, one ready",
            vec![controller("c-1", "n", "False"), here("c-2")],
            vec!["c-1"],
            Some("c-2"),
        ),
        ("none anywhere", vec![other()], vec!["a-1"], None),
    ];
    for (name, pods, evicted, kept) in cases {
        let on_node = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("n");
        let other = OtherController::than_on("n", &pods);
        let policy = DrainPolicy::default();
        let eviction = Eviction::of_pods(pods.iter().filter(on_node), policy, other, |_, _| true);
        let name_of = |pod: &&Pod| pod.metadata.name.clone().unwrap();
        assert_eq!(
            eviction.evict.iter().map(name_of).collect::<Vec<_>>(),
            evicted,
            "{name}"
        );
        assert_eq!(
            eviction.kept_controller.as_ref().map(name_of).as_deref(),
            kept,
            "{name}"
        );
    }
}

fn budget(name: &str, selector: Value, allowed: i32, more: Value) -> PodDisruptionBudget {
    let mut budget = json!({
        "metadata": {"name": name, "namespace": "shop", "generation": 2},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2},
    });
    merge(&mut budget, &more);
    from(budget)
}

#[test]
fn who_and_what_is_in_the_way_of_a_drain() {
    let db = || json!({"matchLabels": {"app": "db"}});
    let unready = || json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let blocked = "worker-4 waits for pod shop/db-0 (budget shop/db allows 0 disruptions)";
    let none: &[&str] = &[];
    let cases = [
        ("no budget", vec![pod("db-0", json!({}))], vec![], none),
        (
            "a budget that is used up",
            vec![pod("db-0", json!({}))],
            vec![budget("db", db(), 0, json!({}))],
            &[blocked],
        ),
        (
            "a budget with room",
            vec![pod("db-0", json!({}))],
            vec![budget("db", db(), 1, json!({}))],
            none,
        ),
        (
            "room for one of two",
            vec![pod("db-0", json!({})), pod("db-1", json!({}))],
            vec![budget("db", db(), 1, json!({}))],
            &["worker-4 waits for pod shop/db-1 (budget shop/db allows 1 disruptions)"],
        ),
        (
            "a budget for others",
            vec![pod("web-0", json!({}))],
            vec![budget("db", db(), 0, json!({}))],
            none,
        ),
        (
            "a budget elsewhere",
            vec![pod("db-0", json!({"metadata": {"namespace": "other"}}))],
            vec![budget("db", db(), 0, json!({}))],
            none,
        ),
        (
            "a budget for all",
            vec![pod("db-0", json!({}))],
            vec![budget("db", json!({}), 0, json!({}))],
            &[blocked],
        ),
        (
            "a budget for none",
            vec![pod("db-0", json!({}))],
            vec![budget("db", json!(null), 0, json!({"spec": {"selector": null}}))],
            none,
        ),
        (
            "two budgets",
            vec![pod("db-0", json!({}))],
            vec![
                budget("db", db(), 5, json!({})),
                budget("all", json!({}), 5, json!({})),
            ],
            &["worker-4 waits for pod shop/db-0 (it has more than one budget: shop/db, shop/all)"],
        ),
        (
            "a budget that was just changed",
            vec![pod("db-0", json!({}))],
            vec![budget("db", db(), 5, json!({"metadata": {"generation": 3}}))],
            &["worker-4 waits for pod shop/db-0 (budget shop/db is being recounted)"],
        ),
        (
            "a pod that does not run yet",
            vec![pod("db-0", json!({"status": {"phase": "Pending"}}))],
            vec![budget("db", db(), 0, json!({}))],
            none,
        ),
        (
            "a pod that is leaving",
            vec![pod("db-0", json!({"metadata": {"deletionTimestamp": time(0)}}))],
            vec![budget("db", db(), 0, json!({}))],
            none,
        ),
        (
            "a broken pod that the budget still needs",
            vec![pod("db-0", unready())],
            vec![budget("db", db(), 0, json!({}))],
            &[blocked],
        ),
        (
            "a broken pod that may always go",
            vec![pod("db-0", unready())],
            vec![budget(
                "db",
                db(),
                0,
                json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
            )],
            none,
        ),
        (
            "a broken pod beside enough healthy ones",
            vec![pod("db-0", unready())],
            vec![budget("db", db(), 0, json!({"status": {"currentHealthy": 2}}))],
            none,
        ),
    ];
    for (name, pods, budgets, expected) in cases {
        let blockers: Vec<String> = Budgets::new(&budgets)
            .blockers("worker-4", &pods)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(blockers, expected, "{name}");
    }
}

#[test]
fn patience_is_counted_from_the_recorded_start() {
    let minutes = |minutes: i64| pace(at(0), at(minutes * 60));
    assert_eq!(minutes(0), DrainPace::Fresh);
    assert_eq!(minutes(10), DrainPace::Fresh);
    assert_eq!(minutes(11), DrainPace::Slow);
    assert_eq!(minutes(60), DrainPace::Slow);
    assert_eq!(minutes(61), DrainPace::Overdue);
    assert_eq!(pace(at(100), at(0)), DrainPace::Fresh, "another clock was ahead");
    assert_eq!(
        (DrainPace::Fresh.retry_after(), DrainPace::Overdue.retry_after()),
        (RETRY, SLOW_RETRY)
    );
    assert!(DrainPace::Overdue.is_alarming() && !DrainPace::Slow.is_alarming());
}

#[test]
fn events_name_what_blocks() {
    let pods = [pod("db-0", json!({}))];
    let budgets = [budget("db", json!({}), 0, json!({}))];
    let blockers = Budgets::new(&budgets).blockers("n", &pods);
    assert_eq!(DrainPace::Fresh.event("n", &blockers), None);
    let slow = DrainPace::Slow.event("n", &blockers).unwrap();
    assert_eq!(slow.reason, "DrainThresholdExceeded");
    let overdue = DrainPace::Overdue.event("n", &blockers).unwrap();
    assert_eq!(overdue.reason, "DrainFailed");
    assert_eq!(
        overdue.message,
        "node n: drain exceeded timeout: 1h0m0s. Will continue to retry. \
         n waits for pod shop/db-0 (budget shop/db allows 0 disruptions)"
    );
    let plain = DrainPace::Overdue.event("n", &[""; 0]).unwrap();
    assert_eq!(
        plain.message,
        "node n: drain exceeded timeout: 1h0m0s. Will continue to retry."
    );
}

#[test]
fn a_pod_that_does_not_leave_is_an_obstacle_once_its_grace_period_is_well_over() {
    let leaving = |extra: Value| -> Pod {
        let mut metadata = json!({
            "name": "a", "deletionTimestamp": at(130).to_string(), "deletionGracePeriodSeconds": 30,
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        from(json!({"metadata": metadata}))
    };
    let said = |pod: &Pod, now: i64| overstays(pod, at(now)).map(|obstacle| obstacle.to_string());
    let plain = leaving(json!({}));
    assert_eq!(said(&plain, 130), None, "the grace period ends");
    assert_eq!(said(&plain, 140), None, "the kubelet may still tidy up");
    let since = at(100).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    assert_eq!(
        said(&plain, 141),
        Some(format!("it is being deleted since {since}"))
    );
    assert_eq!(
        said(&leaving(json!({"finalizers": ["example.com/backup"]})), 141),
        Some(format!(
            "it is being deleted since {since} and held by example.com/backup"
        ))
    );
    let staying: Pod = from(json!({"metadata": {"name": "a"}}));
    assert_eq!(said(&staying, 1_000), None);
}

#[test]
fn the_reason_is_the_controllers_only_while_the_daemon_waits_and_has_said_nothing() {
    let node = |state: &str, reason: &str, observed: Option<&str>| {
        let mut record = record("drain-b", 5, CordonOrigin::Made);
        record.waiting_for = observed.map(str::to_owned);
        let mut node = asking("drain-b", "uncordon-a", true, Some(&record));
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert(key("state"), state.to_owned());
        annotations.insert(key("reason"), reason.to_owned());
        node
    };
    let (a, b) = ("the drain waits for pod a", "the drain waits for pod b");
    let cases = [
        (
            "something blocks",
            node("Working", "", None),
            Some("pod a"),
            Some(a),
        ),
        (
            "it is already reported",
            node("Working", a, Some("pod a")),
            Some("pod a"),
            None,
        ),
        (
            "something else blocks",
            node("Working", a, Some("pod a")),
            Some("pod b"),
            Some(b),
        ),
        (
            "nothing blocks any more",
            node("Working", a, Some("pod a")),
            None,
            Some(""),
        ),
        ("nothing ever blocked", node("Working", "", None), None, None),
        (
            "the daemon has failed",
            node("Degraded", "disk full", Some("pod a")),
            Some("pod b"),
            None,
        ),
        (
            "the daemon fails without words",
            node("Degraded", "", None),
            Some("pod a"),
            None,
        ),
        (
            "the daemon's words stay",
            node("Working", "disk full", Some("pod a")),
            None,
            None,
        ),
        (
            "our words under another state",
            node("Degraded", a, Some("pod a")),
            Some("pod a"),
            Some(""),
        ),
    ];
    for (name, node, waiting_for, expected) in cases {
        let expected = expected.map(|text| json!({"metadata": {"annotations": {key("reason"): text}}}));
        assert_eq!(reason_patch(&node, waiting_for), expected, "{name}");
    }
}
