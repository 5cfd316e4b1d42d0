//! A CustomResourceDefinition, parsed for serving.
//!
//! Validation is elsewhere; this module parses accepted definitions only.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use super::{Catalog, DefinitionSource};
use crate::schema::CustomSchema;

/// The JSON paths of the scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// One version of a custom resource.
#[derive(Debug)]
pub struct CustomVersion {
    pub name: String,
    pub served: bool,
    pub deprecation_warning: Option<String>,
    pub open_api_schema: Value,
    pub schema: CustomSchema,
    pub columns: Vec<Value>,
    pub selectable: Vec<String>,
    pub status: bool,
    pub scale: Option<ScalePaths>,
}

#[derive(Clone, Debug)]
pub struct CustomDefinition {
    pub group: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub storage_version: String,
    pub versions: Vec<Arc<CustomVersion>>,
}

impl CustomDefinition {
    /// Parses a stored CRD; `None` if it lacks what serving needs, or if its names were not accepted. Versions that
    /// `compiled` has already compiled are reused.
    pub fn read(crd: &Value, compiled: &Catalog) -> Option<Self> {
        let spec = crd.get("spec")?;
        let names = crd.pointer("/status/acceptedNames").unwrap_or(&spec["names"]);
        let group = text(spec, "group")?;
        let kind = text(names, "kind")?;
        let plural = text(names, "plural")?;
        let versions: Vec<Arc<CustomVersion>> = spec["versions"]
            .as_array()?
            .iter()
            .filter_map(|version| {
                let name = text(version, "name")?;
                let compiled = compiled.resource(&group, &name, &plural);
                read_version(
                    version,
                    spec,
                    &group,
                    &kind,
                    compiled.map(|compiled| &compiled.source),
                )
            })
            .map(Arc::new)
            .collect();
        let storage_version = spec["versions"]
            .as_array()?
            .iter()
            .find(|version| version["storage"] == true)
            .and_then(|version| text(version, "name"))?;
        Some(Self {
            group,
            list_kind: text(names, "listKind").unwrap_or_else(|| format!("{kind}List")),
            plural,
            singular: text(names, "singular").unwrap_or_else(|| kind.to_ascii_lowercase()),
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
            namespaced: spec["scope"] == "Namespaced",
            kind,
            storage_version,
            versions,
        })
    }

    /// Returns the served versions, the preferred one first.
    pub fn served_in_priority_order(&self) -> Vec<&Arc<CustomVersion>> {
        let mut served: Vec<_> = self.versions.iter().filter(|version| version.served).collect();
        served.sort_by(|left, right| compare_versions(&left.name, &right.name));
        served
    }
}

fn read_version(
    version: &Value,
    spec: &Value,
    group: &str,
    kind: &str,
    compiled: Option<&DefinitionSource>,
) -> Option<CustomVersion> {
    let name = text(version, "name")?;
    let open_api_schema = version
        .pointer("/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or(Value::Null);
    let subresources = &version["subresources"];
    let deprecated = version["deprecated"] == true;
    let deprecation_warning = deprecated.then(|| {
        text(version, "deprecationWarning").unwrap_or_else(|| {
            let newer = successor(spec, &name).map(|newer| format!("; use {group}/{newer} {kind}"));
            format!("{group}/{name} {kind} is deprecated{}", newer.unwrap_or_default())
        })
    });
    let scale = subresources
        .get("scale")
        .filter(|scale| scale.is_object())
        .and_then(|scale| {
            Some(ScalePaths {
                spec_replicas: text(scale, "specReplicasPath")?,
                status_replicas: text(scale, "statusReplicasPath")?,
                label_selector: text(scale, "labelSelectorPath"),
            })
        });
    let preserves_unknown = spec["preserveUnknownFields"] == true;
    let schema = match compiled {
        Some(DefinitionSource::Custom(compiled))
            if compiled.open_api_schema == open_api_schema
                && compiled.schema.preserves_unknown() == preserves_unknown =>
        {
            compiled.schema.clone()
        }
        _ => CustomSchema::new(&open_api_schema, preserves_unknown),
    };
    Some(CustomVersion {
        served: version["served"] == true,
        deprecation_warning,
        schema,
        open_api_schema,
        columns: version["additionalPrinterColumns"]
            .as_array()
            .cloned()
            .unwrap_or_default(),
        selectable: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|field| text(field, "jsonPath"))
            .collect(),
        status: subresources.get("status").is_some_and(Value::is_object),
        scale,
        name,
    })
}

/// Returns the version that clients of a deprecated one should use.
fn successor(spec: &Value, deprecated: &str) -> Option<String> {
    let versions = spec["versions"].as_array()?.iter();
    let candidates = versions.filter(|version| version["served"] == true && version["deprecated"] != true);
    let names = candidates.filter_map(|version| text(version, "name"));
    let newer = names.filter(|name| compare_versions(name, deprecated) == Ordering::Less);
    newer.min_by(|left, right| compare_versions(left, right))
}

fn text(value: &Value, field: &str) -> Option<String> {
    let text = value.get(field)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value.get(field).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Kubernetes' order of preference: stable before beta before alpha, higher before lower, other names last.
pub(super) fn compare_versions(left: &str, right: &str) -> Ordering {
    match (rank(left), rank(right)) {
        (Some(left), Some(right)) => right.cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

/// Returns `(stability, major, minor)`; `None` if the name does not have the form `v1`, `v1beta2`, `v1alpha3`.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    for (stability, marker) in [(1, "alpha"), (2, "beta")] {
        if let Some((major, minor)) = rest.split_once(marker) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((3, number(rest)?, 0))
}

fn number(digits: &str) -> Option<u64> {
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_in_the_order_of_kubernetes() {
        let mut versions = [
            "v11alpha2",
            "foo1",
            "v3beta1",
            "v12alpha1",
            "v1",
            "foo10",
            "v10",
            "v2",
            "v11beta2",
            "v10beta3",
        ];
        versions.sort_by(|left, right| compare_versions(left, right));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
    }
}
