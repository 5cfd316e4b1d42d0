use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use mco_api::machine_config_pool::MachineConfigPoolSpec;
use mco_api::{MachineConfig, MachineConfigPool};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::diff::diff;
use crate::config::guarded;
use crate::config::merge::DefaultImages;
use crate::config::parsed_config::{ParsedConfig, SourceConfig};
use crate::config::remote::RemoteContents;
use crate::config::render::{self, RenderIdentity, Rendered};
use crate::config::validate;

const SECRET: &str = "correct horse battery staple";

fn secrets(value: &str) -> RemoteContents {
    let mut secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "vpn", "labels": {"mco.dev/secret-files": "true"}},
    }))
    .unwrap();
    secret.data = Some([("psk".to_owned(), ByteString(value.as_bytes().to_vec()))].into());
    let versions = SecretVersions::of_secrets(b"key of the cluster", [&secret]);
    RemoteContents::default().with_secrets(versions)
}

fn machine_config(name: &str, annotations: &Value, files: &Value) -> Arc<MachineConfig> {
    let object = json!({
        "metadata": {
            "name": name,
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "annotations": annotations,
        },
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 416, "contents": {"source": mco_ignition::resource::encode(text.as_bytes())}})
}

fn secret_files(entries: &Value) -> Value {
    json!({"mco.dev/secret-files": entries.to_string()})
}

fn try_render(sources: &[Arc<MachineConfig>], contents: &RemoteContents) -> Result<Rendered, String> {
    let sources: Vec<SourceConfig> = sources
        .iter()
        .map(|config| SourceConfig::with_contents(Arc::clone(config), contents))
        .collect();
    let parsed: Result<Vec<&ParsedConfig>, String> = sources
        .iter()
        .map(|source| source.parsed.as_deref().map_err(ToString::to_string))
        .collect();
    let pool = MachineConfigPool::new("worker", MachineConfigPoolSpec::default());
    render::render(
        &pool,
        &parsed?,
        DefaultImages::default(),
        RenderIdentity::default(),
    )
    .map_err(|error| error.to_string())
}

fn paths(rendered: &Rendered) -> Vec<&str> {
    let files = rendered.config.ignition.storage.files.iter();
    files.map(|file| file.path.as_str()).collect()
}

fn node(labels: &Value, annotations: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "worker-1", "labels": labels, "annotations": annotations},
        "status": {"addresses": [
            {"type": "Hostname", "address": "worker-1"},
            {"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "fd00::7"},
        ]},
    }))
    .unwrap()
}

#[test]
fn a_config_without_the_annotations_renders_as_before() {
    let text = "a ${node.name}\n";
    let plain = machine_config("50-a", &json!({}), &json!([file("/etc/a", text)]));
    let other = machine_config(
        "50-a",
        &json!({"example.com/x": "y", "mco.dev/node-values": "false"}),
        &json!([file("/etc/a", text)]),
    );
    let versions = secrets(SECRET);
    let (plain, other) = (
        try_render(&[plain], &RemoteContents::default()).unwrap(),
        try_render(&[other], &versions).unwrap(),
    );
    assert_eq!(plain.config.object.spec, other.config.object.spec);
    assert_eq!(plain.config.text_of("/etc/a").unwrap(), text);
    assert_eq!(paths(&plain), ["/etc/a"]);
}

#[test]
fn a_node_without_support_writes_neither_placeholders_nor_secrets() {
    let annotations = json!({
        "mco.dev/node-values": "true",
        "mco.dev/secret-files": json!([{"path": "/etc/vpn/psk", "secret": "vpn/psk"}]).to_string(),
    });
    let files = json!([
        file("/etc/a", "name=${node.name}\n"),
        file("/etc/b", "home=${HOME}\n")
    ]);
    let rendered = try_render(
        &[machine_config("50-vpn", &annotations, &files)],
        &secrets(SECRET),
    )
    .unwrap();
    assert_eq!(
        paths(&rendered),
        [
            "/etc/b",
            "/etc/mco/values.d/50-vpn.json",
            "/etc/mco/secrets.d/50-vpn.json"
        ]
    );
    let lists = NodeFiles::of(&rendered.config.ignition);
    assert_eq!(lists.paths().collect::<Vec<_>>(), ["/etc/vpn/psk", "/etc/a"]);
    let [secret] = lists.secrets.as_slice() else {
        panic!("{lists:?}")
    };
    assert_eq!(
        secret.secret.to_string(),
        "openshift-machine-config-operator/vpn/psk"
    );
    assert_eq!(
        (secret.mode, secret.owner.to_string()),
        (FileMode(0o600), "0:0".to_owned())
    );
    assert_eq!(lists.values[0].mode, FileMode(0o640));
    let whole = serde_json::to_string(&*rendered.config.object).unwrap();
    assert!(
        !whole.contains("horse") && !whole.contains("Y29ycmVjd"),
        "{whole}"
    );
}

#[test]
fn a_rotation_is_another_rendered_config_and_a_change_of_that_file_alone() {
    let config = machine_config(
        "50-vpn",
        &secret_files(
            &json!([{"path": "/etc/vpn/psk", "secret": "vpn/psk", "mode": "0640", "owner": "root:vpn"}]),
        ),
        &json!([file("/etc/b", "b")]),
    );
    let render = |value: &str| try_render(std::slice::from_ref(&config), &secrets(value)).unwrap();
    let (old, same, new) = (render(SECRET), render(SECRET), render("rotated"));
    assert_eq!(old.name(), same.name());
    assert_ne!(old.name(), new.name());
    let difference = diff(&old.config, &new.config);
    assert_eq!(difference.names().collect::<Vec<_>>(), ["/etc/vpn/psk"]);
    assert!(difference.files[0].secret && difference.files[0].mode.is_none());
}

#[test]
fn what_cannot_work_is_refused_with_its_field() {
    let entry = json!({"path": "/etc/x", "secret": "vpn/psk"});
    let with = |key: &str, value: Value| {
        let mut entry = entry.clone();
        entry[key] = value;
        secret_files(&json!([entry]))
    };
    let values = |text: &str| {
        (
            json!({"mco.dev/node-values": "true"}),
            json!([file("/etc/a", text)]),
        )
    };
    for (name, (annotations, files), expected) in [
        (
            "no JSON",
            (json!({"mco.dev/secret-files": "x"}), json!([])),
            "metadata.annotations[mco.dev/secret-files]: expected value",
        ),
        (
            "a Secret elsewhere",
            (with("secret", json!("kube-system/a/b")), json!([])),
            "metadata.annotations[mco.dev/secret-files][0].secret: \"kube-system/a/b\" names namespace \"kube-system\"",
        ),
        (
            "an unknown field",
            (with("modes", json!("0600")), json!([])),
            "metadata.annotations[mco.dev/secret-files][0].modes: unknown field `modes`",
        ),
        (
            "a mode in decimal digits",
            (with("mode", json!("0999")), json!([])),
            "metadata.annotations[mco.dev/secret-files][0].mode: \"0999\" is no file mode",
        ),
        (
            "readable by all",
            (with("mode", json!("0644")), json!([])),
            "metadata.annotations[mco.dev/secret-files][0].mode (\"/etc/x\"): 0644 lets every process",
        ),
        (
            "two definitions",
            (secret_files(&json!([entry])), json!([file("/etc/x", "y")])),
            "(\"/etc/x\"): duplicate entry defined",
        ),
        (
            "the daemon's own state",
            (
                with("path", json!("/etc/machine-config-daemon/currentconfig")),
                json!([]),
            ),
            "it belongs to the daemon itself",
        ),
        (
            "an unknown value",
            values("a\nb=${node.uid}\n"),
            "spec.config.storage.files[0].contents (\"/etc/a\"): line 2: ${node.uid}: unknown",
        ),
        (
            "an annotation of another owner",
            values("${node.annotation[\"example.com/token\"]}"),
            "only annotations mco.dev/value.... are values of a node",
        ),
        (
            "no closing brace",
            values("${node.name\n}"),
            "line 1: ${node.: it has no closing brace",
        ),
        (
            "neither true nor false",
            (json!({"mco.dev/node-values": "yes"}), json!([])),
            "metadata.annotations[mco.dev/node-values]: \"yes\" is neither",
        ),
        (
            "a list by hand",
            (json!({}), json!([file("/etc/mco/secrets.d/a.json", "[]")])),
            "the files of this directory are generated",
        ),
    ] {
        let refused = validate::admit(&machine_config("50-a", &annotations, &files)).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(expected), "{name}: {text}");
    }
    let unit = json!({
        "metadata": {"name": "50-u", "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "annotations": {"mco.dev/node-values": "true"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": [
            {"name": "a.service", "contents": "[Service]\nExecStart=/bin/echo ${node.name}\n"}]}}},
    });
    let unit: MachineConfig = serde_json::from_value(unit).unwrap();
    let text = validate::admit(&Arc::new(unit)).unwrap_err().to_string();
    assert!(text.contains("EnvironmentFile="), "{text}");
}

#[test]
fn admission_does_not_wait_for_a_secret_but_a_render_does() {
    let config = machine_config(
        "50-vpn",
        &secret_files(&json!([{"path": "/etc/x", "secret": "other/psk"}])),
        &json!([]),
    );
    validate::admit(&config).unwrap();
    let why = try_render(std::slice::from_ref(&config), &secrets(SECRET)).unwrap_err();
    assert!(
        why.contains("there is no Secret other with label mco.dev/secret-files=true"),
        "{why}"
    );
    let why = try_render(&[config], &RemoteContents::default()).unwrap_err();
    assert!(
        why.contains("no ConfigMap openshift-machine-config-operator/machine-config-secret-versions"),
        "{why}"
    );
}

#[test]
fn one_path_has_one_definition_in_all_machine_configs() {
    let secret = |name: &str| {
        let annotations = secret_files(&json!([{"path": "/etc/x", "secret": "vpn/psk"}]));
        machine_config(name, &annotations, &json!([]))
    };
    let plain = machine_config("60-plain", &json!({}), &json!([file("/etc/x", "y")]));
    let why = try_render(&[secret("50-a"), plain], &secrets(SECRET)).unwrap_err();
    assert!(
        why.contains(
            "/etc/x is defined more than once: storage.files, secret file of MachineConfig \"50-a\""
        ),
        "{why}"
    );
    let why = try_render(&[secret("50-a"), secret("50-b")], &secrets(SECRET)).unwrap_err();
    assert!(
        why.contains("\"50-a\", secret file of MachineConfig \"50-b\""),
        "{why}"
    );
}

#[test]
fn a_secret_in_place_of_a_credential_of_the_kubelet_is_guarded() {
    let config = machine_config(
        "50-a",
        &secret_files(&json!([{"path": "/etc/kubernetes/kubelet.conf", "secret": "vpn/psk"}])),
        &json!([]),
    );
    let rendered = try_render(&[config], &secrets(SECRET)).unwrap();
    let found = guarded::of_config(&rendered.config.ignition);
    assert_eq!(found[0].path, "/etc/kubernetes/kubelet.conf");
}

#[test]
fn placeholders_become_values_and_escaped_ones_text() {
    let text = "n=${node.name} z=${node.label[\"topology.kubernetes.io/zone\"]}\na=${node.address.internal}\n\
                v=${node.annotation[\"mco.dev/value.rack\"]} h=${HOME} e=$${node.name} d=$$${node.name}\n";
    let template = ValueTemplate::parse(text).unwrap();
    let names: Vec<ValueName> = template.names().into_iter().cloned().collect();
    let node = node(
        &json!({"topology.kubernetes.io/zone": "a"}),
        &json!({"mco.dev/value.rack": "r7"}),
    );
    let values = NodeValues::of_node(&node, &names);
    assert_eq!(
        template.expand(&values).unwrap(),
        "n=worker-1 z=a\na=10.0.0.7\nv=r7 h=${HOME} e=${node.name} d=$${node.name}\n"
    );
}

#[test]
fn a_value_with_a_line_break_could_add_lines_to_a_file() {
    let text = "v=${node.annotation[\"mco.dev/value.rack\"]}\n";
    let file = ValueFile {
        path: "/etc/a".to_owned(),
        mode: FileMode(0o644),
        owner: OwnerName::default(),
        contents: text.to_owned(),
    };
    let files = NodeFiles {
        values: vec![file],
        ..NodeFiles::default()
    };
    let node = node(&json!({}), &json!({"mco.dev/value.rack": "r7\nadmin=true"}));
    let values = NodeValues::of_node(&node, &files.value_names());
    assert_eq!(
        files.expand("worker-1", &values).unwrap_err(),
        [
            "/etc/a needs node.annotation[\"mco.dev/value.rack\"]: node worker-1 has no annotation mco.dev/value.rack of \
             one line; set it with: kubectl annotate node worker-1 mco.dev/value.rack=VALUE"
        ]
    );
}

fn pool(name: &str, label: &str, config: &str) -> MachineConfigPool {
    let mut pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"matchLabels": {label: ""}}},
    }))
    .unwrap();
    pool.spec.configuration.reference.name = Some(config.to_owned());
    pool
}

#[test]
fn a_node_could_have_the_secrets_of_another_pool() {
    let pools = [
        pool("worker", "node-role.kubernetes.io/worker", "rendered-worker-2"),
        pool("master", "node-role.kubernetes.io/master", "rendered-master-2"),
    ];
    let config = |name: &str, pool: &str| -> MachineConfig {
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": pool, "uid": "u",
             "controller": true}]}, "spec": {}}))
        .unwrap()
    };
    // The node claims to need them in its own annotations.
    let claims = json!({
        "machineconfiguration.openshift.io/desiredConfig": "rendered-master-2",
        "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
    });
    let worker = node(&json!({"node-role.kubernetes.io/worker": ""}), &claims);
    let check = |node: &Node, name: &str, pool: &str| {
        check_access(&node.metadata, &pools, &config(name, pool).metadata)
    };
    assert_eq!(check(&worker, "rendered-worker-2", "worker"), Ok(()));
    for (name, pool, expected) in [
        ("rendered-master-2", "master", "was not rendered for pool worker"),
        (
            "rendered-worker-1",
            "worker",
            "does not use MachineConfig rendered-worker-1 any more",
        ),
        ("50-mine", "worker", "was not rendered for pool worker"),
    ] {
        let why = check(&worker, name, pool).unwrap_err();
        assert!(why.contains(expected), "{name}: {why}");
    }
    let stranger = node(&json!({}), &json!({}));
    assert!(
        check(&stranger, "rendered-worker-2", "worker")
            .unwrap_err()
            .contains("belongs to no pool")
    );
}

fn values(pairs: &BTreeMap<String, String>) -> NodeValues {
    let node = json!({"metadata": {"name": "n", "labels": pairs}});
    let node: Node = serde_json::from_value(node).unwrap();
    let names: Vec<ValueName> = pairs.keys().map(|key| ValueName::Label(key.clone())).collect();
    NodeValues::of_node(&node, &names)
}

proptest! {
    /// Whatever surrounds placeholders stays as it is, byte for byte.
    #[test]
    fn expansion_replaces_placeholders_and_nothing_else(
        pieces in proptest::collection::vec(("[ -~\n$\\{\\}é]{0,12}", "[a-z]{1,3}", "[A-Za-z0-9._-]{0,8}"), 0..6)
    ) {
        let labels: BTreeMap<String, String> =
            pieces.iter().map(|(_, key, value)| (key.clone(), value.clone())).collect();
        let mut template = String::new();
        let mut expected = String::new();
        for (text, key, _) in &pieces {
            // A dollar sign before a placeholder would escape it.
            let text = text.trim_end_matches('$');
            template.push_str(&escape(text));
            expected.push_str(text);
            template.extend(["${node.label[\"", key, "\"]}"]);
            expected.push_str(&labels[key]);
        }
        let parsed = ValueTemplate::parse(&template).unwrap();
        prop_assert_eq!(parsed.expand(&values(&labels)).unwrap(), expected);
    }

    /// Any text is parsed or refused, never misread: what is parsed and needs no value is the text itself.
    #[test]
    fn any_text_is_expanded_or_refused(text in "([ -~\n]|\\$\\{node\\.|\\$\\$\\{node\\.|\\}|name){0,20}") {
        if let Ok(template) = ValueTemplate::parse(&text)
            && template.names().is_empty()
        {
            let expanded = template.expand(&NodeValues::default()).unwrap();
            prop_assert_eq!(escape(&expanded).len() >= expanded.len(), true);
            if !is_template(&text) {
                prop_assert_eq!(expanded, text);
            }
        }
    }

    /// Nothing of a value is in the rendered config, and its version changes exactly when it does.
    #[test]
    fn a_rendered_config_has_nothing_of_a_secret(one in "[a-zA-Z]{24,40}", other in "[a-zA-Z]{24,40}") {
        let config = machine_config(
            "50-vpn",
            &secret_files(&json!([{"path": "/etc/x", "secret": "vpn/psk"}])),
            &json!([]),
        );
        let render = |value: &str| try_render(std::slice::from_ref(&config), &secrets(value)).unwrap();
        let (a, b) = (render(&one), render(&other));
        let text = serde_json::to_string(&*a.config.object).unwrap();
        prop_assert!(!text.contains(&one));
        prop_assert_eq!(a.name() == b.name(), one == other);
    }
}
