//! Formats numbers in Go's shortest form.

use serde_json::Number;

pub(super) fn text(number: &Number) -> String {
    if let Some(i) = number.as_i64() {
        return i.to_string();
    }
    if let Some(u) = number.as_u64() {
        return u.to_string();
    }
    number.as_f64().map_or_else(|| number.to_string(), float_text)
}

/// Formats a float as Go does: a whole number that fits 64 bits as an integer, others with the shortest digits and
/// with an exponent if it is below -4 or above 5.
fn float_text(value: f64) -> String {
    let whole = value.fract() == 0.0;
    if whole && value > -9.3e18 && value < 1.85e19 {
        return format!("{value:.0}");
    }
    with_exponent(&format!("{value:e}"), || format!("{value}"))
}

/// Returns the scientific form with at least two digits of exponent, or the plain one for exponents from -4 to 5.
fn with_exponent(scientific: &str, plain: impl Fn() -> String) -> String {
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific.to_owned();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return plain();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Formats a number as a key or a string: floats with the shortest digits that are unique in 32 bits.
pub(super) fn short_text(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        #[allow(clippy::cast_possible_truncation, reason = "Go prints these with 32 bits too")]
        Some(float) => short_float(float as f32),
        None => number.to_string(),
    }
}

fn short_float(value: f32) -> String {
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    with_exponent(&format!("{value:e}"), || format!("{value}"))
}
