//! Validation of strings that Go decodes into narrower types.

use serde_json::Value;

use crate::go_text;

const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns why a value is not a resource quantity.
pub(super) fn quantity_error(value: &Value) -> Option<String> {
    let valid = match value {
        Value::Number(_) | Value::Null => true,
        Value::String(text) => is_quantity(text),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    (!valid).then(|| QUANTITY.to_owned())
}

fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let plausible = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() <= 1;
    let known = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest))
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    plausible && (known || exponent)
}

/// Returns why a text is not base64.
pub(super) fn base64_error(text: &str) -> Option<String> {
    use base64::Engine as _;
    // Go skips line breaks inside base64.
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let at = match base64::engine::general_purpose::STANDARD.decode(&compact).err()? {
        base64::DecodeError::InvalidByte(at, _)
        | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => compact.len() / 4 * 4,
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

/// Returns why a text is not an RFC 3339 time, naming the first invalid part.
pub(super) fn time_error(text: &str) -> Option<String> {
    let mut rest = match date_and_time(text, TIME_LAYOUT) {
        Ok(rest) => rest,
        Err(error) => return Some(error),
    };
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    zone_error(text, rest, TIME_LAYOUT)
}

/// Returns why a text is not a `MicroTime`, which has exactly six digits after the second.
pub(super) fn micro_time_error(text: &str) -> Option<String> {
    let rest = match date_and_time(text, MICRO_TIME_LAYOUT) {
        Ok(rest) => rest,
        Err(error) => return Some(error),
    };
    match rest.strip_prefix('.').and_then(|rest| take_digits(rest, 6)) {
        Some(rest) => zone_error(text, rest, MICRO_TIME_LAYOUT),
        None => Some(unparsed(text, rest, ".000000", MICRO_TIME_LAYOUT)),
    }
}

/// Returns what follows the seconds.
fn date_and_time<'t>(text: &'t str, layout: &str) -> Result<&'t str, String> {
    let mut rest = text;
    for (part, width) in [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
    ] {
        let taken = if width == 0 {
            rest.strip_prefix(part)
        } else {
            take_digits(rest, width)
        };
        rest = taken.ok_or_else(|| unparsed(text, rest, part, layout))?;
    }
    Ok(rest)
}

fn zone_error(text: &str, rest: &str, layout: &str) -> Option<String> {
    if rest == "Z" || is_offset(rest) {
        // The format is valid; what remains is whether such a day and hour exist.
        let exists = text.parse::<jiff::Timestamp>().is_ok();
        return (!exists).then(|| format!("parsing time {}: day out of range", go_text::quote(text)));
    }
    Some(unparsed(text, rest, "Z07:00", layout))
}

fn unparsed(text: &str, rest: &str, part: &str, layout: &str) -> String {
    format!(
        "parsing time {} as {}: cannot parse {} as {}",
        go_text::quote(text),
        go_text::quote(layout),
        go_text::quote(rest),
        go_text::quote(part)
    )
}

fn take_digits(text: &str, width: usize) -> Option<&str> {
    let (digits, rest) = text.split_at_checked(width)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(rest)
}

fn is_offset(text: &str) -> bool {
    let Some(rest) = text
        .strip_prefix(['+', '-'])
        .and_then(|rest| take_digits(rest, 2))
    else {
        return false;
    };
    rest.strip_prefix(':').and_then(|rest| take_digits(rest, 2)) == Some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_distinguished_from_other_texts() {
        for good in ["1", "0.5", "100m", "1Gi", "-3", "+1k", "1e3", "1E-3", ".5", "5."] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "x", "1.2.3", "1 Gi", "1gi", ".", "1e", "Ki", "1Kib"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn times_fail_at_the_part_that_is_wrong() {
        assert_eq!(time_error("2026-01-02T03:04:05Z"), None);
        assert_eq!(time_error("2026-01-02T03:04:05.123456+02:00"), None);
        for (text, rest, part) in [
            ("x", "x", "2006"),
            ("2026/01", "/01", "-"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
        ] {
            assert_eq!(time_error(text), Some(unparsed(text, rest, part, TIME_LAYOUT)));
        }
        assert!(time_error("2026-02-30T00:00:00Z").is_some_and(|text| text.ends_with("day out of range")));
    }

    #[test]
    fn a_lease_without_microseconds_was_accepted() {
        assert_eq!(micro_time_error("2026-01-02T03:04:05.123456Z"), None);
        assert_eq!(micro_time_error("2026-01-02T03:04:05.123456+02:00"), None);
        for (text, rest, part) in [
            ("2026-01-02T03:04:48+00:00", "+00:00", ".000000"),
            ("2026-01-02T03:04:48.123Z", ".123Z", ".000000"),
            ("2026-01-02T03:04:48.123456789Z", "789Z", "Z07:00"),
        ] {
            let expected = unparsed(text, rest, part, MICRO_TIME_LAYOUT);
            assert_eq!(micro_time_error(text), Some(expected));
        }
    }

    #[test]
    fn base64_errors_contain_the_position() {
        assert_eq!(base64_error("aGk="), None);
        assert_eq!(base64_error("aG\nk="), None);
        assert_eq!(
            base64_error("###").as_deref(),
            Some("illegal base64 data at input byte 0")
        );
        assert_eq!(
            base64_error("aGk").as_deref(),
            Some("illegal base64 data at input byte 0")
        );
    }
}
