//! Random sequences of requests as several identities against a running `mco up`, with invariants after every step:
//! the process lives and is ready, its memory is bounded, no caller reads or writes what an independent model denies,
//! resource versions only grow, and what was acknowledged is readable.
//!
//! The seed is printed, and the same seed is the same sequence:
//! `MCO_FUZZ_SEED=7 MCO_FUZZ_SECONDS=60 cargo test -p mco --test random_requests -- --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod hostile;
mod oracle;
mod random;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use oracle::{Caller, Grants, LEASE_NAMESPACE, Question, Resource, Verb};
use random::Random;
use world::{Answer, USER, World};

/// The memory of the process in a debug build; without a defect it stays below half of it.
const MAX_RESIDENT_MIB: u64 = 400;
const DEFAULT_SEED: u64 = 16;
const DEFAULT_STEPS: u64 = 400;
/// The number of steps between two inspections of all objects.
const SWEEP_INTERVAL: u64 = 50;
const NAMESPACES: [&str; 2] = ["fuzz-a", "fuzz-b"];
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

const CALLERS: [Caller; 6] = [
    Caller::Admin,
    Caller::Node("node-a"),
    Caller::Node("node-b"),
    Caller::Revoked,
    Caller::User,
    Caller::Anonymous,
];

struct Fuzzer {
    world: World,
    random: Random,
    grants: Grants,
    step: u64,
    newest: u64,
    /// What was acknowledged for each object that only this test writes: its marker, or none once it was deleted.
    acknowledged: BTreeMap<String, Option<String>>,
    counts: BTreeMap<u16, u64>,
}

#[test]
fn random_requests_as_several_identities_break_no_invariant() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("MCO_FUZZ_SEED").unwrap_or(DEFAULT_SEED);
    let seconds: Option<u64> = number("MCO_FUZZ_SECONDS");
    let steps = number("MCO_FUZZ_STEPS").unwrap_or(if seconds.is_some() {
        u64::MAX
    } else {
        DEFAULT_STEPS
    });
    println!("seed {seed}; replay with MCO_FUZZ_SEED={seed}");
    let scratch = tempfile::tempdir().unwrap();
    let mut fuzzer = Fuzzer::start(scratch.path(), seed);
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while fuzzer.step < steps && end.is_none_or(|end| Instant::now() < end) {
        fuzzer.step += 1;
        fuzzer.take_step();
        fuzzer.check_process();
        if fuzzer.step.is_multiple_of(SWEEP_INTERVAL) {
            fuzzer.sweep();
        }
    }
    fuzzer.sweep();
    println!(
        "{} steps, responses by status {:?}, {} MiB resident",
        fuzzer.step,
        fuzzer.counts,
        fuzzer.world.resident_mib().unwrap_or_default()
    );
    let allowed =
        fuzzer.counts.get(&200).copied().unwrap_or(0) + fuzzer.counts.get(&201).copied().unwrap_or(0);
    let denied = fuzzer.counts.get(&403).copied().unwrap_or(0);
    assert!(
        allowed > 0 && denied > 0,
        "the sequence tested nothing: {:?}",
        fuzzer.counts
    );
}

impl Fuzzer {
    fn start(scratch: &std::path::Path, seed: u64) -> Self {
        let world = World::start(scratch);
        for name in NAMESPACES {
            let body = json!({"metadata": {"name": name}}).to_string();
            let created = world.send(
                Caller::Admin,
                &Method::POST,
                "/api/v1/namespaces",
                "application/json",
                body.as_bytes(),
            );
            assert_eq!(created.unwrap().status, StatusCode::CREATED);
        }
        Self {
            world,
            random: Random::new(seed),
            grants: Grants::default(),
            step: 0,
            newest: 0,
            acknowledged: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    fn take_step(&mut self) {
        match self.random.below(10) {
            0 => self.change_grants(),
            1 | 2 => self.send_hostile(),
            3 | 4 => self.read(),
            _ => self.write(),
        }
    }

    fn send(
        &mut self,
        caller: Caller,
        method: &Method,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Option<Answer> {
        let answer = self.world.send(caller, method, path, kind, body)?;
        *self.counts.entry(answer.status.as_u16()).or_default() += 1;
        Some(answer)
    }

    /// Describes a violation so that it can be reproduced.
    fn at(&self, caller: Caller, method: &Method, path: &str) -> String {
        format!("step {}: {caller:?} {method} {path}", self.step)
    }

    fn check_process(&mut self) {
        let resident = self.world.resident_mib();
        let resident = resident.unwrap_or_else(|| panic!("step {}: the process ended", self.step));
        assert!(resident < MAX_RESIDENT_MIB, "step {}: {resident} MiB", self.step);
        let ready = self
            .world
            .send(Caller::Anonymous, &Method::GET, "/readyz", "", &[])
            .unwrap();
        assert_eq!(ready.status, StatusCode::OK, "step {}: /readyz", self.step);
    }

    /// Chooses an object among few, so that callers meet.
    fn target(&mut self) -> (Resource, String, String) {
        let resource = *self.random.pick(&oracle::ALL);
        let namespace = match resource {
            oracle::LEASES => LEASE_NAMESPACE.to_owned(),
            _ if resource.namespaced => (*self.random.pick(&NAMESPACES)).to_owned(),
            _ => String::new(),
        };
        let names: &[&str] = match resource {
            oracle::NODES | oracle::MACHINE_CONFIG_NODES | oracle::LEASES => &["node-a", "node-b"],
            oracle::POOLS => &["worker"],
            oracle::MACHINE_CONFIGS => &["00-worker", "50-secret"],
            _ => &["c1", "c2"],
        };
        let name = (*self.random.pick(names)).to_owned();
        (resource, namespace, name)
    }

    fn write(&mut self) {
        let caller = *self.random.pick(&CALLERS);
        let (resource, namespace, name) = self.target();
        let verb = *self
            .random
            .pick(&[Verb::Create, Verb::Update, Verb::Patch, Verb::Patch, Verb::Delete]);
        // The rest of the system depends on these, and reacts to their change for minutes.
        let is_vital = matches!(resource, oracle::POOLS | oracle::NODES) || name == "00-worker";
        if caller == Caller::Admin && is_vital && verb != Verb::Patch {
            return;
        }
        let marker = self.marker(caller);
        let collection = collection(resource, &namespace);
        let path = format!("{collection}/{name}");
        let (method, at, kind) = match verb {
            Verb::Create => (Method::POST, &collection, "application/json"),
            Verb::Update => (Method::PUT, &path, "application/json"),
            Verb::Patch => (Method::PATCH, &path, "application/merge-patch+json"),
            _ => (Method::DELETE, &path, "application/json"),
        };
        let body = match verb {
            Verb::Delete => Value::Null,
            Verb::Patch => json!({"metadata": {"annotations": {"fuzz": marker}}}),
            _ => object(resource, &namespace, &name, &marker, caller),
        };
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let before = self.world.get(&path);
        let answer = self.send(caller, &method, at, kind, body.as_bytes()).unwrap();
        let asked = Question {
            verb,
            resource,
            namespace: &namespace,
            name: &name,
        };
        let place = self.at(caller, &method, at);
        if !oracle::allows(caller, &self.grants, asked) {
            assert!(
                is_denial(answer.status),
                "{place}: {} {}",
                answer.status,
                answer.body
            );
            let after = self.world.get(&path);
            let text = after.body.to_string();
            assert!(!text.contains(&marker), "{place}: a denied write was done");
            assert_eq!(
                before.status, after.status,
                "{place}: a denied write changed the object"
            );
            return;
        }
        assert!(
            !answer.status.is_server_error(),
            "{place}: {} {}",
            answer.status,
            answer.body
        );
        if answer.status.is_success() {
            self.check_acknowledged(&path, verb, &marker, &before, &answer, &place);
        }
    }

    fn marker(&self, caller: Caller) -> String {
        match caller {
            Caller::Node(node) => format!("by-{node}-{}", self.step),
            other => format!("by-{other:?}-{}", self.step),
        }
    }

    /// What the response acknowledges is readable at once, with a newer resource version.
    fn check_acknowledged(
        &mut self,
        path: &str,
        verb: Verb,
        marker: &str,
        before: &Answer,
        answer: &Answer,
        place: &str,
    ) {
        let after = self.world.get(path);
        if verb == Verb::Delete {
            let gone = after.status == StatusCode::NOT_FOUND;
            let going = !after.body["metadata"]["deletionTimestamp"].is_null();
            let again = after.body["metadata"]["uid"] != before.body["metadata"]["uid"];
            assert!(gone || going || again, "{place}: still there: {}", after.body);
            self.record(path, None);
            return;
        }
        assert!(
            after.body.to_string().contains(marker),
            "{place}: not readable: {}",
            after.body
        );
        let version = |body: &Value| -> u64 {
            let text = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            text.parse().unwrap_or(0)
        };
        let new = version(&answer.body);
        assert!(new > self.newest, "{place}: version {new} after {}", self.newest);
        assert!(new > version(&before.body), "{place}: an older version");
        self.newest = new;
        self.record(path, Some(marker));
    }

    /// Records what was acknowledged, except for objects that controllers write as well.
    fn record(&mut self, path: &str, marker: Option<&str>) {
        if NAMESPACES.iter().any(|namespace| path.contains(namespace)) {
            self.acknowledged
                .insert(path.to_owned(), marker.map(str::to_owned));
        }
    }

    fn read(&mut self) {
        let caller = *self.random.pick(&CALLERS);
        let (resource, namespace, name) = self.target();
        let is_list = self.random.chance(40);
        let collection = collection(resource, &namespace);
        let path = match (is_list, self.random.below(3)) {
            (false, _) => format!("{collection}/{name}"),
            (true, 0) => collection,
            (true, 1) => format!(
                "{collection}?watch=true&timeoutSeconds=1&resourceVersion={}",
                u64::MAX >> 1
            ),
            (true, _) => format!("{collection}?limit=2&labelSelector=!x"),
        };
        let answer = self.send(caller, &Method::GET, &path, "", &[]).unwrap();
        let place = self.at(caller, &Method::GET, &path);
        let verb = if is_list { Verb::List } else { Verb::Get };
        let name = if is_list { "" } else { &name };
        let asked = Question {
            verb,
            resource,
            namespace: &namespace,
            name,
        };
        // The model has no verb of its own for watches; they are granted with lists.
        if !oracle::allows(caller, &self.grants, asked) {
            assert!(
                is_denial(answer.status),
                "{place}: {} {}",
                answer.status,
                answer.body
            );
        } else if !path.contains("watch=") {
            assert!(!answer.status.is_server_error(), "{place}: {}", answer.status);
        }
    }

    /// Grants a right to the user, or withdraws all.
    fn change_grants(&mut self) {
        let withdraw = self.random.chance(40);
        let mut grants = BTreeSet::new();
        if !withdraw {
            grants.clone_from(&self.grants.0);
            let verb = *self.random.pick(&["get", "list", "create", "patch", "delete"]);
            let plural = *self.random.pick(&["configmaps", "secrets", "events"]);
            grants.insert((verb, plural, (*self.random.pick(&NAMESPACES)).to_owned()));
        }
        for namespace in NAMESPACES {
            let rules = grants
                .iter()
                .filter(|(_, _, of)| of == namespace)
                .map(|(verb, plural, _)| json!({"apiGroups": [""], "resources": [plural], "verbs": [verb]}));
            let rules: Vec<Value> = rules.collect();
            let root = format!("{RBAC}/namespaces/{namespace}");
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "fuzz-user"}, "rules": rules});
            let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "fuzz-user"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "fuzz-user"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]});
            for (plural, object) in [("roles", role), ("rolebindings", binding)] {
                let path = format!("{root}/{plural}/fuzz-user?fieldManager=fuzz&force=true");
                let body = object.to_string();
                let kind = "application/apply-patch+yaml";
                let answer = self
                    .send(Caller::Admin, &Method::PATCH, &path, kind, body.as_bytes())
                    .unwrap();
                assert!(answer.status.is_success(), "granting at {path}: {}", answer.body);
            }
        }
        self.grants = Grants(grants);
    }

    fn send_hostile(&mut self) {
        let caller = *self.random.pick(&CALLERS);
        let marker = self.marker(caller);
        let request = hostile::request(&mut self.random, &marker);
        // An administrator may break the objects of this test on purpose.
        if caller == Caller::Admin {
            return;
        }
        let answer = self.send(
            caller,
            &request.method,
            &request.path,
            request.content_type,
            &request.body,
        );
        let Some(answer) = answer else {
            return;
        };
        let place = self.at(caller, &request.method, &request.path);
        if matches!(caller, Caller::Anonymous | Caller::Revoked) {
            assert!(!answer.status.is_success(), "{place}: {}", answer.status);
        }
        // 504 is a resource version of the future; 500 is Kubernetes' own response to contradictory patches.
        let expected = !answer.status.is_server_error() || matches!(answer.status.as_u16(), 500 | 504);
        assert!(expected, "{place}: {} {}", answer.status, answer.body);
        // The user may write some of these objects, and then their state is not known any more.
        if caller == Caller::User && answer.status.is_success() {
            let path = request.path.split('?').next().unwrap_or_default();
            self.acknowledged.retain(|known, _| !known.starts_with(path));
        }
    }

    /// Reads everything: nodes wrote only their own objects, and nothing that was acknowledged is lost.
    fn sweep(&mut self) {
        for resource in oracle::ALL {
            let all = self.world.get(&format!("{}/{}", resource.root, resource.plural));
            assert_eq!(all.status, StatusCode::OK, "{}", resource.plural);
            for object in all.body["items"].as_array().unwrap() {
                for node in world::NODES {
                    let written = object.to_string().contains(&format!("by-{node}-"));
                    assert!(
                        !written || oracle::owns(node, resource, object),
                        "step {}: {node} wrote {} {}",
                        self.step,
                        resource.plural,
                        object["metadata"]
                    );
                }
                let text = object.to_string();
                let strangers = ["by-Revoked-", "by-Anonymous-"];
                assert!(!strangers.iter().any(|marker| text.contains(marker)), "{text}");
            }
        }
        for (path, marker) in &self.acknowledged {
            let answer = self.world.get(path);
            match marker {
                Some(marker) => {
                    let text = answer.body.to_string();
                    assert!(
                        text.contains(marker),
                        "step {}: {path} lost {marker}: {text}",
                        self.step
                    );
                }
                None => assert_eq!(answer.status, StatusCode::NOT_FOUND, "step {}: {path}", self.step),
            }
        }
    }
}

fn is_denial(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn collection(resource: Resource, namespace: &str) -> String {
    if namespace.is_empty() {
        format!("{}/{}", resource.root, resource.plural)
    } else {
        format!("{}/namespaces/{namespace}/{}", resource.root, resource.plural)
    }
}

/// Returns an object with the marker in an annotation.
fn object(resource: Resource, namespace: &str, name: &str, marker: &str, caller: Caller) -> Value {
    let mut object = json!({"metadata": {"name": name, "annotations": {"fuzz": marker}}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = Value::from(namespace);
    }
    let writer = match caller {
        Caller::Node(node) => node,
        _ => "somewhere",
    };
    match resource {
        oracle::EVENTS => {
            object["involvedObject"] = json!({"kind": "Node", "name": writer, "namespace": namespace});
            object["reportingInstance"] = Value::from(writer);
            object["reportingComponent"] = Value::from("fuzz");
            object["source"] = json!({"host": writer});
            object["reason"] = Value::from("Fuzz");
            object["type"] = Value::from("Normal");
        }
        oracle::MACHINE_CONFIGS => {
            object["apiVersion"] = Value::from("machineconfiguration.openshift.io/v1");
            object["kind"] = Value::from("MachineConfig");
            object["spec"] = json!({"config": {"ignition": {"version": "3.5.0"}}});
        }
        oracle::MACHINE_CONFIG_NODES => {
            object["apiVersion"] = Value::from("machineconfiguration.openshift.io/v1");
            object["kind"] = Value::from("MachineConfigNode");
            object["spec"] = json!({"node": {"name": name}, "pool": {"name": "worker"},
                "configVersion": {"desired": "rendered-worker-0"}});
        }
        _ => {}
    }
    object
}
