//! Formatting of values as Go prints them.
//!
//! Clients match error messages of Kubernetes, which Go's formatting verbs produce. Nothing here depends on Kubernetes.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A string as `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c => push_escape(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// A value as `encoding/json` writes it: sorted keys, and `<`, `>`, `&` escaped.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    push_json(&mut out, value);
    out
}

/// A decoded JSON value as `%v` prints it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut pairs: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", plain(value)))
                .collect();
            pairs.sort_unstable();
            format!("map[{}]", pairs.join(" "))
        }
    }
}

/// A decoded JSON value as `%#v` prints it.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let mut pairs: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{}:{}", quote(key), syntax(value)))
                .collect();
            pairs.sort_unstable();
            format!("map[string]interface {{}}{{{}}}", pairs.join(", "))
        }
        scalar => plain(scalar),
    }
}

/// The Go type that a JSON value is decoded into.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A JSON number as `%v` prints the integer or float that Kubernetes decodes it into.
pub fn number(number: &Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    number.as_f64().map_or_else(|| number.to_string(), float)
}

/// A float as `%v` prints it: shortest form, with an exponent below 1e-4 and from 1e21.
pub fn float(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    let magnitude = value.abs();
    if (1e-4..1e21).contains(&magnitude) {
        return format!("{value}");
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&self::number(number)),
        Value::String(text) => push_json_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_json(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, item)) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_json_string(out, key);
                out.push(':');
                push_json(out, item);
            }
            out.push('}');
        }
    }
}

fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => push_unicode_escape(out, c),
            c if (c as u32) < 0x20 => push_unicode_escape(out, c),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn push_unicode_escape(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{:04x}", c as u32);
}

fn push_escape(out: &mut String, c: char) {
    let code = c as u32;
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0x7f => write!(out, "\\x{code:02x}"),
        0x80..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Go's `strconv.IsPrint`, without its tables: the blocks that never print are controls, separators other than
/// the space, and the private and special areas.
fn is_printable(c: char) -> bool {
    if c.is_control() || (c.is_whitespace() && c != ' ') {
        return false;
    }
    !matches!(
        c as u32,
        0xad | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xd800..=0xf8ff | 0xfeff | 0xfff0..=0xfffb
            | 0xfffe..=0xffff | 0xe0000..=0x10_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_like_go() {
        for (text, expected) in [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nbreak\ttab\u{7}", r#""line\nbreak\ttab\a""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("grün 中 ✓", r#""grün 中 ✓""#),
            ("\u{a0}\u{feff}", r#""\u00a0\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn json_is_sorted_and_escaped_like_go() {
        assert_eq!(
            json(&json!({"b": [1, 2.5, null], "a": "<&>\u{1}", "c": {"z": true, "y": "\n"}})),
            r#"{"a":"\u003c\u0026\u003e\u0001","b":[1,2.5,null],"c":{"y":"\n","z":true}}"#
        );
    }

    #[test]
    fn floats_switch_to_exponents_where_go_does() {
        for (value, expected) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.25e-7, "1.25e-07"),
            (0.0001, "0.0001"),
            (-3.0, "-3"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn nested_values_print_like_go_maps_and_slices() {
        let value = json!({"b": [1, "x"], "a": null});
        assert_eq!(plain(&value), "map[a:<nil> b:[1 x]]");
        assert_eq!(
            syntax(&value),
            "map[string]interface {}{\"a\":interface {}(nil), \"b\":[]interface {}{1, \"x\"}}"
        );
        assert_eq!(type_name(&value), "map[string]interface {}");
    }
}
