use mco_ignition::resource;
use serde_json::{Value, json};

use super::*;

struct Case {
    metadata: Value,
    spec: Value,
    context: ComposeContext,
}

impl Case {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "reads better at the many call sites"
    )]
    fn new(ignition: Value) -> Self {
        Self {
            metadata: json!({"name": "rendered-worker-1"}),
            spec: json!({"config": ignition, "kernelArguments": ["quiet"], "osImageURL": "base"}),
            context: ComposeContext {
                kubelet_ca: ByteString(b"kubelet ca".to_vec()),
                kubeconfig: b"kubeconfig".to_vec(),
                ..ComposeContext::of(&ControllerConfig::default(), ConfigOrigin::Cluster)
            },
        }
    }

    fn source(&self) -> Result<PoolSource, ComposeError> {
        let config = serde_json::from_value(json!({"metadata": self.metadata, "spec": self.spec})).unwrap();
        PoolSource::new(Arc::new(config), self.context.clone())
    }

    fn compose(&self, version: SpecVersion) -> Result<Composed, ComposeError> {
        compose(&self.source()?, version)
    }

    fn document(&self, version: SpecVersion) -> Value {
        self.compose(version).unwrap().document
    }
}

fn paths(document: &Value) -> Vec<&str> {
    let files = document["storage"]["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

fn file<'a>(document: &'a Value, path: &str) -> &'a Value {
    let files = document["storage"]["files"].as_array().unwrap();
    files.iter().find(|file| file["path"] == path).unwrap()
}

fn contents(document: &Value, path: &str) -> Vec<u8> {
    resource::decode(file(document, path)["contents"]["source"].as_str(), None, 1 << 20).unwrap()
}

fn content_json(document: &Value, path: &str) -> Value {
    serde_json::from_slice(&contents(document, path)).unwrap()
}

fn empty() -> Value {
    json!({"ignition": {"version": "3.5.0"}})
}

fn with_files(files: &Value) -> Value {
    json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}})
}

#[test]
fn files_are_added_in_their_fixed_order_and_shape() {
    let mut case = Case::new(with_files(
        &json!([{"path": "/etc/own", "contents": {"source": "data:,x"}}]),
    ));
    case.context.cloud_ca = ByteString(b"cloud ca".to_vec());
    case.context.registry_certificates = vec![RegistryCertificate {
        host: "foo".to_owned(),
        pem: b"registry".to_vec(),
    }];
    let document = case.document(SpecVersion::V3_5);
    assert_eq!(
        paths(&document),
        [
            "/etc/own",
            KUBELET_CA,
            CLOUD_CA,
            NODE_ANNOTATIONS,
            KUBECONFIG,
            CONTENT,
            "/etc/docker/certs.d/foo/ca.crt",
            ENCAPSULATED
        ]
    );
    assert_eq!(
        *file(&document, KUBELET_CA),
        json!({"path": KUBELET_CA, "mode": 420, "overwrite": true, "contents": {"source": "data:,kubelet%20ca"}})
    );
}

#[test]
fn every_version_can_be_served_and_encapsulates_itself() {
    for version in crate::negotiate::SERVED {
        let document = Case::new(empty()).document(version);
        assert_eq!(document["ignition"]["version"], version.as_str());
        let encapsulated = content_json(&document, ENCAPSULATED);
        assert_eq!(
            encapsulated["spec"]["config"],
            json!({"ignition": {"version": version.as_str()}})
        );
        assert!(encapsulated.get("kind").is_none(), "typed caches drop the kind");
    }
}

#[test]
fn from_files_the_newest_version_is_encapsulated_with_its_kind() {
    let mut case = Case::new(empty());
    case.context.origin = ConfigOrigin::Files;
    let encapsulated = content_json(&case.document(SpecVersion::V2_2), ENCAPSULATED);
    assert_eq!(encapsulated["spec"]["config"]["ignition"]["version"], "3.5.0");
    assert_eq!(encapsulated["kind"], "MachineConfig");
}

#[test]
fn a_certificate_is_replaced_in_its_place_with_nothing_left_of_the_old_one() {
    let old = json!([
        {"path": KUBELET_CA, "mode": 384, "contents": {"source": "data:;base64,AAAA", "compression": "gzip",
            "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}},
        {"path": "/etc/own", "contents": {"source": "data:,x"}},
    ]);
    let document = Case::new(with_files(&old)).document(SpecVersion::V3_5);
    assert_eq!(paths(&document)[..2], [KUBELET_CA, "/etc/own"]);
    assert_eq!(
        paths(&document)
            .iter()
            .filter(|path| **path == KUBELET_CA)
            .count(),
        1
    );
    assert_eq!(
        *file(&document, KUBELET_CA),
        json!({"path": KUBELET_CA, "mode": 384, "contents": {"source": "data:,kubelet%20ca"}})
    );
    let embedded = content_json(&document, CONTENT);
    assert_eq!(
        embedded["spec"]["config"]["storage"]["files"][0]["contents"]["compression"], "gzip",
        "the embedded config shows what was rendered"
    );
}

#[test]
fn without_certificates_in_the_cluster_the_rendered_ones_stay() {
    let old = json!([{"path": KUBELET_CA, "contents": {"source": "data:,old"}}]);
    let mut case = Case::new(with_files(&old));
    case.context.kubelet_ca = ByteString::default();
    let document = case.document(SpecVersion::V3_5);
    assert_eq!(contents(&document, KUBELET_CA), b"old");
    let mut case = Case::new(empty());
    case.context.kubelet_ca = ByteString::default();
    assert!(!paths(&case.document(SpecVersion::V3_5)).contains(&KUBELET_CA));
}

#[test]
fn kernel_arguments_move_to_the_machine_config_for_old_ignition_only() {
    let ignition = json!({"ignition": {"version": "3.5.0"}, "kernelArguments": {"shouldExist": ["a", "b"]}});
    let case = Case::new(ignition);
    let source = case.source().unwrap();
    for version in [
        SpecVersion::V2_2,
        SpecVersion::V3_0,
        SpecVersion::V3_1,
        SpecVersion::V3_2,
    ] {
        for attempt in 1..=2 {
            let document = compose(&source, version).unwrap().document;
            assert!(document.get("kernelArguments").is_none());
            for path in [ENCAPSULATED, CONTENT] {
                assert_eq!(
                    content_json(&document, path)["spec"]["kernelArguments"],
                    json!(["quiet", "a", "b"]),
                    "{version}, {path}, request {attempt}"
                );
            }
        }
    }
    for version in [SpecVersion::V3_3, SpecVersion::V3_4, SpecVersion::V3_5] {
        let document = compose(&source, version).unwrap().document;
        assert_eq!(document["kernelArguments"], json!({"shouldExist": ["a", "b"]}));
        assert_eq!(
            content_json(&document, ENCAPSULATED)["spec"]["kernelArguments"],
            json!(["quiet"])
        );
    }
}

#[test]
fn arguments_that_must_not_exist_cannot_be_served_to_old_ignition() {
    let case =
        Case::new(json!({"ignition": {"version": "3.5.0"}, "kernelArguments": {"shouldNotExist": ["a"]}}));
    for version in [SpecVersion::V2_2, SpecVersion::V3_1, SpecVersion::V3_2] {
        let error = case.compose(version).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "MachineConfig \"rendered-worker-1\": can't serve version {version} with ignition KernelArguments.ShouldNotExist populated"
            )
        );
    }
    assert!(case.compose(SpecVersion::V3_3).is_ok());
}

#[test]
fn what_an_old_version_cannot_express_is_refused_with_its_place() {
    let case = Case::new(with_files(
        &json!([{"path": "/usr/bin/x", "mode": 0o4755, "contents": {"source": "data:,x"}}]),
    ));
    let error = case.compose(SpecVersion::V3_3).unwrap_err().to_string();
    assert!(error.contains("storage.files"), "{error}");
    assert!(case.compose(SpecVersion::V3_4).is_ok());
}

#[test]
fn a_users_file_at_the_servers_path_gives_way_with_a_warning() {
    let files = json!([{"path": KUBECONFIG, "contents": {"source": "data:,mine"}}]);
    let links = json!([{"path": ENCAPSULATED, "target": "/dev/null"}]);
    let case =
        Case::new(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files, "links": links}}));
    let composed = case.compose(SpecVersion::V3_5).unwrap();
    assert_eq!(contents(&composed.document, KUBECONFIG), b"kubeconfig");
    assert!(composed.document["storage"].get("links").is_none());
    assert_eq!(composed.warnings.len(), 2, "{:?}", composed.warnings);
    assert!(composed.warnings[0].contains(KUBECONFIG));
}

#[test]
fn an_image_reaches_the_annotations_and_the_machine_config() {
    let annotations = |case: &Case| content_json(&case.document(SpecVersion::V3_5), NODE_ANNOTATIONS);
    let image = |case: &Case| {
        content_json(&case.document(SpecVersion::V3_5), ENCAPSULATED)["spec"]["osImageURL"].clone()
    };
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let mut case = Case::new(empty());
    assert_eq!(
        annotations(&case),
        json!({key("currentConfig"): "rendered-worker-1", key("desiredConfig"): "rendered-worker-1",
            key("firstPivotConfig"): "rendered-worker-1", key("state"): "Done"})
    );
    assert_eq!(image(&case), "base");

    case.context.layered_image = Some("layered@sha256:1".to_owned());
    assert_eq!(annotations(&case)[key("currentImage")], "layered@sha256:1");
    assert_eq!(annotations(&case)[key("desiredImage")], "layered@sha256:1");
    assert_eq!(image(&case), "layered@sha256:1");

    case.metadata["annotations"] = json!({key("pre-built-image"): "built@sha256:2"});
    assert_eq!(annotations(&case)[key("currentImage")], "built@sha256:2");
    assert_eq!(image(&case), "layered@sha256:1");
}

#[test]
fn a_config_stored_as_2_2_is_served_as_every_version() {
    let old = json!({"ignition": {"version": "2.2.0"}, "storage": {"files": [
        {"filesystem": "root", "path": "/etc/own", "mode": 420, "contents": {"source": "data:,hello"}}]}});
    let case = Case::new(old);
    for version in crate::negotiate::SERVED {
        let document = case.document(version);
        assert_eq!(contents(&document, "/etc/own"), b"hello", "{version}");
        let filesystem = file(&document, "/etc/own").get("filesystem");
        assert_eq!(filesystem.is_some(), version == SpecVersion::V2_2, "{version}");
    }
}

#[test]
fn a_config_without_a_readable_ignition_part_is_refused_by_name() {
    for (ignition, expected) in [
        (json!(null), "spec.config is empty"),
        (json!({}), "parsing Ignition config failed with error"),
        (
            json!({"ignition": {"version": "9.9.9"}}),
            "parsing Ignition config failed with error",
        ),
    ] {
        let error = Case::new(ignition).source().unwrap_err().to_string();
        assert!(
            error.starts_with("MachineConfig \"rendered-worker-1\": "),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}
