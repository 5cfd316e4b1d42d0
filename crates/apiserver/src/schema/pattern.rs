//! Regular expressions in the syntax of Go.
//!
//! Schemas and rules are written for Go's engine. The `regex` crate has almost the same syntax; this module translates
//! the constructs that differ.

use regex::Regex;

/// A compiled pattern and the text it was compiled from.
#[derive(Clone, Debug)]
pub struct GoPattern {
    source: Box<str>,
    regex: Regex,
}

impl GoPattern {
    /// Compiles a pattern; the error is one line.
    pub fn compile(source: &str) -> Result<Self, String> {
        let regex = Regex::new(&translate(source)).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            format!(
                "error parsing regexp: {}: `{source}`",
                reason.trim_start_matches("error: ")
            )
        })?;
        Ok(Self {
            source: source.into(),
            regex,
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    pub fn regex(&self) -> &Regex {
        &self.regex
    }
}

/// Rewrites what the two engines interpret differently: Perl classes are ASCII in Go, and Go has no nested classes and
/// no set operators.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    let mut in_class = false;
    let mut at_class_start = false;
    while let Some(c) = chars.next() {
        let starts_class = at_class_start;
        at_class_start = false;
        match (c, in_class) {
            ('\\', _) => match chars.next() {
                Some('Q') if !in_class => push_literal(&mut out, &mut chars),
                Some(escaped) => push_escape(&mut out, escaped, in_class),
                None => out.push('\\'),
            },
            ('[', false) => {
                in_class = true;
                at_class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.push('^');
                    chars.next();
                }
            }
            ('[', true) if chars.peek() == Some(&':') => {
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            (']', true) if starts_class => out.push_str("\\]"),
            (']', true) => {
                in_class = false;
                out.push(']');
            }
            ('[' | '&' | '~', true) => {
                out.push('\\');
                out.push(c);
            }
            ('-', true) if starts_class || chars.peek() == Some(&']') => out.push_str("\\-"),
            ('-', true) if chars.peek() == Some(&'-') => {
                // The end of a range that happens to be a dash.
                chars.next();
                out.push_str("-\\-");
            }
            (c, _) => out.push(c),
        }
    }
    out
}

fn push_escape(out: &mut String, escaped: char, in_class: bool) {
    let ascii = match escaped {
        'd' => Some(("0-9", false)),
        'D' => Some(("0-9", true)),
        'w' => Some(("0-9A-Za-z_", false)),
        'W' => Some(("0-9A-Za-z_", true)),
        's' => Some(("\\t\\n\\f\\r ", false)),
        'S' => Some(("\\t\\n\\f\\r ", true)),
        _ => None,
    };
    match (ascii, in_class) {
        (Some((set, false)), true) => out.push_str(set),
        (Some((set, negated)), _) => {
            out.push_str(if negated { "[^" } else { "[" });
            out.push_str(set);
            out.push(']');
        }
        (None, false) if escaped == 'b' || escaped == 'B' => {
            out.push_str("(?-u:\\");
            out.push(escaped);
            out.push(')');
        }
        (None, _) => {
            out.push('\\');
            out.push(escaped);
        }
    }
}

/// Escapes everything up to `\E`.
fn push_literal(out: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut literal = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            break;
        }
        literal.push(c);
    }
    out.push_str(&regex::escape(&literal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_go_matches() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("^[a-z]+$", &["abc"], &["ABC", "a1", ""]),
            (r"^\d+$", &["12"], &["١٢", "x"]),
            (r"^[\d.]+$", &["1.2"], &["a"]),
            (r"^\w+$", &["a_1"], &["grün"]),
            (r"^[^\W]+$", &["a_1"], &["a b"]),
            ("^[[]$", &["["], &["]"]),
            ("^[]a]$", &["]", "a"], &["["]),
            ("^[a&&b]+$", &["a&b"], &["c"]),
            ("^[a-]+$", &["a-"], &["b"]),
            ("^[+--]$", &["+", ",", "-"], &["."]),
            ("^[[:alpha:]~]+$", &["ab~"], &["1"]),
            (r"^a\bb$", &[], &["ab"]),
            (r"^\Qa.b\E$", &["a.b"], &["axb"]),
            (r"^.{2}$", &["äö"], &["a"]),
            (r"^sha256:[a-f0-9]{64}$", &[], &["sha256:x"]),
        ];
        for (source, matching, other) in cases {
            let pattern = GoPattern::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
            for text in *matching {
                assert!(pattern.is_match(text), "{source} should match {text}");
            }
            for text in *other {
                assert!(!pattern.is_match(text), "{source} should not match {text}");
            }
        }
    }

    #[test]
    fn a_broken_pattern_is_refused_with_a_reason_in_one_line() {
        let error = GoPattern::compile("[").expect_err("broken");
        assert!(
            error.starts_with("error parsing regexp: ") && !error.contains('\n'),
            "{error}"
        );
    }
}
