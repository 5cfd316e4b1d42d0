//! Remote contents: references, embedding, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::manifest;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::config::reconcilable::Overrides;
use mco_core::config::remote::{self, ContentKey, ContentState, RemoteContents};
use mco_core::config::render::RenderIdentity;
use mco_core::config::validate;
use mco_core::config::{remote_store, skew::ControllerVersions};
use mco_core::generators::os_streams::ReleaseStreams;
use mco_core::pipeline::bootstrap::{self, BootstrapSettings};
use mco_core::pipeline::{self, PoolInputs, RenderFailure, RenderedPool};
use serde_json::{Value, json};

const URL: &str = "https://files.example/motd?token=s3cr3t";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn key(text: &str, compression: &str) -> ContentKey {
    ContentKey {
        hash: remote::hash_of(text.as_bytes(), "").unwrap(),
        compression: compression.to_owned(),
    }
}

fn contents(all: &[(&str, &str)]) -> RemoteContents {
    let mut contents = RemoteContents::default();
    for (text, compression) in all {
        let bytes = if *compression == "gzip" {
            gzip(text)
        } else {
            text.as_bytes().to_vec()
        };
        contents.add(key(text, compression), Arc::new(bytes)).unwrap();
    }
    contents
}

fn ignition(body: &Value) -> Value {
    let mut config = json!({"ignition": {"version": "3.5.0"}});
    for (name, value) in body.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn file(source: &str, extra: &Value) -> Value {
    let mut contents = json!({"source": source});
    for (name, value) in extra.as_object().unwrap() {
        contents[name] = value.clone();
    }
    ignition(&json!({"storage": {"files": [{"path": "/etc/motd", "mode": 420, "contents": contents}]}}))
}

fn verified(text: &str) -> Value {
    json!({"verification": {"hash": key(text, "").hash}})
}

fn machine_config(name: &str, config: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": config},
    }))
    .unwrap()
}

fn render(sources: Vec<SourceConfig>) -> Result<RenderedPool, RenderFailure> {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}},
    }))
    .unwrap();
    let sources: Vec<Arc<SourceConfig>> = sources.into_iter().map(Arc::new).collect();
    pipeline::render_pool(&PoolInputs {
        pool: &pool,
        worker: None,
        controller_config: None,
        sources: &sources,
        streams: &ReleaseStreams::default(),
        os_image_stream: None,
        current: None,
        overrides: Overrides::default(),
        identity: RenderIdentity {
            controller_version: "v",
            release_version: "",
        },
        versions: None::<ControllerVersions<'_>>,
    })
}

fn problems(config: &Value) -> Vec<(String, String)> {
    let config = Arc::new(machine_config("50-motd", config));
    let refused = validate::admit(&config).err();
    let problems = refused.into_iter().flat_map(|invalid| invalid.problems);
    problems.map(|problem| (problem.path, problem.message)).collect()
}

#[test]
fn the_rendered_config_is_that_of_the_same_config_with_data_urls() {
    for (compression, bytes) in [("", b"hello\n".to_vec()), ("gzip", gzip("hello\n"))] {
        let mut extra = verified("hello\n");
        if !compression.is_empty() {
            extra["compression"] = json!(compression);
        }
        let mut with_headers = extra.clone();
        with_headers["httpHeaders"] = json!([{"name": "Authorization", "value": "Bearer s3cr3t"}]);
        let known = contents(&[("hello\n", compression)]);
        let remote =
            SourceConfig::with_contents(machine_config("50-motd", &file(URL, &with_headers)), &known);
        assert_eq!(remote.remote.len(), 1);
        assert_eq!(
            remote.remote[0].headers.0,
            [("Authorization".to_owned(), "Bearer s3cr3t".to_owned())]
        );
        let url = format!(
            "data:;base64,{}",
            base64::engine::general_purpose::STANDARD.encode(bytes)
        );
        let local = SourceConfig::new(machine_config("50-motd", &file(&url, &extra)));
        let (remote, local) = (render(vec![remote]).unwrap(), render(vec![local]).unwrap());
        assert_eq!(remote.rendered.name(), local.rendered.name(), "{compression:?}");
        let text = serde_json::to_string(&*remote.rendered.config.object).unwrap();
        assert_eq!(
            text,
            serde_json::to_string(&*local.rendered.config.object).unwrap()
        );
        assert!(!text.contains("https://") && !text.contains("s3cr3t"), "{text}");
        assert_eq!(
            remote.rendered.config.text_of("/etc/motd").as_deref(),
            Some("hello\n")
        );
    }
}

#[test]
fn a_reference_that_cannot_be_fetched_is_refused_and_names_the_field() {
    let source = "spec.config.storage.files[0].contents.source";
    let hash = "spec.config.storage.files[0].contents.verification.hash";
    for (name, config, path, message) in [
        (
            "no hash",
            file(URL, &json!({})),
            hash,
            "https://files.example/motd is not fetched without a hash",
        ),
        (
            "http",
            file("http://files.example/motd", &verified("a")),
            source,
            "http contents are not fetched, only https ones",
        ),
        (
            "tftp",
            file("tftp://files.example/motd", &verified("a")),
            source,
            "tftp contents are not fetched, only https ones",
        ),
        (
            "a password",
            file("https://me:s3cr3t@files.example/motd", &verified("a")),
            source,
            "the URL contains a user or a password",
        ),
        (
            "a config without a hash",
            json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": URL}]}}}),
            "spec.config.ignition.config.merge[0].verification.hash",
            "https://files.example/motd is not fetched without a hash",
        ),
        (
            "a replacement without a hash",
            json!({"ignition": {"version": "3.5.0", "config": {"replace": {"source": URL}}}}),
            "spec.config.ignition.config.replace.verification.hash",
            "https://files.example/motd is not fetched without a hash",
        ),
    ] {
        assert_eq!(
            problems(&config),
            [(path.to_owned(), message.to_owned())],
            "{name}"
        );
    }
    assert_eq!(problems(&file(URL, &verified("a"))), [], "a hash is enough");
    let config = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": URL, "verification": {"hash": key("a", "").hash}}]}}});
    assert_eq!(problems(&config), [], "also of a config");
}

#[test]
fn contents_with_another_hash_are_never_embedded() {
    let mut known = RemoteContents::default();
    let error = known
        .add(key("hello", ""), Arc::new(b"other".to_vec()))
        .unwrap_err();
    assert!(error.to_string().contains("hash of the contents is"), "{error}");
    // The hash is that of the decompressed contents, so compressed ones without `compression` have another.
    known.add(key("hello", ""), Arc::new(gzip("hello"))).unwrap_err();
    known.add(key("hello", "gzip"), Arc::new(gzip("hello"))).unwrap();
    known
        .add(key("hello", "gzip"), Arc::new(b"hello".to_vec()))
        .unwrap_err();
}

#[test]
fn a_pool_waits_for_contents_and_reports_why_they_cannot_be_fetched() {
    let config = || machine_config("50-motd", &file(URL, &verified("hello")));
    let pending = SourceConfig::new(config());
    assert!(pending.is_pending);
    let failure = render(vec![pending]).unwrap_err();
    assert!(matches!(failure, RenderFailure::Fetching(_)));
    let text = failure.to_string();
    assert!(
        text.contains("spec.config.storage.files[0].contents.source (\"/etc/motd\"): https://files.example/motd is not fetched yet"),
        "{text}"
    );
    assert!(!text.contains("s3cr3t"), "{text}");

    let mut failed = RemoteContents::default();
    failed.set(
        key("hello", ""),
        ContentState::Failed("connection refused".to_owned()),
    );
    let failure = render(vec![SourceConfig::with_contents(config(), &failed)]).unwrap_err();
    assert!(matches!(failure, RenderFailure::Invalid(_)));
    let text = failure.to_string();
    assert!(
        text.contains("https://files.example/motd cannot be fetched: connection refused"),
        "{text}"
    );
}

#[test]
fn an_invalid_config_is_reported_before_anything_is_fetched() {
    let mut config = file(URL, &verified("hello"));
    config["storage"]["files"][0]["mode"] = json!(0o4755);
    let source = SourceConfig::new(machine_config("50-motd", &config));
    assert!(!source.is_pending);
    config["storage"]["files"][0]["path"] = json!("relative");
    let source = SourceConfig::new(machine_config("50-motd", &config));
    assert!(source.remote.is_empty(), "nothing to fetch");
    assert!(source.parsed.is_err());
}

#[test]
fn configs_are_merged_in_order_and_bring_their_own_references() {
    let inner = ignition(&json!({"storage": {"files": [
        {"path": "/etc/inner", "contents": {"source": URL, "verification": {"hash": key("inner", "").hash}}},
        {"path": "/etc/motd", "mode": 384},
    ]}}))
    .to_string();
    let second =
        ignition(&json!({"systemd": {"units": [{"name": "a.service", "enabled": true}]}})).to_string();
    let mut config = file("data:,outer", &json!({}));
    config["ignition"]["config"] = json!({"merge": [
        {"source": "https://files.example/1.ign", "verification": {"hash": key(&inner, "").hash}},
        {"source": "https://files.example/2.ign", "compression": "gzip", "verification": {"hash": key(&second, "").hash}},
    ]});
    let object = || machine_config("50-motd", &config);
    // In the order in which they become known.
    let first = SourceConfig::new(object());
    assert_eq!(first.remote.len(), 2);
    let more = SourceConfig::with_contents(object(), &contents(&[(&inner, ""), (&second, "gzip")]));
    assert!(more.is_pending);
    assert_eq!(more.remote.len(), 3);
    assert_eq!(
        more.remote
            .iter()
            .map(|one| one.field.as_str())
            .collect::<Vec<_>>(),
        [
            "spec.config.ignition.config.merge[0]",
            "spec.config.ignition.config.merge[0].storage.files[0].contents",
            "spec.config.ignition.config.merge[1]",
        ]
    );
    let all = SourceConfig::with_contents(
        object(),
        &contents(&[(&inner, ""), (&second, "gzip"), ("inner", "")]),
    );
    let rendered = render(vec![all]).unwrap().rendered.config;
    assert_eq!(rendered.text_of("/etc/inner").as_deref(), Some("inner"));
    assert_eq!(rendered.text_of("/etc/motd").as_deref(), Some("outer"));
    let motd = rendered
        .ignition
        .storage
        .files
        .iter()
        .find(|file| file.path == "/etc/motd");
    assert_eq!(
        motd.unwrap().mode,
        Some(384),
        "the merged config overrides the mode"
    );
    assert_eq!(rendered.ignition.systemd.units.len(), 1);
    let text = serde_json::to_string(&rendered.object.spec).unwrap();
    assert!(!text.contains("https://") && !text.contains("merge"), "{text}");
}

#[test]
fn a_replacement_replaces_everything() {
    let other =
        ignition(&json!({"storage": {"files": [{"path": "/etc/other", "contents": {"source": "data:,b"}}]}}));
    let text = other.to_string();
    let mut config = file("https://files.example/never-fetched", &json!({}));
    config["ignition"]["config"] = json!({"replace": {"source": "https://files.example/r.ign", "verification": {"hash": key(&text, "").hash}}});
    let source = SourceConfig::with_contents(machine_config("50-motd", &config), &contents(&[(&text, "")]));
    let rendered = render(vec![source]).unwrap().rendered;
    let same = render(vec![SourceConfig::new(machine_config("50-motd", &other))]).unwrap();
    assert_eq!(rendered.name(), same.rendered.name());
}

#[test]
fn configs_that_refer_to_themselves_or_are_no_configs_are_refused() {
    // A config cannot contain its own hash; data URLs and equal hashes in many places still could be deep or many.
    let mut nested = ignition(&json!({}));
    for _ in 0..12 {
        let text = nested.to_string();
        nested = json!({"ignition": {"version": "3.5.0", "config": {"merge": [
            {"source": mco_ignition_data_url(&text)}]}}});
    }
    let text = nested.to_string();
    let config = |hash: String| {
        json!({"ignition": {"version": "3.5.0", "config": {"merge": [
        {"source": "https://files.example/1.ign", "verification": {"hash": hash}}]}}})
    };
    let deep = SourceConfig::with_contents(
        machine_config("50-deep", &config(key(&text, "").hash)),
        &contents(&[(&text, "")]),
    );
    let message = deep.parsed.unwrap_err().to_string();
    assert!(message.contains("levels deep"), "{message}");
    for (body, expected) in [
        ("not json", "cannot be read"),
        ("{\"ignition\":{\"version\":\"9.9.9\"}}", "is not valid"),
    ] {
        let source = SourceConfig::with_contents(
            machine_config("50-bad", &config(key(body, "").hash)),
            &contents(&[(body, "")]),
        );
        assert!(!source.is_pending);
        let message = source.parsed.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

fn mco_ignition_data_url(text: &str) -> String {
    mco_ignition::resource::encode(text.as_bytes())
}

#[test]
fn config_sections_without_a_hash_are_passed_on_as_before() {
    let mut config = file("data:,a", &json!({}));
    config["ignition"]["config"] = json!({"merge": [{"source": "https://files.example/first-boot.ign"}]});
    let source = SourceConfig::new(machine_config("50-pointer", &config));
    assert!(source.remote.is_empty());
    let rendered = render(vec![source]).unwrap().rendered;
    assert_eq!(rendered.config.ignition.ignition.config.merge.len(), 1);
}

#[test]
fn stored_contents_are_read_back_only_if_they_have_their_hash() {
    let key = key("hello", "gzip");
    let stored = remote_store::stored(&key, &gzip("hello"));
    assert_eq!(remote_store::read(&stored).unwrap().0, key);
    let mut edited = stored.clone();
    for value in edited.binary_data.as_mut().unwrap().values_mut() {
        value.0 = gzip("other");
    }
    assert!(remote_store::read(&edited).is_none());

    // A directory of manifests has them as ConfigMaps.
    let mut extra = verified("hello");
    extra["compression"] = json!("gzip");
    let config = machine_config("50-motd", &file(URL, &extra));
    let documents = |with: bool| {
        let mut stored = serde_json::to_value(&stored).unwrap();
        stored["apiVersion"] = json!("v1");
        stored["kind"] = json!("ConfigMap");
        let mut text = serde_json::to_string(&config).unwrap();
        if with {
            text = format!("{text}\n---\n{stored}");
        }
        let manifests = manifest::read("cluster.yaml", text.as_bytes()).unwrap();
        let cluster = bootstrap::assemble(manifests, &BootstrapSettings::default()).unwrap();
        let mut outcomes = cluster.render(RenderIdentity {
            controller_version: "v",
            release_version: "",
        });
        outcomes.remove(0).result
    };
    assert!(matches!(documents(false), Err(RenderFailure::Fetching(_))));
    let rendered = documents(true).unwrap().rendered;
    assert_eq!(rendered.config.text_of("/etc/motd").as_deref(), Some("hello"));
}
