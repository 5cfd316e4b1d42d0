//! Validation errors of single fields, with the messages of Kubernetes.
//!
//! This module formats and joins errors. Turning them into an HTTP response is up to the caller.

use std::fmt;

use serde_json::Value;

use crate::go_text;

/// The type of a field error, which becomes the `reason` of a status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldReason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    TooShort,
    TypeInvalid,
    Internal,
}

impl FieldReason {
    /// Returns the machine-readable reason in `status.details.causes[].reason`.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Internal => "Internal error",
        }
    }
}

/// A validation error: the field, its type, and the text that follows the field's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub reason: FieldReason,
    /// The path as Kubernetes writes it (`spec.list[0].name`, `metadata.labels[a/b]`, `<nil>` for the root).
    pub field: String,
    /// The message of the status cause, without the field's name.
    pub body: String,
}

impl FieldError {
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::without_value(FieldReason::Required, field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::without_value(FieldReason::Forbidden, field, detail)
    }

    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::without_value(FieldReason::Internal, field, detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(FieldReason::Invalid, field, value, detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(FieldReason::TypeInvalid, field, value, detail)
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(FieldReason::NotFound, field, value, "")
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(FieldReason::Duplicate, field, value, "")
    }

    /// A value outside a fixed set, which the message lists in this order.
    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, supported: &[S]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<_> = supported
                .iter()
                .map(|text| go_text::quote(text.as_ref()))
                .collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::with_value(FieldReason::NotSupported, field, value, &detail)
    }

    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::without_value(
            FieldReason::TooLong,
            field,
            &format!("may not be more than {max_bytes} {unit}"),
        )
    }

    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::with_value(
            FieldReason::TooMany,
            field,
            &Value::from(actual),
            &format!("must have at most {max} {unit}"),
        )
    }

    pub fn without_value(reason: FieldReason, field: impl Into<String>, detail: &str) -> Self {
        let mut body = reason.title().to_owned();
        append_detail(&mut body, detail);
        Self {
            reason,
            field: field.into(),
            body,
        }
    }

    pub fn with_value(reason: FieldReason, field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let shown = match value {
            Value::String(text) => go_text::quote(text),
            Value::Bool(_) | Value::Number(_) => go_text::plain(value),
            Value::Null | Value::Array(_) | Value::Object(_) => go_text::json(value),
        };
        let mut body = format!("{}: {shown}", reason.title());
        append_detail(&mut body, detail);
        Self {
            reason,
            field: field.into(),
            body,
        }
    }
}

impl FieldError {
    /// An invalid value that messages show in a form of its own.
    pub fn with_shown_value(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        let reason = FieldReason::Invalid;
        let mut body = format!("{}: {shown}", reason.title());
        append_detail(&mut body, detail);
        Self {
            reason,
            field: field.into(),
            body,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

impl std::error::Error for FieldError {}

/// Joins errors: a single one as it is, several in brackets, without duplicates.
pub fn aggregate<E: fmt::Display>(errors: &[E]) -> String {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    if distinct.len() == 1 {
        distinct.remove(0)
    } else {
        format!("[{}]", distinct.join(", "))
    }
}

/// Returns the message of the 422 response for an object with these errors.
pub fn invalid_message(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> String {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let subject = format!("{qualified} {} is invalid", go_text::quote(name));
    if errors.is_empty() {
        subject
    } else {
        format!("{subject}: {}", aggregate(errors))
    }
}

fn append_detail(body: &mut String, detail: &str) {
    if !detail.is_empty() {
        body.push_str(": ");
        body.push_str(detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_constructor_reads_like_kubernetes() {
        let cases = [
            (FieldError::required("spec.x", ""), "spec.x: Required value"),
            (
                FieldError::required("spec.x", "must be set"),
                "spec.x: Required value: must be set",
            ),
            (
                FieldError::invalid("a", &json!("b"), "no"),
                "a: Invalid value: \"b\": no",
            ),
            (
                FieldError::invalid("a", &json!(3), "no"),
                "a: Invalid value: 3: no",
            ),
            (
                FieldError::invalid("a", &json!({"k": 1}), "no"),
                "a: Invalid value: {\"k\":1}: no",
            ),
            (
                FieldError::not_supported("a", &json!("z"), &["x", "y"]),
                "a: Unsupported value: \"z\": supported values: \"x\", \"y\"",
            ),
            (
                FieldError::duplicate("a[1]", &json!("z")),
                "a[1]: Duplicate value: \"z\"",
            ),
            (
                FieldError::too_long("a", 63),
                "a: Too long: may not be more than 63 bytes",
            ),
            (
                FieldError::too_many("a", 3, 1),
                "a: Too many: 3: must have at most 1 item",
            ),
            (
                FieldError::forbidden("a", "may not change"),
                "a: Forbidden: may not change",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn several_errors_are_listed_once_each() {
        let a = FieldError::required("a", "");
        let b = FieldError::required("b", "");
        assert_eq!(
            invalid_message("g.io", "Pool", "p", &[a.clone(), b, a.clone()]),
            "Pool.g.io \"p\" is invalid: [a: Required value, b: Required value]"
        );
        assert_eq!(
            invalid_message("", "Pod", "p", &[a.clone(), a]),
            "Pod \"p\" is invalid: a: Required value"
        );
    }
}
