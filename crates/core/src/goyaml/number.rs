//! Numbers in the shortest form Go prints.

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

/// Go writes a whole number as an integer while it fits 64 bits; anything else gets its shortest digits, with
/// an exponent once that is below -4 or above 5.
fn float_text(value: f64) -> String {
    let whole = value.fract() == 0.0;
    if whole && value > -9.3e18 && value < 1.85e19 {
        return format!("{value:.0}");
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
