//! Discovery of groups, versions and resources, unaggregated and aggregated.

use serde_json::{Value, json};

use crate::catalog::{Catalog, ResourceDefinition, ServedSubresource};
use crate::kinds::{self, storage_version_hash};

/// `/api`
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]})
}

/// `/apis`
pub fn groups(catalog: &Catalog) -> Value {
    let groups: Vec<Value> = catalog
        .groups()
        .iter()
        .map(|(name, versions)| group_body(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
pub fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let groups = catalog.groups();
    let (_, versions) = groups.iter().find(|(group, _)| *group == name)?;
    let mut body = group_body(name, versions);
    body["kind"] = Value::from("APIGroup");
    body["apiVersion"] = Value::from("v1");
    Some(body)
}

fn group_body(name: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": kinds::api_version(name, version), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions[0], "versions": versions})
}

/// `/api/v1` and `/apis/<group>/<version>`
pub fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for definition in catalog.group_version(group, version)? {
        resources.push(resource(definition));
        for sub in &definition.subresources {
            resources.push(subresource(definition, sub));
        }
    }
    let mut list = json!({"kind": "APIResourceList",
        "groupVersion": kinds::api_version(group, version), "resources": resources});
    // The core group's list predates the field.
    if !group.is_empty() {
        list["apiVersion"] = Value::from("v1");
    }
    Some(list)
}

fn resource(definition: &ResourceDefinition) -> Value {
    let mut resource = json!({"name": definition.plural, "singularName": definition.singular,
        "namespaced": definition.namespaced, "kind": definition.kind, "verbs": definition.verbs});
    if !definition.short_names.is_empty() {
        resource["shortNames"] = json!(definition.short_names);
    }
    if !definition.categories.is_empty() {
        resource["categories"] = json!(definition.categories);
    }
    if !definition.is_virtual() {
        let hash = storage_version_hash(&definition.group, &definition.storage_version, &definition.kind);
        resource["storageVersionHash"] = Value::from(hash);
    }
    resource
}

fn subresource(definition: &ResourceDefinition, sub: &ServedSubresource) -> Value {
    let mut resource = json!({"name": format!("{}/{}", definition.plural, sub.name), "singularName": "",
        "namespaced": definition.namespaced, "kind": sub.kind, "verbs": sub.verbs});
    if (&sub.group, &sub.version) != (&definition.group, &definition.version) {
        resource["group"] = Value::from(sub.group.as_str());
        resource["version"] = Value::from(sub.version.as_str());
    }
    resource
}

/// Returns `/api` or `/apis` as one aggregated document.
pub fn aggregated(catalog: &Catalog, core: bool, version: &str) -> Value {
    let items: Vec<Value> = if core {
        vec![aggregated_group(catalog, "", &["v1"])]
    } else {
        let groups = catalog.groups();
        groups
            .iter()
            .map(|(name, versions)| aggregated_group(catalog, name, versions))
            .collect()
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items})
}

fn aggregated_group(catalog: &Catalog, group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let definitions = catalog.group_version(group, version).unwrap_or_default();
            let resources: Vec<Value> = definitions
                .into_iter()
                .map(|definition| aggregated_resource(definition))
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let mut body = json!({"metadata": {}, "versions": versions});
    if !group.is_empty() {
        body["metadata"]["name"] = Value::from(group);
    }
    body
}

fn aggregated_resource(definition: &ResourceDefinition) -> Value {
    // Built-in groups leave out what their position in the document implies.
    let kind = |group: &str, version: &str, kind: &str| {
        let implied = !definition.is_custom()
            && (group, version) == (definition.group.as_str(), definition.version.as_str());
        let (group, version) = if implied { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut resource = json!({
        "resource": definition.plural,
        "responseKind": kind(&definition.group, &definition.version, &definition.kind),
        "scope": if definition.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": definition.singular,
        "verbs": definition.verbs,
    });
    if !definition.short_names.is_empty() {
        resource["shortNames"] = json!(definition.short_names);
    }
    if !definition.categories.is_empty() {
        resource["categories"] = json!(definition.categories);
    }
    let subresources: Vec<Value> = definition
        .subresources
        .iter()
        .map(|sub| {
            json!({"subresource": sub.name, "responseKind": kind(&sub.group, &sub.version, &sub.kind), "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = Value::Array(subresources);
    }
    resource
}
