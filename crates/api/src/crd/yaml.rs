//! Serializes CustomResourceDefinitions to YAML for `kubectl apply`.

use serde_json::Value;

use super::{CompanionKinds, CustomResourceDefinition, crds_with};

/// A definition could not be serialized.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    #[error("cannot express the CustomResourceDefinition {name:?} as JSON")]
    Json { name: String, source: serde_json::Error },
    #[error("cannot write the CustomResourceDefinition {name:?} as YAML")]
    Yaml {
        name: String,
        source: serde_saphyr::SerializeError,
    },
}

/// Returns every CustomResourceDefinition that we install, as one stream of YAML documents.
pub fn crds_yaml() -> Result<String, PrintError> {
    crds_yaml_with(CompanionKinds::OpenShift)
}

/// Returns the definitions of a cluster with these kinds, as one stream of YAML documents.
pub fn crds_yaml_with(kinds: CompanionKinds) -> Result<String, PrintError> {
    let documents: Result<Vec<String>, PrintError> = crds_with(kinds).iter().map(to_yaml).collect();
    Ok(documents?.join("---\n"))
}

/// Returns one definition as a YAML document.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, PrintError> {
    let name = || crd.metadata.name.clone().unwrap_or_default();
    let mut document =
        serde_json::to_value(crd).map_err(|source| PrintError::Json { name: name(), source })?;
    whole_numbers(&mut document);
    serde_saphyr::to_string_with_options(&document, options())
        .map_err(|source| PrintError::Yaml { name: name(), source })
}

/// Disables line folding: regular expressions and CEL rules must not be folded at their spaces, and one line per
/// description makes a change to it one line of diff.
fn options() -> serde_saphyr::SerializerOptions {
    serde_saphyr::ser_options! { prefer_block_scalars: false }
}

/// Converts limits to integers. The API's type stores them as floating point numbers, which would print `maximum:
/// 10.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(as_whole) {
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn as_whole(number: f64) -> Option<i32> {
    let whole = format!("{number:.0}").parse().ok()?;
    (f64::from(whole).to_bits() == number.to_bits()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_that_look_like_something_else_are_quoted() {
        let tricky = json!([
            "on",
            "off",
            "yes",
            "no",
            "y",
            "n",
            "true",
            "null",
            "~",
            "",
            "0755",
            "0o755",
            "1e3",
            "1_000",
            "0x1f",
            "12:30:45",
            "2024-01-01",
            ".inf",
            "NaN",
            "-",
            "- a",
            "a: b",
            "a #b",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            " a",
            "a ",
            "'",
            "\"",
            "a\nb",
            "=",
            "<<",
            "?",
            "|",
            ">",
            "1.0",
            "+1",
            "-1",
            ".5",
            "\t"
        ]);
        let text = serde_saphyr::to_string_with_options(&tricky, options()).unwrap();
        for (line, value) in text.lines().zip(tricky.as_array().unwrap()) {
            assert_ne!(line, format!("- {}", value.as_str().unwrap()), "must be quoted");
        }
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, tricky);
    }

    #[test]
    fn limits_print_as_whole_numbers() {
        let mut value = json!({"maximum": 10.0, "minimum": 0.0, "multipleOf": 0.5, "maxLength": 253});
        whole_numbers(&mut value);
        assert_eq!(
            value,
            json!({"maximum": 10, "minimum": 0, "multipleOf": 0.5, "maxLength": 253})
        );
    }
}
