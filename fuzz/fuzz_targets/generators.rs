//! Fuzzes what turns objects of users into MachineConfigs: admission, the kubelet and container runtime generators, and
//! rendering. Accepted objects generate files that can be read, and the order of sources does not matter.

#![no_main]

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use mco_core::config::feature_gates::FeatureGates;
use mco_core::config::manifest::{self, Manifest, ManifestOrigin};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::RenderIdentity;
use mco_core::generators::container_runtime::{self, ContainerRuntimeBase, STORAGE_CONF};
use mco_core::generators::generated::Generated;
use mco_core::generators::kubelet::{self, KUBELET_CONF, KubeletBase, Latency};
use mco_core::pipeline::{admission, bootstrap};
use mco_fuzz::{document, values};
use serde_json::{Map, Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";
const KUBELET_BASE: &str =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n";
const STORAGE_BASE: &str = "[storage]\ndriver = \"overlay\"\n[storage.options]\nsize = \"\"\n";

const KINDS: &[&str] = &[
    "MachineConfig",
    "MachineConfigPool",
    "KubeletConfig",
    "ContainerRuntimeConfig",
    "PinnedImageSet",
    "ImageContentSourcePolicy",
    "ImageDigestMirrorSet",
    "ImageTagMirrorSet",
    "ClusterImagePolicy",
    "MachineOSConfig",
];

/// The fields of a KubeletConfiguration, with values that their parsers accept.
const KUBELET_FIELDS: &[(&str, &str)] = &[
    ("maxPods", "110"),
    (
        "staticPodURLHeader",
        "{\"10a\": [\"x\"], \"90.\": [], \"101-\": null}",
    ),
    ("syncFrequency", "\"1m30s\""),
    ("nodeStatusUpdateFrequency", "\"-0.5h\""),
    (
        "systemReserved",
        "{\"cpu\": \"500m\", \"memory\": \"1.5Gi\", \"ephemeral-storage\": \"1e3\"}",
    ),
    ("kubeReserved", "{\"cpu\": \"1\"}"),
    ("evictionHard", "{\"memory.available\": \"10%\"}"),
    ("evictionSoft", "{\"nodefs.available\": \"15%\"}"),
    ("featureGates", "{\"A\": true}"),
    ("cpuManagerPolicy", "\"static\""),
    ("reservedSystemCPUs", "\"0-3,5\""),
    ("containerLogMaxSize", "\"50Mi\""),
    (
        "logging",
        "{\"flushFrequency\": 5, \"options\": {\"json\": {\"infoBufferSize\": \"0\"}}}",
    ),
    ("protectKernelDefaults", "false"),
    ("staticPodPath", "\"\""),
    ("tlsCipherSuites", "[\"TLS_AES_128_GCM_SHA256\"]"),
    ("shutdownGracePeriod", "\"30s\""),
    (
        "registerWithTaints",
        "[{\"key\": \"a\", \"effect\": \"NoSchedule\"}]",
    ),
    ("memorySwap", "{\"swapBehavior\": \"LimitedSwap\"}"),
];

static GATES: LazyLock<FeatureGates> = LazyLock::new(FeatureGates::default);

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let _ = run(&mut input);
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    match input.int_in_range(0..=3)? {
        0 => admission(input),
        1 => kubelet_config(input),
        2 => container_runtime_config(input),
        _ => machine_configs(input),
    }
}

fn admission(input: &mut Unstructured<'_>) -> Result<()> {
    let kind = *input.choose(KINDS)?;
    let group = *input.choose(&[GROUP, "config.openshift.io", "operator.openshift.io"])?;
    let mut object = values::object(input, 6)?;
    object.insert("spec".to_owned(), values::value(input, 6)?);
    let object = Value::Object(object);
    let first = admission::check(group, kind, &object);
    let again = admission::check(group, kind, &object);
    assert_eq!(format!("{first:?}"), format!("{again:?}"), "not deterministic");
    Ok(())
}

fn kubelet_config(input: &mut Unstructured<'_>) -> Result<()> {
    let mut fields = Map::new();
    for _ in 0..input.int_in_range(0..=8)? {
        let (name, text) = *input.choose(KUBELET_FIELDS)?;
        let value = match input.int_in_range(0..=3)? {
            0 => values::value(input, 3)?,
            _ => serde_json::from_str(text).expect("our own JSON"),
        };
        fields.insert(name.to_owned(), value);
    }
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "KubeletConfig", "metadata": {"name": "k"},
        "spec": {"kubeletConfig": fields, "logLevel": input.arbitrary::<i8>()?,
            "autoSizingReserved": input.arbitrary::<bool>()?}});
    let Ok(object) = serde_json::from_value(object) else {
        return Ok(());
    };
    let Ok(user) = kubelet::validate(&object) else {
        return Ok(());
    };
    let base = KubeletBase {
        role: "worker",
        kubelet_conf: KUBELET_BASE,
        feature_gates: &GATES,
        node: None,
        latency: Latency::AsInBase,
        version: "v",
    };
    if let Ok(generated) = kubelet::for_kubelet_config(base, &object, &user, "99-k".to_owned(), None) {
        let text = contents(generated, KUBELET_CONF).expect("a kubelet configuration");
        let read = manifest::value(&text).expect("our own YAML");
        assert_eq!(read["kind"], "KubeletConfiguration", "{text}");
    }
    Ok(())
}

fn container_runtime_config(input: &mut Unstructured<'_>) -> Result<()> {
    let mut spec = Map::new();
    for (name, values) in [
        ("logLevel", &["debug", "info", "\"\n[x]"][..]),
        ("logSizeMax", &["50Mi", "-1", "9E", "0.5", "1n"]),
        ("overlaySize", &["10G", "1e3", "0", "8Ei"]),
        ("defaultRuntime", &["crun", "runc", "x\""]),
    ] {
        if input.arbitrary()? {
            let value = if input.ratio(3, 4)? {
                Value::from(*input.choose(values)?)
            } else {
                values::value(input, 2)?
            };
            spec.insert(name.to_owned(), value);
        }
    }
    spec.insert("pidsLimit".to_owned(), Value::from(input.arbitrary::<i64>()?));
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "c"}, "spec": {"containerRuntimeConfig": spec}});
    let Ok(object) = serde_json::from_value(object) else {
        return Ok(());
    };
    let base = ContainerRuntimeBase {
        role: "worker",
        storage_conf: Some(STORAGE_BASE),
        feature_gates: &GATES,
        version: "v",
    };
    if let Ok(generated) = container_runtime::generate(base, &object, "99-c".to_owned(), None)
        && let Some(text) = contents(generated, STORAGE_CONF)
    {
        assert!(text.starts_with("[storage]"), "{text}");
    }
    Ok(())
}

/// Returns a file of a generated config, which must be applicable.
fn contents(generated: Generated, path: &str) -> Option<String> {
    let parsed = ParsedConfig::applicable(generated.config).expect("a generated config is valid");
    parsed.text_of(path)
}

fn machine_configs(input: &mut Unstructured<'_>) -> Result<()> {
    let mut manifests = Vec::new();
    for index in 0..input.int_in_range(1..=4)? {
        let name = format!("{}0-{index}", input.int_in_range(0..=9)?);
        let mut spec = json!({"config": document::config(input)?});
        if input.ratio(1, 4)? {
            spec["kernelArguments"] = values::value(input, 2)?;
            spec["extensions"] = values::value(input, 2)?;
            spec["osImageURL"] = values::value(input, 0)?;
        }
        let value = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}}, "spec": spec});
        manifests.push(Manifest {
            origin: ManifestOrigin {
                file: "fuzzed".to_owned(),
                line: 1,
            },
            api_version: format!("{GROUP}/v1"),
            kind: "MachineConfig".to_owned(),
            name,
            value,
        });
    }
    let forwards = rendered(manifests.clone());
    manifests.reverse();
    assert_eq!(
        forwards,
        rendered(manifests),
        "the order of sources changes the result"
    );
    Ok(())
}

/// Returns the name of each pool's rendered config; `None` if it cannot be rendered.
fn rendered(manifests: Vec<Manifest>) -> Option<Vec<Option<String>>> {
    let cluster = bootstrap::adopt(manifests).ok()?;
    let identity = RenderIdentity {
        controller_version: "v",
        release_version: "",
    };
    let outcomes = cluster.render(identity).into_iter();
    Some(
        outcomes
            .map(|outcome| outcome.result.ok().map(|pool| pool.rendered.name().to_owned()))
            .collect(),
    )
}
