//! Whether a change of `registries.conf` can make a running workload pull another image than before.
//!
//! Adding a mirror that only serves digests cannot; removing a registry can.

use std::collections::BTreeMap;

use toml_edit::{DocumentMut, Item, TableLike};

/// The safety of a change of `registries.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistriesChange {
    Safe,
    Unsafe { because: String },
}

const DIGEST_ONLY: &str = "digest-only";

/// Compares two versions of `registries.conf`. Unparsable content is not safe.
pub fn compare(old: &str, new: &str) -> RegistriesChange {
    match (Registries::read(old), Registries::read(new)) {
        (Ok(old), Ok(new)) => match danger(&old, &new) {
            Some(because) => RegistriesChange::Unsafe { because },
            None => RegistriesChange::Safe,
        },
        (Err(because), _) => RegistriesChange::Unsafe {
            because: format!("the old file cannot be read: {because}"),
        },
        (_, Err(because)) => RegistriesChange::Unsafe {
            because: format!("the new file cannot be read: {because}"),
        },
    }
}

struct Registries {
    search: Vec<String>,
    by_name: BTreeMap<String, ParsedRegistry>,
}

#[derive(PartialEq, Eq)]
struct ParsedRegistry {
    prefix: String,
    location: String,
    blocked: bool,
    insecure: bool,
    mirror_by_digest_only: bool,
    mirrors: BTreeMap<String, String>,
}

impl Registries {
    fn read(text: &str) -> Result<Self, String> {
        let document: DocumentMut = text
            .parse()
            .map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
        let search = document
            .get("unqualified-search-registries")
            .and_then(Item::as_array);
        let search = search
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str())
            .map(str::to_owned)
            .collect();
        let tables = tables(document.get("registry"));
        let by_name = tables
            .into_iter()
            .map(ParsedRegistry::read)
            .map(|registry| (registry.name().to_owned(), registry))
            .collect();
        Ok(Self { search, by_name })
    }
}

impl ParsedRegistry {
    fn read(table: &dyn TableLike) -> Self {
        let text = |key: &str| {
            table
                .get(key)
                .and_then(Item::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let flag = |key: &str| table.get(key).and_then(Item::as_bool).unwrap_or_default();
        let mirrors = tables(table.get("mirror")).into_iter().map(|mirror| {
            let text = |key: &str| {
                mirror
                    .get(key)
                    .and_then(Item::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            (text("location"), text("pull-from-mirror"))
        });
        Self {
            prefix: text("prefix"),
            location: text("location"),
            blocked: flag("blocked"),
            insecure: flag("insecure"),
            mirror_by_digest_only: flag("mirror-by-digest-only"),
            mirrors: mirrors.collect(),
        }
    }

    fn name(&self) -> &str {
        if self.prefix.is_empty() {
            &self.location
        } else {
            &self.prefix
        }
    }

    fn serves_digests_only(&self) -> bool {
        if self.mirrors.is_empty() {
            return self.mirror_by_digest_only;
        }
        self.mirrors.values().all(|pull| pull == DIGEST_ONLY)
    }
}

/// Returns the `[[registry]]` tables, or those of an equivalent inline array.
fn tables(item: Option<&Item>) -> Vec<&dyn TableLike> {
    match item {
        Some(Item::ArrayOfTables(tables)) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Some(Item::Value(value)) => value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.as_inline_table())
            .map(|table| table as &dyn TableLike)
            .collect(),
        _ => Vec::new(),
    }
}

fn danger(old: &Registries, new: &Registries) -> Option<String> {
    if !new.search.starts_with(&old.search) {
        return Some("the search registries are not the old ones with more behind them".to_owned());
    }
    let removed = old.by_name.keys().find(|name| !new.by_name.contains_key(*name));
    if let Some(name) = removed {
        return Some(format!("registry {name} is removed"));
    }
    new.by_name
        .iter()
        .find_map(|(name, registry)| match old.by_name.get(name) {
            Some(before) => danger_in(before, registry).map(|what| format!("registry {name}: {what}")),
            None if registry.serves_digests_only() => None,
            None => Some(format!(
                "registry {name} is added and does not serve digests only"
            )),
        })
}

fn danger_in(old: &ParsedRegistry, new: &ParsedRegistry) -> Option<String> {
    let same_place = old.prefix == new.prefix && old.location == new.location;
    if !same_place || old.blocked != new.blocked || old.insecure != new.insecure {
        return Some("its prefix, location, blocked or insecure changed".to_owned());
    }
    if let Some(mirror) = old
        .mirrors
        .keys()
        .find(|mirror| !new.mirrors.contains_key(*mirror))
    {
        return Some(format!("mirror {mirror} is removed"));
    }
    new.mirrors
        .iter()
        .find_map(|(mirror, pull)| match old.mirrors.get(mirror) {
            Some(before) if before == pull || pull == DIGEST_ONLY => None,
            Some(_) => Some(format!("mirror {mirror} may serve more than digests")),
            None if pull == DIGEST_ONLY || new.mirror_by_digest_only => None,
            None => Some(format!("mirror {mirror} is added and may serve tags")),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
unqualified-search-registries = ["a.example"]
[[registry]]
prefix = ""
location = "quay.example/app"
mirror-by-digest-only = true
[[registry.mirror]]
location = "mirror.example/app"
"#;

    #[test]
    fn only_what_cannot_change_a_pull_is_safe() {
        let cases = [
            ("nothing", BASE.to_owned(), true),
            (
                "a search registry at the end",
                BASE.replace("[\"a.example\"]", "[\"a.example\", \"b.example\"]"),
                true,
            ),
            (
                "a search registry in front",
                BASE.replace("[\"a.example\"]", "[\"b.example\", \"a.example\"]"),
                false,
            ),
            (
                "a digest-only mirror",
                format!(
                    "{BASE}[[registry.mirror]]\nlocation = \"m2.example/app\"\npull-from-mirror = \"digest-only\"\n"
                ),
                true,
            ),
            (
                "a mirror in a digest-only registry",
                format!("{BASE}[[registry.mirror]]\nlocation = \"m2.example/app\"\n"),
                true,
            ),
            (
                "a mirror restricted to digests",
                format!("{BASE}pull-from-mirror = \"digest-only\"\n"),
                true,
            ),
            (
                "a mirror opened to tags",
                format!("{BASE}pull-from-mirror = \"tag-only\"\n"),
                false,
            ),
            (
                "a digest-only registry",
                format!("{BASE}[[registry]]\nlocation = \"r2.example\"\nmirror-by-digest-only = true\n"),
                true,
            ),
            (
                "a registry for tags",
                format!("{BASE}[[registry]]\nlocation = \"r2.example\"\n"),
                false,
            ),
            (
                "a blocked registry",
                BASE.replace("prefix = \"\"", "prefix = \"\"\nblocked = true"),
                false,
            ),
            (
                "a removed mirror",
                BASE.replace("mirror.example/app", "other.example/app"),
                false,
            ),
            (
                "a removed registry",
                "unqualified-search-registries = [\"a.example\"]\n".to_owned(),
                false,
            ),
            ("garbage", "[[".to_owned(), false),
        ];
        for (name, new, safe) in cases {
            let verdict = compare(BASE, &new);
            assert_eq!(verdict == RegistriesChange::Safe, safe, "{name}: {verdict:?}");
        }
    }
}
