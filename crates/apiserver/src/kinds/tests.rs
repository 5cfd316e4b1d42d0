use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn kind(group: &str, plural: &str) -> &'static BuiltIn {
    by_resource(group, "v1", plural).unwrap_or_else(|| panic!("{group}/{plural} is not in the catalogue"))
}

#[test]
fn every_resource_and_every_kind_appears_once() {
    let resources: BTreeSet<_> = BUILT_IN.iter().map(|k| (k.group, k.version, k.plural)).collect();
    let kinds: BTreeSet<_> = BUILT_IN.iter().map(|k| (k.group, k.version, k.kind)).collect();
    assert_eq!(resources.len(), BUILT_IN.len());
    assert_eq!(kinds.len(), BUILT_IN.len());
}

#[test]
fn no_short_name_is_ambiguous_except_the_two_faces_of_events() {
    let mut seen = BTreeSet::new();
    for entry in BUILT_IN {
        for short in entry.short_names {
            assert!(seen.insert(*short) || *short == "ev", "{short} is used twice");
        }
    }
}

#[test]
fn lookups_agree_with_each_other() {
    for entry in BUILT_IN {
        let by_meta = by_type_meta(&entry.api_version(), entry.kind).expect("found by type");
        assert_eq!(by_meta.plural, entry.plural);
        assert_eq!(
            by_resource(entry.group, entry.version, entry.plural)
                .expect("found")
                .kind,
            entry.kind
        );
    }
    assert!(by_type_meta("v1", "Deployment").is_none(), "the group matters");
    assert!(
        by_resource("apps", "v1beta1", "deployments").is_none(),
        "the version matters"
    );
}

#[test]
fn a_shared_store_names_a_kind_that_has_its_own() {
    for entry in BUILT_IN {
        if let KindStorage::SharedWith { group, plural } = entry.storage {
            assert_eq!(kind(group, plural).storage, KindStorage::Own);
        }
    }
    assert_eq!(
        kind("events.k8s.io", "events").storage,
        KindStorage::SharedWith {
            group: "",
            plural: "events"
        }
    );
}

#[test]
fn scopes_verbs_and_names_are_those_of_kubernetes() {
    assert_eq!(kind("", "nodes").scope, KindScope::Cluster);
    assert_eq!(kind("", "pods").scope, KindScope::Namespaced);
    assert_eq!(kind("", "endpoints").singular(), "endpoints");
    assert_eq!(kind("", "pods").list_kind(), "PodList");
    assert_eq!(kind("apps", "deployments").short_names, ["deploy"]);
    assert_eq!(kind("apps", "deployments").categories, ["all"]);
    assert_eq!(kind("apps", "deployments").api_version(), "apps/v1");
    assert!(!kind("", "namespaces").verbs.contains(&"deletecollection"));
    assert_eq!(
        kind("authorization.k8s.io", "selfsubjectaccessreviews").verbs,
        ["create"]
    );
    let eviction = kind("", "pods").subresource("eviction").expect("eviction");
    assert_eq!(
        (eviction.group, eviction.version, eviction.kind),
        ("policy", "v1", "Eviction")
    );
    assert!(kind("", "configmaps").subresource("status").is_none());
}

#[test]
fn only_kinds_with_a_specification_count_generations() {
    assert!(kind("apps", "deployments").has_generation());
    assert!(kind("policy", "poddisruptionbudgets").has_generation());
    assert!(!kind("", "nodes").has_generation());
    assert!(!kind("", "configmaps").has_generation());
    assert!(!kind("coordination.k8s.io", "leases").has_generation());
}

#[test]
fn storage_hashes_are_those_that_kubernetes_publishes() {
    for (group, kind, hash) in [
        ("", "ConfigMap", "qFsyl6wFWjQ="),
        ("", "Pod", "xPOwRZ+Yhw8="),
        ("", "Node", "XwShjMxG9Fs="),
        ("", "Namespace", "Q3oi5N2YM8M="),
    ] {
        assert_eq!(storage_version_hash(group, "v1", kind), hash, "{kind}");
    }
}

#[test]
fn selectable_fields_read_like_kubernetes_field_sets() {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"nodeName": "worker-1", "hostNetwork": true},
        "status": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    let event = json!({"reportingComponent": "mco", "source": {"component": ""}});
    let cases: &[(&str, &str, &str, &Value, &str)] = &[
        ("", "pods", "spec.nodeName", &pod, "worker-1"),
        ("", "pods", "spec.host", &pod, "worker-1"),
        ("", "pods", "spec.hostNetwork", &pod, "true"),
        ("", "pods", "status.podIP", &pod, "10.0.0.1"),
        ("", "pods", "spec.schedulerName", &pod, ""),
        ("", "nodes", "spec.unschedulable", &json!({"spec": {}}), "false"),
        (
            "",
            "nodes",
            "spec.unschedulable",
            &json!({"spec": {"unschedulable": true}}),
            "true",
        ),
        ("", "events", "source", &event, "mco"),
        ("events.k8s.io", "events", "reportingController", &event, "mco"),
        ("batch", "jobs", "status.successful", &json!({}), "0"),
    ];
    for (group, plural, label, object, expected) in cases {
        let field = kind(group, plural).selectable.iter().find(|f| f.label == *label);
        assert_eq!(
            field.map(|f| f.text(object)).as_deref(),
            Some(*expected),
            "{plural} {label}"
        );
    }
}

#[test]
fn an_unknown_field_label_is_rejected_with_the_message_of_its_kind() {
    let cases = [
        ("", "pods", "field label not supported: spec.x"),
        (
            "",
            "configmaps",
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("batch", "jobs", "field label \"spec.x\" not supported for Job"),
    ];
    for (group, plural, expected) in cases {
        assert_eq!(kind(group, plural).unsupported_label.message("spec.x"), expected);
    }
}
