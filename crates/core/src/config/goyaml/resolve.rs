//! Resolves plain (unquoted) scalars as a YAML 1.1 reader does.
//!
//! `yes`, `0755`, `1e3` and many more are typed values. The emitter quotes exactly the strings that would be resolved
//! to another type, and two kinds more that only other readers resolve: `12:30` and `2020-01-02`.

/// Whether a YAML 1.1 reader resolves the unquoted text to a string.
pub(super) fn is_plain_string(text: &str) -> bool {
    plain(text) == Plain::Text && !is_timestamp(text) && !is_base_60(text)
}

fn word(text: &str) -> Plain {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Plain::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Plain::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Plain::Null,
        _ => Plain::Text,
    }
}

/// The resolved value of a plain scalar in go-yaml.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    /// Greater than the largest signed integer.
    Unsigned(u64),
    Float(f64),
    /// A string; timestamps count as strings too.
    Text,
}

/// Returns the type and value of a plain scalar.
pub(super) fn plain(text: &str) -> Plain {
    match text.bytes().next() {
        None => Plain::Null,
        Some(b'+' | b'-' | b'0'..=b'9') => match text {
            "+.inf" | "+.Inf" | "+.INF" => Plain::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Plain::Float(f64::NEG_INFINITY),
            _ => number(text).unwrap_or(Plain::Text),
        },
        Some(b'.') => match text {
            ".nan" | ".NaN" | ".NAN" => Plain::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" => Plain::Float(f64::INFINITY),
            _ => fraction(text).map_or(Plain::Text, Plain::Float),
        },
        Some(_) => word(text),
    }
}

fn number(text: &str) -> Option<Plain> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    integer(&plain)
        .or_else(|| go_float(&plain).map(Plain::Float))
        .or_else(|| binary(&plain))
}

/// Parses an integer that fits 64 bits (signed, or unsigned without a sign), with Go's base prefixes.
fn integer(plain: &str) -> Option<Plain> {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    let sign = &plain[..plain.len() - unsigned.len()];
    in_base(sign, digits, radix)
}

/// Parses the `0b-1` and `-0b101` forms that Go's regular integer parser rejects.
fn binary(plain: &str) -> Option<Plain> {
    if let Some(digits) = plain.strip_prefix("-0b") {
        return in_base("-", digits, 2);
    }
    let rest = plain.strip_prefix("0b")?;
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    in_base(&rest[..rest.len() - digits.len()], digits, 2)
}

fn in_base(sign: &str, digits: &str, radix: u32) -> Option<Plain> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), radix);
    match signed {
        Ok(number) => Some(Plain::Int(number)),
        Err(_) if sign.is_empty() => u64::from_str_radix(digits, radix).ok().map(Plain::Unsigned),
        Err(_) => None,
    }
}

/// Whether the text matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float_shape(plain: &str) -> bool {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// Parses a float and rejects overflow: Go reports it as an error, Rust as infinity.
fn go_float(text: &str) -> Option<f64> {
    let float = text.parse::<f64>().ok()?;
    (is_float_shape(text) && float.is_finite()).then_some(float)
}

/// Parses `.5`, `.5e3` and `.5_1`: Go allows an underscore between two digits.
fn fraction(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit_at = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let separated = bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'_')
        .all(|(at, _)| digit_at(at.checked_sub(1)) && digit_at(at.checked_add(1)));
    go_float(&text.replace('_', "")).filter(|_| separated)
}

/// Whether the text is a sexagesimal number such as `190:20:30`, dropped in YAML 1.2 but still quoted for older
/// readers.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let Some(head) = parts.next() else { return false };
    let head_ok = head.starts_with(|c: char| c.is_ascii_digit())
        && head.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else {
        return false;
    };
    let sixtieth = |s: &str| match s.as_bytes() {
        [b] => b.is_ascii_digit(),
        [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
        _ => false,
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    head_ok
        && middle.iter().all(|part| sixtieth(part))
        && sixtieth(last)
        && fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Whether the text is a timestamp in one of the four layouts that Go tries, such as `2020-01-02`, `2020-1-2 3:4:5.6`
/// or `2020-01-02T03:04:05Z`.
pub(super) fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) = text.split_at_checked(4) else {
        return false;
    };
    let Some(rest) = rest.strip_prefix('-') else {
        return false;
    };
    if !year.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let year: u32 = year.parse().unwrap_or(0);
    let Some((month, rest)) = short_number(rest) else {
        return false;
    };
    let Some((day, rest)) = rest.strip_prefix('-').and_then(short_number) else {
        return false;
    };
    if !(1..=12).contains(&month) || day < 1 || day > days_in(month, year) {
        return false;
    }
    match rest.bytes().next() {
        None => true,
        Some(b' ') => time_of_day(&rest[1..]).is_some_and(str::is_empty),
        Some(b'T' | b't') => time_of_day(&rest[1..]).is_some_and(is_zone),
        Some(_) => false,
    }
}

fn short_number(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    digits.parse().ok().map(|number| (number, rest))
}

fn days_in(month: u32, year: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Parses `h:m:s` with an optional fraction; returns the remaining text.
fn time_of_day(text: &str) -> Option<&str> {
    let (hour, rest) = short_number(text)?;
    let (minute, rest) = short_number(rest.strip_prefix(':')?)?;
    let (second, rest) = short_number(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = rest
        .strip_prefix(['.', ','])
        .map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
    Some(if fraction > 0 { &rest[1 + fraction..] } else { rest })
}

fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let Some(offset) = text.strip_prefix(['+', '-']) else {
        return false;
    };
    let Some((hours, minutes)) = offset.split_once(':') else {
        return false;
    };
    let two_digits = |s: &str, max: u32| {
        s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()) && s.parse::<u32>().is_ok_and(|n| n <= max)
    };
    two_digits(hours, 24) && two_digits(minutes, 60)
}
