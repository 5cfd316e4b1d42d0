//! The objects that an installation consists of.

use mco_api::vocabulary::names;
use serde_json::{Value, json};

/// The namespace of everything.
pub fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names::NAMESPACE,
            "labels": {
                "name": names::NAMESPACE,
                "openshift.io/run-level": "",
                "openshift.io/cluster-monitoring": "true",
                // The daemon changes its host; nothing less than this lets it.
                "pod-security.kubernetes.io/enforce": "privileged",
                "pod-security.kubernetes.io/audit": "privileged",
                "pod-security.kubernetes.io/warn": "privileged",
            },
            "annotations": {"openshift.io/node-selector": ""},
        },
    })
}
