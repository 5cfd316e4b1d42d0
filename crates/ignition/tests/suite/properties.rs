//! Properties that hold for every config.

use std::collections::BTreeSet;

use mco_ignition::convert::{ConvertError, down};
use mco_ignition::resource::{decode, encode};
use mco_ignition::{
    Config, KernelArgumentList, MergeChange, MergeEvent, MergeObserver, MergedItem, SpecVersion, merge,
    parse, parse_bytes, parse_unvalidated, validate,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::generate::{Features, any_document, any_json, spec_2_config, valid_config};

/// The existing items, derived from the events alone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inventory(BTreeSet<MergedItem>);

impl MergeObserver for Inventory {
    fn event(&mut self, event: MergeEvent<'_>) {
        if !event.field.is_empty() {
            assert!(
                self.0.contains(event.item) || matches!(event.item, MergedItem::Section(_)),
                "{event:?} before its item"
            );
            return;
        }
        let changed = match event.change {
            MergeChange::Added => self.0.insert(event.item.clone()),
            MergeChange::Removed => self.0.remove(event.item),
            MergeChange::Overrode | MergeChange::Repeated => self.0.contains(event.item),
        };
        assert!(changed, "{event:?} does not fit what was said before");
    }
}

/// Returns the items that a config really has.
fn items(config: &Config) -> BTreeSet<MergedItem> {
    let mut items = BTreeSet::new();
    let storage = &config.storage;
    items.extend(
        storage
            .files
            .iter()
            .map(|node| MergedItem::File(node.path.clone())),
    );
    items.extend(
        storage
            .directories
            .iter()
            .map(|node| MergedItem::Directory(node.path.clone())),
    );
    items.extend(
        storage
            .links
            .iter()
            .map(|node| MergedItem::Link(node.path.clone())),
    );
    items.extend(
        storage
            .disks
            .iter()
            .map(|disk| MergedItem::Disk(disk.device.clone())),
    );
    items.extend(
        storage
            .raid
            .iter()
            .map(|raid| MergedItem::Raid(raid.name.clone())),
    );
    items.extend(
        storage
            .filesystems
            .iter()
            .map(|entry| MergedItem::Filesystem(entry.device.clone())),
    );
    items.extend(
        storage
            .luks
            .iter()
            .map(|luks| MergedItem::Luks(luks.name.clone())),
    );
    for unit in &config.systemd.units {
        items.insert(MergedItem::Unit(unit.name.clone()));
        let dropin = |name: &String| MergedItem::Dropin {
            unit: unit.name.clone(),
            name: name.clone(),
        };
        items.extend(unit.dropins.iter().map(|entry| dropin(&entry.name)));
    }
    for user in &config.passwd.users {
        items.insert(MergedItem::User(user.name.clone()));
        let key = |key: &String| MergedItem::SshKey {
            user: user.name.clone(),
            key: key.clone(),
        };
        items.extend(user.ssh_authorized_keys.iter().map(key));
    }
    items.extend(
        config
            .passwd
            .groups
            .iter()
            .map(|group| MergedItem::Group(group.name.clone())),
    );
    let argument = |list, argument: &String| MergedItem::KernelArgument {
        list,
        argument: argument.clone(),
    };
    let arguments = &config.kernel_arguments;
    items.extend(
        arguments
            .should_exist
            .iter()
            .map(|entry| argument(KernelArgumentList::ShouldExist, entry)),
    );
    items.extend(
        arguments
            .should_not_exist
            .iter()
            .map(|entry| argument(KernelArgumentList::ShouldNotExist, entry)),
    );
    items
}

fn fold(configs: &[Config], observer: &mut impl MergeObserver) -> Config {
    configs
        .iter()
        .cloned()
        .fold(Config::default(), |parent, child| merge(parent, child, observer))
}

proptest! {
    #[test]
    fn generated_configs_are_valid(config in valid_config(Features::All)) {
        let report = validate(&config);
        prop_assert!(report.is_valid(), "{:?}", report.errors);
    }

    #[test]
    fn a_config_is_what_its_json_says(config in valid_config(Features::All)) {
        let value = serde_json::to_value(&config).unwrap();
        let parsed = parse(&value).unwrap();
        prop_assert_eq!(&parsed.config, &config);
        let text = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(parse_bytes(text.as_bytes()).unwrap(), parsed);
        prop_assert!(![":{}", ":[]", ":null"].iter().any(|empty| text.contains(empty)), "{}", text);
    }

    #[test]
    fn merging_with_nothing_changes_nothing(config in valid_config(Features::All)) {
        prop_assert_eq!(&merge(Config::default(), config.clone(), &mut ()), &config);
        prop_assert_eq!(&merge(config.clone(), Config::default(), &mut ()), &config);
    }

    #[test]
    fn merging_is_deterministic_and_the_observer_knows_the_result(
        configs in vec(valid_config(Features::All), 0..4)
    ) {
        let (mut first, mut second) = (Inventory::default(), Inventory::default());
        let merged = fold(&configs, &mut first);
        prop_assert_eq!(&fold(&configs, &mut second), &merged);
        prop_assert_eq!(&first, &second);
        prop_assert_eq!(first.0, items(&merged));
    }

    #[test]
    fn merged_configs_can_be_written_and_read(configs in vec(valid_config(Features::All), 0..4)) {
        let merged = fold(&configs, &mut ());
        let value = serde_json::to_value(&merged).unwrap();
        prop_assert_eq!(parse_unvalidated(&value).unwrap().config, merged);
    }

    #[test]
    fn the_child_wins(parent in valid_config(Features::All), child in valid_config(Features::All)) {
        let merged = merge(parent, child.clone(), &mut ());
        for file in &child.storage.files {
            let result = merged.storage.files.iter().find(|result| result.path == file.path).unwrap();
            prop_assert!(file.mode.is_none() || result.mode == file.mode);
            prop_assert!(file.contents.source.is_none() || result.contents.source == file.contents.source);
        }
        for unit in &child.systemd.units {
            let result = merged.systemd.units.iter().find(|result| result.name == unit.name).unwrap();
            prop_assert!(unit.enabled.is_none() || result.enabled == unit.enabled);
        }
    }

    #[test]
    fn down_and_up_again_loses_nothing(config in valid_config(Features::All)) {
        for version in SpecVersion::ALL.into_iter().filter(|version| *version >= SpecVersion::V3_0) {
            match down(&config, version) {
                Ok(value) => {
                    let parsed = parse(&value).unwrap();
                    prop_assert_eq!(parsed.version, version);
                    prop_assert_eq!(&parsed.config, &config);
                    prop_assert!(parsed.warnings.iter().all(|finding| !finding.message.contains("unused key")));
                }
                Err(ConvertError::Inexpressible { findings, .. }) => {
                    prop_assert!(version < SpecVersion::V3_5);
                    prop_assert!(findings.iter().all(|finding| !finding.path.is_empty() && finding.hint.is_some()));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }

    #[test]
    fn what_spec_3_0_has_can_be_said_in_all_of_spec_3(config in valid_config(Features::Oldest)) {
        for version in SpecVersion::ALL.into_iter().filter(|version| *version >= SpecVersion::V3_0) {
            prop_assert_eq!(&parse(&down(&config, version).unwrap()).unwrap().config, &config);
        }
    }

    #[test]
    fn spec_2_gives_back_what_it_can_express_in_reverse_order(mut config in spec_2_config()) {
        let value = down(&config, SpecVersion::V2_2).unwrap();
        let parsed = parse(&value).unwrap_or_else(|error| panic!("{value}: {error}"));
        config.storage.files.reverse();
        config.systemd.units.reverse();
        prop_assert_eq!(parsed.config, config);
    }

    #[test]
    fn contents_survive_encoding(contents in vec(any::<u8>(), 0..64)) {
        let url = encode(&contents);
        prop_assert!(url.is_ascii());
        prop_assert_eq!(decode(Some(&url), None, 64).unwrap(), contents);
    }

    #[test]
    fn decoding_never_panics_and_keeps_its_limit(
        url in prop_oneof![".{0,40}", "data:.{0,40}", "data:(text/plain)?(;[a-z]=\"?.{0,4}\"?)?(;base64)?,.{0,30}"],
        compression in prop::option::of(prop::sample::select(vec!["", "gzip", "xz"])),
        limit in 0..20_usize,
    ) {
        if let Ok(contents) = decode(Some(&url), compression, limit) {
            prop_assert!(contents.len() <= limit);
        }
    }

    #[test]
    fn reading_bytes_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse_bytes(&bytes);
        let mut compressed = vec![0x1f, 0x8b, 8];
        compressed.extend(&bytes);
        let _ = parse_bytes(&compressed);
    }

    #[test]
    fn reading_json_never_panics(document in prop_oneof![any_json(), any_document()]) {
        match parse(&document) {
            Ok(parsed) => {
                let value = serde_json::to_value(&parsed.config).unwrap();
                prop_assert_eq!(parse_unvalidated(&value).unwrap().config, parsed.config);
            }
            Err(error) => {
                prop_assert!(!error.findings().is_empty());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
