//! Properties of the merge, over random sets of MachineConfigs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_api::MachineConfig;
use mco_core::config::goyaml;
use mco_core::config::manifest;
use mco_core::config::merge::DefaultImages;
use mco_core::config::render::{RenderIdentity, Rendered, render};
use mco_core::config::validate;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

const PATHS: [&str; 5] = ["/etc/a", "/etc/b.conf", "/etc/dir/c", "/var/lib/d", "/etc/sp ace"];
const UNITS: [&str; 3] = ["one.service", "two.timer", "three.socket"];

fn file() -> impl Strategy<Value = Value> {
    let contents = select(vec!["data:,", "data:,yes", "data:;base64,eAo=", "data:,a%20b"]);
    (contents, proptest::option::of(select(vec![0o644, 0o600, 0o755])), proptest::option::of(any::<bool>())).prop_map(
        |(source, mode, overwrite)| json!({"contents": {"source": source}, "mode": mode, "overwrite": overwrite}),
    )
}

fn unit() -> impl Strategy<Value = Value> {
    let contents = proptest::option::of(select(vec![
        "[Unit]\nDescription=a\n",
        "[Unit]\nDescription=b \n",
    ]));
    (contents, proptest::option::of(any::<bool>()))
        .prop_map(|(contents, enabled)| json!({"contents": contents, "enabled": enabled}))
}

fn named(
    names: &[&'static str],
    key: &'static str,
    entry: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    let names = subsequence(names.to_vec(), 0..=names.len()).prop_shuffle();
    (names, proptest::collection::vec(entry, 5)).prop_map(move |(names, entries)| {
        let entry = |(name, mut entry): (&'static str, Value)| {
            entry[key] = json!(name);
            entry
        };
        names.into_iter().zip(entries).map(entry).collect()
    })
}

fn machine_config(index: usize) -> impl Strategy<Value = MachineConfig> {
    let parts = (
        select(vec!["worker", "infra"]),
        named(&PATHS, "path", file()),
        named(&UNITS, "name", unit()),
        subsequence(vec!["nosmt", "quiet", "a=\"b c\"", "0755"], 0..=4),
        select(vec!["", "default", "realtime"]),
        any::<bool>(),
    );
    (0..100u32, parts).prop_map(move |(rank, (role, files, units, arguments, kernel, fips))| {
        serde_json::from_value(json!({
            "metadata": {"name": format!("{rank:02}-{role}-{index}"), "labels": {"machineconfiguration.openshift.io/role": role}},
            "spec": {
                "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}, "systemd": {"units": units}},
                "kernelArguments": arguments, "kernelType": kernel, "fips": fips,
            },
        }))
        .unwrap()
    })
}

fn machine_configs() -> impl Strategy<Value = Vec<MachineConfig>> {
    (1..6usize).prop_flat_map(|count| (0..count).map(machine_config).collect::<Vec<_>>())
}

fn rendered(configs: &[MachineConfig]) -> Rendered {
    let pool = mco_api::MachineConfigPool::new(
        "infra",
        mco_api::machine_config_pool::MachineConfigPoolSpec::default(),
    );
    let checked: Vec<_> = configs
        .iter()
        .map(|config| validate::check(&std::sync::Arc::new(config.clone())).unwrap())
        .collect();
    let references: Vec<_> = checked.iter().collect();
    render(
        &pool,
        &references,
        DefaultImages::default(),
        RenderIdentity::default(),
    )
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_order_of_the_input_does_not_matter(configs in machine_configs(), seed in any::<u64>()) {
        let mut shuffled = configs.clone();
        let length = shuffled.len();
        for (step, index) in (0..length).rev().enumerate() {
            shuffled.swap(index, usize::try_from(seed.rotate_left(u32::try_from(step).unwrap() * 7) % (index as u64 + 1)).unwrap());
        }
        let (first, second) = (rendered(&configs), rendered(&shuffled));
        prop_assert_eq!(&first.config, &second.config);
        prop_assert_eq!(&first.provenance, &second.provenance);
    }

    #[test]
    fn the_last_config_in_merge_order_wins_what_it_states(configs in machine_configs()) {
        let result = rendered(&configs);
        let last = result.provenance.sources().last().unwrap().clone();
        let last = configs.iter().find(|config| config.metadata.name.as_deref() == Some(&last)).unwrap();
        for file in last.spec.config.as_ref().unwrap()["storage"]["files"].as_array().unwrap() {
            let merged = result.config.ignition.storage.files.iter().find(|one| file["path"] == one.path.as_str()).unwrap();
            prop_assert_eq!(merged.contents.source.as_deref(), file["contents"]["source"].as_str());
        }
    }

    #[test]
    fn everything_in_the_result_has_a_source(configs in machine_configs()) {
        let result = rendered(&configs);
        for file in &result.config.ignition.storage.files {
            let item = mco_ignition::MergedItem::File(file.path.clone());
            prop_assert!(!result.provenance.attribute(&item).unwrap().winners.is_empty());
        }
        for index in 0..result.config.spec().kernel_arguments.len() {
            prop_assert!(result.provenance.source_of_kernel_argument(index).is_some());
        }
    }

    #[test]
    fn merging_the_result_again_changes_nothing(configs in machine_configs()) {
        let result = rendered(&configs);
        let name = result.name().to_owned();
        let mut object = mco_api::MachineConfig::clone(&result.config.object);
        object.metadata.labels = Some([("role".to_owned(), "x".to_owned())].into());
        let again = rendered(&[object]);
        prop_assert_eq!(again.name(), name);
    }

    #[test]
    fn the_text_we_write_is_read_back_as_it_was(text in any::<String>(), key in "[a-z]{1,8}") {
        let text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).filter(|c| *c != '\u{feff}').collect();
        let value = json!({ key: [text, {"nested": 1}] });
        prop_assert_eq!(manifest::value(&goyaml::to_string(&value)).unwrap(), value);
    }

    #[test]
    fn no_text_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = manifest::read("x", &bytes);
    }
}
