//! Names and objects of builds against recorded results of the reference implementation.

use std::fs;

use mco_core::generators::os_builds::{
    Architecture, ImageInputs, OfflineBuild, OfflineObjects, machine_os_build, plan_offline, rebuild_reason,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    let items = value.as_array().cloned().unwrap_or_default();
    items
        .into_iter()
        .map(|item| serde_json::from_value(item).unwrap())
        .collect()
}

pub(crate) fn objects_of(input: &Value) -> OfflineObjects {
    OfflineObjects {
        configs: vec![serde_json::from_value(input["machineOSConfig"].clone()).unwrap()],
        pools: vec![serde_json::from_value(input["pool"].clone()).unwrap()],
        rendered: vec![input["machineConfig"].clone()],
        controller_config: serde_json::from_value(input["controllerConfig"].clone()).unwrap(),
        secrets: list(&input["secrets"]),
        config_maps: list(&input["configMaps"]),
        ..OfflineObjects::default()
    }
}

/// Reduces an object to what is recorded of it.
fn recorded(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut recorded = json!({
        "kind": object["kind"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
    });
    let keys = |field: &str| -> Vec<String> {
        let members = object[field].as_object();
        members
            .map(|members| members.keys().cloned().collect())
            .unwrap_or_default()
    };
    if object["kind"] != "Job" {
        recorded["keys"] = json!([keys("data"), keys("binaryData")].concat());
    }
    if object["kind"] == "Secret" {
        let data = object["data"][".dockerconfigjson"].as_str().unwrap();
        let data = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap();
        recorded["type"] = object["type"].clone();
        recorded["data"] = String::from_utf8(data).unwrap().into();
    }
    recorded
}

fn check(case: &Value) -> Result<(), String> {
    let (input, expected) = (&case["input"], &case["expected"]);
    let objects = objects_of(input);
    // The results were recorded on this architecture.
    let planned: OfflineBuild = plan_offline(&objects, Architecture::Amd64).remove(0);
    let rendered = serde_json::from_value(input["machineConfig"].clone()).unwrap();
    let build = machine_os_build(&objects.pools[0], &objects.configs[0], &rendered);
    if expected.get("error").is_some() {
        return match build {
            Ok(_) => Err(format!("should be refused, but is {}", planned.machine_os_build)),
            Err(_) if planned.error.is_empty() => Err("the plan has no error".to_owned()),
            Err(_) => Ok(()),
        };
    }
    let build = build.map_err(|error| error.to_string())?;
    let build = json!({
        "name": build.metadata.name,
        "labels": build.metadata.labels,
        "annotations": build.metadata.annotations,
        "finalizers": build.metadata.finalizers,
        "spec": build.spec,
    });
    same(&build, &expected["machineOSBuild"])?;
    if planned.machine_os_build != build["name"].as_str().unwrap() || !planned.requires_build {
        return Err(format!("the plan is {planned:?}"));
    }
    if expected.get("buildError").is_some() {
        return if planned.error.is_empty() {
            Err("the build should be refused".to_owned())
        } else {
            Ok(())
        };
    }
    if !planned.error.is_empty() {
        return Err(planned.error);
    }
    let ours: Value = planned.objects.iter().map(recorded).collect();
    same(&ours, &expected["objects"])
}

fn same(ours: &Value, theirs: &Value) -> Result<(), String> {
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("ours   {ours:#}\ntheirs {theirs:#}"))
    }
}

#[test]
fn builds_have_the_names_and_objects_of_the_reference_implementation() {
    let Some(directory) = mco_testkit::reference_data("vectors/ocl") else {
        return;
    };
    let mut checked = 0;
    let mut failures = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        if case.get("input").is_none() {
            continue;
        }
        checked += 1;
        if let Err(why) = check(&case) {
            failures.push(format!("{}: {why}", path.display()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {checked}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(checked > 0, "there are no cases");
}

#[test]
fn images_are_rebuilt_when_the_reference_implementation_rebuilds_them() {
    let Some(path) = mco_testkit::reference_data("vectors/ocl/requires-rebuild.json") else {
        return;
    };
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for (index, case) in cases.iter().enumerate() {
        let [old, new] = ["old", "new"].map(|key| ImageInputs::of(&case[key]).unwrap());
        let reason = rebuild_reason(&old, &new);
        assert_eq!(
            reason.is_some(),
            case["requiresRebuild"] == true,
            "case {index}: {reason:?}"
        );
    }
    assert!(!cases.is_empty());
}
