//! Validation of CustomResourceDefinitions.

use serde_json::{Value, json};

use super::go_struct;
use super::structural::validate_schema;
use crate::field_error::FieldError;
use crate::go_text;
use crate::names;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Returns the errors of a CRD, or of the change from `old` to it. General metadata is validated elsewhere.
pub fn validate_definition(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let wanted = format!("{}.{}", text(crd, "/spec/names/plural"), text(crd, "/spec/group"));
    if text(crd, "/metadata/name") != wanted {
        let value = Value::from(text(crd, "/metadata/name"));
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &value, detail));
    }
    // A change of the status must not fail, or take long, because of a spec that was accepted before.
    if old.is_none_or(|old| old.get("spec") != crd.get("spec")) {
        errors.extend(group_and_scope(crd));
        errors.extend(version_errors(crd));
        errors.extend(name_errors(crd));
    }
    errors.extend(stored_version_errors(crd));
    if let Some(old) = old {
        errors.extend(immutable_errors(crd, old));
    }
    errors
}

fn group_and_scope(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = text(crd, "/spec/group");
    let value = Value::from(group);
    let problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", &value, &problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &value,
            "should be a domain with at least one dot",
        ));
    }
    let scope = text(crd, "/spec/scope");
    if scope.is_empty() {
        errors.push(FieldError::required("spec.scope", ""));
    } else if !matches!(scope, "Cluster" | "Namespaced") {
        let known = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &Value::from(scope),
            &known,
        ));
    }
    errors
}

fn version_errors(crd: &Value) -> Vec<FieldError> {
    let versions = items(crd, "/spec/versions");
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if version
            .pointer("/schema/openAPIV3Schema")
            .is_none_or(Value::is_null)
        {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(path, ""));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let problems = names::dns1035_label(text(version, "/name"));
        if !problems.is_empty() {
            let value = Value::from(text(version, "/name"));
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &value,
                &problems.join(","),
            ));
        }
        let warning = text(version, "/deprecationWarning");
        if !warning.is_empty() && version.get("deprecated") != Some(&Value::Bool(true)) {
            let detail = "can only be set for deprecated versions";
            let value = Value::from(warning);
            errors.push(FieldError::invalid(
                format!("{path}.deprecationWarning"),
                &value,
                detail,
            ));
        }
        if !is_shared(versions, "schema") {
            errors.extend(schema_errors(version, &format!("{path}.schema.openAPIV3Schema")));
        }
        if !is_shared(versions, "additionalPrinterColumns") {
            errors.extend(column_errors(version, &path));
        }
        if !is_shared(versions, "subresources") {
            errors.extend(subresource_errors(version, &path));
        }
    }
    let shown = shown_versions(versions);
    let repeated = versions.iter().enumerate().any(|(index, version)| {
        versions[..index]
            .iter()
            .any(|earlier| earlier.get("name") == version.get("name"))
    });
    if repeated {
        errors.push(FieldError::with_shown_value(
            "spec.versions",
            &shown,
            "must contain unique version names",
        ));
    }
    let storage = versions
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if storage != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::with_shown_value("spec.versions", &shown, detail));
    }
    errors
}

fn name_errors(crd: &Value) -> Vec<FieldError> {
    let names = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let versions = items(crd, "/spec/versions");
    let mut errors = Vec::new();
    // The older form of a CRD repeats its first version.
    if let Some(first) = versions.first() {
        let problems = names::dns1035_label(text(first, "/name"));
        if !problems.is_empty() {
            let value = Value::from(text(first, "/name"));
            errors.push(FieldError::invalid("spec.version", &value, &problems.join(",")));
        }
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(&names, &format!("/{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    for (field, mixed_case) in [
        ("plural", false),
        ("singular", false),
        ("kind", true),
        ("listKind", true),
    ] {
        let name = text(&names, &format!("/{field}"));
        let checked = if mixed_case {
            name.to_lowercase()
        } else {
            name.to_owned()
        };
        let problems = names::dns1035_label(&checked);
        if name.is_empty() || problems.is_empty() {
            continue;
        }
        let prefix = if mixed_case {
            "may have mixed case, but should otherwise match: "
        } else {
            ""
        };
        let detail = format!("{prefix}{}", problems.join(","));
        errors.push(FieldError::invalid(
            format!("spec.names.{field}"),
            &Value::from(name),
            &detail,
        ));
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in items(&names, &format!("/{field}")).iter().enumerate() {
            let problems = names::dns1035_label(name.as_str().unwrap_or_default());
            if !problems.is_empty() {
                let path = format!("spec.names.{field}[{index}]");
                errors.push(FieldError::invalid(path, name, &problems.join(",")));
            }
        }
    }
    let list_kind = text(&names, "/listKind");
    if !list_kind.is_empty() && list_kind == text(&names, "/kind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &Value::from(list_kind),
            detail,
        ));
    }
    // Values that all versions share are reported once, where the older form of a CRD has them.
    if let Some(first) = versions.first() {
        if is_shared(versions, "schema") {
            errors.extend(schema_errors(first, "spec.validation.openAPIV3Schema"));
        }
        if is_shared(versions, "subresources") {
            errors.extend(subresource_errors(first, "spec"));
        }
        if is_shared(versions, "additionalPrinterColumns") {
            errors.extend(column_errors(first, "spec"));
        }
    }
    errors
}

fn schema_errors(version: &Value, path: &str) -> Vec<FieldError> {
    let has_status = version
        .pointer("/subresources/status")
        .is_some_and(|status| !status.is_null());
    let schema = version
        .pointer("/schema/openAPIV3Schema")
        .filter(|schema| !schema.is_null());
    schema
        .map(|schema| validate_schema(schema, path, has_status))
        .unwrap_or_default()
}

fn column_errors(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, column) in items(version, "/additionalPrinterColumns").iter().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        if text(column, "/name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let one_of = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text(column, "/type") {
            "" => errors.push(FieldError::required(format!("{path}.type"), &one_of)),
            kind if !COLUMN_TYPES.contains(&kind) => {
                errors.push(FieldError::invalid(
                    format!("{path}.type"),
                    &Value::from(kind),
                    &one_of,
                ));
            }
            _ => {}
        }
        let format = text(column, "/format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(
                format!("{path}.format"),
                &Value::from(format),
                &detail,
            ));
        }
        let json_path = text(column, "/jsonPath");
        let path = format!("{path}.JSONPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else {
            errors.extend(json_path_error(json_path, &path));
        }
    }
    errors
}

fn subresource_errors(version: &Value, path: &str) -> Vec<FieldError> {
    let Some(scale) = version
        .pointer("/subresources/scale")
        .filter(|scale| !scale.is_null())
    else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    for (field, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = format!("{path}.subresources.scale.{field}");
        let given = text(scale, &format!("/{field}"));
        if given.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(error) = json_path_error(given, &path) {
            errors.push(error);
        } else if !given.starts_with(&format!("{prefix}.")) {
            let detail = format!("should be a json path under {prefix}");
            errors.push(FieldError::invalid(path, &Value::from(given), &detail));
        }
    }
    let selector = text(scale, "/labelSelectorPath");
    if !selector.is_empty() && !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        let path = format!("{path}.subresources.scale.labelSelectorPath");
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(path, &Value::from(selector), detail));
    }
    errors
}

fn json_path_error(json_path: &str, path: &str) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!json_path.starts_with('.')).then(|| FieldError::invalid(path, &Value::from(json_path), detail))
}

fn stored_version_errors(crd: &Value) -> Vec<FieldError> {
    let stored = items(crd, "/status/storedVersions");
    let versions = items(crd, "/spec/versions");
    if stored.is_empty() {
        let shown = crd.pointer("/status/storedVersions").cloned().unwrap_or_default();
        return vec![FieldError::invalid(
            "status.storedVersions",
            &shown,
            "must have at least one stored version",
        )];
    }
    let missing = stored
        .iter()
        .enumerate()
        .filter(|(_, name)| !versions.iter().any(|version| version.get("name") == Some(*name)));
    let mut errors: Vec<FieldError> = missing
        .map(|(index, name)| {
            let version = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            FieldError::invalid(format!("status.storedVersions[{index}]"), name, &detail)
        })
        .collect();
    let storage = versions
        .iter()
        .rev()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)));
    if let Some(name) = storage.and_then(|version| version.get("name"))
        && !stored.contains(name)
    {
        let detail = format!(
            "must have the storage version {}",
            name.as_str().unwrap_or_default()
        );
        errors.push(FieldError::invalid(
            "status.storedVersions",
            &Value::from(stored.to_vec()),
            &detail,
        ));
    }
    errors
}

/// Fields that are immutable once objects may exist.
fn immutable_errors(crd: &Value, old: &Value) -> Vec<FieldError> {
    let established = items(old, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Established" && text(condition, "/status") == "True");
    let mut fields = vec![
        ("/spec/group", "spec.group"),
        ("/spec/names/plural", "spec.names.plural"),
    ];
    if established {
        fields.extend([
            ("/spec/scope", "spec.scope"),
            ("/spec/names/kind", "spec.names.kind"),
        ]);
    }
    let changed = fields
        .into_iter()
        .filter(|(pointer, _)| crd.pointer(pointer) != old.pointer(pointer));
    changed
        .map(|(pointer, field)| {
            FieldError::invalid(field, &Value::from(text(crd, pointer)), "field is immutable")
        })
        .collect()
}

/// Returns versions as messages show them, without the values that all of them share.
fn shown_versions(versions: &[Value]) -> String {
    let shared = is_shared(versions, "schema");
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            let field = |name: &str, absent: Value| go_text::json(version.get(name).unwrap_or(&absent));
            let schema = version.pointer("/schema/openAPIV3Schema").filter(|_| !shared).map_or_else(
                || "null".to_owned(),
                |schema| format!("{{\"OpenAPIV3Schema\":{}}}", go_struct::schema(schema)),
            );
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                field("name", json!("")),
                field("served", json!(false)),
                field("storage", json!(false)),
                field("deprecated", json!(false)),
                field("deprecationWarning", Value::Null),
            )
        })
        .collect();
    format!("[{}]", shown.join(","))
}

/// Returns whether every version has the same value.
fn is_shared(versions: &[Value], field: &str) -> bool {
    versions
        .windows(2)
        .all(|pair| pair[0].get(field) == pair[1].get(field))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
