//! `registries.conf` as a value, parsed from TOML and serialized as other implementations do.

use std::collections::BTreeMap;

use toml_edit::{DocumentMut, Item, TableLike};

use super::scope;
use crate::generators::generated::toml_text::TomlText;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RegistriesConf {
    pub unqualified_search: Option<Vec<String>>,
    pub credential_helpers: Option<Vec<String>>,
    pub short_name_mode: String,
    pub layer_store_auth_helper: String,
    pub registries: Vec<RegistryConf>,
    pub aliases: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RegistryConf {
    pub prefix: String,
    pub endpoint: RegistryEndpoint,
    pub blocked: bool,
    pub mirror_by_digest_only: bool,
    pub mirrors: Vec<RegistryEndpoint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RegistryEndpoint {
    pub location: String,
    pub insecure: bool,
    pub pull_from_mirror: String,
    pub namespace_proxy: String,
}

impl RegistryConf {
    /// Returns the scope of the entry: its prefix or location.
    pub fn scope(&self) -> &str {
        if self.prefix.is_empty() {
            &self.endpoint.location
        } else {
            &self.prefix
        }
    }
}

impl RegistriesConf {
    pub fn read(toml: &str) -> Result<Self, String> {
        let document: DocumentMut = toml.parse().map_err(|error: toml_edit::TomlError| {
            format!("registries.conf is not valid TOML: {}", error.message())
        })?;
        let table = document.as_table();
        let registries = tables(table.get("registry")).into_iter().map(registry).collect();
        let aliases = table.get("aliases").and_then(Item::as_table_like);
        Ok(Self {
            unqualified_search: texts(table, "unqualified-search-registries"),
            credential_helpers: texts(table, "credential-helpers"),
            short_name_mode: text(table, "short-name-mode"),
            layer_store_auth_helper: text(table, "additional-layer-store-auth-helper"),
            registries,
            aliases: aliases
                .into_iter()
                .flat_map(TableLike::iter)
                .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
                .collect(),
        })
    }

    /// Returns the entry of a scope, appended to the list if there is none.
    pub fn entry(&mut self, scope: &str) -> &mut RegistryConf {
        let position = self.registries.iter().position(|entry| entry.scope() == scope);
        let index = position.unwrap_or_else(|| {
            let mut entry = RegistryConf::default();
            if scope::is_wildcard(scope) {
                scope.clone_into(&mut entry.prefix);
            } else {
                scope.clone_into(&mut entry.endpoint.location);
            }
            self.registries.push(entry);
            self.registries.len() - 1
        });
        &mut self.registries[index]
    }

    /// Returns the narrowest entry that contains a scope and satisfies `test`.
    pub fn closest<'c>(
        &'c self,
        scope: &str,
        test: impl Fn(&RegistryConf) -> bool,
    ) -> Option<&'c RegistryConf> {
        self.registries
            .iter()
            .filter(|entry| scope::is_within(scope, entry.scope()) && test(entry))
            .max_by_key(|entry| entry.scope().len())
    }

    pub fn write(&self) -> String {
        let mut text = TomlText::default();
        if let Some(registries) = &self.unqualified_search {
            text.strings("unqualified-search-registries", registries);
        }
        if let Some(helpers) = &self.credential_helpers {
            text.strings("credential-helpers", helpers);
        }
        text.string("short-name-mode", &self.short_name_mode);
        text.string(
            "additional-layer-store-auth-helper",
            &self.layer_store_auth_helper,
        );
        for registry in &self.registries {
            text.element(&["registry"]);
            text.string("prefix", &registry.prefix);
            write_endpoint(&mut text, &registry.endpoint);
            for (key, flag) in [
                ("blocked", registry.blocked),
                ("mirror-by-digest-only", registry.mirror_by_digest_only),
            ] {
                if flag {
                    text.boolean(key, flag);
                }
            }
            for mirror in &registry.mirrors {
                text.element(&["registry", "mirror"]);
                write_endpoint(&mut text, mirror);
            }
        }
        if !self.aliases.is_empty() {
            text.table(&["aliases"]);
            for (alias, image) in &self.aliases {
                text.string(alias, image);
            }
        }
        text.finish()
    }
}

fn write_endpoint(text: &mut TomlText, endpoint: &RegistryEndpoint) {
    if !endpoint.location.is_empty() {
        text.string("location", &endpoint.location);
    }
    if endpoint.insecure {
        text.boolean("insecure", true);
    }
    for (key, value) in [
        ("pull-from-mirror", &endpoint.pull_from_mirror),
        ("namespace-proxy", &endpoint.namespace_proxy),
    ] {
        if !value.is_empty() {
            text.string(key, value);
        }
    }
}

fn registry(table: &dyn TableLike) -> RegistryConf {
    RegistryConf {
        prefix: text(table, "prefix"),
        endpoint: endpoint(table),
        blocked: flag(table, "blocked"),
        mirror_by_digest_only: flag(table, "mirror-by-digest-only"),
        mirrors: tables(table.get("mirror")).into_iter().map(endpoint).collect(),
    }
}

fn endpoint(table: &dyn TableLike) -> RegistryEndpoint {
    RegistryEndpoint {
        location: text(table, "location"),
        insecure: flag(table, "insecure"),
        pull_from_mirror: text(table, "pull-from-mirror"),
        namespace_proxy: text(table, "namespace-proxy"),
    }
}

/// Returns the tables of an array, in either of TOML's two notations.
fn tables(item: Option<&Item>) -> Vec<&dyn TableLike> {
    match item {
        Some(Item::ArrayOfTables(tables)) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Some(item) => {
            let inline = item.as_array().into_iter().flatten();
            inline
                .filter_map(|value| value.as_inline_table().map(|table| table as &dyn TableLike))
                .collect()
        }
        None => Vec::new(),
    }
}

fn text(table: &dyn TableLike, key: &str) -> String {
    table
        .get(key)
        .and_then(Item::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn flag(table: &dyn TableLike, key: &str) -> bool {
    table.get(key).and_then(Item::as_bool).unwrap_or_default()
}

fn texts(table: &dyn TableLike, key: &str) -> Option<Vec<String>> {
    let values = table.get(key)?.as_array()?.iter();
    Some(
        values
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect(),
    )
}
