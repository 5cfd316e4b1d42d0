//! ContainerRuntimeConfigs.

use serde_json::{Value, json};

use crate::fixture::{assemble, files, gates, runtime_config};

const RUNTIME: &str = "99-worker-generated-containerruntime";
#[test]
fn a_container_runtime_config_gives_one_file_per_setting() {
    let dropin = |line: &str| format!("[crio]\n  [crio.runtime]\n    {line}\n");
    let crio = |name: &str| format!("/etc/crio/crio.conf.d/01-ctrcfg-{name}");
    let cases: Vec<(&str, Value, Vec<(String, String)>)> = vec![
        ("nothing", json!({}), vec![]),
        (
            "a limit",
            json!({"pidsLimit": 2048}),
            vec![(crio("pidsLimit"), dropin("pids_limit = 2048"))],
        ),
        (
            "no limit",
            json!({"pidsLimit": 0}),
            vec![(crio("pidsLimit"), dropin("pids_limit = 0"))],
        ),
        (
            "a log size",
            json!({"logSizeMax": "10k"}),
            vec![(crio("logSizeMax"), dropin("log_size_max = 10000"))],
        ),
        (
            "unlimited logs",
            json!({"logSizeMax": "-1"}),
            vec![(crio("logSizeMax"), dropin("log_size_max = -1"))],
        ),
        (
            "zero sizes ask for nothing",
            json!({"logSizeMax": "0k", "overlaySize": "0k"}),
            vec![],
        ),
        (
            "all in a fixed order",
            json!({"defaultRuntime": "runc", "logLevel": "debug", "pidsLimit": 20}),
            vec![
                (crio("logLevel"), dropin("log_level = \"debug\"")),
                (crio("pidsLimit"), dropin("pids_limit = 20")),
                (crio("defaultRuntime"), dropin("default_runtime = \"runc\"")),
            ],
        ),
        (
            "stores without their gate",
            json!({"additionalImageStores": [{"path": "/x"}], "additionalArtifactStores": [{"path": "/y"}]}),
            vec![],
        ),
    ];
    for (name, spec, expected) in cases {
        let cluster = assemble(&[runtime_config(&spec)], None).unwrap();
        assert_eq!(files(&cluster, RUNTIME), expected, "{name}");
    }
    let cluster = assemble(&[runtime_config(&json!({"overlaySize": "10G"}))], None).unwrap();
    let storage = "[storage]\n  driver = \"overlay\"\n  runroot = \"/run/containers/storage\"\n  graphroot = \"/var/lib/containers/storage\"\n  \
        [storage.options]\n    size = \"10G\"\n    force_mask = 0\n    auto-userns-min-size = 0\n    auto-userns-max-size = 0\n    \
        [storage.options.overlay]\n      skip_mount_home = \"true\"\n    [storage.options.pull_options]\n      enable_partial_images = \"true\"\n";
    assert_eq!(
        files(&cluster, RUNTIME),
        [("/etc/containers/storage.conf".to_owned(), storage.to_owned())]
    );
    let stores = json!({
        "additionalLayerStores": [{"path": "/layers"}],
        "additionalImageStores": [{"path": "/images"}],
        "additionalArtifactStores": [{"path": "/artifacts"}],
    });
    let cluster = assemble(
        &[gates(&["AdditionalStorageConfig"]), runtime_config(&stores)],
        None,
    )
    .unwrap();
    let found = files(&cluster, RUNTIME);
    assert!(
        found[0].1.contains(
            "additionalimagestores = [\"/images\"]\n    additionallayerstores = [\"/layers:ref\"]\n"
        )
    );
    assert_eq!(
        found[1],
        (
            crio("additionalArtifactStores"),
            dropin("additional_artifact_stores = [\"/artifacts\"]")
        )
    );
}

#[test]
fn container_runtime_configs_are_refused_in_known_words() {
    let cases = [
        (json!({"pidsLimit": 10}), "invalid PidsLimit 10"),
        (json!({"pidsLimit": -10}), "invalid PidsLimit -10"),
        (
            json!({"logLevel": "loud"}),
            "invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, or trace",
        ),
        (
            json!({"logSizeMax": "3k"}),
            "invalid LogSizeMax \"3k\", cannot be less than 8kB",
        ),
        (
            json!({"logSizeMax": "8192"}),
            "invalid LogSizeMax \"8192\", cannot be less than 8kB",
        ),
        (
            json!({"overlaySize": "-1G"}),
            "invalid overlaySize \"-1G\", cannot be less than 0",
        ),
        (
            json!({"overlaySize": "big"}),
            "overlaySize: \"big\" is not a quantity",
        ),
        (
            json!({"defaultRuntime": "kata"}),
            "invalid DefaultRuntime \"kata\", must be one of crun, runc",
        ),
        (
            json!({"additionalLayerStores": [{"path": ""}]}),
            "invalid AdditionalLayerStores: path must not be empty",
        ),
        (
            json!({"additionalLayerStores": [{"path": "/x:ref"}]}),
            "invalid AdditionalLayerStores path \"/x:ref\": must be an absolute path",
        ),
        (
            json!({"additionalImageStores": [{"path": "/a//b"}]}),
            "must not contain consecutive forward slashes",
        ),
    ];
    for (spec, expected) in cases {
        let error = assemble(&[runtime_config(&spec)], None).unwrap_err();
        assert!(error.contains(expected), "{spec}: {error}");
        assert!(
            error.starts_with("ContainerRuntimeConfig \"runtime\": "),
            "{error}"
        );
    }
    let error = assemble(&[runtime_config(&json!({"pidsLimit": 1, "logLevel": "x"}))], None).unwrap_err();
    assert_eq!(error.lines().count(), 2, "all problems at once: {error}");
}
