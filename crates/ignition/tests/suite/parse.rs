//! Parsing JSON into the model: versions, keys, types, encodings.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use mco_ignition::parse::MAX_CONFIG_BYTES;
use mco_ignition::{ParseError, SpecVersion, merge, parse, parse_bytes, parse_unvalidated};
use serde_json::{Value, json};

use crate::sorted;

const INVALID_VERSION: &str =
    "parsing Ignition config failed: invalid version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5";
const UNKNOWN_VERSION: &str =
    "parsing Ignition config failed: unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5";

#[test]
fn an_empty_config_is_its_version_and_nothing_else() {
    let parsed = parse(&json!({"ignition": {"version": "3.5.0"}})).unwrap();
    assert_eq!(
        serde_json::to_string(&parsed.config).unwrap(),
        r#"{"ignition":{"version":"3.5.0"}}"#
    );
    assert_eq!(parsed.config, mco_ignition::Config::default());
    assert!(parsed.warnings.is_empty());
}

#[test]
fn every_known_version_is_read_and_reported_as_written() {
    for version in SpecVersion::ALL {
        let parsed = parse(&json!({"ignition": {"version": version.as_str()}})).unwrap();
        assert_eq!(parsed.version, version);
        assert_eq!(
            serde_json::to_value(&parsed.config).unwrap(),
            json!({"ignition": {"version": "3.5.0"}})
        );
    }
}

#[test]
fn an_invalid_version_is_distinguished_from_an_unsupported_one() {
    let invalid = [
        json!({}),
        json!(null),
        json!({"ignition": null}),
        json!({"ignition": {}}),
        json!({"ignition": {"version": null}}),
        json!({"ignition": {"version": ""}}),
        json!({"ignition": {"version": "3.5"}}),
        json!({"ignition": {"version": "three"}}),
        json!({"ignition": {"version": "3.5.0-a..b"}}),
    ];
    for config in &invalid {
        assert_eq!(
            parse(config).unwrap_err().to_string(),
            INVALID_VERSION,
            "{config}"
        );
    }
    for version in [
        "1.0.0",
        "2.2.1",
        "2.3.0",
        "2.4.0",
        "3.5.1",
        "3.6.0",
        "3.5.0-experimental",
        "3.5.0+x",
        "4.0.0",
        "21.0.0",
    ] {
        let config = json!({"ignition": {"version": version}});
        let error = parse(&config).unwrap_err();
        assert_eq!(error.to_string(), UNKNOWN_VERSION, "{version}");
        assert_eq!(error.findings()[0].path, "ignition.version");
    }
}

#[test]
fn what_is_no_config_at_all_is_reported_where_it_is() {
    let cases = [
        (json!([]), "", "expected an object"),
        (json!("x"), "", "expected an object"),
        (json!({"ignition": []}), "ignition", "expected an object"),
        (
            json!({"ignition": {"version": 3}}),
            "ignition.version",
            "expected a string",
        ),
    ];
    for (config, path, message) in cases {
        let error = parse(&config).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("parsing Ignition config spec v3 failed with error: config is not valid"),
            "{text}"
        );
        let finding = &error.findings()[0];
        assert_eq!((finding.path.as_str(), finding.message.as_str()), (path, message));
        assert!(finding.hint.is_some());
    }
}

#[test]
fn three_faults_are_three_findings_in_one_error() {
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "etc/a"}, {"path": "/b", "mode": 8000}]},
        "systemd": {"units": [{"name": "x"}]},
    });
    let error = parse(&config).unwrap_err();
    assert_eq!(
        sorted(&error.findings()),
        [
            "storage.files[0].path: path not absolute",
            "storage.files[1].mode: illegal file mode",
            "systemd.units[0].name: invalid systemd unit extension",
        ]
    );
    assert!(error.findings().iter().all(|finding| finding.hint.is_some()));
    assert_eq!(
        error.to_string(),
        "parsing Ignition config spec v3 failed with error: config is not valid\n\
         Report: error at $.storage.files[0].path: path not absolute\n\
         error at $.storage.files[1].mode: illegal file mode\n\
         error at $.systemd.units[0].name: invalid systemd unit extension"
    );
}

#[test]
fn wrong_types_are_all_reported_and_nothing_that_only_follows_from_them() {
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {
            "files": [
                {"path": 5, "overwrite": "yes", "contents": {"verification": {"hash": "x"}, "source": []}},
                {"path": "relative"},
            ],
            "disks": {},
            "directories": [{"path": "/d", "mode": 420.5}, {"path": "/e", "mode": "0644"}],
        },
    });
    assert_eq!(
        sorted(&parse(&config).unwrap_err().findings()),
        [
            "storage.directories[0].mode: expected an integer, found a number that is no integer",
            "storage.directories[1].mode: expected an integer, found a string",
            "storage.disks: expected a list, found an object",
            "storage.files[0].contents.source: expected a string, found a list",
            "storage.files[0].overwrite: expected true or false, found a string",
            "storage.files[0].path: expected a string, found a number",
            "storage.files[1].path: path not absolute",
        ]
    );
}

#[test]
fn null_means_absent_everywhere() {
    let config = json!({
        "ignition": {"version": "3.5.0", "timeouts": null},
        "storage": {"files": [{"path": "/a", "mode": null, "contents": null, "append": null}], "links": null},
        "systemd": null,
    });
    let parsed = parse(&config).unwrap();
    assert_eq!(
        serde_json::to_value(parsed.config).unwrap(),
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a"}]}})
    );
}

#[test]
fn keys_are_read_in_any_case_but_the_proper_one_wins() {
    let config = json!({
        "Ignition": {"VERSION": "3.5.0"},
        "storage": {"FILE\u{17f}": [{"Path": "/a", "mode": 420}], "links": [{"path": "/l", "PATH": "/x", "target": "t"}]},
    });
    let parsed = parse(&config).unwrap();
    assert_eq!(parsed.config.storage.files[0].path, "/a");
    assert_eq!(parsed.config.storage.links[0].path, "/l");
    assert_eq!(
        sorted(&parsed.warnings),
        [
            "Ignition: unused key Ignition",
            "ignition.VERSION: unused key VERSION",
            "storage.FILE\u{17f}: unused key FILE\u{17f}",
            "storage.files[0].Path: unused key Path",
            "storage.links[0].PATH: unused key PATH",
        ]
    );
}

#[test]
fn keys_of_newer_versions_are_warned_about_and_dropped() {
    let cases = [
        (
            "3.0.0",
            json!({"ignition": {"proxy": {"httpProxy": 5}}}),
            "ignition.proxy",
        ),
        (
            "3.0.0",
            json!({"storage": {"files": [{"path": "/a", "contents": {"httpHeaders": []}}]}}),
            "storage.files[0].contents.httpHeaders",
        ),
        (
            "3.0.0",
            json!({"storage": {"filesystems": [{"device": "/dev/a", "mountOptions": []}]}}),
            "storage.filesystems[0].mountOptions",
        ),
        (
            "3.0.0",
            json!({"ignition": {"config": {"merge": [{"compression": "gzip"}]}}}),
            "ignition.config.merge[0].compression",
        ),
        ("3.1.0", json!({"storage": {"luks": [{}]}}), "storage.luks"),
        (
            "3.1.0",
            json!({"passwd": {"users": [{"name": "a", "shouldExist": false}]}}),
            "passwd.users[0].shouldExist",
        ),
        (
            "3.1.0",
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "resize": true}]}]}}),
            "storage.disks[0].partitions[0].resize",
        ),
        (
            "3.2.0",
            json!({"kernelArguments": {"shouldExist": ["a"]}}),
            "kernelArguments",
        ),
        (
            "3.3.0",
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a", "discard": true}]}}),
            "storage.luks[0].discard",
        ),
        (
            "3.3.0",
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a", "openOptions": ["a"]}]}}),
            "storage.luks[0].openOptions",
        ),
        (
            "3.4.0",
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a", "cex": {"enabled": true}}]}}),
            "storage.luks[0].cex",
        ),
        ("3.5.0", json!({"storage": {"shares": []}}), "storage.shares"),
    ];
    for (version, mut config, path) in cases {
        config["ignition"]["version"] = json!(version);
        let parsed = parse(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
        let key = path.rsplit('.').next().unwrap();
        assert_eq!(
            sorted(&parsed.warnings),
            [format!("{path}: unused key {key}")],
            "{config}"
        );
        let rewritten = serde_json::to_value(&parsed.config).unwrap();
        assert!(
            !rewritten.to_string().contains(&format!("{key:?}")),
            "{rewritten}"
        );
    }
}

#[test]
fn what_older_versions_could_not_leave_out_reads_as_empty() {
    let old = json!({
        "ignition": {"version": "3.2.0"},
        "storage": {
            "links": [{"path": "/l"}],
            "luks": [
                {"name": "a", "device": "/dev/a", "clevis": {"custom": {"needsNetwork": true}}},
                {"name": "b", "device": "/dev/b", "clevis": {"tpm2": true}},
            ],
        },
    });
    let storage = parse(&old).unwrap().config.storage;
    assert_eq!(storage.links[0].target.as_deref(), Some(""));
    assert_eq!(storage.luks[0].clevis.custom.pin.as_deref(), Some(""));
    assert_eq!(storage.luks[1].clevis.custom.pin, None);
}

#[test]
fn a_config_that_is_in_use_can_be_read_without_being_judged() {
    let config =
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "overwrite": true}]}});
    assert!(parse(&config).is_err());
    assert_eq!(
        serde_json::to_value(parse_unvalidated(&config).unwrap().config).unwrap(),
        config
    );
    assert!(parse_unvalidated(&json!({"ignition": {"version": "3.5.0"}, "storage": 5})).is_err());
}

#[test]
fn bytes_may_be_json_or_gzip_or_base64_of_gzip() {
    let text = br#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a"}]}}"#;
    let plain = parse_bytes(text).unwrap();
    let compressed = gzip(text);
    assert_eq!(parse_bytes(&compressed).unwrap(), plain);
    let mut encoded = base64(&compressed);
    assert_eq!(parse_bytes(encoded.as_bytes()).unwrap(), plain);
    encoded.push('\n');
    assert_eq!(parse_bytes(encoded.as_bytes()).unwrap(), plain);
}

#[test]
fn bytes_that_are_none_of_these_are_refused_with_the_reason() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "not a config (empty)"),
        (b"#cloud-config", "not JSON"),
        (b"{\"ignition\":", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"\x1f\x8bnonsense", "gzip"),
        (b"{}", "invalid version"),
    ];
    for (bytes, expected) in cases {
        let error = parse_bytes(bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(
            error.findings().iter().all(|finding| finding.hint.is_some()),
            "{error}"
        );
    }
}

#[test]
fn nesting_without_end_and_bombs_are_refused_in_bounded_memory() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(
        parse_bytes(deep.as_bytes()),
        Err(ParseError::NotJson(_))
    ));
    // Several members form one stream.
    let bomb = gzip(&vec![b' '; MAX_CONFIG_BYTES / 64]).repeat(65);
    assert!(bomb.len() < 100_000);
    assert!(matches!(parse_bytes(&bomb), Err(ParseError::TooLarge { .. })));
    assert!(matches!(
        parse_bytes(&vec![b' '; MAX_CONFIG_BYTES + 1]),
        Err(ParseError::TooLarge { .. })
    ));
}

/// Each of these would take minutes or gigabytes if any part of the work were quadratic.
#[test]
fn hostile_configs_are_judged_in_linear_time() {
    const MANY: usize = 20_000;
    let list = |entry: &dyn Fn(usize) -> Value| Value::from((0..MANY).map(entry).collect::<Vec<_>>());
    let slashes = "/".repeat(MANY);
    let long_name = "x".repeat(MANY);
    let sections = [
        json!({"storage": {"files": list(&|_| json!({"path": 5, "mode": "x"})), "directories": list(&|_| json!({"path": ""}))}}),
        json!({"storage": {"links": list(&|_| json!({"path": "/l", "target": "t"})), "files": [{"path": slashes}]}}),
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": list(&|index| json!({"number": index, "startMiB": 2 * index, "sizeMiB": 1}))}]}}),
        json!({"systemd": {"units": [{"name": format!("{long_name}.service"), "dropins": list(&|index| json!({"name": format!("{index}.conf"), "contents": "[X]\n"}))}]},
            "storage": {"files": [{"path": format!("/etc/systemd/system/{}", ".d/".repeat(MANY))}]}}),
        json!({"systemd": {"units": list(&|index| json!({"name": if index == 0 { "t@.service".to_owned() } else { format!("t@{index}.service") }, "enabled": true, "contents": if index == 0 { Value::from("[Unit]\nA=b\n".repeat(MANY)) } else { Value::Null }}))}}),
        json!({"passwd": {"users": [{"name": "a", "sshAuthorizedKeys": list(&|_| json!("k"))}]}, "kernelArguments": {"shouldExist": list(&|index| json!(index.to_string()))}}),
    ];
    let spec_2 = [
        json!({"storage": {"files": list(&|_| json!({"path": "x"}))}}),
        json!({"systemd": {"units": list(&|index| json!({"name": "a.service", "dropins": [{"name": format!("{index}.conf")}]}))}}),
        json!({"passwd": {"users": list(&|index| json!({"name": "core", "sshAuthorizedKeys": [index.to_string()]}))}}),
    ];
    let documents = sections
        .map(|sections| ("3.5.0", sections))
        .into_iter()
        .chain(spec_2.map(|sections| ("2.2.0", sections)));
    for (version, mut document) in documents {
        document["ignition"] = json!({"version": version});
        let started = Instant::now();
        let outcome = parse(&document);
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{:?} for {:.200}",
            started.elapsed(),
            document.to_string()
        );
        if let Ok(parsed) = outcome {
            let _ = merge(parsed.config.clone(), parsed.config, &mut ());
        }
        assert!(
            started.elapsed() < Duration::from_secs(40),
            "{:?} for {:.200}",
            started.elapsed(),
            document.to_string()
        );
    }
}

#[test]
fn errors_do_not_repeat_contents() {
    let secret = "hunter2";
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [
            {"path": "/a", "contents": {"source": format!("data:;{secret},x")}},
            {"path": "/b", "contents": {"source": format!("data:,{secret} ")}},
        ]},
        "systemd": {"units": [{"name": "a.service", "contents": format!("[Unit] {secret}\n")}]},
        "passwd": {"users": [{"name": "core", "passwordHash": [secret], "sshAuthorizedKeys": [secret, secret]}]},
    });
    let error = parse(&config).unwrap_err();
    assert_eq!(error.findings().len(), 4);
    assert!(!error.to_string().contains(secret), "{error}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(DIGITS[bits >> (18 - 6 * place) & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[test]
fn a_value_and_its_text_are_read_alike() {
    let value: Value =
        json!({"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["quiet"]}});
    assert_eq!(
        parse(&value).unwrap(),
        parse_bytes(value.to_string().as_bytes()).unwrap()
    );
}
