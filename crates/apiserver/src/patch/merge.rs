//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::PatchError;
use crate::decode::{self, FieldValidation};

/// A decoded merge patch.
#[derive(Clone, Debug, PartialEq)]
pub struct MergePatch {
    fields: Map<String, Value>,
    /// The strict decoding errors; none if field validation is off.
    pub strict_errors: Vec<String>,
}

impl MergePatch {
    /// Decodes the body of a request.
    pub fn decode(body: &[u8], validation: FieldValidation) -> Result<Self, PatchError> {
        if validation == FieldValidation::Ignore {
            return match decode::decode(body, None).map(|decoded| decoded.value) {
                Ok(Value::Object(fields)) => Ok(Self {
                    fields,
                    strict_errors: Vec::new(),
                }),
                _ => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
            };
        }
        let (fields, strict_errors) = decode_object(body)
            .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
        Ok(Self {
            fields,
            strict_errors,
        })
    }

    /// Merges the patch into a document.
    pub fn apply(&self, document: &mut Value) {
        if let Value::Object(target) = document {
            merge_members(target, &self.fields);
        }
    }

    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }
}

/// Decodes a body that must be an object, with its strict decoding errors.
pub(super) fn decode_object(body: &[u8]) -> Result<(Map<String, Value>, Vec<String>), String> {
    let decoded = decode::decode(body, None).map_err(|error| error.to_string())?;
    let found = match decoded.value {
        Value::Object(fields) => return Ok((fields, decoded.strict_errors)),
        Value::Null => return Ok((Map::new(), decoded.strict_errors)),
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!(
        "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    ))
}

fn merge_members(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (value, target.get_mut(name)) {
            (Value::Null, _) => {
                target.remove(name);
            }
            (Value::Object(members), Some(Value::Object(existing))) => merge_members(existing, members),
            (_, Some(existing)) if !existing.is_null() => {
                let replaced_object = existing.is_object();
                *existing = if replaced_object {
                    value.clone()
                } else {
                    without_nulls(value)
                };
            }
            _ => {
                target.insert(name.clone(), without_nulls(value));
            }
        }
    }
}

/// Returns a value that is new to the document, without null members: there is nothing to remove.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter(|(_, member)| !member.is_null())
                .map(|(name, member)| (name.clone(), without_nulls(member)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn applied(document: &Value, patch: &Value) -> Value {
        let mut document = document.clone();
        let body = patch.to_string();
        MergePatch::decode(body.as_bytes(), FieldValidation::Strict)
            .expect("decodes")
            .apply(&mut document);
        document
    }

    #[test]
    fn the_cases_of_the_standard_that_concern_objects() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({}),
                json!({"a": [{"b": null}, null]}),
                json!({"a": [{}, null]}),
            ),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(applied(&document, &patch), expected, "{document} + {patch}");
        }
    }

    #[test]
    fn a_patch_that_is_no_object_is_rejected_with_kubernetes_messages() {
        let cases = [
            (
                "[1]",
                FieldValidation::Warn,
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            ("[1]", FieldValidation::Ignore, "Invalid JSON Patch"),
            ("{", FieldValidation::Ignore, "Invalid JSON Patch"),
            (
                "{",
                FieldValidation::Strict,
                "error decoding patch: unexpected end of JSON input",
            ),
        ];
        for (body, validation, expected) in cases {
            let error = MergePatch::decode(body.as_bytes(), validation).expect_err(body);
            assert_eq!(error, PatchError::Malformed(expected.to_owned()));
        }
    }

    #[test]
    fn duplicate_keys_in_a_patch_are_objected_to() {
        let patch =
            MergePatch::decode(br#"{"a": {"b": 1, "b": 2}}"#, FieldValidation::Warn).expect("decodes");
        assert_eq!(patch.strict_errors, ["duplicate field \"a.b\""]);
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), "[a-c]".prop_map(Value::from)];
        leaf.prop_recursive(3, 20, 3, |inner| {
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn applying_a_patch_twice_changes_nothing_more(a in document(), b in document()) {
            let (a, b) = (json!({"x": a}), json!({"x": b}));
            let once = applied(&a, &b);
            prop_assert_eq!(applied(&once, &b), once);
        }
    }
}
