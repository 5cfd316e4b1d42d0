use serde_json::json;

use super::*;

#[test]
fn broken_rules_are_named_as_kubernetes_names_them() {
    let deployment = json!({"spec": {"selector": {"matchLabels": {"app": "other"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let cases = [
        ("", "Pod", json!({"spec": {}}), "spec.containers: Required value"),
        (
            "",
            "ConfigMap",
            json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}),
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
        ),
        (
            "",
            "Secret",
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            "data[tls.key]: Required value",
        ),
        (
            "apps",
            "Deployment",
            deployment,
            "spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match template `labels`",
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":1,\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set",
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"leaseDurationSeconds": 0}}),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "",
            "Event",
            json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace",
        ),
        (
            "rbac.authorization.k8s.io",
            "Role",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
    ];
    for (group, kind, object, expected) in cases {
        let errors: Vec<String> = check(group, kind, &object, None)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, [expected], "{kind}");
    }
}

#[test]
fn a_running_pod_may_change_its_image_and_little_else() {
    let pod = |image: &str, policy: &str| json!({"spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": image}]}});
    let old = pod("a", "Always");
    assert!(check("", "Pod", &pod("b", "Always"), Some(&old)).is_empty());
    assert_eq!(check("", "Pod", &pod("a", "Never"), Some(&old)).len(), 1);
}

#[test]
fn immutable_data_stays() {
    let old = json!({"immutable": true, "data": {"a": "1"}});
    let errors = |new: &Value| -> Vec<String> {
        check("", "ConfigMap", new, Some(&old))
            .iter()
            .map(|error| error.field.clone())
            .collect()
    };
    assert_eq!(errors(&json!({"immutable": true, "data": {"a": "2"}})), ["data"]);
    assert_eq!(errors(&json!({"data": {"a": "1"}})), ["immutable"]);
    assert!(errors(&old).is_empty());
}
