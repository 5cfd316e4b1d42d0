//! Requests that no client would send: malformed paths, queries, types and bodies, and patches that grow.

use http::Method;
use serde_json::{Value, json};

use crate::random::Random;

pub struct HostileRequest {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

const PATHS: &[&str] = &[
    "/api/v1/nodes/node-a",
    "/api/v1/nodes/node-b/status",
    "/api/v1/nodes",
    "/api/v1/namespaces/fuzz-a/configmaps",
    "/api/v1/namespaces/fuzz-a/configmaps/c1",
    "/api/v1/namespaces/fuzz-b/secrets/c1",
    "/api/v1/namespaces/fuzz-a/pods/p/eviction",
    "/api/v1/namespaces/fuzz-a/finalize",
    "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
    "/apis/machineconfiguration.openshift.io/v1/kubeletconfigs",
    "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker/status",
    "/apis/apps/v1/namespaces/fuzz-a/deployments/d/scale",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/join",
    "/join-tokens",
    "/openapi/v3/api/v1",
    "/%2e%2e/api/v1/secrets",
    "//api//v1//nodes",
    "/api/v1/namespaces/%00/secrets",
];

const QUERIES: &[&str] = &[
    "",
    "",
    "limit=1&continue=%7B%7D",
    "resourceVersion=18446744073709551615",
    "labelSelector=a%20in%20(",
    "fieldSelector=metadata.name%3Dnode-a%5C%2C",
    "dryRun=All",
    "fieldManager=x&force=true",
    "watch=true&timeoutSeconds=1",
    "timeoutSeconds=9223372036854775807",
    "gracePeriodSeconds=-9223372036854775808",
];

const TYPES: &[&str] = &[
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "x/\u{7f}",
];

/// Returns a request. `marker` is part of what it would write.
pub fn request(random: &mut Random, marker: &str) -> HostileRequest {
    let methods = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::PATCH,
        Method::DELETE,
    ];
    let method = random.pick(&methods).clone();
    let mut path = (*random.pick(PATHS)).to_owned();
    let query = *random.pick(QUERIES);
    // A GET with the largest timeout would be a watch that never ends.
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let content_type = *random.pick(TYPES);
    HostileRequest {
        method,
        path,
        content_type,
        body: body(random, marker),
    }
}

fn body(random: &mut Random, marker: &str) -> Vec<u8> {
    match random.below(9) {
        0 => Vec::new(),
        1 => b"[]".to_vec(),
        2 => "[".repeat(10_000).into_bytes(),
        3 => format!("a: &a [x]\nb: [{}]", "*a,".repeat(200)).into_bytes(),
        4 => copies(random).to_string().into_bytes(),
        5 => (0..random.below(300))
            .map(|_| random.number().to_le_bytes()[0])
            .collect(),
        6 => json!({"status": {"addresses": [null], "conditions": [null, {"type": marker}]}})
            .to_string()
            .into_bytes(),
        _ => {
            let value = value(random, 6, marker);
            json!({"metadata": {"name": "c1", "annotations": {"fuzz": marker}}, "spec": value, "data": {"m": marker}})
                .to_string()
                .into_bytes()
        }
    }
}

/// A JSON patch whose copies double depth or size.
fn copies(random: &mut Random) -> Value {
    let mut operations = vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}})];
    let mut depth = 1;
    for index in 0..random.below(18) {
        let path = if random.chance(50) {
            format!("/metadata/a{index}")
        } else {
            depth = 2 * depth + 1;
            format!("/metadata{}", "/a".repeat(depth.min(5_000)))
        };
        operations.push(json!({"op": "copy", "from": "/metadata", "path": path}));
    }
    Value::from(operations)
}

fn value(random: &mut Random, depth: usize, marker: &str) -> Value {
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => Value::from(random.number()),
        2 => Value::from(1.5e300),
        3 => Value::from(marker),
        4 => Value::from("x".repeat(random.below(2_000))),
        5 | 6 => {
            let keys = [
                "config", "ignition", "version", "$patch", "10a", "90.", "101-", "", "~",
            ];
            let fields = (0..random.below(6)).map(|_| ((*random.pick(&keys)).to_owned(), Value::Null));
            let names: Vec<(String, Value)> = fields.collect();
            names
                .into_iter()
                .map(|(key, _)| (key, value(random, depth - 1, marker)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        _ => (0..random.below(5))
            .map(|_| value(random, depth - 1, marker))
            .collect(),
    }
}
