//! The OpenAPI documents of the current catalog, built on first use and cached until the catalog changes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::catalog::{Catalog, DefinitionSource, ResourceDefinition};
use crate::kinds;
use crate::openapi::{self, DocumentedResource, DocumentedSubresource, ResourceSchema};

/// Documents of groups that CRDs cannot extend are the same for every catalog.
static BUILT_IN: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(|| {
    let catalog = Catalog::with(&[]);
    group_versions(&catalog)
        .into_iter()
        .map(|(group, version)| {
            (
                openapi::index_path(&group, &version),
                document(&catalog, &group, &version),
            )
        })
        .collect()
});

/// Caches the documents of the newest catalog.
#[derive(Debug, Default)]
pub struct SchemaCache {
    newest: Mutex<Option<Arc<OpenApiDocuments>>>,
}

/// The documents of one catalog.
#[derive(Debug)]
pub(super) struct OpenApiDocuments {
    catalog: Arc<Catalog>,
    groups: OnceLock<BTreeMap<String, Bytes>>,
    index: OnceLock<Bytes>,
    swagger: OnceLock<Bytes>,
}

impl SchemaCache {
    pub(super) fn documents(&self, catalog: &Arc<Catalog>) -> Arc<OpenApiDocuments> {
        let mut newest = self.newest.lock();
        if let Some(documents) = newest
            .as_ref()
            .filter(|documents| Arc::ptr_eq(&documents.catalog, catalog))
        {
            return Arc::clone(documents);
        }
        let documents = Arc::new(OpenApiDocuments {
            catalog: Arc::clone(catalog),
            groups: OnceLock::new(),
            index: OnceLock::new(),
            swagger: OnceLock::new(),
        });
        *newest = Some(Arc::clone(&documents));
        documents
    }
}

impl OpenApiDocuments {
    /// `/openapi/v3`
    pub fn index(&self) -> &Bytes {
        self.index.get_or_init(|| {
            let documents = self
                .groups()
                .iter()
                .map(|(path, bytes)| (path.as_str(), &bytes[..]));
            Bytes::from(openapi::index(documents).to_string())
        })
    }

    /// `/openapi/v3/<path>`
    pub fn group(&self, path: &str) -> Option<&Bytes> {
        self.groups().get(path)
    }

    /// `/openapi/v2`
    pub fn swagger(&self) -> &Bytes {
        self.swagger.get_or_init(|| {
            let resources: Vec<DocumentedResource> = self
                .catalog
                .definitions()
                .iter()
                .map(|definition| describe(definition))
                .collect();
            Bytes::from(openapi::swagger(&resources).to_string())
        })
    }

    fn groups(&self) -> &BTreeMap<String, Bytes> {
        self.groups.get_or_init(|| {
            let mut groups = BTreeMap::new();
            for (group, version) in group_versions(&self.catalog) {
                let path = openapi::index_path(&group, &version);
                let own = self.catalog.group_version(&group, &version).unwrap_or_default();
                let bytes = match BUILT_IN.get(&path) {
                    Some(bytes) if own.iter().all(|definition| !definition.is_custom()) => bytes.clone(),
                    _ => document(&self.catalog, &group, &version),
                };
                groups.insert(path, bytes);
            }
            groups
        })
    }
}

fn group_versions(catalog: &Catalog) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = catalog
        .definitions()
        .iter()
        .map(|definition| (definition.group.clone(), definition.version.clone()))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn document(catalog: &Catalog, group: &str, version: &str) -> Bytes {
    let definitions = catalog.group_version(group, version).unwrap_or_default();
    let resources: Vec<DocumentedResource> = definitions
        .into_iter()
        .map(|definition| describe(definition))
        .collect();
    Bytes::from(openapi::group_version(&resources).to_string())
}

fn describe(definition: &ResourceDefinition) -> DocumentedResource {
    let version = match &definition.source {
        DefinitionSource::BuiltIn(kind) => return DocumentedResource::built_in(kind),
        DefinitionSource::Custom(version) => version,
    };
    let verbs = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
    let subresources = definition.subresources.iter().map(|sub| {
        let own = kinds::api_version(&sub.group, &sub.version) == definition.api_version();
        DocumentedSubresource {
            name: sub.name.clone(),
            group: if own { String::new() } else { sub.group.clone() },
            version: if own { String::new() } else { sub.version.clone() },
            kind: sub.kind.clone(),
            verbs: verbs(&sub.verbs),
        }
    });
    DocumentedResource {
        group: definition.group.clone(),
        version: definition.version.clone(),
        kind: definition.kind.clone(),
        list_kind: definition.list_kind.clone(),
        plural: definition.plural.clone(),
        namespaced: definition.namespaced,
        verbs: verbs(&definition.verbs),
        subresources: subresources.collect(),
        schema: ResourceSchema::Custom(version.open_api_schema.clone()),
    }
}
