//! Compares with recorded inputs and results of the reference.

use std::fs;

use mco_ignition::{Config, merge, parse};
use serde_json::Value;

/// Compares the Ignition part of every rendered case, with the two steps that MachineConfigs add to the merge done
/// here.
#[test]
fn merged_configs_equal_the_reference() {
    let Some(path) = mco_testkit::reference_data("vectors/merge.jsonl") else {
        return;
    };
    let text = fs::read_to_string(path).unwrap();
    let mut rendered = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(expected) = case.pointer("/rendered/spec/config") else {
            continue;
        };
        let merged = render(case["configs"].as_array().unwrap());
        assert_eq!(
            &serde_json::to_value(&merged).unwrap(),
            expected,
            "{}",
            case["case"]
        );
        rendered += 1;
    }
    assert!(rendered > 50, "only {rendered} cases");
}

fn render(machine_configs: &[Value]) -> Config {
    let name = |config: &Value| config["metadata"]["name"].as_str().unwrap().to_owned();
    let is_worker =
        |config: &Value| config["metadata"]["labels"]["machineconfiguration.openshift.io/role"] == "worker";
    let mut ordered: Vec<&Value> = machine_configs.iter().collect();
    ordered.sort_by_key(|config| (!is_worker(config), name(config)));
    let mut merged: Option<Config> = None;
    for machine_config in ordered {
        let value = &machine_config["spec"]["config"];
        if value.is_null() {
            continue;
        }
        let mut child = parse(value)
            .unwrap_or_else(|error| panic!("{}: {error}", name(machine_config)))
            .config;
        merged = Some(match merged {
            None => child,
            Some(parent) => {
                for file in &mut child.storage.files {
                    file.contents.compression.get_or_insert_default();
                }
                let mut merged = merge(parent, child, &mut ());
                for file in &mut merged.storage.files {
                    file.contents
                        .compression
                        .take_if(|compression| compression.is_empty());
                }
                merged
            }
        });
    }
    let mut merged = merged.unwrap_or_default();
    for file in &mut merged.storage.files {
        file.overwrite.get_or_insert(true);
    }
    merged
}
