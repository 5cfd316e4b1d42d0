//! What a CustomResourceDefinition must hold to, in Kubernetes' words.

use serde_json::{Value, json};

use crate::field_error::FieldError;

/// The broken rules of a definition; `old` is what it replaces.
pub(crate) fn check(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &new["spec"];
    let mut errors = names(new);
    errors.extend(versions(spec));
    errors.extend(stored_versions(new));
    if let Some(old) = old {
        let established = super::status::is_established(old);
        for field in ["scope", "group"] {
            if established && old["spec"][field] != spec[field] {
                errors.push(FieldError::invalid(
                    format!("spec.{field}"),
                    &spec[field],
                    "field is immutable",
                ));
            }
        }
    }
    errors
}

fn names(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut errors = Vec::new();
    for (field, value) in [
        ("spec.group", &spec["group"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if text(value).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let expected = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if errors.is_empty() && text(&crd["metadata"]["name"]) != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            why,
        ));
    }
    if !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced")) {
        let supported = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &spec["scope"],
            &supported,
        ));
    }
    errors
}

fn versions(spec: &Value) -> Vec<FieldError> {
    let list = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    if list.iter().filter(|version| version["storage"] == true).count() != 1 {
        let mut error = FieldError::invalid(
            "spec.versions",
            &Value::Null,
            "must have exactly one version marked as storage version",
        );
        let only = list.len() == 1;
        let shown: Vec<String> = list.iter().map(|version| as_go_shows(version, only)).collect();
        error.body = error.body.replacen("null", &format!("[{}]", shown.join(",")), 1);
        errors.push(error);
    }
    let preserves = spec["preserveUnknownFields"] == true;
    for (index, version) in list.iter().enumerate() {
        let schema = version.pointer("/schema/openAPIV3Schema");
        if schema.is_none_or(Value::is_null) && !preserves {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
        if let Some(schema) = schema {
            // A schema that is the only one counts as that of the whole definition.
            let path = if list.len() == 1 {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                format!("spec.versions[{index}].schema.openAPIV3Schema")
            };
            structure(schema, &path, Place::Root, &mut errors);
        }
    }
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Field,
    Item,
}

/// A structural schema says of every value what type it has.
fn structure(schema: &Value, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    let free = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if schema["type"].as_str().unwrap_or_default().is_empty() && !(free && place != Place::Root) {
        let why = match place {
            Place::Root => "must not be empty at the root",
            Place::Field => "must not be empty for specified object fields",
            Place::Item => "must not be empty for specified array items",
        };
        errors.push(FieldError::required(format!("{path}.type"), why));
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        structure(
            member,
            &format!("{path}.properties[{name}]"),
            Place::Field,
            errors,
        );
    }
    if schema["items"].is_object() {
        structure(&schema["items"], &format!("{path}.items"), Place::Item, errors);
    }
    if schema["additionalProperties"].is_object() {
        structure(
            &schema["additionalProperties"],
            &format!("{path}.additionalProperties"),
            Place::Field,
            errors,
        );
    }
}

/// Versions that objects may still be stored in cannot go.
fn stored_versions(crd: &Value) -> Vec<FieldError> {
    let versions = crd["spec"]["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stored = crd["status"]["storedVersions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if stored.is_empty() {
        let mut error = FieldError::invalid(
            "status.storedVersions",
            &json!([]),
            "must have at least one stored version",
        );
        error.body = error.body.replacen("[]", "null", 1);
        return vec![error];
    }
    let gone = stored
        .iter()
        .enumerate()
        .filter(|(_, name)| versions.iter().all(|version| version["name"] != **name));
    gone.map(|(index, name)| {
        let shown = name.as_str().unwrap_or_default();
        let why = format!(
            "missing from spec.versions; {shown} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {shown} and removes {shown} from status.storedVersions"
        );
        FieldError::invalid(format!("status.storedVersions[{index}]"), name, &why)
    })
    .collect()
}

/// A version under the names its fields have in Go; what the only version has belongs to the whole definition there.
fn as_go_shows(version: &Value, only: bool) -> String {
    let or_null = |field: &str| {
        let own = version.get(field).cloned().unwrap_or_default();
        if only { Value::Null } else { own }
    };
    let flag = |field: &str| version[field] == true;
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
        version["name"],
        flag("served"),
        flag("storage"),
        flag("deprecated"),
        or_null("deprecationWarning"),
        or_null("schema"),
        or_null("subresources"),
        or_null("additionalPrinterColumns"),
        or_null("selectableFields"),
    )
}
