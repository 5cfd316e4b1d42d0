use mco_api::machine_configuration::NodeDisruptionPolicies;
use serde_json::{Value, json};

use super::*;
use crate::config::diff;
use crate::config::parsed_config::ParsedConfig;

fn cost_of(old: Value, new: Value, policy: &DisruptionPolicy) -> Cost {
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

fn restart(service: &str) -> PostConfigAction {
    PostConfigAction::Restart(service.to_owned())
}

#[test]
fn a_change_costs_what_its_policy_says() {
    let own = DisruptionPolicy::default().with(
        vec![
            DisruptionRule::new("/etc/app", &[restart("app.service")]),
            DisruptionRule::new("/etc/app/quiet", &[PostConfigAction::None]),
            DisruptionRule::new("/etc/slow", &[PostConfigAction::Drain, restart("slow.service")]),
            DisruptionRule::new("/etc/containers/policy.json", &[PostConfigAction::None]),
            DisruptionRule::new("/", &[PostConfigAction::None]),
        ],
        vec![DisruptionRule::new(
            "app.service",
            &[PostConfigAction::DaemonReload, restart("app.service")],
        )],
        None,
    );
    let key = json!({"config": {"ignition": {"version": "3.5.0"}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a"]}]}}});
    let cases: Vec<(&str, Value, Vec<PostConfigAction>, DisruptionLevel)> = vec![
        (
            "nothing",
            json!({}),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "a file without a rule",
            files(&["/etc/other"]),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "a file below a path",
            files(&["/etc/app/a/b"]),
            vec![restart("app.service")],
            DisruptionLevel::Restart,
        ),
        (
            "a path that only begins alike",
            files(&["/etc/application"]),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "the longest path wins",
            files(&["/etc/app/quiet/x"]),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "the user's rule replaces the built-in one",
            files(&["/etc/containers/policy.json"]),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "an SSH key",
            key,
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "a pull secret",
            files(&["/var/lib/kubelet/config.json"]),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "a unit with a rule",
            units(&["app.service"]),
            vec![PostConfigAction::DaemonReload, restart("app.service")],
            DisruptionLevel::Restart,
        ),
        (
            "a unit without",
            units(&["x.service"]),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "a kernel argument",
            json!({"kernelArguments": ["a"]}),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "realtime",
            json!({"kernelType": "realtime"}),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "the default kernel by name",
            json!({"kernelType": "default"}),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "an image",
            json!({"osImageURL": "x"}),
            vec![PostConfigAction::Reboot],
            DisruptionLevel::Reboot,
        ),
        (
            "an extensions image alone",
            json!({"baseOSExtensionsContainerImage": "x"}),
            vec![PostConfigAction::None],
            DisruptionLevel::None,
        ),
        (
            "a drain by policy",
            files(&["/etc/slow"]),
            vec![PostConfigAction::Drain, restart("slow.service")],
            DisruptionLevel::Drain,
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
            DisruptionLevel::Restart,
        ),
        (
            "a dangerous registries change",
            files(&["/etc/containers/registries.conf"]),
            vec![PostConfigAction::Special],
            DisruptionLevel::Drain,
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
        &DisruptionPolicy::default(),
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
    let cost = cost(&diff, &DisruptionPolicy::default(), &RegistriesChange::Safe);
    assert_eq!(cost.drain, Drain::NotNeeded);
    assert_eq!(cost.level(), DisruptionLevel::Reload);
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
    let policy = DisruptionPolicy::default().with_cluster_policies(&policies);
    assert_eq!(
        policy.for_file("/etc/app/x").unwrap().actions,
        [PostConfigAction::DaemonReload, restart("app.service")]
    );
    assert_eq!(
        policy.for_file("/etc/future").unwrap().actions,
        [PostConfigAction::Reboot],
        "unknown actions are met with a reboot"
    );
    assert_eq!(
        policy.for_unit("app.service").unwrap().actions,
        [PostConfigAction::Reload("app.service".to_owned())]
    );
    assert_eq!(policy.ssh_key(), [PostConfigAction::Drain]);
}

#[test]
fn the_published_rules_mean_what_the_rules_mean() {
    let own: NodeDisruptionPolicies = serde_json::from_value(json!({
        "files": [{"path": "/etc/chrony.conf", "actions": [{"type": "Drain"}, {"type": "DaemonReload"}]}],
        "units": [{"name": "a.service", "actions": [{"type": "Reload", "reload": {"serviceName": "a.service"}}]}],
        "sshkey": {"actions": [{"type": "Reboot"}]},
    }))
    .unwrap();
    let policy = DisruptionPolicy::default().with_cluster_policies(&own);
    let published = policy.to_cluster_policies();
    assert_eq!(
        DisruptionPolicy::default().with_cluster_policies(&published),
        policy
    );
    assert!(
        published.files.len() > own.files.len(),
        "the built-in ones are shown as well"
    );
}
