use mco_api::MachineConfigPool;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const IDENTITY: RenderIdentity<'static> = RenderIdentity {
    controller_version: "test",
    release_version: "",
};
const FORMER_TIME: &str = "2026-01-01T00:10:00Z";

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}})
}

/// A user's MachineConfig; `minute` is its creation time, with the former config at ten.
fn config(name: &str, minute: u32, spec: &Value) -> MachineConfig {
    object(json!({
        "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
            "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec,
    }))
}

fn files(name: &str, minute: u32, files: &[Value]) -> MachineConfig {
    let spec = json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}});
    config(name, minute, &spec)
}

fn generated(name: &str, entries: &[Value]) -> MachineConfig {
    let mut config = files(name, 1, entries);
    let key = "machineconfiguration.openshift.io/generated-by-controller-version".to_owned();
    config.metadata.annotations = Some([(key, "v".to_owned())].into());
    config
}

fn cluster(configs: &[MachineConfig]) -> BootstrapCluster {
    let pool: MachineConfigPool = object(json!({"metadata": {"name": "worker"}, "spec": {
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}}}));
    let mut cluster = BootstrapCluster::default();
    cluster.inventory.pools = vec![pool];
    cluster.inventory.configs = configs.to_vec();
    cluster
}

fn rendered(configs: &[MachineConfig]) -> ParsedConfig {
    render(&cluster(configs), "worker", IDENTITY).unwrap().config
}

fn undone(before: &[MachineConfig], after: &[MachineConfig]) -> Result<Undo, UndoError> {
    let former = rendered(before);
    let former = Former {
        config: &former,
        created: Some(FORMER_TIME.parse().unwrap()),
        missing_source: "99-worker-undo",
    };
    undo(&cluster(after), "worker", former, IDENTITY)
}

fn described(undo: &Undo) -> Vec<String> {
    let describe = |edit: &SourceEdit| match edit {
        SourceEdit::Delete(_) => format!("delete {}", edit.name()),
        SourceEdit::Replace(_) => format!("replace {}", edit.name()),
        SourceEdit::Create(_) => format!("create {}", edit.name()),
    };
    undo.edits.iter().map(describe).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn former_configs_come_back_with_the_fewest_changes() {
    let base = generated("00-worker", &[file("/etc/base", "base")]);
    let ntp = files("50-ntp", 2, &[file("/etc/ntp", "one"), file("/etc/ntp2", "x")]);
    let kernel = config("60-kernel", 2, &json!({"kernelArguments": ["a", "b"]}));
    let before = [base.clone(), ntp.clone(), kernel.clone()];
    let cases: [(&str, Vec<MachineConfig>, &[&str]); 9] = [
        (
            "one was added",
            vec![
                base.clone(),
                ntp.clone(),
                kernel.clone(),
                files("70-new", 20, &[file("/etc/new", "x")]),
            ],
            &["delete 70-new"],
        ),
        (
            "one was added that overrides another",
            vec![
                base.clone(),
                ntp.clone(),
                kernel.clone(),
                files("70-new", 20, &[file("/etc/ntp", "x")]),
            ],
            &["delete 70-new"],
        ),
        (
            "a file was changed",
            vec![
                base.clone(),
                files("50-ntp", 2, &[file("/etc/ntp", "two"), file("/etc/ntp2", "x")]),
                kernel.clone(),
            ],
            &["replace 50-ntp"],
        ),
        (
            "a file was renamed",
            vec![
                base.clone(),
                files("50-ntp", 2, &[file("/etc/other", "one"), file("/etc/ntp2", "x")]),
                kernel.clone(),
            ],
            &["replace 50-ntp"],
        ),
        (
            "a file was taken out",
            vec![
                base.clone(),
                files("50-ntp", 2, &[file("/etc/ntp", "one")]),
                kernel.clone(),
            ],
            &["create 99-worker-undo"],
        ),
        (
            "a whole MachineConfig was deleted",
            vec![base.clone(), kernel.clone()],
            &["create 99-worker-undo"],
        ),
        (
            "kernel arguments were added and removed",
            vec![
                base.clone(),
                ntp.clone(),
                config("60-kernel", 2, &json!({"kernelArguments": ["a", "c"]})),
            ],
            &["replace 60-kernel"],
        ),
        (
            "one was deleted and created again with something more beside it",
            vec![
                base.clone(),
                files("50-ntp", 30, &[file("/etc/ntp", "one"), file("/etc/ntp2", "x")]),
                kernel.clone(),
                files("70-new", 30, &[file("/etc/new", "x")]),
            ],
            &["delete 70-new"],
        ),
        (
            "a new one cannot even be rendered",
            vec![
                base.clone(),
                ntp.clone(),
                kernel.clone(),
                config("70-bad", 20, &json!({"kernelType": "turbo"})),
            ],
            &["delete 70-bad"],
        ),
    ];
    let former = rendered(&before);
    for (name, after, expected) in cases {
        let undo = undone(&before, &after).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(described(&undo), expected, "{name}");
        assert_eq!(undo.result, former.name(), "{name}");
    }
}

#[test]
fn what_cannot_be_brought_back_is_refused_with_its_reason() {
    let base = generated("00-worker", &[file("/etc/base", "base")]);
    let ntp = files("50-ntp", 2, &[file("/etc/ntp", "one")]);
    let before = [base.clone(), ntp.clone()];
    let other_base = generated("00-worker", &[file("/etc/base", "other")]);
    let generated_change = undone(&before, &[other_base, ntp.clone()]).unwrap_err();
    assert_eq!(
        generated_change,
        UndoError::Generated {
            what: "file /etc/base".to_owned(),
            source_name: "00-worker".to_owned()
        }
    );
    assert!(matches!(
        undone(&before, &before).unwrap_err(),
        UndoError::NothingToUndo { .. }
    ));
    let fips = config("60-fips", 2, &json!({"fips": true}));
    let refused = undone(&before, &[base, ntp, fips]).unwrap_err();
    assert!(matches!(&refused, UndoError::NotTheSame { .. }), "{refused}");
    let former = rendered(&before);
    let former = Former {
        config: &former,
        created: None,
        missing_source: "x",
    };
    assert_eq!(
        undo(&cluster(&before), "infra", former, IDENTITY).unwrap_err(),
        UndoError::NoSuchPool("infra".to_owned())
    );
}

/// A few MachineConfigs with a few files each.
fn some_configs() -> impl Strategy<Value = Vec<MachineConfig>> {
    let one = proptest::collection::btree_map(0..6u8, 0..3u8, 0..4).prop_map(|entries| {
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(path, text)| file(&format!("/etc/{path}"), &text.to_string()))
            .collect();
        entries
    });
    proptest::collection::btree_map(0..5u8, (one, 0..40u32), 0..4).prop_map(|configs| {
        let users = configs
            .into_iter()
            .map(|(number, (entries, minute))| files(&format!("5{number}-user"), minute % 60, &entries));
        [generated("00-worker", &[file("/etc/base", "base")])]
            .into_iter()
            .chain(users)
            .collect()
    })
}

proptest! {
    /// For any change: either the nodes get exactly what they had, or nothing is proposed.
    #[test]
    fn an_undo_gives_machines_what_they_had(before in some_configs(), after in some_configs()) {
        let former = rendered(&before);
        match undone(&before, &after) {
            Ok(undo) => {
                let result = render(&edited(&cluster(&after), &undo.edits), "worker", IDENTITY).unwrap();
                let changes = comparison::compare(&former, &result.config, &AdministratorRules::default()).changes;
                prop_assert!(changes.is_empty(), "{changes:?}");
            }
            Err(UndoError::NothingToUndo { .. }) => prop_assert_eq!(rendered(&after).name().to_owned(), former.name().to_owned()),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
