//! YAML bodies, read as YAML 1.1 like Kubernetes does: 0644 is octal and yes is true.

use serde_json::{Number, Value};

use super::incoming::parse_json;
use crate::error::ApiError;

/// Larger floats do not identify an integer.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Decodes YAML, of which JSON is a subset.
pub(super) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    if body.trim_ascii_start().first() == Some(&b'{') {
        return parse_json(body);
    }
    let text = std::str::from_utf8(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        strict_booleans: false,
    };
    let mut value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The first line without the position equals the message of other YAML parsers.
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let why = line.rsplit_once(": ").map_or(line, |(_, why)| why);
        ApiError::bad_request(format!(
            "error decoding YAML: error converting YAML to JSON: yaml: {why}"
        ))
    })?;
    make_whole(&mut value);
    Ok(value)
}

/// Converts floats without a fraction to integers: `1e3` is 1000.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    if float.fract() != 0.0 || float.abs() > LARGEST_EXACT {
        return None;
    }
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_are_those_of_version_1_1() {
        let cases = [
            ("a: 0644", json!({"a": 420})),
            ("a: -0644", json!({"a": -420})),
            ("a: 0o644", json!({"a": 420})),
            ("a: 0649", json!({"a": 649})),
            ("a: \"0644\"", json!({"a": "0644"})),
            ("a: [yes, off]", json!({"a": [true, false]})),
            ("a: [1e3, 1.5]", json!({"a": [1000, 1.5]})),
            ("{\"a\": 420}", json!({"a": 420})),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(text.as_bytes()).unwrap(), expected, "{text}");
        }
        assert!(decode(b"{\"a\": 0644}").is_err(), "JSON knows no octal numbers");
    }
}
