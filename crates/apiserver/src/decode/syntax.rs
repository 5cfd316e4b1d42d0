//! JSON syntax errors, with the messages of Go's decoder.

use crate::go_text;

/// Returns Go's message for a syntax error, as far as both decoders see the same cause.
pub(super) fn go_message(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let at = offset(body, error);
    let found = character(body, at);
    if text.starts_with("expected ident")
        && let Some((literal, expected)) = broken_literal(body, at)
    {
        return format!("invalid character {found} in literal {literal} (expecting '{expected}')");
    }
    let place = if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("control character") {
        "in string literal"
    } else if text.starts_with("invalid escape") {
        "in string escape code"
    } else if text.starts_with("expected value")
        || text.starts_with("expected ident")
        || text.starts_with("trailing comma")
    {
        "looking for beginning of value"
    } else {
        return text;
    };
    format!("invalid character {found} {place}")
}

/// Returns the position in the body where the decoder stopped.
fn offset(body: &[u8], error: &serde_json::Error) -> usize {
    let lines = body
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1));
    lines.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// Returns the literal that begins before this position, and the character expected here.
fn broken_literal(body: &[u8], at: usize) -> Option<(&'static str, char)> {
    ["null", "true", "false"].into_iter().find_map(|literal| {
        (1..literal.len())
            .find(|&begun| at >= begun && body.get(at - begun..at) == Some(&literal.as_bytes()[..begun]))
            .and_then(|begun| Some((literal, literal.chars().nth(begun)?)))
    })
}

/// Returns the offending character in Go's quotes.
fn character(body: &[u8], at: usize) -> String {
    match body.get(at) {
        None => "' '".to_owned(),
        Some(b'\'') => r"'\''".to_owned(),
        Some(b'"') => "'\"'".to_owned(),
        Some(&byte) => {
            let quoted = go_text::quote(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}
