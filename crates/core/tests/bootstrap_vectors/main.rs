//! The full offline render against recorded results of the reference implementation: names, specs and pool source
//! lists, or an equivalent error that names the object.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod digests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mco_core::config::manifest::{self, Manifest};
use mco_core::config::render::RenderIdentity;
use mco_core::generators::templates::TemplateTree;
use mco_core::pipeline::bootstrap::{self, BootstrapCluster, BootstrapError, BootstrapSettings};
use serde_json::Value;

fn sorted_entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

fn template_tree(root: &Path) -> TemplateTree {
    fn walk(root: &Path, directory: &Path, tree: &mut TemplateTree) {
        for path in sorted_entries(directory) {
            if path.is_dir() {
                walk(root, &path, tree);
            } else {
                let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                tree.insert(&relative, fs::read(&path).unwrap());
            }
        }
    }
    let mut tree = TemplateTree::default();
    walk(root, root, &mut tree);
    tree
}

fn manifests(case: &Path) -> Result<Vec<Manifest>, String> {
    let mut manifests = Vec::new();
    for path in sorted_entries(&case.join("manifests")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let read = manifest::read(name, &fs::read(&path).unwrap());
        manifests.extend(read.map_err(|error| format!("{name}: {error}"))?);
    }
    Ok(manifests)
}

/// The outcome of a case: the assembled cluster, or all errors of its manifests.
fn assemble(case: &Path, settings: &BootstrapSettings<'_>) -> Result<BootstrapCluster, String> {
    let lines = |errors: Vec<BootstrapError>| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    };
    bootstrap::assemble(manifests(case)?, settings).map_err(lines)
}

fn read_yaml(path: &Path) -> Value {
    manifest::value(&fs::read_to_string(path).unwrap()).unwrap()
}

fn objects_in(directory: &Path) -> BTreeMap<String, Value> {
    sorted_entries(directory)
        .iter()
        .map(|path| {
            let value = read_yaml(path);
            (value["metadata"]["name"].as_str().unwrap().to_owned(), value)
        })
        .collect()
}

fn check_rendered(case: &Path, cluster: &BootstrapCluster) -> Result<(), String> {
    let outcomes = cluster.render(RenderIdentity {
        controller_version: "was-not-built-properly",
        release_version: "",
    });
    let mut configs = objects_in(&case.join("expected/machine-configs"));
    let mut pools = objects_in(&case.join("expected/machine-pools"));
    for outcome in &outcomes {
        let rendered = outcome.rendered().map_err(ToString::to_string)?;
        let spec = serde_json::to_value(rendered.config.spec()).unwrap();
        let Some(expected) = configs.remove(rendered.name()) else {
            return Err(format!(
                "unexpected {}\n{}",
                rendered.name(),
                explain(&spec, &configs, outcome.name())
            ));
        };
        if spec != expected["spec"] {
            return Err(format!("{}: the spec differs", rendered.name()));
        }
        let pool = serde_json::to_value(cluster.with_target(&outcome.pool, rendered)).unwrap();
        let expected = pools.remove(outcome.name()).ok_or("unexpected pool")?;
        for part in ["spec", "status"] {
            let (ours, theirs) = (&pool[part]["configuration"], &expected[part]["configuration"]);
            if ours["name"] != theirs["name"] || sources(ours) != sources(theirs) {
                return Err(format!(
                    "pool {}: {part}.configuration differs:\n  ours   {}\n  theirs {}",
                    outcome.name(),
                    ours,
                    theirs
                ));
            }
        }
    }
    if !configs.is_empty() || !pools.is_empty() {
        return Err(format!("missing: {:?} {:?}", configs.keys(), pools.keys()));
    }
    Ok(())
}

/// The sources of a pool's configuration. The reference iterates over its pools in random order in every step, so the
/// output of one step (equal names except for the pool) is compared as a set.
fn sources(configuration: &Value) -> Vec<Vec<Value>> {
    let step = |source: &Value| {
        let name = source["name"].as_str().unwrap();
        name.split_once("-generated-")
            .map(|(first, kind)| (first[..2].to_owned(), kind.to_owned()))
    };
    let list = configuration["source"].as_array().unwrap();
    let steps = list.chunk_by(|a, b| step(a).is_some() && step(a) == step(b));
    steps
        .map(|one| {
            let mut one = one.to_vec();
            one.sort_by_key(ToString::to_string);
            one
        })
        .collect()
}

/// Describes the first difference, for the failure message.
fn explain(spec: &Value, expected: &BTreeMap<String, Value>, pool: &str) -> String {
    let prefix = format!("rendered-{pool}-");
    let Some((_, expected)) = expected.iter().find(|(name, _)| name.starts_with(&prefix)) else {
        return "no config of that pool is expected".to_owned();
    };
    let files = |spec: &Value| {
        spec["config"]["storage"]["files"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    for (ours, theirs) in files(spec).iter().zip(files(&expected["spec"])) {
        if *ours != theirs {
            return format!("  ours   {}\n  theirs {}", decoded(ours), decoded(&theirs));
        }
    }
    format!("  ours   {spec}\n  theirs {}", expected["spec"])
}

fn decoded(file: &Value) -> String {
    let source = file["contents"]["source"].as_str();
    let contents = mco_ignition::resource::decode(source, None, 1 << 20).unwrap_or_default();
    format!("{file}\n{}", String::from_utf8_lossy(&contents))
}

fn check_error(case: &Path, outcome: Result<BootstrapCluster, String>) -> Result<(), String> {
    let expected = fs::read_to_string(case.join("error.txt")).unwrap();
    let expected = expected
        .trim()
        .trim_start_matches("error running MCC[BOOTSTRAP]: ");
    let Err(errors) = outcome else {
        return Err(format!("should have failed with {expected}"));
    };
    if !errors.contains(expected) {
        return Err(format!("expected {expected}\nfound {errors}"));
    }
    let names_an_object = manifests(case)?
        .iter()
        .any(|object| errors.contains(&format!("{:?}", object.name)));
    if names_an_object {
        Ok(())
    } else {
        Err(format!("names no object: {errors}"))
    }
}

/// Checks every case of a folder of recorded results, and reports all failures.
fn check_folder(folder: &str, check: impl Fn(&Path, &BootstrapSettings<'_>) -> Result<(), String>) {
    let Some(root) = mco_testkit::reference_data("vectors") else {
        return;
    };
    let templates = template_tree(&root.join("templates"));
    let secret = bootstrap::pull_secret(
        "pull-secret.yaml",
        &fs::read(root.join("pull-secret.yaml")).unwrap(),
    )
    .unwrap();
    let settings = BootstrapSettings {
        templates: Some(&templates),
        pull_secret: Some(&secret),
        controller_version: "was-not-built-properly",
        payload_version: None,
        stage: None,
        base: None,
    };
    let cases = sorted_entries(&root.join(folder));
    assert!(!cases.is_empty(), "there are no cases in {folder}");
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(failure) = check(case, &settings) {
            failures.push(format!("{}: {failure}", case.file_name().unwrap().display()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn recorded_results_are_reproduced() {
    check_folder("bootstrap", |case, settings| {
        let outcome = assemble(case, settings);
        if case.join("error.txt").exists() {
            check_error(case, outcome)
        } else {
            check_rendered(case, &outcome?)
        }
    });
}
