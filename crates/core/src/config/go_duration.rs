//! Durations in the notation of Kubernetes objects (`1m30s`), parsed and formatted as in Go.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SECOND: u64 = 1_000_000_000;

/// Parses a duration into nanoseconds; `None` if the text is invalid.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let (unit, size) = UNITS
            .iter()
            .filter(|(unit, _)| tail.starts_with(unit))
            .max_by_key(|(unit, _)| unit.len())?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 18 {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        total += digits.checked_mul(*size)? / 10_i128.checked_pow(places)?;
        rest = tail.strip_prefix(unit)?;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Formats a duration as Go does: `10m0s`.
pub(crate) fn of(duration: Duration) -> String {
    format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// Formats a duration as Go does: `0s`, `1.5s`, `1m30s`, `4h0m0s`.
pub(crate) fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let absolute = nanos.unsigned_abs();
    if absolute == 0 {
        return "0s".to_owned();
    }
    if absolute < SECOND {
        let (unit, size) = match absolute {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("\u{b5}s", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", decimal(absolute, size));
    }
    let mut text = sign.to_owned();
    let minutes = absolute / (60 * SECOND);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{}s", decimal(absolute % (60 * SECOND), SECOND));
    text
}

/// Returns `value / unit` without trailing zeros.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_as_go_does() {
        for (text, canonical) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("5s", "5s"),
            ("90s", "1m30s"),
            ("4h0m0s", "4h0m0s"),
            ("4h", "4h0m0s"),
            ("1m", "1m0s"),
            ("1.5s", "1.5s"),
            ("1.5h", "1h30m0s"),
            ("100ms", "100ms"),
            ("1500us", "1.5ms"),
            ("1500\u{b5}s", "1.5ms"),
            ("3ns", "3ns"),
            ("-10s", "-10s"),
            ("1m500ms", "1m0.5s"),
        ] {
            assert_eq!(parse(text).map(format).as_deref(), Some(canonical), "{text}");
        }
        for text in ["", "5", "s", "1x", "1.2.3s", "-", "1 s"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
