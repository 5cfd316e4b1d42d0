//! Random clusters and edits: valid, invalid and oversized objects of every kind that configs are rendered from.

use mco_client::forecast::Edit;
use mco_core::config::manifest::{self, Manifest};
use serde_json::{Value, json};

const ROLE: &str = "machineconfiguration.openshift.io/role";

/// A small random number generator (SplitMix64), so that a seed always produces the same cluster.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

pub struct RandomCluster {
    pools: Vec<String>,
    objects: Vec<Value>,
}

impl RandomCluster {
    pub fn new(numbers: &mut Numbers) -> Self {
        let mut pools = vec!["master".to_owned(), "worker".to_owned()];
        for name in ["infra", "gpu"] {
            if numbers.percent(40) {
                pools.push(name.to_owned());
            }
        }
        let mut cluster = Self {
            objects: Vec::new(),
            pools,
        };
        let custom: Vec<String> = cluster.pools[2..].to_vec();
        for name in custom {
            let object = pool(numbers, &name);
            cluster.objects.push(object);
        }
        if numbers.percent(50) {
            cluster.objects.push(feature_gate(numbers));
        }
        let many = if numbers.percent(15) { 10 } else { 3 };
        for index in 0..numbers.below(many + 1) {
            let object = cluster.kubelet_config(numbers, index);
            cluster.objects.push(object);
        }
        for index in 0..numbers.below(many + 1) {
            let object = cluster.runtime_config(numbers, index);
            cluster.objects.push(object);
        }
        for index in 0..numbers.below(4) {
            let object = cluster.machine_config(numbers, index);
            cluster.objects.push(object);
        }
        for index in 0..numbers.below(4) {
            cluster.objects.push(registry_object(numbers, index));
        }
        if numbers.percent(30) {
            cluster.objects.push(credential_provider(numbers));
        }
        if numbers.percent(20) {
            cluster.objects.push(node_settings(numbers));
        }
        cluster
    }

    pub fn objects(&self) -> Vec<Value> {
        self.objects.clone()
    }

    /// Returns one change to the cluster: a new object, another version of one, or the deletion of one.
    pub fn edit(&self, numbers: &mut Numbers, exported: &[Manifest]) -> Edit {
        let deletable: Vec<&Manifest> = exported
            .iter()
            .filter(|object| {
                let is_users = object.value.pointer("/metadata/ownerReferences").is_none()
                    && object.value.pointer("/metadata/annotations").is_none_or(|all| {
                        all.get("machineconfiguration.openshift.io/generated-by-controller-version")
                            .is_none()
                    });
                let same_name = exported.iter().filter(|other| other.name == object.name).count();
                is_users
                    && same_name == 1
                    && object.api_version != "v1"
                    && !matches!(object.kind.as_str(), "MachineConfigPool" | "ControllerConfig")
            })
            .collect();
        if numbers.percent(25) && !deletable.is_empty() {
            return Edit::Delete(numbers.pick(&deletable).name.clone());
        }
        let index = numbers.below(5);
        let object = match numbers.below(9) {
            0 | 1 => self.kubelet_config(numbers, index),
            2 | 3 => self.runtime_config(numbers, index),
            4 | 5 => self.machine_config(numbers, index),
            6 => registry_object(numbers, index),
            7 => credential_provider(numbers),
            _ if self.pools.len() > 2 => {
                let name = numbers.pick(&self.pools[2..]).clone();
                pool(numbers, &name)
            }
            _ => node_settings(numbers),
        };
        let mut read = manifest::read("edit.json", object.to_string().as_bytes()).unwrap();
        Edit::Apply(read.remove(0))
    }

    /// Returns a pool selector; a few match nothing, and a few are invalid.
    fn selector(&self, numbers: &mut Numbers) -> Value {
        match numbers.below(12) {
            0 => json!({"matchLabels": {"of": "nothing"}}),
            1 => json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            2 => json!({"matchExpressions": [
                {"key": "pools.operator.machineconfiguration.openshift.io/worker", "operator": "Exists"}]}),
            _ => {
                let pool = numbers.pick(&self.pools).clone();
                json!({"matchLabels": {format!("pools.operator.machineconfiguration.openshift.io/{pool}"): ""}})
            }
        }
    }

    fn kubelet_config(&self, numbers: &mut Numbers, index: u64) -> Value {
        let settings = match numbers.below(8) {
            0 => json!({"featureGates": {"A": true}}),
            1 => json!({"podPidsLimit": 1024 + numbers.below(5)}),
            2 => json!({"systemReserved": {"cpu": "500m"}}),
            3 => json!({"staticPodPath": "/elsewhere"}),
            4 => json!({"maxPods": "many"}),
            _ => json!({"maxPods": 100 + numbers.below(100)}),
        };
        let mut spec =
            json!({"kubeletConfig": settings, "machineConfigPoolSelector": self.selector(numbers)});
        if numbers.percent(10) {
            spec["logLevel"] = json!(numbers.below(14));
        }
        if numbers.percent(15) {
            spec["autoSizingReserved"] = json!(true);
        }
        own("KubeletConfig", &format!("kubelet-{index}"), &spec)
    }

    fn runtime_config(&self, numbers: &mut Numbers, index: u64) -> Value {
        let settings = match numbers.below(6) {
            0 => json!({"logLevel": "shout"}),
            1 => json!({"pidsLimit": numbers.below(40)}),
            2 => json!({"logSizeMax": "10Mi"}),
            3 => json!({"defaultRuntime": "runc"}),
            4 => json!({"overlaySize": "8Gi"}),
            _ => json!({"logLevel": "debug"}),
        };
        let spec =
            json!({"containerRuntimeConfig": settings, "machineConfigPoolSelector": self.selector(numbers)});
        own("ContainerRuntimeConfig", &format!("runtime-{index}"), &spec)
    }

    fn machine_config(&self, numbers: &mut Numbers, index: u64) -> Value {
        let role = numbers.pick(&self.pools).clone();
        let contents = |text: String| json!({"source": format!("data:,{text}")});
        let file = |path: &str, text: String| {
            json!({"config": {"ignition": {"version": "3.4.0"},
                "storage": {"files": [{"path": path, "mode": 420, "contents": contents(text)}]}}})
        };
        let spec = match numbers.below(12) {
            0 => json!({"kernelArguments": [format!("a={}", numbers.below(9))]}),
            1 => json!({"kernelType": "turbo"}),
            2 => json!({"config": {"ignition": {"version": "9.0.0"}}}),
            3 => json!({"config": {"ignition": {"version": "3.4.0"},
                "storage": {"directories": [{"path": "/etc/random"}]}}}),
            4 => json!({"fips": true}),
            // Two of them exceed the size limit of the API server.
            5 | 6 => file(&format!("/etc/large-{index}"), "x".repeat(900_000)),
            7 => with_setuid(file("/etc/suid", "x".to_owned())),
            _ => file(
                &format!("/etc/file-{}", numbers.below(4)),
                numbers.below(1000).to_string(),
            ),
        };
        let mut object = own("MachineConfig", &format!("50-random-{index}"), &spec);
        object["metadata"]["labels"] = json!({ROLE: role});
        object
    }
}

fn with_setuid(mut spec: Value) -> Value {
    spec["config"]["storage"]["files"][0]["mode"] = json!(0o4755);
    spec
}

fn own(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

fn pool(numbers: &mut Numbers, name: &str) -> Value {
    let selector = match numbers.below(8) {
        0 => json!({"matchLabels": {"of": "nothing"}}),
        1 => json!({}),
        _ => json!({"matchExpressions": [{"key": ROLE, "operator": "In", "values": ["worker", name]}]}),
    };
    let mut pool = own(
        "MachineConfigPool",
        name,
        &json!({
            "machineConfigSelector": selector,
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        }),
    );
    pool["metadata"]["labels"] =
        json!({format!("pools.operator.machineconfiguration.openshift.io/{name}"): ""});
    if numbers.percent(30) {
        pool["metadata"]["annotations"] =
            json!({"machineconfiguration.openshift.io/inherit-worker-kubelet": "true"});
    }
    pool
}

fn feature_gate(numbers: &mut Numbers) -> Value {
    let names = [
        "SigstoreImageVerification",
        "AdditionalStorageConfig",
        "KubeletGate",
        "CRIOCredentialProviderConfig",
    ];
    let (mut enabled, mut disabled) = (Vec::new(), Vec::new());
    for name in names {
        let gate = json!({ "name": name });
        if numbers.percent(70) {
            &mut enabled
        } else {
            &mut disabled
        }
        .push(gate);
    }
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"}, "spec": {},
        "status": {"featureGates": [{"version": mco_simulator::setup::RELEASE, "enabled": enabled, "disabled": disabled}]},
    })
}

fn registry_object(numbers: &mut Numbers, index: u64) -> Value {
    let source = *numbers.pick(&[
        "registry.example.com/team",
        "quay.example.com",
        "registry.example.com",
        "*.example.com",
    ]);
    let mirror = *numbers.pick(&["mirror.local/team", "mirror.local:5000", "bad mirror"]);
    let config = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let policy = json!({"scopes": [source], "policy": {"rootOfTrust": {
        "policyType": "PublicKey", "publicKey": {"keyData": "Zm9v"}}}});
    match numbers.below(6) {
        0 => config(
            "ImageDigestMirrorSet",
            &format!("digest-{index}"),
            &json!({"imageDigestMirrors": [{"source": source, "mirrors": [mirror]}]}),
        ),
        1 => config(
            "ImageTagMirrorSet",
            &format!("tag-{index}"),
            &json!({"imageTagMirrors": [{"source": source, "mirrors": [mirror],
                "mirrorSourcePolicy": *numbers.pick(&["NeverContactSource", "AllowContactingSource"])}]}),
        ),
        2 => json!({"apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
            "metadata": {"name": format!("content-{index}")},
            "spec": {"repositoryDigestMirrors": [{"source": source, "mirrors": [mirror]}]}}),
        3 => config("ClusterImagePolicy", &format!("policy-{index}"), &policy),
        4 => {
            let mut policy = config("ImagePolicy", &format!("policy-{index}"), &policy);
            policy["metadata"]["namespace"] = json!("default");
            policy
        }
        _ => config(
            "Image",
            "cluster",
            &json!({"registrySources": match numbers.below(4) {
                0 => json!({"blockedRegistries": ["blocked.example.com"]}),
                1 => json!({"allowedRegistries": ["quay.example.com"], "blockedRegistries": ["blocked.example.com"]}),
                2 => json!({"insecureRegistries": ["not a registry"]}),
                _ => json!({"insecureRegistries": ["insecure.example.com"], "containerRuntimeSearchRegistries": ["docker.example.com"]}),
            }}),
        ),
    }
}

fn credential_provider(numbers: &mut Numbers) -> Value {
    let image = *numbers.pick(&[
        "registry.example.com",
        "*.example.com",
        "NOT_VALID",
        "registry.example.com/team",
    ]);
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "CRIOCredentialProviderConfig",
        "metadata": {"name": "cluster"}, "spec": {"matchImages": [image]},
    })
}

fn node_settings(numbers: &mut Numbers) -> Value {
    let spec = match numbers.below(5) {
        0 => json!({"cgroupMode": "v1"}),
        1 => json!({"workerLatencyProfile": "Sometimes"}),
        2 => json!({"workerLatencyProfile": "LowUpdateSlowReaction"}),
        3 => json!({"workerLatencyProfile": "MediumUpdateAverageReaction"}),
        _ => json!({"cgroupMode": "v2"}),
    };
    json!({"apiVersion": "config.openshift.io/v1", "kind": "Node", "metadata": {"name": "cluster"}, "spec": spec})
}
