//! The served resources: the built-in ones and those of CRDs.
//!
//! A [`Catalog`] is immutable. Installing a CRD replaces it, so that a request sees one consistent set. It holds names
//! and schemas, never objects.

mod custom;
mod definition;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use custom::{CustomDefinition, CustomVersion, ScalePaths};
pub use definition::{DefinitionSource, ResourceDefinition, ServedSubresource, storage_name};

use crate::kinds;

/// The order of groups in discovery matters to clients that use the first match: core first, then the others as they
/// were installed.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    definitions: Vec<Arc<ResourceDefinition>>,
    by_path: BTreeMap<(String, String, String), Arc<ResourceDefinition>>,
    by_kind: BTreeMap<(String, String, String), Arc<ResourceDefinition>>,
}

impl Catalog {
    /// Returns the catalog of the built-in resources and these custom ones.
    pub fn with(custom: &[CustomDefinition]) -> Self {
        let mut catalog = Self::default();
        for built_in in kinds::BUILT_IN {
            catalog.add(ResourceDefinition::built_in(built_in));
        }
        for definition in custom {
            for version in definition.served_in_priority_order() {
                catalog.add(ResourceDefinition::custom(definition, version));
            }
        }
        catalog
    }

    fn add(&mut self, definition: ResourceDefinition) {
        let definition = Arc::new(definition);
        let names = |last: &str| {
            (
                definition.group.clone(),
                definition.version.clone(),
                last.to_owned(),
            )
        };
        self.by_path
            .insert(names(&definition.plural), Arc::clone(&definition));
        self.by_kind
            .insert(names(&definition.kind), Arc::clone(&definition));
        self.definitions.push(definition);
    }

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceDefinition>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceDefinition>> {
        self.by_kind
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
    }

    /// Returns a definition whose objects are stored under this resource, preferring the version they are stored in.
    pub fn stored(&self, resource: &str) -> Option<&Arc<ResourceDefinition>> {
        self.definitions
            .iter()
            .find(|definition| &*definition.storage == resource && definition.is_storage_form())
    }

    /// Returns everything served, in the order of discovery.
    pub fn definitions(&self) -> &[Arc<ResourceDefinition>] {
        &self.definitions
    }

    /// Returns the named groups in order, each with its versions in order of preference; without the core group.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for definition in self
            .definitions
            .iter()
            .filter(|definition| !definition.group.is_empty())
        {
            let (group, version) = (definition.group.as_str(), definition.version.as_str());
            match groups.iter_mut().find(|(name, _)| *name == group) {
                None => groups.push((group, vec![version])),
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by(|left, right| custom::compare_versions(left, right));
        }
        groups
    }

    /// Returns the resources of one group and version; `None` if the group or version is not served.
    pub fn group_version(&self, group: &str, version: &str) -> Option<Vec<&Arc<ResourceDefinition>>> {
        let found: Vec<_> = self
            .definitions
            .iter()
            .filter(|definition| definition.group == group && definition.version == version)
            .collect();
        (!found.is_empty()).then_some(found)
    }
}
