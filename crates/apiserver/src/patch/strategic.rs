//! Strategic merge patch, for built-in kinds: a merge patch with keyed lists.
//!
//! Directives inside the patch (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) express
//! what a plain merge cannot. Custom resources do not support this format.

mod list;
#[cfg(test)]
mod quadratic;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::PatchError;
use crate::decode::FieldValidation;
use crate::go_text;
use crate::schema::{MemberSchema, PatchRule, PatchStrategy, Schema, SchemaNode};

type PatchFields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";

/// A decoded strategic merge patch.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategicPatch {
    fields: PatchFields,
    /// The strict decoding errors; none if field validation is off.
    pub strict_errors: Vec<String>,
}

impl StrategicPatch {
    /// Decodes the body of a request.
    pub fn decode(body: &[u8], validation: FieldValidation) -> Result<Self, PatchError> {
        let (fields, strict_errors) = super::merge::decode_object(body).map_err(PatchError::Malformed)?;
        let strict_errors = if validation == FieldValidation::Ignore {
            Vec::new()
        } else {
            strict_errors
        };
        Ok(Self {
            fields,
            strict_errors,
        })
    }

    pub fn new(fields: PatchFields) -> Self {
        Self {
            fields,
            strict_errors: Vec::new(),
        }
    }

    /// Merges the patch into an object of the kind that the schema describes.
    pub fn apply(&self, object: &mut Value, schema: &Schema) -> Result<(), PatchError> {
        let Value::Object(original) = object else {
            return Err(malformed("invalid JSON document"));
        };
        let merger = StrategicMerger { schema };
        *original = merger.map(
            std::mem::take(original),
            self.fields.clone(),
            PatchShape::Node(schema.root()),
        )?;
        Ok(())
    }
}

/// The schema of the value that is being merged.
#[derive(Clone, Copy)]
enum PatchShape<'s> {
    Node(&'s SchemaNode),
    /// Free-form data: objects merge, lists are replaced.
    Schemaless,
}

struct StrategicMerger<'s> {
    schema: &'s Schema,
}

impl<'s> StrategicMerger<'s> {
    fn map(
        &self,
        mut original: PatchFields,
        mut patch: PatchFields,
        shape: PatchShape<'s>,
    ) -> Result<PatchFields, PatchError> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(DIRECTIVE);
                    Ok(patch)
                }
                Some("delete") => Ok(PatchFields::new()),
                _ => Err(unknown_directive(directive, &patch)),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(&mut original, &mut patch, shape)?;
        for (key, value) in patch {
            self.member(&mut original, &key, value, shape)?;
        }
        Ok(original)
    }

    fn member(
        &self,
        original: &mut PatchFields,
        key: &str,
        value: Value,
        shape: PatchShape<'s>,
    ) -> Result<(), PatchError> {
        let deleted_from = match key.strip_prefix(DELETE_FROM_PRIMITIVES) {
            Some("") => return Err(malformed("invalid patch format of primitive list")),
            other => other,
        };
        let name = deleted_from.unwrap_or(key);
        if value.is_null() {
            original.remove(name);
            return Ok(());
        }
        let (child, rule) = self.lookup(shape, name);
        match (original.get_mut(name), value) {
            (Some(Value::Array(existing)), Value::Array(doomed)) if deleted_from.is_some() => {
                let doomed: HashSet<Value> = doomed.into_iter().collect();
                existing.retain(|item| !doomed.contains(item));
            }
            _ if deleted_from.is_some() => {}
            (Some(Value::Object(existing)), Value::Object(members)) => {
                *existing = if rule.strategy == PatchStrategy::Replace {
                    members
                } else {
                    self.map(std::mem::take(existing), members, child)?
                };
            }
            (Some(Value::Array(existing)), Value::Array(items)) => {
                *existing = if rule.strategy == PatchStrategy::Merge {
                    self.list(std::mem::take(existing), items, child, &rule)?
                } else {
                    items
                };
            }
            (_, value) => match as_new(value) {
                Some(value) => {
                    original.insert(name.to_owned(), value);
                }
                None => {
                    original.remove(name);
                }
            },
        }
        Ok(())
    }

    /// Returns the schema of a member, and how a patch merges it.
    fn lookup(&self, shape: PatchShape<'s>, name: &str) -> (PatchShape<'s>, PatchRule) {
        let PatchShape::Node(node) = shape else {
            return (PatchShape::Schemaless, PatchRule::default());
        };
        let rule = node
            .property(name)
            .map(|property| property.patch.clone())
            .unwrap_or_default();
        match self.schema.member(node, name) {
            MemberSchema::Known(child) => (PatchShape::Node(child), rule),
            MemberSchema::Schemaless | MemberSchema::Unknown => (PatchShape::Schemaless, rule),
        }
    }

    fn items(&self, list: PatchShape<'s>) -> PatchShape<'s> {
        match list {
            PatchShape::Node(node) => self
                .schema
                .items(node)
                .map_or(PatchShape::Schemaless, PatchShape::Node),
            PatchShape::Schemaless => PatchShape::Schemaless,
        }
    }
}

/// Removes every member of the original that the patch does not list in `$retainKeys`.
fn retain_keys(original: &mut PatchFields, patch: &mut PatchFields) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || malformed("invalid patch format of retainKeys");
    let Value::Array(retained) = directive else {
        return Err(bad());
    };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_retained = |key: &str| retained.contains(key);
    let is_directive =
        |key: &str| key.starts_with(DELETE_FROM_PRIMITIVES) || key.starts_with(SET_ELEMENT_ORDER);
    let contradicts = patch
        .iter()
        .any(|(key, value)| !value.is_null() && !is_directive(key) && !is_retained(key));
    if contradicts {
        return Err(bad());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// Returns a value without counterpart, without nulls and directives.
fn as_new(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter(|(key, value)| !value.is_null() && !is_parallel_directive(key))
                .filter_map(|(key, value)| Some((key, as_new(value)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(as_new).collect())),
        scalar => Some(scalar),
    }
}

fn is_parallel_directive(key: &str) -> bool {
    key == RETAIN_KEYS || key.starts_with(DELETE_FROM_PRIMITIVES) || key.starts_with(SET_ELEMENT_ORDER)
}

fn unknown_directive(directive: &Value, patch: &PatchFields) -> PatchError {
    let shown = go_text::plain(&Value::Object(patch.clone()));
    PatchError::Contradictory(format!(
        "unknown patch type: {} in map: {shown}",
        go_text::plain(directive)
    ))
}

fn malformed(message: &str) -> PatchError {
    PatchError::Malformed(message.to_owned())
}

#[cfg(test)]
mod tests;
