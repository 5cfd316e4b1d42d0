//! The schema of one version of a CRD, as requests use it.

use serde_json::Value;

use super::compile::compile;
use super::default::apply_defaults;
use super::embedded::{coerce_metadata, validate_embedded};
use super::lists::validate_lists;
use super::model::Schema;
use super::prune::{prune, prune_nulls};
use super::rules::validate_rules;
use super::validate::validate;
use crate::field_error::{FieldError, FieldReason};
use crate::go_text;

/// A compiled schema with the steps between a custom resource and the store.
#[derive(Clone, Debug)]
pub struct CustomSchema {
    schema: Schema,
    preserves_unknown: bool,
    has_rules: bool,
}

impl CustomSchema {
    /// Compiles the `openAPIV3Schema` of a version; `preserve_unknown` is the CRD's legacy switch.
    pub fn new(open_api: &Value, preserve_unknown: bool) -> Self {
        let schema = compile(open_api);
        Self {
            has_rules: schema.has_rules(),
            schema,
            preserves_unknown: preserve_unknown,
        }
    }

    /// Returns whether fields without a schema are kept.
    pub fn preserves_unknown(&self) -> bool {
        self.preserves_unknown
    }

    /// Returns whether writes evaluate CEL rules.
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Returns the compiled schema, for patches and apply.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Prepares a decoded object for validation: drops unknown fields, resolves nulls and sets defaults.
    ///
    /// Returns the strict decoding errors, or the reason why the object cannot be decoded (400).
    pub fn normalise(&self, object: &mut Value) -> Result<Vec<String>, String> {
        let mut unknown = coerce_metadata(&self.schema, object)?;
        if !self.preserves_unknown {
            unknown.extend(prune(object, &self.schema));
        }
        self.fill_in(object);
        Ok(unknown
            .iter()
            .map(|path| format!("unknown field {}", go_text::quote(path)))
            .collect())
    }

    /// Resolves nulls and adds defaults, as is also done to every object read from the store.
    pub fn fill_in(&self, object: &mut Value) {
        prune_nulls(object, &self.schema);
        apply_defaults(object, &self.schema);
    }

    /// Validates an object, or on update the change from `old` to it. Metadata is validated elsewhere.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate(&self.schema, object, old, "");
        errors.extend(validate_embedded(&self.schema, object));
        let lists_were_fine = old.is_none_or(|old| validate_lists(&self.schema, old).is_empty());
        if lists_were_fine {
            errors.extend(validate_lists(&self.schema, object));
        }
        self.add_rule_errors(&mut errors, object, old);
        errors
    }

    /// Validates a write through the status subresource, which covers only the status.
    pub fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let (Some(status), Some(property)) = (object.get("status"), self.schema.root().property("status"))
        {
            let status_schema = self.schema.rooted_at(property.node);
            errors.extend(validate(&status_schema, status, old.get("status"), "status"));
        }
        if validate_lists(&self.schema, old).is_empty() {
            errors.extend(validate_lists(&self.schema, object));
        }
        self.add_rule_errors(&mut errors, object, Some(old));
        errors
    }

    /// Rules are evaluated only on objects with valid types.
    fn add_rule_errors(&self, errors: &mut Vec<FieldError>, object: &Value, old: Option<&Value>) {
        if !self.has_rules {
            return;
        }
        if errors.iter().any(breaks_types) {
            errors.push(FieldError::invalid("<nil>", &Value::Null, UNCHECKED));
        } else {
            errors.extend(validate_rules(&self.schema, object, old));
        }
    }
}

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

fn breaks_types(error: &FieldError) -> bool {
    matches!(
        error.reason,
        FieldReason::NotSupported
            | FieldReason::Required
            | FieldReason::TooLong
            | FieldReason::TooMany
            | FieldReason::TypeInvalid
    )
}
