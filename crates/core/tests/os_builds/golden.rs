//! Our own cases: a published name, and the composed Containerfile and Job.

use mco_api::{MachineConfigPool, MachineOSConfig};
use mco_core::generators::os_builds::{Architecture, OfflineBuild, build_name, plan_offline};
use serde_json::{Value, json};

use crate::vectors::objects_of;

/// The name that the reference implementation documents for these objects.
#[test]
fn the_published_name_is_reproduced() {
    let digest = |hex: &str| format!("registry.hostname.com/org/repo@sha256 string = {hex}");
    let rendered = serde_json::from_value(json!({
        "metadata": {
            "name": "rendered-worker-1",
            "annotations": {
                "machineconfiguration.openshift.io/release-image-version": "release-version",
                "machineconfiguration.openshift.io/generated-by-controller-version": "v",
            },
        },
        "spec": {
            "osImageURL": digest("220a60ecd4a3c32c282622a625a54db9ba0ff55b5ba9c29c7064a2bc358b6a3e"),
            "baseOSExtensionsContainerImage":
                digest("5fb4ba1a651bae8057ec6b5cdafc93fa7e0b7d944d6f02a4b751de4e15464def"),
        },
    }))
    .unwrap();
    let config = |pieces: Value| -> MachineOSConfig {
        serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {
                "containerFile": pieces,
                "imageBuilder": {"imageBuilderType": "Job"},
                "machineConfigPool": {"name": "worker"},
                "renderedImagePushSpec": "registry.hostname.com/org/repo:latest",
            },
        }))
        .unwrap()
    };
    let pool = MachineConfigPool::default();
    let name = |pieces: Value| build_name(&config(pieces), &pool.spec.configuration, &rendered).unwrap();
    assert_eq!(name(json!([])), "worker-699e6be74658adcb3ff2b48f32cd1584");
    assert_ne!(
        name(json!(null)),
        name(json!([])),
        "an absent list is not an empty one"
    );
}

fn input() -> Value {
    let credentials = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        r#"{"registry.example.com":{"username":"u","password":"p"}}"#,
    );
    let secret = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "openshift-machine-config-operator"},
            "type": "kubernetes.io/dockercfg",
            "data": {".dockercfg": credentials},
        })
    };
    json!({
        "pool": {
            "metadata": {"name": "infra"},
            "spec": {"configuration": {"name": "rendered-infra-1"}},
        },
        "machineOSConfig": {
            "metadata": {"name": "infra", "uid": "u-1"},
            "spec": {
                "containerFile": [
                    {"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN dnf install -y htop\n"},
                    {"containerfileArch": "ARM64", "content": "FROM configs AS final\nRUN dnf install -y arm-tool"},
                ],
                "imageBuilder": {"imageBuilderType": "Job"},
                "machineConfigPool": {"name": "infra"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": "registry.example.com/org/os:latest",
            },
        },
        "machineConfig": {
            "metadata": {
                "name": "rendered-infra-1",
                "annotations": {
                    "machineconfiguration.openshift.io/release-image-version": "4.21.0",
                    "machineconfiguration.openshift.io/generated-by-controller-version": "abc",
                },
            },
            "spec": {
                "osImageURL": "registry.example.com/os@sha256:1",
                "baseOSExtensionsContainerImage": "registry.example.com/extensions@sha256:2",
                "extensions": ["usbguard", "ipsec"],
                "kernelType": "realtime",
                "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                    {"path": "/etc/containers/policy.json", "contents": {"source": "data:,%7B%7D"}},
                ]}},
            },
        },
        "controllerConfig": {"spec": {
            "proxy": {"httpsProxy": "http://proxy.example.com:3128", "noProxy": "localhost"},
            "additionalTrustBundle": "Y2VydA==",
        }},
        "secrets": [
            secret("push"),
            secret("global-pull-secret-copy"),
            {"metadata": {"name": "etc-pki-entitlement-infra"}, "data": {"entitlement.pem": "eA=="}},
        ],
        "configMaps": [],
    })
}

fn plan(input: &Value) -> OfflineBuild {
    let mut objects = objects_of(input);
    objects.builder_image = Some("registry.example.com/mco@sha256:3".to_owned());
    plan_offline(&objects, Architecture::Amd64).remove(0)
}

#[test]
fn a_containerfile_is_composed() {
    let planned = plan(&input());
    assert_eq!(planned.error, "");
    insta::assert_snapshot!("containerfile", planned.containerfile);
}

#[test]
fn a_job_is_composed() {
    let planned = plan(&input());
    let job = planned.objects.last().unwrap();
    insta::assert_yaml_snapshot!("job", job);
}

#[test]
fn nodes_select_the_containerfile_of_their_architecture() {
    let mut objects = objects_of(&input());
    objects.pools[0].spec.node_selector =
        serde_json::from_value(json!({"matchLabels": {"node-role.kubernetes.io/infra": ""}})).unwrap();
    let node = |architecture: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": architecture, "labels": {"node-role.kubernetes.io/infra": ""}},
            "status": {"nodeInfo": {
                "architecture": architecture, "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": "",
            }},
        }))
        .unwrap()
    };
    objects.nodes = vec![node("arm64")];
    let planned = plan_offline(&objects, Architecture::Amd64).remove(0);
    assert!(
        planned.containerfile.ends_with("RUN dnf install -y arm-tool\n"),
        "{planned:?}"
    );
    let job = planned.objects.last().unwrap();
    assert_eq!(
        job["spec"]["template"]["spec"]["nodeSelector"],
        json!({"kubernetes.io/arch": "arm64"})
    );
    objects.nodes.push(node("amd64"));
    let planned = plan_offline(&objects, Architecture::Amd64).remove(0);
    assert!(
        planned.error.contains("several architectures (amd64, arm64)"),
        "{}",
        planned.error
    );
    objects.nodes = vec![node("amd64")];
    let planned = plan_offline(&objects, Architecture::Amd64).remove(0);
    assert!(planned.containerfile.ends_with("RUN dnf install -y htop\n"));
    assert!(planned.objects.last().unwrap()["spec"]["template"]["spec"]["nodeSelector"].is_null());
}

#[test]
fn a_mistake_is_reported_with_its_place_and_a_hint() {
    let mut input = input();
    input["machineOSConfig"]["spec"]["containerFile"][0]["content"] =
        "FROM configs AS final\nENV BROKEN\n".into();
    let planned = plan(&input);
    assert_eq!(
        planned.error,
        "Containerfile validation failed: containerFile \"NoArch\", line 2: ENV instruction must use key=value form\n  \
         hint: write the value after an equals sign, in quotes if it contains spaces: KEY=\"some value\""
    );
    assert!(
        !planned.machine_os_build.is_empty(),
        "the build exists, and fails"
    );
}

#[test]
fn the_image_of_the_release_is_no_builder_image() {
    let mut input = input();
    // Of the reference implementation, which has another program.
    input["configMaps"] = json!([{
        "metadata": {"name": "machine-config-operator-images"},
        "data": {"images.json": "{\"machineConfigOperator\": \"registry.example.com/theirs@sha256:3\"}"},
    }]);
    let planned = plan_offline(&objects_of(&input), Architecture::Amd64).remove(0);
    assert_eq!(
        planned.warnings,
        ["without --builder-image the Job of this plan has no image, and a builder starts no build"]
    );
    let job = planned.objects.last().unwrap();
    assert_eq!(job["spec"]["template"]["spec"]["initContainers"][0]["image"], "");
}

#[test]
fn unusable_inputs_are_named() {
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut input = input();
        change(&mut input);
        let error = plan(&input).error;
        assert!(error.contains(expected), "{error:?} instead of {expected:?}");
    };
    check(
        &|input| input["machineConfig"]["spec"]["kernelType"] = "64k-pages".into(),
        "64k-pages is only supported for aarch64 architecture",
    );
    // Such an image was built without them.
    check(
        &|input| input["machineConfig"]["spec"]["baseOSExtensionsContainerImage"] = json!(""),
        "has kernelType realtime, but no baseOSExtensionsContainerImage",
    );
    check(
        &|input| {
            input["machineConfig"]["spec"]["baseOSExtensionsContainerImage"] = json!("");
            input["machineConfig"]["spec"]["kernelType"] = "default".into();
        },
        "has extensions usbguard, ipsec, but no baseOSExtensionsContainerImage",
    );
    check(
        &|input| input["machineConfig"]["spec"]["osImageURL"] = "a\nRUN evil".into(),
        "is not an image reference",
    );
    check(
        &|input| {
            input["secrets"].as_array_mut().unwrap().remove(0);
        },
        "there is no Secret openshift-machine-config-operator/push",
    );
    check(
        &|input| input["pool"]["metadata"]["name"] = "other".into(),
        "there is no MachineConfigPool",
    );
    check(
        &|input| {
            let files = &mut input["machineConfig"]["spec"]["config"]["storage"]["files"];
            files[0]["contents"] = json!({});
        },
        "/etc/containers/policy.json",
    );
}
