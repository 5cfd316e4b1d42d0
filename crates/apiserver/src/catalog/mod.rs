//! What the server serves right now: the built-in resources and those that CRDs have installed.
//!
//! A [`Catalog`] is an immutable picture; installing a CRD replaces it whole, so a request sees one consistent set
//! from beginning to end. It knows names and shapes, never objects.

mod custom;
mod definition;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use custom::{CustomDefinition, CustomVersion, ScalePaths};
pub use definition::{Definition, Source, Subresource, storage_name};

use crate::kinds;

/// The order in which groups are announced matters to clients that take the first match: core, then the others as
/// they were installed.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    definitions: Vec<Arc<Definition>>,
    by_path: BTreeMap<(String, String, String), Arc<Definition>>,
    by_kind: BTreeMap<(String, String, String), Arc<Definition>>,
}

impl Catalog {
    /// The built-in resources and the given custom ones.
    pub fn with(custom: &[CustomDefinition]) -> Self {
        let mut catalog = Self::default();
        for built_in in kinds::BUILT_IN {
            catalog.add(Definition::built_in(built_in));
        }
        for definition in custom {
            for version in definition.served_in_priority_order() {
                catalog.add(Definition::custom(definition, version));
            }
        }
        catalog
    }

    fn add(&mut self, definition: Definition) {
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

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Definition>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Definition>> {
        self.by_kind
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
    }

    /// Any definition whose objects are kept under this stored resource, preferring the one they are stored as.
    pub fn stored(&self, resource: &str) -> Option<&Arc<Definition>> {
        self.definitions
            .iter()
            .find(|definition| &*definition.storage == resource && definition.is_storage_form())
    }

    /// Everything served, in order of announcement.
    pub fn definitions(&self) -> &[Arc<Definition>] {
        &self.definitions
    }

    /// The named groups in order, each with its versions in order of preference; the core group is left out.
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

    /// The resources of one group and version; `None` when the group or version is not served.
    pub fn group_version(&self, group: &str, version: &str) -> Option<Vec<&Arc<Definition>>> {
        let found: Vec<_> = self
            .definitions
            .iter()
            .filter(|definition| definition.group == group && definition.version == version)
            .collect();
        (!found.is_empty()).then_some(found)
    }
}
