//! Scalar values: YAML 1.1 resolution of plain text, and of text with a tag.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value};

use crate::config::goyaml::resolve::{self, Plain};

/// A scalar as a JSON value, or the name of a float that JSON cannot represent.
#[derive(Debug)]
pub(super) enum Scalar {
    Value(Value),
    NotFinite(&'static str),
}

/// Resolves `text` with `tag`, which is empty for plain text without one.
pub(super) fn resolve(tag: &str, text: &str) -> Result<Scalar, String> {
    let short = match tag.strip_prefix("tag:yaml.org,2002:") {
        None if tag.is_empty() => "",
        None | Some("") => return Ok(string(text)),
        Some(short) => short,
    };
    let plain = match short {
        "binary" => return binary(text),
        "" | "bool" | "int" | "float" | "null" => resolve::plain(text),
        "timestamp" if resolve::is_timestamp(text) => return Ok(string(text)),
        "timestamp" => return Err(format!("{text:?} is not a timestamp")),
        // Every scalar is a valid string, and an application's own tag does not determine the type.
        _ => return Ok(string(text)),
    };
    let mismatch = || Err(format!("{text:?} cannot be read as {short}"));
    match (short, plain) {
        ("" | "null", Plain::Null) => Ok(Scalar::Value(Value::Null)),
        ("" | "bool", Plain::Bool(flag)) => Ok(Scalar::Value(Value::Bool(flag))),
        ("" | "int", Plain::Int(number)) => Ok(Scalar::Value(Value::from(number))),
        ("" | "int", Plain::Unsigned(number)) => Ok(Scalar::Value(Value::from(number))),
        #[allow(clippy::cast_precision_loss, reason = "the text asks for a float")]
        ("float", Plain::Int(number)) => Ok(float(number as f64)),
        ("" | "float", Plain::Float(number)) => Ok(float(number)),
        ("", Plain::Text) => Ok(string(text)),
        _ => mismatch(),
    }
}

fn string(text: &str) -> Scalar {
    Scalar::Value(Value::from(text))
}

fn float(number: f64) -> Scalar {
    match Number::from_f64(number) {
        Some(number) => Scalar::Value(Value::Number(number)),
        None if number.is_nan() => Scalar::NotFinite(".nan"),
        None if number > 0.0 => Scalar::NotFinite(".inf"),
        None => Scalar::NotFinite("-.inf"),
    }
}

/// Decodes `!!binary`: base64 over any number of lines. Each byte that is not UTF-8 becomes U+FFFD.
fn binary(text: &str) -> Result<Scalar, String> {
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    let encoded: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = ENGINE
        .decode(encoded)
        .map_err(|error| format!("!!binary is not valid base64: {error}"))?;
    let mut decoded = String::new();
    for chunk in bytes.utf8_chunks() {
        decoded.push_str(chunk.valid());
        decoded.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    Ok(string(&decoded))
}

/// Converts a whole float below 1e21 to an integer: Go writes it to JSON without a fraction.
pub(crate) fn whole(number: Number) -> Number {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number;
    };
    if float.fract() != 0.0 || float.abs() >= 1e21 {
        return number;
    }
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return number;
    };
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let digits = digits.replace('.', "");
    let zeros = (exponent.parse::<usize>().unwrap_or(0) + 1).saturating_sub(digits.len());
    let text = format!("{sign}{digits}{}", "0".repeat(zeros));
    let signed = text.parse::<i64>().ok().map(Number::from);
    let unsigned = || text.parse::<u64>().ok().map(Number::from);
    signed.or_else(unsigned).unwrap_or(number)
}
