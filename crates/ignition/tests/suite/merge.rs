//! Merging a child into a parent.

use std::collections::BTreeSet;

use mco_ignition::{
    Config, KernelArgumentList, MergeChange, MergeEvent, MergeObserver, MergedItem, merge, parse_unvalidated,
};
use serde_json::{Value, json};

/// A config from its sections.
fn config(mut sections: Value) -> Config {
    sections["ignition"]["version"] = json!("3.5.0");
    parse_unvalidated(&sections).unwrap().config
}

fn check(name: &str, parent: Value, child: Value, expected: Value) {
    let merged = merge(config(parent), config(child), &mut ());
    assert_eq!(
        serde_json::to_value(&merged).unwrap(),
        serde_json::to_value(config(expected)).unwrap(),
        "{name}"
    );
}

fn files(files: Value) -> Value {
    json!({"storage": {"files": files}})
}

#[test]
fn lists_with_keys() {
    check(
        "a file of both keeps the parent's place, new ones follow in the child's order",
        files(json!([{"path": "/a", "mode": 1}, {"path": "/b"}])),
        files(json!([{"path": "/d"}, {"path": "/a", "mode": 2}, {"path": "/c"}])),
        files(json!([{"path": "/a", "mode": 2}, {"path": "/b"}, {"path": "/d"}, {"path": "/c"}])),
    );
    check(
        "a child that states only the mode inherits the contents",
        files(
            json!([{"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}, "overwrite": true}]),
        ),
        files(json!([{"path": "/a", "mode": 420}])),
        files(
            json!([{"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}, "overwrite": true, "mode": 420}]),
        ),
    );
    check(
        "the parts of contents are inherited one by one",
        files(json!([{"path": "/a", "contents": {"source": "data:,x", "verification": {"hash": "h"}}}])),
        files(json!([{"path": "/a", "contents": {"source": "data:,y"}}])),
        files(json!([{"path": "/a", "contents": {"source": "data:,y", "verification": {"hash": "h"}}}])),
    );
    check(
        "false and the empty string override",
        json!({"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "x"}]}}),
        json!({"systemd": {"units": [{"name": "a.service", "enabled": false, "contents": ""}]}}),
        json!({"systemd": {"units": [{"name": "a.service", "enabled": false, "contents": ""}]}}),
    );
    check(
        "a child that brings only drop-ins keeps the unit",
        json!({"systemd": {"units": [{"name": "a.service", "enabled": true, "dropins": [{"name": "1.conf", "contents": "x"}]}]}}),
        json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "2.conf"}, {"name": "1.conf", "contents": "y"}]}]}}),
        json!({"systemd": {"units": [{"name": "a.service", "enabled": true, "dropins": [{"name": "1.conf", "contents": "y"}, {"name": "2.conf"}]}]}}),
    );
    check(
        "partitions are known by number, then by label",
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "label": "a"}, {"label": "b", "sizeMiB": 1}]}]}}),
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"label": "b", "sizeMiB": 2}, {"number": 1, "label": "c"}, {"label": "a"}]}]}}),
        json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "label": "c"}, {"label": "b", "sizeMiB": 2}, {"label": "a"}]}]}}),
    );
    check(
        "further configs are known by their source",
        json!({"ignition": {"config": {"merge": [{"source": "http://a"}]}}}),
        json!({"ignition": {"config": {"merge": [{"source": "http://b"}, {"source": "http://a", "compression": "gzip"}]}}}),
        json!({"ignition": {"config": {"merge": [{"source": "http://a", "compression": "gzip"}, {"source": "http://b"}]}}}),
    );
}

#[test]
fn lists_without_keys() {
    check(
        "keys, groups and devices are sets in the order of appearance",
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["5678"], "groups": ["a", "b"]}]}}),
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["1234", "5678"], "groups": ["c", "a"], "passwordHash": "h"}]}}),
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["5678", "1234"], "groups": ["a", "b", "c"], "passwordHash": "h"}]}}),
    );
    check(
        "fragments and options are appended, repeats and all",
        json!({"storage": {
            "files": [{"path": "/a", "append": [{"source": "data:,x"}]}],
            "filesystems": [{"device": "/dev/a", "options": ["a"], "mountOptions": ["b"]}],
            "raid": [{"name": "r", "options": ["c"], "devices": ["/dev/a"]}],
            "luks": [{"name": "l", "options": ["d"], "openOptions": ["e"]}],
        }}),
        json!({"storage": {
            "files": [{"path": "/a", "append": [{"source": "data:,x"}]}],
            "filesystems": [{"device": "/dev/a", "options": ["a"], "mountOptions": ["b"]}],
            "raid": [{"name": "r", "options": ["c"], "devices": ["/dev/a"]}],
            "luks": [{"name": "l", "options": ["d"], "openOptions": ["e"]}],
        }}),
        json!({"storage": {
            "files": [{"path": "/a", "append": [{"source": "data:,x"}, {"source": "data:,x"}]}],
            "filesystems": [{"device": "/dev/a", "options": ["a", "a"], "mountOptions": ["b", "b"]}],
            "raid": [{"name": "r", "options": ["c", "c"], "devices": ["/dev/a"]}],
            "luks": [{"name": "l", "options": ["d", "d"], "openOptions": ["e"]}],
        }}),
    );
    let headers = |headers: Value| files(json!([{"path": "/a", "contents": {"httpHeaders": headers}}]));
    check(
        "a header without a value removes the parent's, and stays when there was none",
        headers(
            json!([{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c", "value": "3"}]),
        ),
        headers(json!([{"name": "b"}, {"name": "d"}, {"name": "c", "value": "4"}])),
        headers(json!([{"name": "a", "value": "1"}, {"name": "c", "value": "4"}, {"name": "d"}])),
    );
}

#[test]
fn lists_that_share_their_keys() {
    check(
        "a path of another kind replaces the parent's node",
        json!({"storage": {
            "files": [{"path": "/a"}, {"path": "/b"}], "directories": [{"path": "/c"}], "links": [{"path": "/d", "target": "t"}],
        }}),
        json!({"storage": {
            "links": [{"path": "/a", "target": "t"}], "files": [{"path": "/c"}], "directories": [{"path": "/d"}],
        }}),
        json!({"storage": {
            "files": [{"path": "/b"}, {"path": "/c"}], "directories": [{"path": "/d"}], "links": [{"path": "/a", "target": "t"}],
        }}),
    );
    check(
        "a kernel argument changes sides",
        json!({"kernelArguments": {"shouldExist": ["a", "b"], "shouldNotExist": ["c"]}}),
        json!({"kernelArguments": {"shouldExist": ["c"], "shouldNotExist": ["a"]}}),
        json!({"kernelArguments": {"shouldExist": ["b", "c"], "shouldNotExist": ["a"]}}),
    );
}

#[test]
fn repeated_keys_in_configs_that_were_not_validated() {
    check(
        "every repeat of the parent is overridden, the last repeat of the child counts",
        files(json!([{"path": "/a", "mode": 1}, {"path": "/a", "mode": 2}])),
        files(json!([{"path": "/a", "mode": 3}, {"path": "/b"}, {"path": "/a", "mode": 4}, {"path": "/b"}])),
        files(json!([{"path": "/a", "mode": 4}, {"path": "/a", "mode": 4}, {"path": "/b"}, {"path": "/b"}])),
    );
}

/// Records the merge events.
#[derive(Default)]
struct Log(Vec<(MergedItem, String, MergeChange)>);

impl MergeObserver for Log {
    fn event(&mut self, event: MergeEvent<'_>) {
        self.0
            .push((event.item.clone(), event.field.to_owned(), event.change));
    }
}

impl Log {
    fn of(parent: Value, child: Value) -> BTreeSet<String> {
        let mut log = Self::default();
        let _ = merge(config(parent), config(child), &mut log);
        log.0
            .iter()
            .map(|(item, field, change)| format!("{item:?} {field} {change:?}"))
            .collect()
    }
}

#[test]
fn the_observer_hears_what_the_child_did_to_each_item_and_field() {
    let heard = Log::of(
        json!({
            "storage": {"files": [{"path": "/a", "mode": 1, "overwrite": true, "contents": {"source": "data:,x"}}], "directories": [{"path": "/d"}]},
            "systemd": {"units": [{"name": "a.service", "enabled": true}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]},
            "kernelArguments": {"shouldExist": ["quiet"]},
        }),
        json!({
            "ignition": {"timeouts": {"httpTotal": 5}, "config": {"merge": [{"source": "http://x"}]}},
            "storage": {"files": [{"path": "/a", "mode": 2, "overwrite": true}, {"path": "/d", "user": {"id": 0}}]},
            "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": "y"}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k", "l"]}]},
            "kernelArguments": {"shouldNotExist": ["quiet"]},
        }),
    );
    let expected = [
        r#"Directory("/d")  Removed"#,
        r#"File("/a") mode Overrode"#,
        r#"File("/a") overwrite Repeated"#,
        r#"File("/d")  Added"#,
        r#"File("/d") user.id Added"#,
        r#"Dropin { unit: "a.service", name: "x.conf" }  Added"#,
        r#"Dropin { unit: "a.service", name: "x.conf" } contents Added"#,
        r#"SshKey { user: "core", key: "k" }  Repeated"#,
        r#"SshKey { user: "core", key: "l" }  Added"#,
        r#"KernelArgument { list: ShouldExist, argument: "quiet" }  Removed"#,
        r#"KernelArgument { list: ShouldNotExist, argument: "quiet" }  Added"#,
        r#"Section("ignition") timeouts.httpTotal Added"#,
        r#"Section("ignition") config.merge[http://x] Added"#,
        r#"Section("ignition") config.merge[http://x].source Added"#,
    ];
    assert_eq!(heard, expected.iter().map(ToString::to_string).collect());
}

#[test]
fn folding_from_an_empty_config_reports_everything_the_first_one_brings() {
    let heard = Log::of(
        json!({}),
        json!({
            "storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 5}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"], "groups": ["g"]}], "groups": [{"name": "g", "gid": 5}]},
            "kernelArguments": {"shouldExist": ["a"]},
        }),
    );
    let expected = [
        r#"Disk("/dev/a")  Added"#,
        r#"Disk("/dev/a") partitions[number:1] Added"#,
        r#"Disk("/dev/a") partitions[number:1].sizeMiB Added"#,
        r#"User("core")  Added"#,
        r#"User("core") groups[g] Added"#,
        r#"SshKey { user: "core", key: "k" }  Added"#,
        r#"Group("g")  Added"#,
        r#"Group("g") gid Added"#,
        r#"KernelArgument { list: ShouldExist, argument: "a" }  Added"#,
    ];
    assert_eq!(heard, expected.iter().map(ToString::to_string).collect());
    let item = MergedItem::KernelArgument {
        list: KernelArgumentList::ShouldExist,
        argument: "a".to_owned(),
    };
    assert!(heard.iter().any(|line| line.starts_with(&format!("{item:?}"))));
}

#[test]
fn merging_two_long_lists_takes_one_pass_over_each() {
    // Comparing all pairs of these would take minutes.
    let list = |mode: i64| {
        let list: Vec<Value> = (0..20_000)
            .map(|index| json!({"path": format!("/{index}"), "mode": mode}))
            .collect();
        config(files(json!(list)))
    };
    let (parent, child) = (list(1), list(2));
    let started = std::time::Instant::now();
    let merged = merge(parent, child.clone(), &mut ());
    assert_eq!(merged, child);
    assert!(
        started.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}
