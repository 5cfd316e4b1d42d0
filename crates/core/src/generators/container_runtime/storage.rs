//! `storage.conf`: the template's settings, parsed and serialized again with the user's changes.
//!
//! Comments and unrecognised settings are lost, and unset numbers are written as zeros: the bytes are those of the Go
//! struct that other implementations decode the file into.

use toml_edit::{DocumentMut, Item, TableLike};

use crate::generators::generated::toml_text::TomlText;

/// The user's changes to the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StorageChange {
    pub size: Option<String>,
    pub layer_stores: Vec<String>,
    pub image_stores: Vec<String>,
}

impl StorageChange {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The type of a setting below `[storage.options]`, and when it is written.
#[derive(Clone, Copy)]
enum Setting {
    /// Omitted when empty.
    Text(&'static str),
    /// Omitted when empty.
    List(&'static str),
    /// Written even when zero.
    Number(&'static str),
    /// Omitted when false.
    Flag(&'static str),
}

const OPTIONS: [Setting; 14] = [
    Setting::List("additionalimagestores"),
    Setting::Text("imagestore"),
    Setting::List("additionallayerstores"),
    Setting::Text("size"),
    Setting::Text("ignore_chown_errors"),
    Setting::Text("use_composefs"),
    Setting::Number("force_mask"),
    Setting::Text("root-auto-userns-user"),
    Setting::Number("auto-userns-min-size"),
    Setting::Number("auto-userns-max-size"),
    Setting::Text("skip_mount_home"),
    Setting::Text("mount_program"),
    Setting::Text("mountopt"),
    Setting::Flag("disable-volatile"),
];

/// Settings of individual storage drivers, all of type string.
const DRIVERS: [(&str, &[&str]); 4] = [
    ("btrfs", &["min_space", "size"]),
    (
        "overlay",
        &[
            "ignore_chown_errors",
            "mountopt",
            "mount_program",
            "size",
            "inodes",
            "skip_mount_home",
            "use_composefs",
            "force_mask",
            "sync",
        ],
    ),
    ("vfs", &["ignore_chown_errors", "sync"]),
    ("zfs", &["mountopt", "fsname", "size"]),
];

/// Returns the file with the change applied.
pub(super) fn with_change(template: &str, change: &StorageChange) -> Result<String, String> {
    let document: DocumentMut = template.parse().map_err(|error: toml_edit::TomlError| {
        format!("storage.conf is not valid TOML: {}", error.message())
    })?;
    let storage = document.get("storage").and_then(Item::as_table_like);
    let options = storage
        .and_then(|storage| storage.get("options"))
        .and_then(Item::as_table_like);
    let mut text = TomlText::default();
    text.table(&["storage"]);
    for key in ["driver", "runroot", "graphroot"] {
        text.string(key, text_of(storage, key));
    }
    text.table(&["storage", "options"]);
    for setting in OPTIONS {
        write_setting(&mut text, setting, options, change);
    }
    for (driver, settings) in DRIVERS {
        let table = options
            .and_then(|options| options.get(driver))
            .and_then(Item::as_table_like);
        write_texts(&mut text, &["storage", "options", driver], settings, table);
    }
    let pull_options = options
        .and_then(|options| options.get("pull_options"))
        .and_then(Item::as_table_like);
    if let Some(table) = pull_options.filter(|table| !table.is_empty()) {
        let mut keys: Vec<&str> = table.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        text.table(&["storage", "options", "pull_options"]);
        for key in keys {
            text.string(key, text_of(Some(table), key));
        }
    }
    Ok(text.finish())
}

fn write_setting(
    text: &mut TomlText,
    setting: Setting,
    options: Option<&dyn TableLike>,
    change: &StorageChange,
) {
    match setting {
        Setting::Text(key) => {
            let changed = change.size.as_deref().filter(|_| key == "size");
            let value = changed.unwrap_or_else(|| text_of(options, key));
            if !value.is_empty() {
                text.string(key, value);
            }
        }
        Setting::List(key) => {
            let changed = match key {
                "additionallayerstores" => &change.layer_stores,
                _ => &change.image_stores,
            };
            let values = if changed.is_empty() {
                list_of(options, key)
            } else {
                changed.clone()
            };
            if !values.is_empty() {
                text.strings(key, &values);
            }
        }
        Setting::Number(key) => text.integer(key, number_of(options, key)),
        Setting::Flag(key) => {
            if options
                .and_then(|options| options.get(key))
                .and_then(Item::as_bool)
                == Some(true)
            {
                text.boolean(key, true);
            }
        }
    }
}

fn write_texts(text: &mut TomlText, path: &[&str], keys: &[&str], table: Option<&dyn TableLike>) {
    let set: Vec<(&str, &str)> = keys
        .iter()
        .map(|key| (*key, text_of(table, key)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    if set.is_empty() {
        return;
    }
    text.table(path);
    for (key, value) in set {
        text.string(key, value);
    }
}

fn text_of<'t>(table: Option<&'t dyn TableLike>, key: &str) -> &'t str {
    table
        .and_then(|table| table.get(key))
        .and_then(Item::as_str)
        .unwrap_or_default()
}

fn number_of(table: Option<&dyn TableLike>, key: &str) -> i128 {
    table
        .and_then(|table| table.get(key))
        .and_then(Item::as_integer)
        .unwrap_or_default()
        .into()
}

fn list_of(table: Option<&dyn TableLike>, key: &str) -> Vec<String> {
    let array = table.and_then(|table| table.get(key)).and_then(Item::as_array);
    let values = array.into_iter().flatten();
    values
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect()
}
