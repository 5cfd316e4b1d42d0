//! Translation of spec 2 into the model.

use mco_ignition::{ParseError, SpecVersion, parse};
use serde_json::{Value, json};

use crate::sorted;

fn config(version: &str, mut sections: Value) -> Value {
    sections["ignition"]["version"] = json!(version);
    sections
}

/// Checks the translation of a config of spec 2.
fn becomes(version: &str, sections: Value, expected: Value) {
    let parsed =
        parse(&config(version, sections.clone())).unwrap_or_else(|error| panic!("{sections}: {error}"));
    assert_eq!(parsed.version.as_str(), version);
    assert_eq!(
        serde_json::to_value(parsed.config).unwrap(),
        config("3.5.0", expected),
        "{version} {sections}"
    );
}

/// Checks the errors of an invalid config of spec 2.
fn refused(sections: Value, errors: &[&str]) {
    match parse(&config("2.2.0", sections.clone())) {
        Err(
            error @ ParseError::Invalid {
                version: Some(SpecVersion::V2_2),
                ..
            },
        ) => {
            assert_eq!(sorted(&error.findings()), errors, "{sections}");
            assert!(
                error
                    .to_string()
                    .starts_with("parsing Ignition spec v2 failed with error: config is not valid")
            );
        }
        other => panic!("{sections}: {other:?}"),
    }
}

fn files(files: Value) -> Value {
    json!({"storage": {"files": files}})
}

#[test]
fn files_default_to_overwriting_and_come_out_in_reverse_order() {
    becomes(
        "2.2.0",
        files(json!([
            {"filesystem": "root", "path": "/a", "contents": {"source": "data:,x"}, "mode": 420},
            {"filesystem": "root", "path": "/b//c/", "overwrite": false, "user": {"id": 0}, "group": {"name": "g"}},
        ])),
        files(json!([
            {"path": "/b/c", "overwrite": false, "contents": {"source": ""}, "user": {"id": 0}, "group": {"name": "g"}},
            {"path": "/a", "overwrite": true, "contents": {"source": "data:,x"}, "mode": 420},
        ])),
    );
    becomes(
        "2.2.0",
        files(
            json!([{"filesystem": "root", "path": "/a", "append": true, "contents": {"source": "data:,x", "compression": "gzip"}}]),
        ),
        files(
            json!([{"path": "/a", "overwrite": false, "append": [{"source": "data:,x", "compression": "gzip"}]}]),
        ),
    );
}

#[test]
fn older_minor_versions_have_their_own_defaults() {
    let file = || files(json!([{"filesystem": "root", "path": "/a", "contents": {"source": "data:,x"}}]));
    let contents = json!({"source": "data:,x"});
    becomes(
        "2.1.0",
        file(),
        files(json!([{"path": "/a", "overwrite": true, "contents": contents, "mode": 0}])),
    );
    becomes(
        "2.0.0",
        file(),
        files(
            json!([{"path": "/a", "overwrite": true, "contents": contents, "mode": 0, "user": {"id": 0}, "group": {"id": 0}}]),
        ),
    );
    let links = json!({"storage": {"links": [{"filesystem": "root", "path": "/l", "target": "t"}]}});
    becomes("2.0.0", links.clone(), json!({}));
    becomes(
        "2.1.0",
        links,
        json!({"storage": {"links": [{"path": "/l", "target": "t"}]}}),
    );
}

#[test]
fn of_duplicate_files_the_last_one_stays() {
    becomes(
        "2.2.0",
        files(json!([
            {"filesystem": "root", "path": "/a", "contents": {"source": "data:,1"}, "mode": 1},
            {"filesystem": "root", "path": "/b", "mode": 2},
            {"filesystem": "root", "path": "/a", "contents": {"source": "data:,2"}},
        ])),
        files(json!([
            {"path": "/a", "overwrite": true, "contents": {"source": "data:,2"}},
            {"path": "/b", "overwrite": true, "contents": {"source": ""}, "mode": 2},
        ])),
    );
}

#[test]
fn of_duplicate_units_the_last_one_stays_with_the_dropins_of_all() {
    becomes(
        "2.2.0",
        json!({"systemd": {"units": [
            {"name": "a.service", "contents": "[Unit]\nOld=1\n", "dropins": [{"name": "one.conf", "contents": "[X]\nold=1\n"}]},
            {"name": "b.service", "enable": true},
            {"name": "a.service", "dropins": [{"name": "one.conf", "contents": "[X]\nnew=1\n"}]},
            {"name": "a.service", "contents": "[Unit]\nNew=1\n", "dropins": [{"name": "two.conf"}], "enable": true, "enabled": false, "mask": false},
        ]}}),
        json!({"systemd": {"units": [
            {"name": "a.service", "contents": "[Unit]\nNew=1\n", "enabled": false, "dropins": [{"name": "two.conf"}, {"name": "one.conf", "contents": "[X]\nnew=1\n"}]},
            {"name": "b.service", "enabled": true},
        ]}}),
    );
}

#[test]
fn entries_of_the_core_user_become_one_with_all_keys() {
    becomes(
        "2.2.0",
        json!({"passwd": {"users": [
            {"name": "core", "sshAuthorizedKeys": ["5678", "5678", "abc"], "passwordHash": "old"},
            {"name": "core", "sshAuthorizedKeys": ["1234", "abc"], "groups": ["g"], "system": false, "uid": 0},
        ]}}),
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["1234", "abc", "5678"], "groups": ["g"], "uid": 0}]}}),
    );
    refused(
        json!({"passwd": {"users": [{"name": "core"}, {"name": "bob"}]}}),
        &["passwd.users[1].name: unexpected user with name: bob. Only core user is supported"],
    );
}

#[test]
fn the_rest_is_translated_field_by_field() {
    becomes(
        "2.2.0",
        json!({
            "ignition": {
                "config": {"append": [{"source": "http://a"}, {"source": "http://b"}], "replace": {"source": "http://c"}},
                "security": {"tls": {"certificateAuthorities": [{"source": "data:,ca"}]}},
                "timeouts": {"httpTotal": 0},
            },
            "passwd": {"groups": [{"name": "g", "gid": 0, "passwordHash": "", "system": true}]},
            "storage": {
                "directories": [{"filesystem": "root", "path": "/d/", "overwrite": true, "mode": 493}],
                "links": [{"filesystem": "root", "path": "/l", "hard": true}],
                "disks": [{"device": "/dev/a", "wipeTable": true}],
                "raid": [{"name": "r", "level": "raid1", "devices": ["/dev/a"], "spares": 0, "options": ["o"]}],
                "filesystems": [{"name": "root", "path": "/sysroot"}],
            },
            "networkd": {"units": []},
        }),
        json!({
            "ignition": {
                "config": {"merge": [{"source": "http://a"}, {"source": "http://b"}], "replace": {"source": "http://c"}},
                "security": {"tls": {"certificateAuthorities": [{"source": "data:,ca"}]}},
                "timeouts": {"httpTotal": 0},
            },
            "passwd": {"groups": [{"name": "g", "gid": 0, "system": true}]},
            "storage": {
                "directories": [{"path": "/d", "overwrite": true, "mode": 493}],
                "links": [{"path": "/l", "hard": true, "target": ""}],
                "disks": [{"device": "/dev/a", "wipeTable": true}],
                "raid": [{"name": "r", "level": "raid1", "devices": ["/dev/a"], "options": ["o"]}],
            },
        }),
    );
}

#[test]
fn what_cannot_be_translated_is_refused_where_it_stands() {
    refused(
        json!({"networkd": {"units": [{"name": "a.network"}]}}),
        &["networkd.units: config includes deprecated networkd section - use Files instead"],
    );
    refused(
        json!({"storage": {"filesystems": [{"name": "data", "mount": {"device": "/dev/a", "format": "ext4"}}]}}),
        &["storage.filesystems[0].name: Config defined filesystem \"data\" but no mapping was defined"],
    );
    refused(
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "size": 5}]}]}}),
        &["storage.disks[0].partitions[0]: partitions in sectors are deprecated"],
    );
    refused(
        json!({"passwd": {"users": [{"name": "core", "create": {}, "uid": 5, "shell": "s"}]}}),
        &[
            "passwd.users[0]: cannot use both the create object and the user-level shell field",
            "passwd.users[0]: cannot use both the create object and the user-level uid field",
        ],
    );
    for (filesystem, error) in [
        (json!({"name": "root"}), ": filesystem is missing mount or path"),
        (
            json!({"name": "root", "path": "/x", "mount": {}}),
            ": filesystem has both mount and path defined",
        ),
        (json!({"name": "root", "path": "x"}), ".path: path not absolute"),
        (
            json!({"name": "root", "mount": {"device": "/dev/a", "format": "zfs"}}),
            ".mount.format: invalid filesystem format",
        ),
    ] {
        refused(
            json!({"storage": {"filesystems": [filesystem]}}),
            &[&format!("storage.filesystems[0]{error}")],
        );
    }
}

#[test]
fn faults_are_reported_at_the_original_place_even_in_replaced_entries() {
    refused(
        files(json!([
            {"filesystem": "root", "path": "/a", "contents": {"source": "x"}},
            {"filesystem": "root", "path": "/a", "mode": 420},
            {"path": "b"},
            {"filesystem": "root", "path": "/c", "append": true, "overwrite": true, "contents": {"source": "ftp://x"}},
        ])),
        &[
            "storage.files[0].contents.source: invalid url scheme",
            "storage.files[2].filesystem: no filesystem specified",
            "storage.files[2].path: path not absolute",
            "storage.files[3].contents.source: invalid url scheme",
            "storage.files[3]: cannot set both append and overwrite to true",
        ],
    );
    refused(
        json!({"systemd": {"units": [{"name": "a.service", "contents": "[x"}, {"name": "a.service"}, {"name": "b"}]}}),
        &[
            "systemd.units[0].contents: invalid unit content: unable to find end of section",
            "systemd.units[2].name: invalid systemd unit extension",
        ],
    );
    refused(
        json!({"ignition": {"config": {"append": [{"source": "x"}]}}}),
        &["ignition.config.append[0].source: invalid url scheme"],
    );
    refused(
        files(json!([{"filesystem": "root", "path": 5}])),
        &["storage.files[0].path: expected a string, found a number"],
    );
}

#[test]
fn what_is_silently_lost_elsewhere_is_a_warning_here() {
    let sections = json!({
        "passwd": {"users": [{"name": "core", "create": {"uid": 5}}]},
        "storage": {
            "files": [{"filesystem": "data", "path": "/a", "mode": 420, "Contents": {}}],
            "filesystems": [{"name": "root", "mount": {"device": "/dev/a", "format": "ext4"}}],
        },
    });
    let parsed = parse(&config("2.2.0", sections)).unwrap();
    assert_eq!(
        sorted(&parsed.warnings),
        [
            "passwd.users[0].create: the create object is not carried over",
            "storage.files[0].Contents: unused key Contents",
            "storage.files[0].filesystem: \"/a\" references nonexistent filesystem \"data\"",
            "storage.filesystems[0]: filesystem definition is not carried over",
        ]
    );
}
