//! Rendered names and specs against recorded results of the reference implementation, and against our own small set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::goyaml;
use mco_core::config::merge::DefaultImages;
use mco_core::config::render::{RenderIdentity, Rendered, render};
use mco_core::config::validate;
use serde_json::Value;

fn render_case(case: &Value) -> Result<Rendered, String> {
    let pool = MachineConfigPool::new(
        case["pool"].as_str().unwrap(),
        mco_api::machine_config_pool::MachineConfigPoolSpec::default(),
    );
    let configs: Vec<MachineConfig> =
        serde_json::from_value(case["configs"].clone()).map_err(|e| e.to_string())?;
    let checked: Vec<_> = configs
        .into_iter()
        .map(|config| validate::check(&std::sync::Arc::new(config)))
        .collect::<Result<_, _>>()
        .map_err(|invalid| invalid.to_string())?;
    let checked: Vec<_> = checked.iter().collect();
    let identity = RenderIdentity {
        controller_version: "was-not-built-properly",
        release_version: "",
    };
    render(&pool, &checked, DefaultImages::default(), identity).map_err(|error| error.to_string())
}

fn check_case(case: &Value) -> Result<(), String> {
    let outcome = render_case(case);
    if case.get("error").is_some() {
        let names = case["configs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|config| config["metadata"]["name"].as_str().unwrap());
        return match outcome {
            Ok(rendered) => Err(format!("should have failed, but gave {}", rendered.name())),
            Err(error) if names.clone().any(|name| error.contains(&format!("{name:?}"))) => Ok(()),
            Err(error) => Err(format!("the error names none of its MachineConfigs: {error}")),
        };
    }
    let rendered = outcome?;
    let spec = serde_json::to_value(rendered.config.spec()).unwrap();
    if spec != case["rendered"]["spec"] {
        return Err(format!(
            "spec differs:\n  ours   {spec}\n  theirs {}",
            case["rendered"]["spec"]
        ));
    }
    if rendered.name() != case["rendered"]["name"] {
        return Err(format!(
            "name differs: ours {}, theirs {}",
            rendered.name(),
            case["rendered"]["name"]
        ));
    }
    if let Some(expected) = case["rendered"].get("annotations")
        && serde_json::to_value(&rendered.config.object.metadata.annotations).unwrap() != *expected
    {
        return Err(format!("annotations differ from {expected}"));
    }
    if let Some(yaml) = case["rendered"]["yaml"].as_str() {
        let ours = goyaml::to_string(&serde_json::to_value(&*rendered.config.object).unwrap());
        if ours != yaml {
            return Err(format!("object text differs:\n{ours}\n--- theirs\n{yaml}"));
        }
    }
    Ok(())
}

fn check_file(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let mut failures = Vec::new();
    let mut count = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        count += 1;
        if let Err(failure) = check_case(&case) {
            failures.push(format!("{}: {failure}", case["case"].as_str().unwrap()));
        }
    }
    assert!(count > 0, "{} has no cases", path.display());
    assert!(
        failures.is_empty(),
        "{} of {count} cases fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn recorded_results_are_reproduced() {
    if let Some(path) = mco_testkit::reference_data("vectors/merge.jsonl") {
        check_file(&path);
    }
}

#[test]
fn our_own_results_stay_as_they_are() {
    check_file(Path::new("tests/data/merge.jsonl"));
}
