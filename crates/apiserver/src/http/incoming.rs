//! The inputs of a request: options, objects and patches, from its query, headers and body.

use bytes::Bytes;
use http::header::USER_AGENT;
use serde_json::{Value, json};

use super::negotiate::{self, BodyFormat, PatchFormat};
use super::resources::ResourceRequest;
use super::yaml;
use crate::admission::AdmissionScope;
use crate::apply;
use crate::catalog::ResourceDefinition;
use crate::decode::{self, FieldValidation};
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::kinds;
use crate::meta::JsonObject;
use crate::patch::json::JsonPatch;
use crate::patch::merge::MergePatch;
use crate::patch::strategic::StrategicPatch;
use crate::protobuf;
use crate::registry::{DeleteOptions, ManagedFieldsUpdate, ObjectPatch, WriteContext, unregistered};

/// The maximum length of a field manager's name.
const MANAGER_NAME_BYTES: usize = 128;

impl ResourceRequest<'_> {
    pub(super) fn context(&self, options_kind: &str) -> Result<WriteContext, ApiError> {
        let query = &self.call.query;
        let agent = self
            .call
            .headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        Ok(WriteContext {
            user: self.call.identity.user.clone(),
            groups: self.call.identity.groups.clone(),
            uid: self.call.identity.uid.clone(),
            extra: self.call.identity.extra.clone(),
            field_manager: apply::manager_name(query.get("fieldManager"), agent.unwrap_or_default()),
            dry_run: query.dry_run(options_kind)?,
            field_validation: query.field_validation(options_kind)?,
            managed_fields: ManagedFieldsUpdate::Pending,
            object_uid: None,
            admission: AdmissionScope::Object,
            warnings: self.warnings.clone(),
            options: self.options(),
        })
    }

    /// Returns the options of the request for admission.
    fn options(&self) -> JsonObject {
        let mut options = JsonObject::new();
        for field in ["fieldManager", "fieldValidation"] {
            let value = self.call.query.get(field);
            if !value.is_empty() {
                options.insert(field.to_owned(), Value::from(value));
            }
        }
        if self.verb.starts_with("delete")
            && let Ok(Value::Object(body)) = self.parsed_body()
        {
            for field in [
                "gracePeriodSeconds",
                "orphanDependents",
                "preconditions",
                "propagationPolicy",
            ] {
                if let Some(value) = body.get(field) {
                    options.insert(field.to_owned(), value.clone());
                }
            }
        }
        options
    }

    fn check_patch_options(&self, patch: &ObjectPatch) -> Result<(), ApiError> {
        let query = &self.call.query;
        let manager = query.get("fieldManager");
        let error = match patch {
            _ if manager.len() > MANAGER_NAME_BYTES => {
                FieldError::too_long("fieldManager", MANAGER_NAME_BYTES)
            }
            ObjectPatch::Apply { .. } if query.get("fieldManager").is_empty() => {
                FieldError::required("fieldManager", "is required for apply patch")
            }
            ObjectPatch::Json(_) | ObjectPatch::Merge(_) | ObjectPatch::Strategic(_)
                if !query.get("force").is_empty() =>
            {
                FieldError::forbidden("force", "may not be specified for non-apply patch")
            }
            _ => return Ok(()),
        };
        Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]))
    }

    pub(super) fn read_patch(&self, context: &WriteContext) -> Result<ObjectPatch, ApiError> {
        let (body, validation) = (&self.call.body, context.field_validation);
        let patch = match negotiate::patch_format(&self.call.headers, self.target.definition.is_custom())? {
            PatchFormat::Json => ObjectPatch::Json(JsonPatch::decode(body, validation)?),
            PatchFormat::Merge => ObjectPatch::Merge(MergePatch::decode(body, validation)?),
            PatchFormat::Strategic => ObjectPatch::Strategic(StrategicPatch::decode(body, validation)?),
            PatchFormat::Apply => ObjectPatch::Apply {
                object: yaml::decode(body)?,
                force: self.call.query.flag("force"),
            },
        };
        let strict_errors = match &patch {
            ObjectPatch::Json(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Merge(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Strategic(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Apply { .. } => &[],
        };
        if validation == FieldValidation::Strict && !strict_errors.is_empty() {
            return Err(ApiError::bad_request(decode::strict_message(strict_errors)));
        }
        self.check_patch_options(&patch)?;
        if let ObjectPatch::Apply { object, .. } = &patch {
            check_applied(object)?;
        }
        Ok(patch)
    }

    pub(super) fn delete_options(&self) -> Result<(DeleteOptions, bool), ApiError> {
        let body = if self.call.body.is_empty() {
            None
        } else {
            Some(self.parsed_body()?)
        };
        if let Some(body) = &body {
            let (api_version, kind) = (body["apiVersion"].as_str(), body["kind"].as_str());
            if let (Some(api_version), Some(kind)) = (api_version, kind)
                && kind != "DeleteOptions"
            {
                return Err(ApiError::bad_request(unregistered(api_version, kind)));
            }
        }
        let dry_run = body
            .as_ref()
            .and_then(|body| body.get("dryRun"))
            .and_then(Value::as_array);
        let dry_run = dry_run.is_some_and(|values| values.iter().any(|value| value == "All"));
        Ok((self.call.query.delete_options(body.as_ref())?, dry_run))
    }

    /// Returns the body as JSON, converted from YAML or protobuf.
    fn json_body(&self) -> Result<Bytes, ApiError> {
        let body = &self.call.body;
        // Delete options are a built-in type on any resource, and a patch has its own content types.
        let custom = self.target.definition.is_custom() && !self.verb.starts_with("delete");
        let format = match self.verb {
            "patch" => BodyFormat::Json,
            _ => negotiate::body_format(&self.call.headers, custom)?,
        };
        Ok(match format {
            BodyFormat::Json => body.clone(),
            BodyFormat::Yaml => Bytes::from(yaml::decode(body)?.to_string()),
            BodyFormat::Protobuf => {
                let value =
                    protobuf::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
                Bytes::from(value.to_string())
            }
        })
    }

    pub(super) fn parsed_body(&self) -> Result<Value, ApiError> {
        if self.call.body.is_empty() {
            return Ok(json!({}));
        }
        parse_json(&self.json_body()?)
    }

    /// Returns the object in the body, and its strict decoding errors.
    pub(super) fn object(&self, context: &WriteContext) -> Result<(JsonObject, Vec<String>), ApiError> {
        let definition = &self.target.definition;
        let json = self.json_body()?;
        let schema = definition.type_schema();
        let unrecognized = |why: &str| ApiError::unrecognized(&definition.kind, why, &json);
        let decoded =
            decode::decode(&json, schema.as_ref()).map_err(|error| unrecognized(&error.to_string()))?;
        if !decoded.value.is_object() {
            return Err(unrecognized(&not_an_object(&decoded.value)));
        }
        if context.field_validation == FieldValidation::Strict && !decoded.strict_errors.is_empty() {
            return Err(strict(definition, &decoded.strict_errors));
        }
        if let Some(schema) = &schema
            && let Some(problem) = decode::type_error(&decoded.value, schema)
        {
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: {problem}",
                definition.kind, definition.version, definition.kind
            )));
        }
        let strict_errors = match context.field_validation {
            FieldValidation::Ignore => Vec::new(),
            FieldValidation::Warn | FieldValidation::Strict => decoded.strict_errors,
        };
        match decoded.value {
            Value::Object(object) => Ok((object, strict_errors)),
            _ => Err(ApiError::bad_request("the body is not an object")),
        }
    }
}

/// An applied configuration must have `kind` and `apiVersion`.
fn check_applied(object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version.is_empty() || kind.is_empty() {
        let (group, version) = kinds::split_api_version(api_version);
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    Ok(())
}

fn strict(definition: &ResourceDefinition, strict_errors: &[String]) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {}",
        definition.kind,
        definition.version,
        definition.kind,
        decode::strict_message(strict_errors)
    ))
}

/// Returns Go's error for a type that is read from a value other than an object.
fn not_an_object(value: &Value) -> String {
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Null | Value::Object(_) => "object",
    };
    format!(
        "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

pub(super) fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    let decoded = decode::decode(body, None).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(decoded.value)
}
