//! Round trips of objects on the wire.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::dns::DNS;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::foreign::mirrors::{
    ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet, MirrorSourcePolicy,
};
use mco_api::foreign::network::Network;
use mco_api::foreign::node::Node;
use mco_api::foreign::proxy::Proxy;
use mco_api::foreign::scheduler::Scheduler;
use mco_api::machine_config::MachineConfigSpec;
use mco_api::machine_configuration::{DisruptionAction, DisruptionActionType, MachineConfiguration};
use mco_api::{ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn written<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Asserts that an object survives a round trip through its type.
#[track_caller]
fn survives<T: DeserializeOwned + Serialize>(object: impl Into<Value>) {
    let object = object.into();
    assert_eq!(written(&read::<T>(object.clone())), object);
}

#[test]
fn an_empty_machine_config_writes_every_field_but_config() {
    assert_eq!(
        written(&MachineConfig::new("50-empty", MachineConfigSpec::default())),
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "50-empty"},
            "spec": {
                "baseOSExtensionsContainerImage": "",
                "extensions": [],
                "fips": false,
                "kernelArguments": [],
                "kernelType": "",
                "osImageURL": "",
            },
        })
    );
}

#[test]
fn a_machine_config_may_lack_anything() {
    let all_absent = [
        json!({}),
        json!({"metadata": {"name": "a"}}),
        json!({"spec": null}),
        json!({"metadata": null, "spec": {}}),
        json!({"spec": {"config": null, "kernelArguments": null, "extensions": null, "fips": null, "osImageURL": null}}),
    ];
    for object in all_absent {
        assert_eq!(
            read::<MachineConfig>(object.clone()).spec,
            MachineConfigSpec::default(),
            "{object}"
        );
    }
}

#[test]
fn an_ignition_config_is_kept_as_it_came() {
    let config = json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/a", "contents": {"httpHeaders": [{"name": "x", "value": null}]}}]},
        "unknown": {"field": [1, 2.5, null]},
    });
    let machine_config: MachineConfig = read(json!({"spec": {"config": config}}));
    assert_eq!(written(&machine_config)["spec"]["config"], config);
}

#[test]
fn a_pool_survives() {
    survives::<MachineConfigPool>(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "infra", "labels": {"a": "b"}, "generation": 3},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
            "paused": false,
            "maxUnavailable": "10%",
            "configuration": {
                "name": "rendered-infra-1",
                "source": [{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": "00-worker"}],
            },
            "pinnedImageSets": [{"name": "a"}],
        },
        "status": {
            "observedGeneration": 3,
            "configuration": {"name": "rendered-infra-0"},
            "machineCount": 3,
            "updatedMachineCount": 1,
            "readyMachineCount": 1,
            "unavailableMachineCount": 1,
            "degradedMachineCount": 0,
            "conditions": [{
                "type": "Updating",
                "status": "True",
                "reason": "",
                "message": "All nodes are updating to MachineConfig rendered-infra-1",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }));
}

#[test]
fn max_unavailable_is_a_number_or_a_text() {
    let of = |value: Value| {
        read::<MachineConfigPool>(json!({"spec": {"maxUnavailable": value}}))
            .spec
            .max_unavailable
    };
    assert_eq!(of(json!(3)), Some(IntOrString::Int(3)));
    assert_eq!(of(json!("20%")), Some(IntOrString::String("20%".to_owned())));
    assert_eq!(of(Value::Null), None);
}

#[test]
fn amounts_are_read_from_numbers_and_texts() {
    let of = |value: Value| {
        let spec = json!({"containerRuntimeConfig": {"overlaySize": value}});
        read::<ContainerRuntimeConfig>(json!({"spec": spec}))
            .spec
            .container_runtime_config
            .overlay_size
            .map(|size| size.0)
    };
    assert_eq!(of(json!("10G")), Some("10G".to_owned()));
    assert_eq!(of(json!(10_000_000_000_i64)), Some("10000000000".to_owned()));
    assert_eq!(of(Value::Null), None);
}

#[test]
fn choices_of_a_newer_api_are_kept() {
    let action = json!({"type": "Hibernate"});
    assert_eq!(
        read::<DisruptionAction>(action.clone()).type_,
        DisruptionActionType::Other("Hibernate".to_owned())
    );
    survives::<DisruptionAction>(action);
    survives::<DisruptionAction>(json!({"type": "Reload", "reload": {"serviceName": "crio.service"}}));
    let policy =
        json!({"spec": {"imageDigestMirrors": [{"source": "a", "mirrorSourcePolicy": "Sometimes"}]}});
    let mirrors = read::<ImageDigestMirrorSet>(policy).spec.image_digest_mirrors;
    assert_eq!(
        mirrors[0].mirror_source_policy,
        Some(MirrorSourcePolicy::Other("Sometimes".to_owned()))
    );
}

#[test]
fn an_empty_list_of_machine_managers_is_not_the_same_as_none() {
    for managed in [json!({}), json!({"machineManagers": []})] {
        let object: MachineConfiguration = read(json!({"spec": {"managedBootImages": managed}}));
        assert_eq!(written(&object)["spec"]["managedBootImages"], managed);
    }
}

#[test]
fn a_controller_config_keeps_the_kind_of_what_it_embeds() {
    let object: ControllerConfig = read(json!({"spec": {
        "infra": {"metadata": {"name": "cluster"}, "spec": {}},
        "dns": {"metadata": {"name": "cluster"}, "spec": {"baseDomain": "example.com"}},
    }}));
    let spec = &written(&object)["spec"];
    assert_eq!(spec["infra"]["kind"], "Infrastructure");
    assert_eq!(spec["infra"]["apiVersion"], "config.openshift.io/v1");
    assert_eq!(spec["dns"]["kind"], "DNS");
    assert_eq!(spec["proxy"], Value::Null);
    assert!(
        spec.as_object().unwrap().contains_key("proxy"),
        "a required field is written even when it is null"
    );
}

#[test]
fn kinds_name_themselves() {
    assert_eq!(
        MachineConfigPool::url_path(&(), None),
        "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
    );
    assert_eq!(DNS::kind(&()), "DNS");
    assert_eq!(
        ImageContentSourcePolicy::api_version(&()),
        "operator.openshift.io/v1alpha1"
    );
    assert_eq!(
        ImagePolicy::url_path(&(), Some("n")),
        "/apis/config.openshift.io/v1/namespaces/n/imagepolicies"
    );
}

/// Returns an object of a foreign kind with known and unknown fields, at every level.
fn foreign(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!("config.openshift.io/v1");
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": "cluster"});
    object["unknown"] = json!({"a": null});
    object
}

#[test]
fn foreign_objects_survive_with_fields_that_we_do_not_know() {
    survives::<Infrastructure>(foreign("Infrastructure", json!({
        "spec": {"cloudConfig": {"name": "", "x": 1}, "platformSpec": {"type": "BareMetal", "baremetal": {"x": 1}}, "x": 1},
        "status": {
            "apiServerInternalURI": "https://api-int.example.com:6443",
            "controlPlaneTopology": "HighlyAvailable",
            "platformStatus": {
                "type": "BareMetal",
                "baremetal": {"apiServerInternalIPs": ["10.0.0.1"], "loadBalancer": {"type": "UserManaged", "x": 1}, "x": 1},
                "aws": {"cloudLoadBalancerConfig": {"dnsType": "ClusterHosted", "clusterHosted": {"apiLoadBalancerIPs": ["10.0.0.1"], "x": 1}}},
                "external": {"cloudControllerManager": {"state": "External", "x": 1}},
                "someday": {"x": 1},
            },
            "x": 1,
        },
    })).tap_without("/spec/cloudConfig/name"));
    survives::<DNS>(foreign(
        "DNS",
        json!({"spec": {"baseDomain": "example.com", "x": 1}, "status": {"x": 1}}),
    ));
    survives::<Proxy>(foreign(
        "Proxy",
        json!({
            "spec": {"httpProxy": "http://a", "trustedCA": {"name": "ca", "x": 1}, "x": 1},
            "status": {"noProxy": "b", "x": 1},
        }),
    ));
    survives::<Network>(foreign(
        "Network",
        json!({
            "spec": {"networkType": "OVNKubernetes", "serviceNetwork": ["172.30.0.0/16"], "clusterNetwork": [{"cidr": "x"}]},
            "status": {"clusterNetworkMTU": 1400, "migration": {"mtu": {"machine": {"from": 1, "to": 2, "x": 1}, "x": 1}, "x": 1}, "x": 1},
        }),
    ));
    survives::<APIServer>(foreign(
        "APIServer",
        json!({
            "spec": {"tlsSecurityProfile": {"type": "Custom", "custom": {"ciphers": ["A"], "minTLSVersion": "VersionTLS12", "x": 1}, "x": 1}, "audit": {"x": 1}},
            "status": {"x": 1},
        }),
    ));
    survives::<Node>(foreign(
        "Node",
        json!({"spec": {"cgroupMode": "v2", "workerLatencyProfile": "Default", "x": 1}}),
    ));
    survives::<FeatureGate>(foreign(
        "FeatureGate",
        json!({
            "spec": {"featureSet": "CustomNoUpgrade", "customNoUpgrade": {"enabled": ["A"], "x": 1}, "x": 1},
            "status": {"featureGates": [{"version": "4.20.0", "enabled": [{"name": "A", "x": 1}], "disabled": [{"name": "B"}], "x": 1}], "x": 1},
        }),
    ));
    survives::<Scheduler>(foreign(
        "Scheduler",
        json!({"spec": {"mastersSchedulable": true, "policy": {"name": ""}}}),
    ));
    survives::<ClusterVersion>(foreign(
        "ClusterVersion",
        json!({
            "spec": {"clusterID": "x"},
            "status": {"desired": {"version": "4.20.0", "image": "i", "x": 1}, "history": [{"state": "Completed", "version": "4.20.0", "image": "i", "x": 1}], "x": 1},
        }),
    ));
}

#[test]
fn image_policies_survive_with_fields_that_we_do_not_know() {
    let policy = json!({
        "spec": {
            "scopes": ["example.com"],
            "policy": {
                "rootOfTrust": {
                    "policyType": "PKI",
                    "publicKey": {"keyData": "YQ==", "rekorKeyData": "Yg==", "x": 1},
                    "fulcioCAWithRekor": {"fulcioCAData": "YQ==", "rekorKeyData": "Yg==", "fulcioSubject": {"oidcIssuer": "i", "signedEmail": "e", "x": 1}, "x": 1},
                    "pki": {"caRootsData": "YQ==", "caIntermediatesData": "Yg==", "pkiCertificateSubject": {"email": "e", "x": 1}, "x": 1},
                    "x": 1,
                },
                "signedIdentity": {"matchPolicy": "RemapIdentity", "remapIdentity": {"prefix": "a", "signedPrefix": "b", "x": 1}, "exactRepository": {"repository": "r", "x": 1}, "x": 1},
                "x": 1,
            },
            "x": 1,
        },
        "status": {"conditions": [], "x": 1},
    });
    survives::<ClusterImagePolicy>(
        foreign("ClusterImagePolicy", policy.clone()).tap_without("/status/conditions"),
    );
    survives::<ImagePolicy>(foreign("ImagePolicy", policy).tap_without("/status/conditions"));
}

/// Drops a field for which empty and absent are equal.
trait TapWithout {
    fn tap_without(self, pointer: &str) -> Self;
}

impl TapWithout for Value {
    fn tap_without(mut self, pointer: &str) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(field);
        self
    }
}

#[test]
fn gates_are_found_by_the_release_version() {
    let gates: FeatureGate = read(json!({"status": {"featureGates": [
        {"version": "1", "enabled": [{"name": "Old"}]},
        {"version": "2", "enabled": [{"name": "New"}]},
    ]}}));
    let status = gates.status.unwrap();
    assert_eq!(status.of_version("2").unwrap().enabled[0].name, "New");
    assert_eq!(status.of_version("3"), None);
}

#[test]
fn objects_of_real_clusters_are_read() {
    let Some(directory) = mco_testkit::reference_data("vectors/bootstrap") else {
        return;
    };
    let mut read = 0;
    for cluster in fs::read_dir(directory).unwrap() {
        let Ok(manifests) = fs::read_dir(cluster.unwrap().path().join("manifests")) else {
            continue;
        };
        for file in manifests {
            let file = file.unwrap().path();
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&fs::read_to_string(&file).unwrap()).unwrap();
            for document in documents.into_iter().filter(Value::is_object) {
                let kind = document["kind"].as_str().unwrap().to_owned();
                decode(&kind, document).unwrap_or_else(|error| panic!("{}: {kind}: {error}", file.display()));
                read += 1;
            }
        }
    }
    assert!(read > 100, "only {read} objects found");
}

fn decode(kind: &str, object: Value) -> Result<(), serde_json::Error> {
    fn as_type<T: DeserializeOwned>(object: Value) -> Result<(), serde_json::Error> {
        serde_json::from_value::<T>(object).map(drop)
    }
    match kind {
        "APIServer" => as_type::<APIServer>(object),
        "ContainerRuntimeConfig" => as_type::<ContainerRuntimeConfig>(object),
        "ControllerConfig" => as_type::<ControllerConfig>(object),
        "FeatureGate" => as_type::<FeatureGate>(object),
        "Image" => as_type::<Image>(object),
        "ImageContentSourcePolicy" => as_type::<ImageContentSourcePolicy>(object),
        "ImageDigestMirrorSet" => as_type::<ImageDigestMirrorSet>(object),
        "ImageTagMirrorSet" => as_type::<ImageTagMirrorSet>(object),
        "KubeletConfig" => as_type::<KubeletConfig>(object),
        "MachineConfig" => as_type::<MachineConfig>(object),
        "MachineConfigPool" => as_type::<MachineConfigPool>(object),
        "Node" => as_type::<Node>(object),
        _ => panic!("no type for {kind}"),
    }
}

/// One pool like this must not break the watch of all pools.
#[test]
fn a_limit_beyond_all_counting_can_be_read() {
    let limit = |value: Value| {
        read::<MachineConfigPool>(json!({"metadata": {"name": "worker"}, "spec": {"maxUnavailable": value}}))
            .spec
            .max_unavailable
    };
    assert_eq!(limit(json!(2)), Some(IntOrString::Int(2)));
    assert_eq!(limit(json!("50%")), Some(IntOrString::String("50%".to_owned())));
    assert_eq!(limit(Value::Null), None);
    for large in ["3000000000", "-3000000000"] {
        let number: Value = serde_json::from_str(large).unwrap();
        assert_eq!(limit(number), Some(IntOrString::String(large.to_owned())));
    }
}
