use mco_api::machine_configuration::NodeDisruptionPolicies;
use serde_json::{Value, json};

use super::*;
use crate::config::diff;
use crate::config::parsed_config::ParsedConfig;

fn cost_of(old: Value, new: Value, policy: &Policy) -> Cost {
    cost(
        &diff::diff(&ParsedConfig::of_spec(old), &ParsedConfig::of_spec(new)),
        policy,
        &RegistriesChange::Unsafe {
            because: "a registry is removed".to_owned(),
        },
    )
}

fn files(paths: &[&str]) -> Value {
    let files: Vec<Value> = paths
        .iter()
        .map(|path| json!({"path": path, "contents": {"source": "data:,x"}}))
        .collect();
    json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}})
}

fn units(names: &[&str]) -> Value {
    let units: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "enabled": true}))
        .collect();
    json!({"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": units}}})
}

fn restart(service: &str) -> Action {
    Action::Restart(service.to_owned())
}

#[test]
fn a_change_costs_what_its_policy_says() {
    let own = Policy::default().with(
        vec![
            Rule::new("/etc/app", &[restart("app.service")]),
            Rule::new("/etc/app/quiet", &[Action::None]),
            Rule::new("/etc/slow", &[Action::Drain, restart("slow.service")]),
            Rule::new("/etc/containers/policy.json", &[Action::None]),
            Rule::new("/", &[Action::None]),
        ],
        vec![Rule::new(
            "app.service",
            &[Action::DaemonReload, restart("app.service")],
        )],
        None,
    );
    let key = json!({"config": {"ignition": {"version": "3.5.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a"]}]}}});
    let cases: Vec<(&str, Value, Vec<Action>, Level)> = vec![
        ("nothing", json!({}), vec![Action::None], Level::None),
        (
            "a file without a rule",
            files(&["/etc/other"]),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "a file below a path",
            files(&["/etc/app/a/b"]),
            vec![restart("app.service")],
            Level::Restart,
        ),
        (
            "a path that only begins alike",
            files(&["/etc/application"]),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "the longest path wins",
            files(&["/etc/app/quiet/x"]),
            vec![Action::None],
            Level::None,
        ),
        (
            "the user's rule replaces the built-in one",
            files(&["/etc/containers/policy.json"]),
            vec![Action::None],
            Level::None,
        ),
        ("an SSH key", key, vec![Action::None], Level::None),
        (
            "a pull secret",
            files(&["/var/lib/kubelet/config.json"]),
            vec![Action::None],
            Level::None,
        ),
        (
            "a unit with a rule",
            units(&["app.service"]),
            vec![Action::DaemonReload, restart("app.service")],
            Level::Restart,
        ),
        (
            "a unit without",
            units(&["x.service"]),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "a kernel argument",
            json!({"kernelArguments": ["a"]}),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "realtime",
            json!({"kernelType": "realtime"}),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "the default kernel by name",
            json!({"kernelType": "default"}),
            vec![Action::None],
            Level::None,
        ),
        (
            "an image",
            json!({"osImageURL": "x"}),
            vec![Action::Reboot],
            Level::Reboot,
        ),
        (
            "an extensions image alone",
            json!({"baseOSExtensionsContainerImage": "x"}),
            vec![Action::None],
            Level::None,
        ),
        (
            "a drain by policy",
            files(&["/etc/slow"]),
            vec![Action::Drain, restart("slow.service")],
            Level::Drain,
        ),
        (
            "one restart for two files, and no reload beside it",
            files(&[
                "/etc/app/1",
                "/etc/app/2",
                "/etc/crio/policies/x",
                "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
            ]),
            vec![
                restart("app.service"),
                restart("coreos-update-ca-trust.service"),
                restart("crio.service"),
            ],
            Level::Restart,
        ),
        (
            "a dangerous registries change",
            files(&["/etc/containers/registries.conf"]),
            vec![Action::Special],
            Level::Drain,
        ),
    ];
    for (name, new, actions, level) in cases {
        let cost = cost_of(json!({}), new, &own);
        assert_eq!(cost.actions, actions, "{name}");
        assert_eq!(cost.level(), level, "{name}");
    }
}

#[test]
fn a_reboot_names_the_line_that_causes_it() {
    let cost = cost_of(
        json!({}),
        files(&["/etc/crio/policies/x", "/etc/other"]),
        &Policy::default(),
    );
    assert_eq!(cost.causes[0].change, "file /etc/other added");
    assert_eq!(cost.causes[0].rule, "no policy covers this file");
    assert_eq!(
        cost.drain,
        Drain::Needed {
            because: "the node reboots: file /etc/other added".to_owned()
        }
    );
}

#[test]
fn a_safe_registries_change_needs_no_drain() {
    let new = ParsedConfig::of_spec(files(&["/etc/containers/registries.conf"]));
    let diff = diff::diff(&ParsedConfig::of_spec(json!({})), &new);
    let cost = cost(&diff, &Policy::default(), &RegistriesChange::Safe);
    assert_eq!(cost.drain, Drain::NotNeeded);
    assert_eq!(cost.level(), Level::Reload);
}

#[test]
fn an_administrators_policy_is_read_from_the_cluster() {
    let policies = serde_json::from_value(json!({
        "files": [
            {"path": "/etc/app", "actions": [{"type": "DaemonReload"}, {"type": "Restart", "restart": {"serviceName": "app.service"}}]},
            {"path": "/etc/future", "actions": [{"type": "Teleport"}]},
        ],
        "units": [{"name": "app.service", "actions": [{"type": "Reload", "reload": {"serviceName": "app.service"}}]}],
        "sshkey": {"actions": [{"type": "Drain"}]},
    }))
    .unwrap();
    let policy = Policy::default().with_cluster_policies(&policies);
    assert_eq!(
        policy.for_file("/etc/app/x").unwrap().actions,
        [Action::DaemonReload, restart("app.service")]
    );
    assert_eq!(
        policy.for_file("/etc/future").unwrap().actions,
        [Action::Reboot],
        "unknown actions are met with a reboot"
    );
    assert_eq!(
        policy.for_unit("app.service").unwrap().actions,
        [Action::Reload("app.service".to_owned())]
    );
    assert_eq!(policy.ssh_key(), [Action::Drain]);
}

#[test]
fn the_published_rules_mean_what_the_rules_mean() {
    let own: NodeDisruptionPolicies = serde_json::from_value(json!({
        "files": [{"path": "/etc/chrony.conf", "actions": [{"type": "Drain"}, {"type": "DaemonReload"}]}],
        "units": [{"name": "a.service", "actions": [{"type": "Reload", "reload": {"serviceName": "a.service"}}]}],
        "sshkey": {"actions": [{"type": "Reboot"}]},
    }))
    .unwrap();
    let policy = Policy::default().with_cluster_policies(&own);
    let published = policy.to_cluster_policies();
    assert_eq!(Policy::default().with_cluster_policies(&published), policy);
    assert!(
        published.files.len() > own.files.len(),
        "the built-in ones are shown as well"
    );
}
