//! The admission policies of an installation hold on the embedded API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use mco_api::crd::Installable as _;
use mco_api::node_adoption::NodeAdoptionSpec;
use mco_api::{ClusterBase, MachineConfigPool, MachineConfiguration, NodeAdoption, OSImageStream};
use mco_apiserver::{ApiServer, ApiServerOptions, Identity};
use mco_operator::manifests::{self, ParameterKinds};
use mco_operator::profile::{ClusterProfile, ProfileOptions};
use serde_json::{Value, json};

const DAEMON: &str = "system:serviceaccount:openshift-machine-config-operator:machine-config-daemon";
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Applies objects as they are printed by `mco install`.
async fn apply(client: &kube::Client, objects: &[Value]) {
    for object in objects {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            "" => Api::all_with(client.clone(), &resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let parameters = PatchParams::apply("install").force();
        let applied = api
            .patch(text("/metadata/name"), &parameters, &Patch::Apply(object))
            .await;
        applied.unwrap_or_else(|error| panic!("{} {}: {error}", text("/kind"), text("/metadata/name")));
    }
}

/// Returns a client with the token of a daemon that runs on a node.
fn daemon<K>(server: &ApiServer, node: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
{
    let mut identity = Identity::new(DAEMON, &["system:serviceaccounts"]);
    if let Some(node) = node {
        identity
            .extra
            .insert(NODE_CLAIM.to_owned(), vec![node.to_owned()]);
    }
    Api::all(kube::Client::new(server.service_as(identity), "default"))
}

async fn patch(nodes: &Api<Node>, name: &str, change: Value) -> Result<(), (u16, String)> {
    let outcome = nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await;
    match outcome {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message)),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_daemon_cannot_label_its_node_on_the_embedded_api() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let client = kube::Client::new(server.service(), "default");
    apply(&client, &[manifests::namespace()]).await;
    apply(&client, &manifests::operands_access(&ClusterProfile::default())).await;
    apply(
        &client,
        &manifests::guards(&ClusterProfile::default(), ParameterKinds::default()),
    )
    .await;
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    apply(&client, &[node("a"), node("b")]).await;

    let own = daemon(&server, Some("a"));
    let annotation = json!({"metadata": {"annotations": {"example.com/state": "Done"}}});
    assert_eq!(patch(&own, "a", annotation.clone()).await, Ok(()));
    let guarded = |message: &str| {
        format!(
            "nodes \"a\" is forbidden: ValidatingAdmissionPolicy 'machine-config-daemon-writes-its-own-node' with \
             binding 'machine-config-daemon-writes-its-own-node' denied request: {message}"
        )
    };
    let unchanged = "a machine-config-daemon may not change labels, finalizers, owners or spec of its node";
    for change in [
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        json!({"spec": {"unschedulable": true}}),
    ] {
        assert_eq!(patch(&own, "a", change).await, Err((403, guarded(unchanged))));
    }

    let another = daemon(&server, Some("b"));
    let foreign = guarded("the machine-config-daemon of node b may not change a");
    assert_eq!(
        patch(&another, "a", annotation.clone()).await,
        Err((403, foreign))
    );
    let (code, message) = patch(&daemon(&server, None), "a", annotation).await.unwrap_err();
    assert_eq!(code, 422, "a token without the claim: {message}");

    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}});
    assert_eq!(patch(&Api::all(client), "a", label).await, Ok(()));
    server.shutdown().await;
}

/// Returns an Event of both API groups, as they are written.
fn event(group: &str, name: &str, instance: Option<&str>) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    let node = json!({"kind": "Node", "name": "b"});
    if group.is_empty() {
        return json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": node,
            "type": "Normal", "reason": "Reboot", "message": "m", "reportingInstance": instance,
            "source": {"host": "b"}});
    }
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "regarding": node,
        "type": "Normal", "reason": "Reboot", "action": "Reboot", "note": "m", "reportingInstance": instance,
        "reportingController": "machineconfigdaemon", "eventTime": "2026-01-01T00:00:00.000000Z"})
}

#[tokio::test]
async fn a_daemon_forged_and_overwrote_events_of_other_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let client = kube::Client::new(server.service(), "default");
    apply(&client, &[manifests::namespace()]).await;
    apply(&client, &manifests::operands_access(&ClusterProfile::default())).await;
    let guards = manifests::guards(&ClusterProfile::default(), ParameterKinds::default());
    apply(&client, &guards).await;
    let events = |client: &kube::Client, group: &str| -> Api<DynamicObject> {
        let version = if group.is_empty() {
            "v1"
        } else {
            "events.k8s.io/v1"
        };
        let event = json!({"apiVersion": version, "kind": "Event"});
        let kind: kube::api::TypeMeta = serde_json::from_value(event).unwrap();
        let kind = GroupVersionKind::try_from(kind).unwrap();
        Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
    };
    let daemon = |node: Option<&str>| {
        let mut identity = Identity::new(DAEMON, &["system:serviceaccounts"]);
        let claim = node.map(|node| (NODE_CLAIM.to_owned(), vec![node.to_owned()]));
        identity.extra.extend(claim);
        kube::Client::new(server.service_as(identity), "default")
    };
    let create = async |client: &kube::Client, group: &str, name: &str, instance: Option<&str>| {
        let event = serde_json::from_value(event(group, name, instance)).unwrap();
        let created = events(client, group).create(&PostParams::default(), &event).await;
        created.err().map(|error| error.to_string())
    };
    for group in ["", "events.k8s.io"] {
        let name = |suffix: &str| format!("{}-{suffix}", if group.is_empty() { "core" } else { "events" });
        let own = daemon(Some("a"));
        assert_eq!(create(&own, group, &name("own"), Some("a")).await, None);
        let denied = "a machine-config-daemon may only write Events whose reportingInstance is its own node";
        assert_denied(create(&own, group, &name("forged"), Some("b")).await, denied);
        if group.is_empty() {
            assert_denied(create(&own, group, &name("unsigned"), None).await, denied);
        }
        let claimless = create(&daemon(None), group, &name("claimless"), Some("a")).await;
        assert_denied(claimless, "machine-config-daemon-writes-its-own-events");

        let genuine = name("genuine");
        assert_eq!(
            create(&client, group, &genuine, Some("b")).await,
            None,
            "others are not restricted"
        );
        let change = Patch::Merge(json!({"reason": "Forged", "reportingInstance": "a"}));
        let patched = events(&own, group)
            .patch(&genuine, &PatchParams::default(), &change)
            .await;
        assert_denied(
            patched.err().map(|error| error.to_string()),
            "cannot patch resource \"events\"",
        );
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_daemon_writes_only_the_adoption_of_its_own_node() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let client = kube::Client::new(server.service(), "default");
    let definition = json!(NodeAdoption::crd());
    apply(&client, &[manifests::namespace(), definition]).await;
    apply(&client, &manifests::operands_access(&ClusterProfile::default())).await;
    apply(
        &client,
        &manifests::guards(&ClusterProfile::default(), ParameterKinds::default()),
    )
    .await;
    let own: Api<NodeAdoption> = daemon(&server, Some("a"));
    let create = async |name: &str| {
        let object = NodeAdoption::new(name, NodeAdoptionSpec::default());
        own.create(&PostParams::default(), &object).await
    };
    // The definition is served a moment after it was created.
    let mut created = create("a").await;
    for _ in 0..100 {
        if created.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        created = create("a").await;
    }
    created.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Compared"}}));
    own.patch_status("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    let foreign = create("b").await.unwrap_err().to_string();
    assert!(
        foreign.contains("the machine-config-daemon of node a may not change b"),
        "{foreign}"
    );
    let other: Api<NodeAdoption> = daemon(&server, Some("b"));
    let foreign = other.patch_status("a", &PatchParams::default(), &status).await;
    assert!(
        foreign
            .unwrap_err()
            .to_string()
            .contains("of node b may not change a")
    );
    server.shutdown().await;
}

/// A definition that accepts every object of a foreign kind.
fn definition(group: &str, kind: &str, plural: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}]}})
}

/// A cluster with definitions and the policies of a profile.
struct Guarded {
    server: ApiServer,
    client: kube::Client,
    _directory: tempfile::TempDir,
}

impl Guarded {
    async fn new(profile: &ClusterProfile, served: ParameterKinds, definitions: &[Value]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = ApiServer::open(directory.path(), ApiServerOptions::default())
            .await
            .unwrap();
        let client = kube::Client::new(server.service(), "default");
        apply(&client, &[manifests::namespace()]).await;
        apply(&client, definitions).await;
        for definition in definitions {
            let group = definition["spec"]["group"].as_str().unwrap();
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
            for attempt in 0.. {
                let request = http::Request::get(format!("/apis/{group}/v1/{plural}"));
                let listed: Result<Value, _> = client.request(request.body(Vec::new()).unwrap()).await;
                if listed.is_ok() {
                    break;
                }
                assert!(attempt < 1000, "{plural} are not served");
                tokio::task::yield_now().await;
            }
        }
        apply(&client, &manifests::guards(profile, served)).await;
        Self {
            server,
            client,
            _directory: directory,
        }
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Returns why a creation is denied.
    async fn denied(&self, object: &Value) -> Option<String> {
        let created = serde_json::from_value(object.clone()).unwrap();
        let created = self.api(object).create(&PostParams::default(), &created).await;
        created.err().map(|error| error.to_string())
    }

    async fn deletion_denied(&self, object: &Value) -> Option<String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let deleted = self
            .api(object)
            .delete(name, &kube::api::DeleteParams::default())
            .await;
        deleted.err().map(|error| error.to_string())
    }
}

#[track_caller]
fn assert_denied(outcome: Option<String>, message: &str) {
    let outcome = outcome.unwrap_or_else(|| panic!("not denied: {message}"));
    assert!(outcome.contains(message), "{outcome}");
}

fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": spec})
}

const ROLE: &str = "machineconfiguration.openshift.io/role";
const MUST_INHERIT: &str = "All custom MachineConfigPools must inherit from the worker pool";

/// The webhook that validates the same fails open.
#[tokio::test]
async fn a_pool_that_does_not_inherit_was_admitted_while_the_operator_was_away() {
    let profile = ClusterProfile::default();
    let cluster = Guarded::new(
        &profile,
        ParameterKinds::default(),
        &[json!(MachineConfigPool::crd())],
    )
    .await;
    let expressions = |operator: &str, values: &[&str]| json!({"machineConfigSelector": {"matchExpressions": [{"key": ROLE, "operator": operator, "values": values}]}});
    let cases = [
        (
            "labels-worker",
            json!({"machineConfigSelector": {"matchLabels": {ROLE: "worker"}}}),
            true,
        ),
        (
            "labels-arbiter",
            json!({"machineConfigSelector": {"matchLabels": {ROLE: "arbiter"}}}),
            true,
        ),
        (
            "labels-infra",
            json!({"machineConfigSelector": {"matchLabels": {ROLE: "infra"}}}),
            false,
        ),
        (
            "labels-other",
            json!({"machineConfigSelector": {"matchLabels": {"a": "worker"}}}),
            false,
        ),
        ("in", expressions("In", &["worker", "infra"]), true),
        ("in-infra", expressions("In", &["infra"]), false),
        ("not-in", expressions("NotIn", &["infra"]), true),
        ("not-in-worker", expressions("NotIn", &["worker"]), false),
        ("nothing", json!({"paused": true}), false),
    ];
    for (name, spec, allowed) in cases {
        let outcome = cluster.denied(&pool(name, &spec)).await;
        if allowed {
            assert_eq!(outcome, None, "{name}");
        } else {
            assert_denied(outcome, MUST_INHERIT);
        }
    }
    let change = json!({"spec": expressions("In", &["infra"])});
    let pools = cluster.api(&pool("in", &json!({})));
    let changed = pools
        .patch("in", &PatchParams::default(), &Patch::Merge(&change))
        .await;
    assert_denied(changed.err().map(|error| error.to_string()), MUST_INHERIT);
    cluster.server.shutdown().await;
}

/// Otherwise the controller could not set the target of a pool from before the policy.
#[tokio::test]
async fn a_pool_from_before_its_policy_can_be_changed_and_deleted() {
    let nothing = ClusterProfile::new(ClusterBase::None, &ProfileOptions::default());
    let definitions = [json!(MachineConfigPool::crd())];
    let cluster = Guarded::new(&nothing, ParameterKinds::default(), &definitions).await;
    let spec = json!({"machineConfigSelector": {"matchLabels": {ROLE: "infra"}}});
    let old = pool("old", &spec);
    assert_eq!(
        cluster.denied(&old).await,
        None,
        "a base without templates has no such rule"
    );
    let guards = manifests::guards(&ClusterProfile::default(), ParameterKinds::default());
    apply(&cluster.client, &guards).await;
    let change = json!({"spec": {"paused": true}, "metadata": {"labels": {"a": "b"}}});
    let changed = cluster
        .api(&old)
        .patch("old", &PatchParams::default(), &Patch::Merge(&change))
        .await;
    assert!(changed.is_ok(), "{changed:?}");
    assert_denied(cluster.denied(&pool("new", &spec)).await, MUST_INHERIT);
    assert_eq!(cluster.deletion_denied(&old).await, None);
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn a_second_machine_configuration_was_admitted_while_the_operator_was_away() {
    let profile = ClusterProfile::default();
    let definitions = [
        json!(MachineConfiguration::crd()),
        json!(mco_api::plain::MachineConfiguration::crd()),
    ];
    let cluster = Guarded::new(&profile, ParameterKinds::default(), &definitions).await;
    for group in ["operator.openshift.io", "mco.dev"] {
        let object = |name: &str| {
            json!({"apiVersion": format!("{group}/v1"), "kind": "MachineConfiguration",
                "metadata": {"name": name}, "spec": {"managementState": "Managed"}})
        };
        assert_eq!(cluster.denied(&object("cluster")).await, None);
        assert_denied(
            cluster.denied(&object("other")).await,
            "Only a single object of MachineConfiguration is allowed and it must be named cluster.",
        );
    }
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn boot_images_are_managed_only_on_platforms_that_have_them() {
    const CONFIG: &str = "config.openshift.io";
    let definitions = [
        json!(MachineConfiguration::crd()),
        definition(CONFIG, "Infrastructure", "infrastructures"),
    ];
    let profile = ClusterProfile::default();
    let served = ParameterKinds {
        infrastructure: true,
        ..ParameterKinds::default()
    };
    let cluster = Guarded::new(&profile, served, &definitions).await;
    let manager = |resource: &str| {
        json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed", "managedBootImages": {"machineManagers": [
                {"resource": resource, "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}}]}}})
    };
    // Without the parameter object nothing is known about the platform, and the write is allowed.
    assert_eq!(cluster.denied(&manager("machinesets")).await, None);
    let cases = [
        ("AWS", None, None),
        (
            "VSphere",
            None,
            Some("control plane machineset boot image update feature"),
        ),
        (
            "BareMetal",
            Some("only supported on these platforms: GCP, AWS, VSphere, Azure"),
            Some("only supported on these platforms: GCP, AWS, Azure"),
        ),
    ];
    for (platform, sets, control_plane) in cases {
        assert_eq!(cluster.deletion_denied(&manager("machinesets")).await, None);
        let infrastructure = json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
            "metadata": {"name": "cluster"}, "status": {"platformStatus": {"type": platform}}});
        apply(&cluster.client, &[infrastructure]).await;
        for (resource, denial) in [("controlplanemachinesets", control_plane), ("machinesets", sets)] {
            match denial {
                Some(message) => assert_denied(cluster.denied(&manager(resource)).await, message),
                None => assert_eq!(
                    cluster.denied(&manager(resource)).await,
                    None,
                    "{platform} {resource}"
                ),
            }
            if denial.is_none() && resource == "controlplanemachinesets" {
                assert_eq!(cluster.deletion_denied(&manager(resource)).await, None);
            }
        }
        let plain = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}});
        if sets.is_some() {
            assert_eq!(cluster.denied(&plain).await, None, "without managed boot images");
        }
    }
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn a_pool_follows_only_a_stream_that_exists() {
    let definitions = [json!(MachineConfigPool::crd()), json!(OSImageStream::crd())];
    let served = ParameterKinds {
        os_image_stream: true,
        ..ParameterKinds::default()
    };
    let cluster = Guarded::new(&ClusterProfile::default(), served, &definitions).await;
    let follows = |name: &str, stream: &str| {
        pool(
            name,
            &json!({"machineConfigSelector": {"matchLabels": {ROLE: "worker"}}, "osImageStream": {"name": stream}}),
        )
    };
    assert_eq!(
        cluster.denied(&follows("early", "rhel-10")).await,
        None,
        "no OSImageStream yet"
    );
    let streams = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
        "metadata": {"name": "cluster"}, "spec": {"defaultStream": "rhel-9"}});
    assert_eq!(cluster.denied(&streams).await, None);
    let image = |name: &str| format!("quay.io/x/{name}@sha256:{}", "0".repeat(64));
    let status = json!({"status": {"defaultStream": "rhel-9", "availableStreams": [
        {"name": "rhel-9", "osImage": image("os"), "osExtensionsImage": image("extensions")}]}});
    let written = cluster
        .api(&streams)
        .patch_status("cluster", &PatchParams::default(), &Patch::Merge(&status))
        .await;
    assert!(written.is_ok(), "{written:?}");
    assert_eq!(cluster.denied(&follows("worker", "rhel-9")).await, None);
    let unknown = "must reference a valid stream from the cluster OSImageStream resource";
    assert_denied(cluster.denied(&follows("other", "rhel-10")).await, unknown);
    let kept = "Deletion of OSImageStream resources is not allowed";
    assert_denied(cluster.deletion_denied(&streams).await, kept);
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn the_registry_of_the_running_release_is_not_deleted() {
    let definitions = [
        definition(
            "machineconfiguration.openshift.io",
            "InternalReleaseImage",
            "internalreleaseimages",
        ),
        definition("config.openshift.io", "ClusterVersion", "clusterversions"),
    ];
    let served = ParameterKinds {
        cluster_version: true,
        ..ParameterKinds::default()
    };
    let cluster = Guarded::new(&ClusterProfile::default(), served, &definitions).await;
    let image =
        |host: &str, digit: &str| format!("{host}/openshift/release-images@sha256:{}", digit.repeat(64));
    let version = |digit: &str| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
            "status": {"desired": {"image": image("quay.io", digit)}}})
    };
    let release = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "InternalReleaseImage",
        "metadata": {"name": "cluster"}, "status": {"releases": [{"name": "r", "image": image("localhost:22625", "1")}]}});
    apply(&cluster.client, &[version("1"), release.clone()]).await;
    assert_denied(
        cluster.deletion_denied(&release).await,
        "Cannot delete InternalReleaseImage while the cluster is using a release bundle from this resource.",
    );
    apply(&cluster.client, &[version("2")]).await;
    assert_eq!(cluster.deletion_denied(&release).await, None);
    cluster.server.shutdown().await;
}
