//! The parameters that a binding selects for its policy.

use std::sync::Arc;

use serde_json::Value;

use super::AdmissionAttributes;
use crate::catalog::{Catalog, ResourceDefinition};
use crate::kinds;
use crate::registry::from_storage;
use crate::selector::LabelSelector;
use crate::store::{ObjectKey, ObjectStore, StoredObject};

/// Returns the values of `params` that a policy is evaluated with, once for each.
///
/// `None` is an evaluation without a parameter. No value at all means that the binding does not apply.
pub(super) fn collect(
    param_kind: &Value,
    param_ref: &Value,
    attributes: &AdmissionAttributes,
    catalog: &Catalog,
    store: &ObjectStore,
) -> Result<Vec<Option<Value>>, String> {
    if param_kind.is_null() || param_ref.is_null() {
        return Ok(vec![None]);
    }
    let text = |from: &Value, field: &str| from[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(param_kind, "apiVersion"), text(param_kind, "kind"));
    let (group, version) = kinds::split_api_version(&api_version);
    let definition = catalog.kind(group, version, &kind).ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'")
    })?;
    let namespace = namespace_of(definition, &text(param_ref, "namespace"), attributes)?;
    let name = text(param_ref, "name");
    let found: Vec<Arc<StoredObject>> = if name.is_empty() {
        let selector =
            LabelSelector::from_object(param_ref.get("selector")).map_err(|error| error.to_string())?;
        let listed = store.list(&definition.storage, &namespace).objects;
        listed
            .into_iter()
            .filter(|stored| selector.matches(Some(&stored.metadata.labels)))
            .collect()
    } else {
        let key = ObjectKey::new(&definition.storage, &namespace, &name);
        store.get(&key).into_iter().collect()
    };
    if found.is_empty() && param_ref["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    found
        .iter()
        .map(|stored| Ok(Some(shown(definition, stored)?)))
        .collect()
}

fn shown(definition: &ResourceDefinition, stored: &StoredObject) -> Result<Value, String> {
    let mut object = stored.value().map_err(|error| error.to_string())?;
    from_storage(definition, &mut object);
    Ok(Value::Object(object))
}

fn namespace_of(
    definition: &ResourceDefinition,
    referenced: &str,
    attributes: &AdmissionAttributes,
) -> Result<String, String> {
    if !definition.namespaced {
        if referenced.is_empty() {
            return Ok(String::new());
        }
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
    }
    if !referenced.is_empty() {
        return Ok(referenced.to_owned());
    }
    if attributes.namespace.is_empty() || attributes.definition.is("", "namespaces") {
        return Err(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                .to_owned(),
        );
    }
    Ok(attributes.namespace.clone())
}
