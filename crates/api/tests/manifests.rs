//! The CustomResourceDefinitions in `manifests/crds` are up to date with the code. `MCO_UPDATE_MANIFESTS=1 cargo test
//! -p mco-api` regenerates them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use mco_api::crd::{CustomResourceDefinition, own_crds, plain_crds, to_yaml};
use mco_api::{crds, crds_yaml};

/// The definitions of every cluster and of OpenShift's kinds, and those that plain clusters have in place of the latter.
fn directories() -> [(&'static str, Vec<CustomResourceDefinition>); 2] {
    let everywhere: BTreeSet<Option<String>> = crds().into_iter().map(|crd| crd.metadata.name).collect();
    let mut plain = plain_crds();
    plain.retain(|definition| !everywhere.contains(&definition.metadata.name));
    [("manifests/crds", crds()), ("manifests/crds-plain", plain)]
}

fn generated(definitions: &[CustomResourceDefinition]) -> BTreeMap<String, String> {
    definitions
        .iter()
        .map(|crd| (format!("{}.yaml", crd.spec.names.plural), to_yaml(crd).unwrap()))
        .collect()
}

fn on_disk(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).map(|entries| entries.map(Result::unwrap).collect::<Vec<_>>());
    entries
        .unwrap_or_default()
        .iter()
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_plain_cluster_had_no_adoptions_and_no_rollout_policies() {
    let plain: BTreeSet<String> = plain_crds()
        .into_iter()
        .map(|crd| crd.spec.names.plural)
        .collect();
    let own: BTreeSet<String> = own_crds().into_iter().map(|crd| crd.spec.names.plural).collect();
    assert_eq!(own.difference(&plain).collect::<Vec<_>>(), Vec::<&String>::new());
    let groups: BTreeSet<String> = plain_crds().into_iter().map(|crd| crd.spec.group).collect();
    let expected = ["machineconfiguration.openshift.io", "mco.dev"].map(str::to_owned);
    assert_eq!(groups, expected.into());
}

#[test]
fn generated_manifests_are_current() {
    for (name, definitions) in directories() {
        are_current(name, &generated(&definitions));
    }
}

fn are_current(name: &str, generated: &BTreeMap<String, String>) {
    let directory = mco_testkit::repository_root().join(name);
    if env::var_os("MCO_UPDATE_MANIFESTS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for stale in on_disk(&directory)
            .keys()
            .filter(|file| !generated.contains_key(*file))
        {
            fs::remove_file(directory.join(stale)).unwrap();
        }
        for (file, text) in generated {
            fs::write(directory.join(file), text).unwrap();
        }
    }
    let on_disk = on_disk(&directory);
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    let remedy = "regenerate with MCO_UPDATE_MANIFESTS=1 cargo test -p mco-api";
    assert_eq!(names(&on_disk), names(generated), "files in {name}; {remedy}");
    for (file, text) in generated {
        assert!(on_disk[file] == *text, "{name}/{file} is stale; {remedy}");
    }
}

#[test]
fn printed_yaml_reads_back_as_the_same_definitions() {
    let text = crds_yaml().unwrap();
    let back: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(back, crds());
}

#[test]
fn every_field_is_described() {
    fn walk(schema: &serde_json::Value, path: &str, missing: &mut Vec<String>) {
        let described = schema
            .get("description")
            .is_some_and(|text| text.as_str().unwrap().ends_with(['.', ':']));
        let standard = path.ends_with(".metadata");
        if !described && !standard && !path.ends_with("[]") && !path.ends_with("{}") {
            missing.push(path.to_owned());
        }
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            walk(schema, &format!("{path}.{field}"), missing);
        }
        if let Some(items) = schema.get("items") {
            walk(items, &format!("{path}[]"), missing);
        }
        if let Some(values) = schema.get("additionalProperties") {
            walk(values, &format!("{path}{{}}"), missing);
        }
    }
    let mut missing = Vec::new();
    for crd in crds() {
        let schema = &crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema;
        walk(
            &serde_json::to_value(schema).unwrap(),
            &crd.spec.names.kind,
            &mut missing,
        );
    }
    assert_eq!(
        missing,
        Vec::<String>::new(),
        "fields that `kubectl explain` says nothing about"
    );
}
