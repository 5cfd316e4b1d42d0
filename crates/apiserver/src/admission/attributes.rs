//! A write as policies and webhooks see it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{AdmissionOperation, AdmissionScope};
use crate::catalog::ResourceDefinition;
use crate::error::{ApiError, ErrorSubject};
use crate::meta::JsonObject;
use crate::registry::{ObjectTarget, WriteContext, from_storage, to_storage};

/// The attributes of a write, with objects in the version of the request.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionAttributes {
    pub operation: AdmissionOperation,
    pub definition: Arc<ResourceDefinition>,
    pub subresource: String,
    /// Empty for cluster-scoped objects; a Namespace is in itself.
    pub namespace: String,
    /// Empty for a generated name and for one of a collection.
    pub name: String,
    pub object: Option<Value>,
    pub old: Option<Value>,
    pub user_info: Value,
    pub dry_run: bool,
    options: Value,
}

impl AdmissionAttributes {
    pub fn new(
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
    ) -> Self {
        let definition = &target.definition;
        let shown = |object: &JsonObject| {
            let mut object = object.clone();
            if object_kind(definition, &target.subresource).is_none() {
                from_storage(definition, &mut object);
            }
            Value::Object(object)
        };
        let name = match context.admission {
            AdmissionScope::CollectionItem => String::new(),
            AdmissionScope::Object | AdmissionScope::Reviewed => target.name.clone(),
        };
        let namespace = if definition.is("", "namespaces") {
            target.name.clone()
        } else {
            target.namespace.clone()
        };
        let mut options = context.options.clone();
        options.insert("kind".to_owned(), Value::from(operation.options_kind()));
        options.insert("apiVersion".to_owned(), Value::from("meta.k8s.io/v1"));
        if context.dry_run {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        Self {
            operation,
            definition: Arc::clone(definition),
            subresource: target.subresource.clone(),
            namespace,
            name,
            object: object.map(shown),
            old: old.map(shown),
            user_info: user_info(context),
            dry_run: context.dry_run,
            options: Value::Object(options),
        }
    }

    /// Returns the object and the old one in the version of an equivalent definition.
    pub fn objects_as(&self, matched: &ResourceDefinition) -> (Value, Value) {
        let converted = |object: &Option<Value>| match object {
            Some(Value::Object(object)) if self.is_converted(matched) => {
                let mut object = object.clone();
                to_storage(&self.definition, &mut object);
                from_storage(matched, &mut object);
                Value::Object(object)
            }
            other => other.clone().unwrap_or_default(),
        };
        (converted(&self.object), converted(&self.old))
    }

    /// Returns an object of an equivalent definition in the version of the request.
    pub fn convert_back(&self, matched: &ResourceDefinition, object: Value) -> Value {
        match object {
            Value::Object(mut object) if self.is_converted(matched) => {
                to_storage(matched, &mut object);
                from_storage(&self.definition, &mut object);
                Value::Object(object)
            }
            other => other,
        }
    }

    /// Returns whether a matched definition has another version than the request.
    fn is_converted(&self, matched: &ResourceDefinition) -> bool {
        object_kind(&self.definition, &self.subresource).is_none()
            && (matched.group != self.definition.group || matched.version != self.definition.version)
    }

    /// Returns the `request` of an `AdmissionReview`, without UID and objects.
    pub fn request(&self, matched: &ResourceDefinition) -> Value {
        let kind_of = |definition: &ResourceDefinition| {
            let (group, version, kind) = object_kind(definition, &self.subresource).unwrap_or_else(|| {
                (
                    definition.group.clone(),
                    definition.version.clone(),
                    definition.kind.clone(),
                )
            });
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource_of = |definition: &ResourceDefinition| {
            let (group, version) = (&definition.group, &definition.version);
            json!({"group": group, "version": version, "resource": definition.plural})
        };
        let mut request = json!({
            "kind": kind_of(matched),
            "resource": resource_of(matched),
            "requestKind": kind_of(&self.definition),
            "requestResource": resource_of(&self.definition),
            "operation": self.operation.name(),
            "userInfo": self.user_info,
            "dryRun": self.dry_run,
            "options": self.options,
        });
        for (field, text) in [
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                request[field] = Value::from(text.as_str());
            }
        }
        request
    }

    /// Returns the 403 of a rejected write.
    pub fn forbidden(&self, why: &str) -> ApiError {
        let text = |field: &str| {
            let value = self.object.as_ref().map(|object| &object["metadata"][field]);
            value.and_then(Value::as_str).unwrap_or_default()
        };
        let candidates = [self.name.as_str(), text("name"), text("generateName"), "Unknown"];
        let subject = ErrorSubject {
            group: &self.definition.group,
            resource: &self.definition.plural,
            name: candidates
                .into_iter()
                .find(|name| !name.is_empty())
                .unwrap_or_default(),
        };
        ApiError::forbidden(subject, why)
    }
}

/// Returns group, version and kind of a subresource's body, if it is not the object itself.
fn object_kind(definition: &ResourceDefinition, subresource: &str) -> Option<(String, String, String)> {
    let served = definition.subresource(subresource)?;
    if served.kind == definition.kind {
        return None;
    }
    let (group, version) = if served.version.is_empty() {
        (definition.group.clone(), definition.version.clone())
    } else {
        (served.group.clone(), served.version.clone())
    };
    Some((group, version, served.kind.clone()))
}

fn user_info(context: &WriteContext) -> Value {
    let mut info = json!({"username": context.user, "groups": context.groups});
    if !context.uid.is_empty() {
        info["uid"] = Value::from(context.uid.as_str());
    }
    if !context.extra.is_empty() {
        info["extra"] = json!(context.extra);
    }
    info
}
