//! Conversion to older versions: what is kept, omitted and rejected.

use mco_ignition::SpecVersion::{self, V2_0, V2_2, V3_0, V3_1, V3_2, V3_3, V3_4, V3_5};
use mco_ignition::convert::{ConvertError, down};
use mco_ignition::{Config, parse, parse_unvalidated};
use serde_json::{Value, json};

use crate::valid;

fn config(mut sections: Value) -> Config {
    sections["ignition"]["version"] = json!("3.5.0");
    valid(&sections)
}

#[test]
fn an_empty_config_is_32_bytes_in_every_version() {
    for version in [V2_2, V3_0, V3_1, V3_2, V3_3, V3_4, V3_5] {
        let text = down(&Config::default(), version).unwrap().to_string();
        assert_eq!(text, format!(r#"{{"ignition":{{"version":"{version}"}}}}"#));
        assert_eq!(text.len(), 32);
    }
    assert_eq!(
        down(&Config::default(), V2_0),
        Err(ConvertError::UnsupportedTarget(V2_0))
    );
}

#[test]
fn what_every_version_of_spec_3_has_comes_back_unchanged() {
    let everyday = config(json!({
        "ignition": {
            "config": {"merge": [{"source": "https://x/config"}]},
            "security": {"tls": {"certificateAuthorities": [{"source": "data:,ca"}]}},
            "timeouts": {"httpTotal": 0},
        },
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}, {"name": "bob", "uid": 0}], "groups": [{"name": "g"}]},
        "storage": {
            "disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 5, "shouldExist": true}]}],
            "raid": [{"name": "r", "level": "raid1", "devices": ["/dev/a"]}],
            "filesystems": [{"device": "/dev/b", "format": "xfs", "path": "/var"}],
            "files": [{"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}, "mode": 420, "overwrite": true}],
            "directories": [{"path": "/d", "user": {"name": "core"}}],
            "links": [{"path": "/l", "target": "/a", "hard": false}],
        },
        "systemd": {"units": [{"name": "a.service", "enabled": false, "mask": true, "dropins": [{"name": "x.conf", "contents": "[X]\n"}]}]},
    }));
    for version in [V3_0, V3_1, V3_2, V3_3, V3_4, V3_5] {
        let value = down(&everyday, version).unwrap();
        assert_eq!(value["ignition"]["version"], version.as_str());
        let parsed = parse(&value).unwrap();
        assert_eq!((parsed.config, parsed.version), (everyday.clone(), version));
    }
}

/// A part of a config, the first version that supports it, and the path that is reported below that version.
fn newer_parts() -> Vec<(Value, SpecVersion, &'static str)> {
    let luks = |fields: Value| {
        let mut luks = json!({"name": "l", "device": "/dev/a"});
        luks.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"storage": {"luks": [luks]}})
    };
    let tang = json!([{"url": "http://t", "thumbprint": "t", "advertisement": "{}"}]);
    let partition = |field: Value| {
        let mut partition = json!({"number": 1});
        partition
            .as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [partition]}]}})
    };
    let contents = |contents: Value| json!({"storage": {"files": [{"path": "/a", "contents": contents}]}});
    let filesystem = |field: Value| {
        let mut filesystem = json!({"device": "/dev/a"});
        filesystem
            .as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        json!({"storage": {"filesystems": [filesystem]}})
    };
    let sha256 = format!("sha256-{}", "0".repeat(64));
    vec![
        (
            luks(json!({"cex": {"enabled": true}})),
            V3_5,
            "storage.luks[0].cex",
        ),
        (luks(json!({"discard": true})), V3_4, "storage.luks[0].discard"),
        (
            luks(json!({"openOptions": ["o"]})),
            V3_4,
            "storage.luks[0].openOptions",
        ),
        (
            luks(json!({"clevis": {"tang": tang}})),
            V3_4,
            "storage.luks[0].clevis.tang[0].advertisement",
        ),
        (
            luks(json!({"keyFile": {"source": "arn:aws:s3:::b/k"}})),
            V3_4,
            "storage.luks[0].keyFile.source",
        ),
        (
            contents(json!({"source": "arn:aws:s3:::b/k"})),
            V3_4,
            "storage.files[0].contents.source",
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "mode": 0o4755}]}}),
            V3_4,
            "storage.files[0].mode",
        ),
        (
            json!({"storage": {"directories": [{"path": "/a", "mode": 0o1777}]}}),
            V3_4,
            "storage.directories[0].mode",
        ),
        (
            json!({"kernelArguments": {"shouldExist": ["a"]}}),
            V3_3,
            "kernelArguments.shouldExist",
        ),
        (
            json!({"kernelArguments": {"shouldNotExist": ["a"]}}),
            V3_3,
            "kernelArguments.shouldNotExist",
        ),
        (
            filesystem(json!({"format": "none"})),
            V3_3,
            "storage.filesystems[0].format",
        ),
        (luks(json!({})), V3_2, "storage.luks[0]"),
        (
            json!({"passwd": {"users": [{"name": "a", "shouldExist": false}]}}),
            V3_2,
            "passwd.users[0].shouldExist",
        ),
        (
            json!({"passwd": {"groups": [{"name": "a", "shouldExist": false}]}}),
            V3_2,
            "passwd.groups[0].shouldExist",
        ),
        (
            partition(json!({"resize": true})),
            V3_2,
            "storage.disks[0].partitions[0].resize",
        ),
        (
            contents(json!({"source": "gs://b/k"})),
            V3_2,
            "storage.files[0].contents.source",
        ),
        (
            contents(json!({"source": "http://x", "httpHeaders": [{"name": "a"}]})),
            V3_1,
            "storage.files[0].contents.httpHeaders",
        ),
        (
            contents(json!({"source": "http://x", "verification": {"hash": sha256}})),
            V3_1,
            "storage.files[0].contents.verification.hash",
        ),
        (
            json!({"ignition": {"config": {"merge": [{"source": "http://x", "compression": "gzip"}]}}}),
            V3_1,
            "ignition.config.merge[0].compression",
        ),
        (
            json!({"ignition": {"proxy": {"noProxy": ["a"]}}}),
            V3_1,
            "ignition.proxy",
        ),
        (
            filesystem(json!({"format": "xfs", "mountOptions": ["a"]})),
            V3_1,
            "storage.filesystems[0].mountOptions",
        ),
        (
            partition(json!({"sizeMiB": 0})),
            V3_0,
            "storage.disks[0].partitions[0].sizeMiB",
        ),
        (
            partition(json!({"startMiB": 0})),
            V3_0,
            "storage.disks[0].partitions[0].startMiB",
        ),
        (
            partition(json!({"shouldExist": false})),
            V3_0,
            "storage.disks[0].partitions[0].shouldExist",
        ),
        (
            partition(json!({"wipePartitionEntry": true})),
            V3_0,
            "storage.disks[0].partitions[0].wipePartitionEntry",
        ),
        (filesystem(json!({})), V3_0, "storage.filesystems[0].format"),
    ]
}

#[test]
fn what_an_older_version_lacks_is_refused_with_its_place_and_a_way_out() {
    for (part, since, place) in newer_parts() {
        let config = config(part.clone());
        for version in [V2_2, V3_0, V3_1, V3_2, V3_3, V3_4, V3_5] {
            match down(&config, version) {
                Ok(value) => {
                    assert!(version >= since, "{part} must not become {version}: {value}");
                    assert_eq!(parse(&value).unwrap().config, config, "{part} as {version}");
                }
                Err(ConvertError::Inexpressible { to, findings }) => {
                    assert!(version < since, "{part} can be {version}: {findings:?}");
                    assert_eq!(to, version);
                    // Below 3.2 the whole device is rejected, not its fields.
                    let expected = if place.starts_with("storage.luks[0].") && version < V3_2 {
                        "storage.luks[0]"
                    } else {
                        place
                    };
                    assert!(
                        findings.iter().any(|finding| finding.path == expected),
                        "{part}: {findings:?}"
                    );
                    assert!(
                        findings.iter().all(|finding| finding.hint.is_some()),
                        "{findings:?}"
                    );
                }
                Err(other) => panic!("{part} as {version}: {other}"),
            }
        }
    }
}

#[test]
fn all_that_is_in_the_way_is_said_at_once() {
    let config = config(json!({
        "kernelArguments": {"shouldExist": ["a"]},
        "passwd": {"users": [{"name": "a", "shouldExist": false}]},
        "storage": {"luks": [{"name": "l", "device": "/dev/a"}]},
    }));
    let error = down(&config, V3_1).unwrap_err();
    assert_eq!(error.findings().len(), 3);
    assert_eq!(
        error.to_string(),
        "cannot express this config in Ignition spec 3.1.0: \
         kernelArguments.shouldExist: kernel arguments are not supported in spec 3.1.0; \
         storage.luks[0]: LUKS is not supported in spec 3.1.0; \
         passwd.users[0].shouldExist: removing users is not supported in spec 3.1.0"
    );
}

#[test]
fn values_that_equal_the_default_are_left_out() {
    let config = config(json!({
        "ignition": {"config": {"replace": {"source": "http://x", "compression": ""}}},
        "passwd": {"users": [{"name": "a", "shouldExist": true}], "groups": [{"name": "g", "shouldExist": true}]},
        "storage": {
            "disks": [{"device": "/dev/a", "partitions": [{"number": 1, "resize": false}]}],
        },
    }));
    assert_eq!(
        down(&config, V3_0).unwrap(),
        json!({
            "ignition": {"version": "3.0.0", "config": {"replace": {"source": "http://x"}}},
            "passwd": {"users": [{"name": "a"}], "groups": [{"name": "g"}]},
            "storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1}]}]},
        })
    );
    let luks = |luks: Value| json!({"ignition": {"version": "3.5.0"}, "storage": {"luks": [luks]}});
    let device = luks(json!({
        "name": "l", "device": "/dev/a", "cex": {"enabled": false}, "discard": false,
        "clevis": {"tpm2": true, "custom": {"needsNetwork": false}, "tang": [{"url": "http://t", "thumbprint": "t", "advertisement": ""}]},
    }));
    let mut expected = luks(json!({
        "name": "l", "device": "/dev/a", "clevis": {"tpm2": true, "tang": [{"url": "http://t", "thumbprint": "t"}]},
    }));
    expected["ignition"]["version"] = json!("3.2.0");
    assert_eq!(down(&valid(&device), V3_2).unwrap(), expected);
}

#[test]
fn an_invalid_config_is_not_converted_to_anything() {
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "a"}]}});
    let config = parse_unvalidated(&config).unwrap().config;
    for version in [V2_2, V3_4, V3_5] {
        let error = down(&config, version).unwrap_err();
        assert!(matches!(error, ConvertError::Invalid(_)), "{error}");
        assert_eq!(error.findings()[0].path, "storage.files[0].path");
    }
}

#[test]
fn spec_2_names_filesystems_and_counts_paths_from_them() {
    let config = config(json!({"storage": {
        "filesystems": [
            {"device": "/dev/a", "format": "xfs", "path": "/var"},
            {"device": "/dev/b", "format": "ext4", "path": "/var/lib", "label": "l", "wipeFilesystem": true, "options": ["o"]},
            {"device": "/dev/c", "format": "swap"},
        ],
        "directories": [{"path": "/var"}, {"path": "/var/log"}, {"path": "/var/lib/x", "mode": 493}, {"path": "/variable"}],
        "links": [{"path": "/var/l", "target": "/t", "hard": true}],
    }}));
    assert_eq!(
        down(&config, V2_2).unwrap()["storage"],
        json!({
            "filesystems": [
                {"name": "/var", "mount": {"device": "/dev/a", "format": "xfs"}},
                {"name": "/var/lib", "mount": {"device": "/dev/b", "format": "ext4", "label": "l", "wipeFilesystem": true, "options": ["o"]}},
                {"name": "1", "mount": {"device": "/dev/c", "format": "swap"}},
            ],
            "directories": [
                {"filesystem": "/var", "path": "/"},
                {"filesystem": "/var", "path": "/log"},
                {"filesystem": "/var/lib", "path": "/x", "mode": 493},
                {"filesystem": "root", "path": "/variable"},
            ],
            "links": [{"filesystem": "/var", "path": "/l", "target": "/t", "hard": true}],
        })
    );
}

#[test]
fn spec_2_says_overwrite_and_append_in_its_own_way() {
    let config = config(json!({"storage": {"files": [
        {"path": "/a", "contents": {"source": "data:,x"}},
        {"path": "/b", "contents": {"source": "data:,x"}, "overwrite": true, "append": [{"source": "data:,y"}, {"source": "data:,z", "compression": "gzip"}], "user": {"id": 0}},
        {"path": "/c", "mode": 420},
    ]}}));
    assert_eq!(
        down(&config, V2_2).unwrap()["storage"]["files"],
        json!([
            {"filesystem": "root", "path": "/a", "overwrite": false, "contents": {"source": "data:,x"}},
            {"filesystem": "root", "path": "/b", "overwrite": true, "user": {"id": 0}, "contents": {"source": "data:,x"}},
            {"filesystem": "root", "path": "/b", "overwrite": false, "user": {"id": 0}, "append": true, "contents": {"source": "data:,y"}},
            {"filesystem": "root", "path": "/b", "overwrite": false, "user": {"id": 0}, "append": true, "contents": {"source": "data:,z", "compression": "gzip"}},
            {"filesystem": "root", "path": "/c", "overwrite": false, "append": true, "mode": 420},
        ])
    );
}
