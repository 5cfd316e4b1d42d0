//! One resource in one version, as requests and discovery use it.

use std::sync::Arc;

use super::custom::{CustomDefinition, CustomVersion};
use crate::error::ErrorSubject;
use crate::kinds::{self, BuiltIn, KindStorage};
use crate::schema::Schema;
use crate::selector::SelectableFields;

/// A subresource and its verbs.
#[derive(Clone, Debug)]
pub struct ServedSubresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<&'static str>,
}

/// The origin of a definition.
#[derive(Clone, Debug)]
pub enum DefinitionSource {
    BuiltIn(&'static BuiltIn),
    Custom(Arc<CustomVersion>),
}

#[derive(Clone, Debug)]
pub struct ResourceDefinition {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<ServedSubresource>,
    /// The name under which objects are stored, shared by all versions.
    pub storage: Arc<str>,
    /// The version in which they are stored.
    pub storage_version: String,
    pub source: DefinitionSource,
}

const ALL_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

impl ResourceDefinition {
    pub(super) fn built_in(kind: &'static BuiltIn) -> Self {
        let storage = match kind.storage {
            KindStorage::SharedWith { group, plural } => storage_name(group, plural),
            KindStorage::Own | KindStorage::Virtual => storage_name(kind.group, kind.plural),
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            list_kind: kind.list_kind(),
            plural: kind.plural.to_owned(),
            singular: kind.singular(),
            short_names: owned(kind.short_names),
            categories: owned(kind.categories),
            namespaced: kind.is_namespaced(),
            verbs: kind.verbs.to_vec(),
            subresources: kind
                .subresources
                .iter()
                .map(|sub| built_in_subresource(kind, sub))
                .collect(),
            storage: Arc::from(storage),
            storage_version: kind.version.to_owned(),
            source: DefinitionSource::BuiltIn(kind),
        }
    }

    pub(super) fn custom(definition: &CustomDefinition, version: &Arc<CustomVersion>) -> Self {
        let own = |name: &str| ServedSubresource {
            name: name.to_owned(),
            group: definition.group.clone(),
            version: version.name.clone(),
            kind: definition.kind.clone(),
            verbs: READ_WRITE.to_vec(),
        };
        let scale = version.scale.as_ref().map(|_| ServedSubresource {
            name: "scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            verbs: READ_WRITE.to_vec(),
        });
        let status = version.status.then(|| own("status"));
        Self {
            group: definition.group.clone(),
            version: version.name.clone(),
            kind: definition.kind.clone(),
            list_kind: definition.list_kind.clone(),
            plural: definition.plural.clone(),
            singular: definition.singular.clone(),
            short_names: definition.short_names.clone(),
            categories: definition.categories.clone(),
            namespaced: definition.namespaced,
            verbs: ALL_VERBS.to_vec(),
            subresources: status.into_iter().chain(scale).collect(),
            storage: Arc::from(storage_name(&definition.group, &definition.plural)),
            storage_version: definition.storage_version.clone(),
            source: DefinitionSource::Custom(Arc::clone(version)),
        }
    }

    pub fn api_version(&self) -> String {
        kinds::api_version(&self.group, &self.version)
    }

    /// Returns the `apiVersion` under which objects are stored.
    pub fn storage_api_version(&self) -> String {
        match &self.source {
            DefinitionSource::BuiltIn(kind) => match kind.storage {
                KindStorage::SharedWith { group, .. } => kinds::api_version(group, kind.version),
                KindStorage::Own | KindStorage::Virtual => kind.api_version(),
            },
            DefinitionSource::Custom(_) => kinds::api_version(&self.group, &self.storage_version),
        }
    }

    pub fn is_storage_form(&self) -> bool {
        self.storage_api_version() == self.api_version()
    }

    /// Returns whether objects are stored in another shape than this one, not only under another `apiVersion`.
    pub fn is_event_alias(&self) -> bool {
        self.group == "events.k8s.io"
    }

    pub fn is_custom(&self) -> bool {
        matches!(self.source, DefinitionSource::Custom(_))
    }

    pub fn is_virtual(&self) -> bool {
        matches!(self.source, DefinitionSource::BuiltIn(kind) if kind.storage == KindStorage::Virtual)
    }

    /// Returns whether this is the built-in resource of that group and plural.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        !self.is_custom() && self.group == group && self.plural == plural
    }

    pub fn subresource(&self, name: &str) -> Option<&ServedSubresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Returns the subject of errors about one object of this resource.
    pub fn subject<'a>(&'a self, name: &'a str) -> ErrorSubject<'a> {
        ErrorSubject {
            group: &self.group,
            resource: &self.plural,
            name,
        }
    }

    /// Returns the Go type of a built-in object; custom resources have a structural schema instead.
    pub fn type_schema(&self) -> Option<Schema> {
        match &self.source {
            DefinitionSource::BuiltIn(kind) => kinds::schema_of(kind.definition),
            DefinitionSource::Custom(_) => None,
        }
    }

    /// Returns the Go type of a built-in object as it is stored.
    pub fn storage_schema(&self) -> Option<Schema> {
        match &self.source {
            DefinitionSource::BuiltIn(kind) => {
                let (group, version) = match kind.storage {
                    KindStorage::SharedWith { group, .. } => (group, kind.version),
                    KindStorage::Own | KindStorage::Virtual => return self.type_schema(),
                };
                kinds::by_kind(group, version, kind.kind)
                    .and_then(|stored| kinds::schema_of(stored.definition))
            }
            DefinitionSource::Custom(_) => None,
        }
    }

    pub fn selectable_fields(&self) -> SelectableFields<'_> {
        match &self.source {
            DefinitionSource::BuiltIn(kind) => SelectableFields::BuiltIn(kind),
            DefinitionSource::Custom(version) => SelectableFields::Custom {
                scope: if self.namespaced {
                    kinds::KindScope::Namespaced
                } else {
                    kinds::KindScope::Cluster
                },
                json_paths: &version.selectable,
            },
        }
    }
}

/// Returns the name of the stored resource, such as `nodes` or `leases.coordination.k8s.io`.
pub fn storage_name(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

fn built_in_subresource(kind: &BuiltIn, sub: &kinds::KindSubresource) -> ServedSubresource {
    let own = sub.version.is_empty();
    ServedSubresource {
        name: sub.name.to_owned(),
        group: if own { kind.group } else { sub.group }.to_owned(),
        version: if own { kind.version } else { sub.version }.to_owned(),
        kind: sub.kind.to_owned(),
        verbs: sub.verbs.to_vec(),
    }
}
