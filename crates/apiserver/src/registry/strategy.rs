//! The fields that the server controls: identity, status, generation, and the exceptions of single kinds.

use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Value, json};

use super::ObjectTarget;
use crate::catalog::{DefinitionSource, ResourceDefinition};
use crate::crd;
use crate::defaults;
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::go_types;
use crate::kinds;
use crate::meta::{self, JsonObject};
use crate::store::{ObjectKey, StoredObject};

/// The finalizer in a namespace's spec that keeps it until its content is gone.
pub(crate) const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Returns whether `metadata.generation` counts changes of the spec.
pub(super) fn counts_generations(definition: &ResourceDefinition) -> bool {
    match &definition.source {
        DefinitionSource::BuiltIn(kind) => kind.has_generation(),
        DefinitionSource::Custom(_) => true,
    }
}

/// Returns whether an update without a `resourceVersion` is allowed.
pub(super) fn allows_unconditional_update(definition: &ResourceDefinition) -> bool {
    match definition.group.as_str() {
        "coordination.k8s.io" | "policy" | "apiextensions.k8s.io" | "admissionregistration.k8s.io" => false,
        _ => !definition.is_custom(),
    }
}

/// Returns whether a `PUT` of an object that does not exist creates it.
pub(super) fn allows_create_on_update(definition: &ResourceDefinition) -> bool {
    !definition.is_custom()
        && (definition.group == "coordination.k8s.io"
            || definition.group == "rbac.authorization.k8s.io"
            || definition.is("", "events")
            || definition.is("", "endpoints")
            || definition.is_event_alias())
}

/// Returns whether a delete responds with the object instead of a `Status`.
pub(super) fn returns_deleted_object(definition: &ResourceDefinition) -> bool {
    ["pods", "services", "serviceaccounts", "namespaces"]
        .iter()
        .any(|plural| definition.is("", plural))
}

/// Rejects an object of another type, fills in a missing type, and converts to the stored form.
pub(super) fn require_same_type(
    definition: &ResourceDefinition,
    object: &mut JsonObject,
) -> Result<(), ApiError> {
    let expected = definition.api_version();
    let (api_version, kind) = (
        meta::text(object, "apiVersion").to_owned(),
        meta::text(object, "kind").to_owned(),
    );
    if definition.is_custom() {
        let missing = if kind.is_empty() {
            Some("Kind")
        } else {
            api_version.is_empty().then_some("apiVersion")
        };
        if let Some(missing) = missing {
            let shown = Value::Object(object.clone()).to_string();
            let why = format!("Object '{missing}' is missing in '{shown}'");
            return Err(ApiError::unrecognized_object(
                &definition.kind,
                &why,
                shown.as_bytes(),
            ));
        }
        if kind != definition.kind && api_version == expected {
            let error = FieldError::invalid(
                "kind",
                &Value::from(kind.as_str()),
                &format!("must be {}", definition.kind),
            );
            return Err(ApiError::invalid(
                &definition.group,
                &kind,
                meta::name(object),
                &[error],
            ));
        }
    }
    if (!api_version.is_empty() && api_version != expected) || (!kind.is_empty() && kind != definition.kind) {
        return Err(another_type(definition, &api_version, &kind));
    }
    if object
        .get("metadata")
        .is_some_and(|metadata| !metadata.is_object() && !metadata.is_null())
    {
        return Err(ApiError::bad_request(
            "json: cannot unmarshal metadata into Go struct field .metadata of type v1.ObjectMeta",
        ));
    }
    to_storage(definition, object);
    Ok(())
}

/// The location of Kubernetes' scheme, which is part of its messages about unknown kinds.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

fn another_type(definition: &ResourceDefinition, api_version: &str, kind: &str) -> ApiError {
    if definition.is_custom() {
        return ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            definition.api_version()
        ));
    }
    let (kind, api_version) = (
        if kind.is_empty() {
            definition.kind.as_str()
        } else {
            kind
        },
        if api_version.is_empty() {
            definition.api_version()
        } else {
            api_version.to_owned()
        },
    );
    let (group, version) = kinds::split_api_version(&api_version);
    let why = if kinds::by_kind(group, version, kind).is_some() {
        let package = match definition.group.split('.').next() {
            Some("") | None => "core",
            Some(package) => package,
        };
        format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            definition.kind
        )
    } else {
        unregistered(&api_version, kind)
    };
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {why}",
        definition.kind
    ))
}

/// Returns Kubernetes' message for an unknown kind.
pub(crate) fn unregistered(api_version: &str, kind: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}")
}

/// Converts from the version of the request to the stored form.
pub(crate) fn to_storage(definition: &ResourceDefinition, object: &mut JsonObject) {
    if definition.is_event_alias() {
        let mut event = Value::Object(std::mem::take(object));
        kinds::event::to_core(&mut event);
        if let Value::Object(event) = event {
            *object = event;
        }
    }
    object.insert(
        "apiVersion".to_owned(),
        Value::from(definition.storage_api_version()),
    );
    object.insert("kind".to_owned(), Value::from(definition.kind.as_str()));
}

/// Converts from the stored form to the version of the request.
pub(crate) fn from_storage(definition: &ResourceDefinition, object: &mut JsonObject) {
    if definition.is_event_alias() {
        let mut event = Value::Object(std::mem::take(object));
        kinds::event::from_core(&mut event);
        if let Value::Object(event) = event {
            *object = event;
        }
    }
    object.insert("apiVersion".to_owned(), Value::from(definition.api_version()));
    object.insert("kind".to_owned(), Value::from(definition.kind.as_str()));
}

/// Sets or checks the namespace of an object, which is that of the request.
pub(super) fn require_namespace(target: &ObjectTarget, object: &mut JsonObject) -> Result<(), ApiError> {
    if !target.definition.namespaced {
        if !meta::namespace(object).is_empty() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        return Ok(());
    }
    if target.namespace.is_empty() {
        return Err(ApiError::bad_request(
            "an empty namespace may not be set during creation",
        ));
    }
    let namespace = meta::namespace(object);
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set_meta(object, "namespace", target.namespace.as_str());
    Ok(())
}

/// Sets fields that derive from others, as if the client had sent them.
pub(super) fn default_fields(target: &ObjectTarget, object: &mut JsonObject) {
    let definition = &target.definition;
    if let DefinitionSource::BuiltIn(kind) = definition.source {
        let mut value = Value::Object(std::mem::take(object));
        defaults::apply(kind.group, kind.kind, &mut value);
        if let Value::Object(completed) = value {
            *object = completed;
        }
    }
    if definition.is("", "namespaces") {
        let name = meta::name(object).to_owned();
        let labels = meta::metadata_mut(object)
            .entry("labels")
            .or_insert_with(|| json!({}));
        if labels.is_object() {
            labels["kubernetes.io/metadata.name"] = Value::from(name);
        }
    }
    if definition.is("", "secrets") {
        prepare_secret(object);
    }
    if definition.is("apiextensions.k8s.io", "customresourcedefinitions") {
        crd::default_names(object);
    }
}

/// Sets fields of kinds that the server acts upon.
pub(super) fn complete(target: &ObjectTarget, old: Option<&JsonObject>, object: &mut JsonObject) {
    if target
        .definition
        .is("apiextensions.k8s.io", "customresourcedefinitions")
        && target.subresource.is_empty()
    {
        crd::prepare(old, object);
    }
}

/// Clears the fields of a new object that only the cluster sets, such as its status.
pub(super) fn prepare_create(definition: &ResourceDefinition, object: &mut JsonObject) {
    normalise_metadata(object);
    if definition.is_custom() {
        if definition.has_status() {
            object.remove("status");
        }
        return;
    }
    match (definition.group.as_str(), definition.kind.as_str()) {
        ("", "Namespace") => prepare_namespace(object),
        // A kubelet registers its node with a status.
        ("", "Node") => {
            object.entry("spec").or_insert_with(|| json!({}));
            object.entry("status").or_insert_with(|| json!({}));
        }
        ("", "Pod") => {
            let status = json!({"phase": "Pending", "qosClass": quality_of_service(object)});
            object.insert("status".to_owned(), status);
        }
        ("", "Service") => {
            let mut service = Value::Object(std::mem::take(object));
            defaults::allocate(&mut service);
            if let Value::Object(service) = service {
                *object = service;
            }
            object.insert("status".to_owned(), json!({}));
        }
        ("policy", "PodDisruptionBudget") => {
            let zero =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
            object.insert("status".to_owned(), zero);
        }
        _ if definition.has_status() => {
            object.insert("status".to_owned(), json!({}));
        }
        _ => {}
    }
}

/// Returns the QoS class of a pod: Guaranteed, Burstable or BestEffort.
fn quality_of_service(pod: &JsonObject) -> &'static str {
    let spec = pod.get("spec").cloned().unwrap_or_default();
    let containers = ["containers", "initContainers"]
        .iter()
        .filter_map(|field| spec[*field].as_array())
        .flatten();
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        let (requests, limits) = (
            &container["resources"]["requests"],
            &container["resources"]["limits"],
        );
        any |= [requests, limits]
            .iter()
            .any(|amounts| amounts.as_object().is_some_and(|amounts| !amounts.is_empty()));
        guaranteed &= ["cpu", "memory"]
            .iter()
            .all(|name| limits[*name].is_string() && requests[*name] == limits[*name]);
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn prepare_namespace(object: &mut JsonObject) {
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let finalizers = spec["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers
        .iter()
        .any(|finalizer| finalizer == NAMESPACE_FINALIZER)
    {
        let mut finalizers = finalizers;
        finalizers.push(Value::from(NAMESPACE_FINALIZER));
        spec["finalizers"] = Value::Array(finalizers);
    }
    object.insert("status".to_owned(), json!({"phase": "Active"}));
}

fn prepare_secret(object: &mut JsonObject) {
    if let Some(Value::Object(plain)) = object.remove("stringData") {
        let data = object.entry("data").or_insert_with(|| json!({}));
        for (key, text) in plain {
            let text = text.as_str().unwrap_or_default();
            data[key] = Value::from(base64::engine::general_purpose::STANDARD.encode(text));
        }
    }
}

/// Removes empty maps and lists of metadata, as Go's encoder does.
fn normalise_metadata(object: &mut JsonObject) {
    let metadata = meta::metadata_mut(object);
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

/// Restores the fields that an update may not change, and increments the generation.
pub(super) fn prepare_update(target: &ObjectTarget, old: &JsonObject, new: &mut JsonObject) {
    let definition = &target.definition;
    match target.subresource.as_str() {
        "status" => keep_all_but_status(definition, old, new),
        "finalize" => keep_all_but_namespace_finalizers(old, new),
        "binding" => {}
        _ if definition.has_status() => meta::copy_field(old, new, "status"),
        _ => {}
    }
    normalise_metadata(new);
    let none = JsonObject::new();
    let old_metadata = meta::metadata(old).unwrap_or(&none);
    let metadata = meta::metadata_mut(new);
    for kept in ["generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta::copy_field(old_metadata, metadata, kept);
    }
    for kept in ["uid", "creationTimestamp", "namespace", "name"] {
        if !metadata.contains_key(kept) {
            meta::copy_field(old_metadata, metadata, kept);
        }
    }
    metadata.remove("selfLink");
    if definition.is("", "namespaces") && target.subresource.is_empty() {
        meta::copy_field(old, new, "spec");
    }
    if counts_generations(definition) && specification_changed(definition, old, new) {
        meta::set_meta(new, "generation", meta::generation(old) + 1);
    }
}

fn keep_all_but_status(definition: &ResourceDefinition, old: &JsonObject, new: &mut JsonObject) {
    let status = new.remove("status");
    let metadata = new.remove("metadata");
    let kept = old
        .iter()
        .filter(|(field, _)| !matches!(field.as_str(), "status" | "metadata"));
    *new = kept
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    new.extend(status.map(|status| ("status".to_owned(), status)));
    match metadata {
        // A status write of a custom resource leaves its metadata alone, except managed fields.
        Some(Value::Object(mut metadata)) if definition.is_custom() => {
            let managers = metadata.remove("managedFields");
            let metadata = meta::metadata_mut(new);
            let old = meta::metadata(old).into_iter().flatten();
            metadata.extend(
                old.filter(|(field, _)| *field != "managedFields")
                    .map(|(field, value)| (field.clone(), value.clone())),
            );
            metadata.extend(managers.map(|managers| ("managedFields".to_owned(), managers)));
        }
        Some(Value::Object(metadata)) => {
            new.insert("metadata".to_owned(), Value::Object(metadata));
        }
        _ => meta::copy_field(old, new, "metadata"),
    }
}

fn keep_all_but_namespace_finalizers(old: &JsonObject, new: &mut JsonObject) {
    let finalizers = new.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
    let mut spec = old
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    match finalizers.filter(|finalizers| finalizers.as_array().is_some_and(|list| !list.is_empty())) {
        Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
        None => spec.remove("finalizers"),
    };
    let metadata = new.remove("metadata");
    new.clone_from(old);
    new.insert("spec".to_owned(), Value::Object(spec));
    if let Some(metadata) = metadata {
        new.insert("metadata".to_owned(), metadata);
    }
}

fn specification_changed(definition: &ResourceDefinition, old: &JsonObject, new: &JsonObject) -> bool {
    if definition.is_custom() {
        return !same_but_for_common(old, new, definition.has_status());
    }
    // A deployment propagates its annotations, so they count too.
    let annotations = |object: &JsonObject| {
        meta::metadata(object)
            .and_then(|metadata| metadata.get("annotations"))
            .cloned()
    };
    if definition.is("apps", "deployments") && annotations(old) != annotations(new) {
        return true;
    }
    match (old.get("spec"), new.get("spec")) {
        (None, None) => !same_but_for_common(old, new, true),
        (before, after) => before != after,
    }
}

fn same_but_for_common(old: &JsonObject, new: &JsonObject, has_status: bool) -> bool {
    let counts = |field: &str| match field {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !has_status,
        _ => true,
    };
    let old = old.iter().filter(|(field, _)| counts(field));
    old.eq(new.iter().filter(|(field, _)| counts(field)))
}

/// Encodes built-in objects as Go's encoder does; custom resources stay as they are.
pub(super) fn as_encoded(definition: &ResourceDefinition, object: &mut JsonObject) {
    if let DefinitionSource::BuiltIn(kind) = definition.source {
        let (group, version) = match kind.storage {
            kinds::KindStorage::SharedWith { group, .. } => (group, kind.version),
            kinds::KindStorage::Own | kinds::KindStorage::Virtual => (kind.group, kind.version),
        };
        go_types::as_encoded(object, group, version, kind.kind);
    }
}

/// Returns the zero object of a kind; empty for custom resources.
pub(super) fn unset(definition: &ResourceDefinition) -> Option<JsonObject> {
    match definition.source {
        DefinitionSource::BuiltIn(kind) => Some(go_types::empty(kind.group, kind.version, kind.kind)),
        DefinitionSource::Custom(_) => None,
    }
}

/// Returns an object that is shown but not stored: the result of a dry run.
pub(super) fn unstored(
    key: ObjectKey,
    revision: u64,
    object: JsonObject,
) -> Result<Arc<StoredObject>, ApiError> {
    Ok(Arc::new(StoredObject::encode(key, revision, object)?))
}
