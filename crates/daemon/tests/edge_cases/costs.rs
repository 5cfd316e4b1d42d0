//! The cost of a change: which services are reloaded, whether the machine reboots, whether it is drained first.

use mco_core::config::disruption::{DisruptionPolicy, DisruptionRule, Drain, PostConfigAction};
use mco_core::config::reconcilable::Overrides;
use mco_daemon::apply::{self, ApplyRequest, Circumstances};
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::{Value, json};

use crate::support::{Node, config, config_with, file, files};

/// Returns the actions, and whether the node is drained.
fn cost(old: &NodeConfig, new: &NodeConfig, policy: &DisruptionPolicy) -> (Vec<String>, bool) {
    let node = Node::new();
    let request = ApplyRequest {
        old,
        new,
        policy,
        overrides: Overrides::default(),
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody: mco_daemon::custody::Custody::Installed,
    };
    let prepared = apply::prepare(&node.machine, &request).unwrap();
    let actions = prepared.cost.actions.iter().map(ToString::to_string).collect();
    (actions, matches!(prepared.cost.drain, Drain::Needed { .. }))
}

fn changed(paths: &[&str]) -> Vec<String> {
    let all = |text: &str| files(&paths.iter().map(|path| file(path, text)).collect::<Vec<_>>());
    cost(
        &config("a", &all("1")),
        &config("b", &all("2")),
        &DisruptionPolicy::default(),
    )
    .0
}

const POLICY: &str = "/etc/containers/policy.json";
const GPG: &str = "/etc/machine-config-daemon/no-reboot/containers-gpg.pub";
const PULL_SECRET: &str = "/var/lib/kubelet/config.json";
const REGISTRIES: &str = "/etc/containers/registries.conf";

#[test]
fn the_built_in_rules() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["/etc/anything"], &["reboot"]),
        (&[PULL_SECRET], &["nothing"]),
        (&[paths::KUBELET_CA], &["nothing"]),
        (&[POLICY], &["reload crio.service"]),
        (&[POLICY, PULL_SECRET], &["reload crio.service"]),
        (&[GPG, POLICY], &["reload crio.service"]),
        (
            &[paths::USER_CA],
            &["restart coreos-update-ca-trust.service", "restart crio.service"],
        ),
        (
            &[GPG, paths::USER_CA],
            &["restart coreos-update-ca-trust.service", "restart crio.service"],
        ),
        (&[POLICY, "/etc/anything"], &["reboot"]),
    ];
    for (changed_paths, actions) in cases {
        assert_eq!(changed(changed_paths), *actions, "{changed_paths:?}");
    }
}

#[test]
fn keys_cost_nothing_and_the_system_costs_a_boot() {
    let keys = |key: &str| json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [key]}]}});
    let default = DisruptionPolicy::default();
    assert_eq!(
        cost(&config("a", &keys("1")), &config("b", &keys("2")), &default),
        (vec!["nothing".to_owned()], false)
    );
    let policy = files(&[file(POLICY, "{}")]);
    for spec in [
        json!({"osImageURL": "registry.example/os@sha256:1"}),
        json!({"kernelArguments": ["nosmt"]}),
    ] {
        let (old, new) = (config("a", &json!({})), config_with("b", &policy, &spec));
        assert_eq!(
            cost(&old, &new, &default),
            (vec!["reboot".to_owned()], true),
            "{spec}"
        );
    }
}

#[test]
fn an_empty_change_costs_nothing() {
    let same = config("a", &files(&[file("/etc/a", "1")]));
    let mut renamed = same.clone();
    renamed.object_mut().metadata.name = Some("b".to_owned());
    assert_eq!(
        cost(&same, &renamed, &DisruptionPolicy::default()),
        (vec!["nothing".to_owned()], false)
    );
}

#[test]
fn the_closest_directory_with_a_policy_counts() {
    let rule = |path: &str, service: &str| {
        DisruptionRule::new(path, &[PostConfigAction::Restart(service.to_owned())])
    };
    let policy = DisruptionPolicy::default().with(
        vec![
            rule("/etc/mco/f1", "one.service"),
            rule("/etc/mco/f1/f2", "two.service"),
            rule("/etc/mco/f1/f2/f3", "three.service"),
        ],
        Vec::new(),
        None,
    );
    for (path, expected) in [
        ("/etc/mco/f1/f2/example", "restart two.service"),
        ("/etc/mco/f1/f2/f3/example", "restart three.service"),
        ("/etc/mco/f1/f2/f3", "restart three.service"),
        ("/etc/mco/f1/deep/down/example", "restart one.service"),
        ("/etc/mco/f1x/example", "reboot"),
        ("/f1/test", "reboot"),
        ("/etc/other", "reboot"),
    ] {
        let (old, new) = (config("a", &json!({})), config("b", &files(&[file(path, "1")])));
        assert_eq!(cost(&old, &new, &policy).0, [expected], "{path}");
    }
}

#[test]
fn a_node_is_emptied_for_a_boot_or_when_a_policy_says_so() {
    let with = |actions: &[PostConfigAction]| {
        let policy =
            DisruptionPolicy::default().with(vec![DisruptionRule::new("/etc/a", actions)], Vec::new(), None);
        let (old, new) = (
            config("a", &json!({})),
            config("b", &files(&[file("/etc/a", "1")])),
        );
        cost(&old, &new, &policy).1
    };
    assert!(!with(&[PostConfigAction::None]));
    assert!(!with(&[PostConfigAction::Reload("a.service".to_owned())]));
    assert!(with(&[
        PostConfigAction::Drain,
        PostConfigAction::Reload("a.service".to_owned())
    ]));
    assert!(with(&[PostConfigAction::Reboot]));
    assert!(with(&[PostConfigAction::None, PostConfigAction::Reboot]));
}

/// Returns whether a change of registries.conf drains the node; crio is reloaded in any case.
fn registries_drain(old: Option<&str>, new: Option<&str>) -> bool {
    let body = |text: Option<&str>| -> Value {
        let entries: Vec<Value> = text.iter().map(|text| file(REGISTRIES, text)).collect();
        files(&entries)
    };
    let (actions, drain) = cost(
        &config("a", &body(old)),
        &config("b", &body(new)),
        &DisruptionPolicy::default(),
    );
    assert_eq!(actions, ["reload crio.service"]);
    drain
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table reads better in one piece")]
fn registries_disturb_running_work_only_when_images_could_come_from_elsewhere() {
    const EMPTY: &str = "unqualified-search-registries = [\"a\"]\n";
    let registry = |extra: &str, mirrors: &str| {
        format!("{EMPTY}[[registry]]\nprefix = \"\"\nlocation = \"r\"\n{extra}{mirrors}")
    };
    let mirror = |location: &str, pull: &str| {
        let pull = if pull.is_empty() {
            String::new()
        } else {
            format!("pull-from-mirror = \"{pull}\"\n")
        };
        format!("[[registry.mirror]]\nlocation = \"{location}\"\n{pull}")
    };
    let digest_only = mirror("m", "digest-only");
    let by_digest = "mirror-by-digest-only = true\n";
    let cases: Vec<(&str, String, String, bool)> = vec![
        (
            "a registry with digest-only mirrors",
            EMPTY.to_owned(),
            registry("", &digest_only),
            false,
        ),
        (
            "a registry without mirrors",
            EMPTY.to_owned(),
            registry("", ""),
            true,
        ),
        (
            "the same by digest only",
            EMPTY.to_owned(),
            registry(by_digest, ""),
            false,
        ),
        (
            "a registry goes",
            registry("", &digest_only),
            EMPTY.to_owned(),
            true,
        ),
        (
            "a mirror goes",
            registry(by_digest, &mirror("m", "")),
            registry(by_digest, ""),
            true,
        ),
        (
            "a digest-only mirror comes",
            registry("", &digest_only),
            registry("", &(digest_only.clone() + &mirror("n", "digest-only"))),
            false,
        ),
        (
            "a plain mirror comes",
            registry("", &digest_only),
            registry("", &(digest_only.clone() + &mirror("n", ""))),
            true,
        ),
        (
            "a plain mirror comes where digests are the rule",
            registry(by_digest, ""),
            registry(by_digest, &mirror("n", "")),
            false,
        ),
        (
            "a search registry is appended",
            EMPTY.to_owned(),
            EMPTY.replace("[\"a\"]", "[\"a\", \"b\"]"),
            false,
        ),
        (
            "a search registry goes",
            EMPTY.replace("[\"a\"]", "[\"a\", \"b\"]"),
            EMPTY.to_owned(),
            true,
        ),
        (
            "search registries change places",
            EMPTY.replace("[\"a\"]", "[\"a\", \"b\"]"),
            EMPTY.replace("[\"a\"]", "[\"b\", \"a\"]"),
            true,
        ),
        (
            "another prefix",
            registry(by_digest, ""),
            registry(by_digest, "").replace("prefix = \"\"", "prefix = \"p\""),
            true,
        ),
        (
            "a registry is blocked",
            registry(by_digest, ""),
            registry(&format!("{by_digest}blocked = true\n"), ""),
            true,
        ),
    ];
    for (name, old, new, drain) in cases {
        assert_eq!(registries_drain(Some(&old), Some(&new)), drain, "{name}");
    }
    assert!(
        registries_drain(Some(&registry("", &digest_only)), None),
        "the file goes"
    );
}
