//! OpenAPI documents, which clients use to explain, complete and validate objects.
//!
//! Documents are pure functions of the served resources. The caller caches and serves them; [`index`] has a hash of
//! every document for the caches of clients.

mod built_in;
mod custom;
mod paths;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use crate::kinds::{BuiltIn, KindStorage};

/// A served resource, as documents describe it.
#[derive(Clone, Debug)]
pub struct DocumentedResource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<DocumentedSubresource>,
    pub schema: ResourceSchema,
}

/// A subresource and the kind of its body; an empty version means that of the parent.
#[derive(Clone, Debug)]
pub struct DocumentedSubresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// The source of a resource's schema.
#[derive(Clone, Debug)]
pub enum ResourceSchema {
    /// The full name of a published definition.
    BuiltIn(&'static str),
    /// The `openAPIV3Schema` of a CRD's version.
    Custom(Value),
}

/// The flavour of OpenAPI that a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenApiFlavour {
    V2,
    V3,
}

impl DocumentedResource {
    /// Returns the description of a built-in kind.
    pub fn built_in(kind: &BuiltIn) -> Self {
        let texts = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            list_kind: if kind.storage == KindStorage::Virtual {
                String::new()
            } else {
                kind.list_kind()
            },
            plural: kind.plural.to_owned(),
            namespaced: kind.is_namespaced(),
            verbs: texts(kind.verbs),
            subresources: kind
                .subresources
                .iter()
                .map(|sub| DocumentedSubresource {
                    name: sub.name.to_owned(),
                    group: sub.group.to_owned(),
                    version: sub.version.to_owned(),
                    kind: sub.kind.to_owned(),
                    verbs: texts(sub.verbs),
                })
                .collect(),
            schema: ResourceSchema::BuiltIn(kind.definition),
        }
    }

    /// Returns the name of the resource's definition in documents.
    fn definition(&self) -> String {
        match &self.schema {
            ResourceSchema::BuiltIn(name) => (*name).to_owned(),
            ResourceSchema::Custom(_) => format!("{}.{}.{}", reversed(&self.group), self.version, self.kind),
        }
    }

    /// Returns the name of the definition of a list of them.
    fn list_definition(&self) -> String {
        match self.definition().rsplit_once('.') {
            Some((prefix, _)) => format!("{prefix}.{}", self.list_kind),
            None => self.list_kind.clone(),
        }
    }

    fn group_version_kind(&self, kind: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": kind})
    }
}

/// Returns the OpenAPI v3 document of one group and version.
pub fn group_version(resources: &[DocumentedResource]) -> Value {
    let mut schemas = schemas(resources, OpenApiFlavour::V3);
    for schema in schemas.values_mut() {
        built_in::relocate(schema, "#/components/schemas/");
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths::of(resources, OpenApiFlavour::V3),
        "components": {"schemas": schemas},
    })
}

/// Returns the OpenAPI v2 document of everything that is served.
pub fn swagger(resources: &[DocumentedResource]) -> Value {
    let mut definitions = schemas(resources, OpenApiFlavour::V2);
    for schema in definitions.values_mut() {
        built_in::relocate(schema, "#/definitions/");
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths::of(resources, OpenApiFlavour::V2),
        "definitions": definitions,
    })
}

/// Returns the v3 index: the path of every document (`api/v1`, `apis/apps/v1`) with a hash of its bytes.
pub fn index<'d>(documents: impl IntoIterator<Item = (&'d str, &'d [u8])>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(path, bytes)| {
            let url = format!("/openapi/v3/{path}?hash={}", hash(bytes));
            (path.to_owned(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the path of a group and version in the index.
pub fn index_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// Returns the hash of a document, for the index and for `ETag`.
pub fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes)
        .iter()
        .fold(String::with_capacity(128), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02X}");
            text
        })
}

/// Returns every schema the resources need, with references still in published notation.
fn schemas(resources: &[DocumentedResource], flavour: OpenApiFlavour) -> Map<String, Value> {
    let published = built_in::schemas(flavour);
    let common = built_in::CommonMembers::of(&published);
    let mut schemas = Map::new();
    let mut needed: BTreeSet<String> = ["DeleteOptions", "Status", "ListMeta", "ObjectMeta"]
        .iter()
        .map(|name| built_in::meta(name))
        .collect();
    for resource in resources {
        let definition = resource.definition();
        let mut schema = match &resource.schema {
            ResourceSchema::BuiltIn(name) => published.get(*name).cloned().unwrap_or_else(|| json!({})),
            ResourceSchema::Custom(schema) => custom::schema(schema, flavour, &common),
        };
        mark(&mut schema, &resource.group_version_kind(&resource.kind));
        if !resource.list_kind.is_empty() {
            let mut list = custom::list(resource, &definition, &common);
            mark(&mut list, &resource.group_version_kind(&resource.list_kind));
            schemas.insert(resource.list_definition(), list);
        }
        built_in::references(&schema, &mut needed);
        schemas.insert(definition, schema);
        let bodies = resource.subresources.iter().filter_map(built_in::body_definition);
        needed.extend(bodies.map(str::to_owned));
    }
    while let Some(name) = needed.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        if let Some(schema) = published.get(&name) {
            built_in::references(schema, &mut needed);
            schemas.insert(name, schema.clone());
        }
    }
    schemas
}

fn mark(schema: &mut Value, group_version_kind: &Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert(
            "x-kubernetes-group-version-kind".to_owned(),
            json!([group_version_kind]),
        );
    }
}

/// Returns a group's name in reverse order, as definitions are named.
fn reversed(group: &str) -> String {
    group.rsplit('.').collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests;
