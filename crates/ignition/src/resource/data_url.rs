//! Data URLs, decoded as by the library that Ignition uses: stricter than browsers, and with its own list of media
//! types.

use thiserror::Error;

use super::base64;

/// Why a data URL cannot be decoded. Its contents are not included.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum DataUrlError {
    #[error("missing data prefix")]
    NoPrefix,
    #[error("missing comma before data")]
    NoComma,
    #[error("invalid character after data prefix")]
    AfterPrefix,
    #[error("missing media type slash")]
    NoSlash,
    #[error("invalid character for media type")]
    MediaType,
    #[error("invalid media type")]
    UnknownMediaType,
    #[error("incomplete media type")]
    MediaTypeUnfinished,
    #[error("invalid character for media subtype")]
    MediaSubtype,
    #[error("unterminated parameter sequence")]
    ParametersUnfinished,
    #[error("invalid character for parameter attribute")]
    ParameterName,
    #[error("expected base64 as the last parameter")]
    ParameterWithoutValue,
    #[error("invalid character for parameter value")]
    ParameterValue,
    #[error("unclosed quoted string")]
    QuoteUnclosed,
    #[error("invalid syntax")]
    QuoteSyntax,
    #[error("expected semicolon or comma")]
    AfterQuote,
    #[error("invalid data character")]
    Data,
    #[error("rfc2396: unexpected end of unescape sequence")]
    EscapeUnfinished,
    #[error("rfc2396: invalid char 0x25 in unescape sequence")]
    Escape,
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
}

/// Accepted media types, by prefix.
const MEDIA_TYPES: [&str; 9] = [
    "text",
    "image",
    "audio",
    "video",
    "application",
    "multipart",
    "message",
    "x-",
    "X-",
];

/// Checks that a data URL can be decoded, without producing its contents.
pub(crate) fn check(url: &str) -> Result<(), DataUrlError> {
    match split(url)? {
        DataUrlBody::Percent(data) => check_percent(data),
        DataUrlBody::Base64(data) => base64::check(data).map_err(DataUrlError::Base64),
    }
}

/// Returns the contents of a data URL.
pub(crate) fn decode(url: &str) -> Result<Vec<u8>, DataUrlError> {
    match split(url)? {
        DataUrlBody::Percent(data) => unescape(data),
        DataUrlBody::Base64(data) => base64::decode(data).map_err(DataUrlError::Base64),
    }
}

/// The part after the comma in its encoding, validated for the encoding's alphabet.
enum DataUrlBody<'a> {
    Percent(&'a str),
    Base64(&'a [u8]),
}

fn split(url: &str) -> Result<DataUrlBody<'_>, DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::NoPrefix)?;
    let rest = match rest.as_bytes().first() {
        None => return Err(DataUrlError::NoComma),
        Some(b',' | b';') => rest,
        Some(&first) if is_token(first) => skip_media_type(rest)?,
        Some(_) => return Err(DataUrlError::AfterPrefix),
    };
    let (is_base64, data) = skip_parameters(rest)?;
    if is_base64 {
        if !data
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=\n".contains(&byte))
        {
            return Err(DataUrlError::Data);
        }
        Ok(DataUrlBody::Base64(data.as_bytes()))
    } else {
        if !data.bytes().all(is_url_character) {
            return Err(DataUrlError::Data);
        }
        Ok(DataUrlBody::Percent(data))
    }
}

/// Skips `type/subtype`; what remains begins with a comma or a semicolon.
fn skip_media_type(text: &str) -> Result<&str, DataUrlError> {
    // After an x, which should begin `x-`, the next character is not checked.
    let unchecked = match text.strip_prefix(['x', 'X']) {
        Some(rest) => 1 + rest.chars().next().map_or(0, char::len_utf8),
        None => 0,
    };
    let end = text[unchecked..]
        .bytes()
        .position(|byte| !is_token(byte))
        .ok_or(DataUrlError::NoSlash)?
        + unchecked;
    let media_type = &text[..end];
    if text.as_bytes()[end] != b'/' {
        return Err(DataUrlError::MediaType);
    }
    if !MEDIA_TYPES.iter().any(|known| media_type.starts_with(known)) {
        return Err(DataUrlError::UnknownMediaType);
    }
    let subtype = &text[end + 1..];
    let end = subtype
        .bytes()
        .position(|byte| !is_token(byte))
        .ok_or(DataUrlError::MediaTypeUnfinished)?;
    match subtype.as_bytes()[end] {
        b',' | b';' => Ok(&subtype[end..]),
        _ => Err(DataUrlError::MediaSubtype),
    }
}

/// Skips `;name=value` pairs and the final `;base64`; returns whether there was one, and what follows the comma.
fn skip_parameters(mut rest: &str) -> Result<(bool, &str), DataUrlError> {
    loop {
        let Some(parameter) = rest.strip_prefix(';') else {
            let data = rest.strip_prefix(',').ok_or(DataUrlError::NoComma)?;
            return Ok((false, data));
        };
        let end = parameter
            .bytes()
            .position(|byte| !is_token(byte))
            .ok_or(DataUrlError::ParametersUnfinished)?;
        let (name, after) = parameter.split_at(end);
        match after.as_bytes().first() {
            Some(b'=' | b',') if name.is_empty() => return Err(DataUrlError::ParametersUnfinished),
            Some(b'=') => rest = skip_value(&after[1..])?,
            Some(b',') if name == "base64" => return Ok((true, &after[1..])),
            Some(b',') => return Err(DataUrlError::ParameterWithoutValue),
            _ => return Err(DataUrlError::ParameterName),
        }
    }
}

fn skip_value(text: &str) -> Result<&str, DataUrlError> {
    if let Some(quoted) = text.strip_prefix('"') {
        return skip_quoted(quoted);
    }
    let end = text
        .bytes()
        .position(|byte| !is_token(byte))
        .ok_or(DataUrlError::NoComma)?;
    let (value, after) = text.split_at(end);
    match after.as_bytes().first() {
        Some(b',' | b';') if !value.is_empty() => {
            check_percent(value)?;
            Ok(after)
        }
        _ => Err(DataUrlError::ParameterValue),
    }
}

fn skip_quoted(text: &str) -> Result<&str, DataUrlError> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at) {
            None => return Err(DataUrlError::QuoteUnclosed),
            Some(b'"') => break,
            Some(b'\\') if bytes.len() <= at + 1 => return Err(DataUrlError::QuoteUnclosed),
            Some(b'\\') => at += 2,
            Some(byte) if byte.is_ascii() => at += 1,
            Some(_) => return Err(DataUrlError::ParameterValue),
        }
    }
    if !is_quoted_text(&bytes[..at]) {
        return Err(DataUrlError::QuoteSyntax);
    }
    let after = text.get(at + 1..).unwrap_or_default();
    match after.as_bytes().first() {
        None => Err(DataUrlError::NoComma),
        Some(b',' | b';') => Ok(after),
        Some(_) => Err(DataUrlError::AfterQuote),
    }
}

/// Returns whether the inside of a quoted string has only the escapes of Go strings.
fn is_quoted_text(mut text: &[u8]) -> bool {
    while let Some((&first, rest)) = text.split_first() {
        text = match first {
            b'\n' => return false,
            b'\\' => match skip_escape(rest) {
                Some(rest) => rest,
                None => return false,
            },
            _ => rest,
        };
    }
    true
}

fn skip_escape(text: &[u8]) -> Option<&[u8]> {
    let (&kind, rest) = text.split_first()?;
    let digits = |radix: u32, from: &[u8]| {
        from.iter().try_fold(0_u32, |value, &byte| {
            Some(value * radix + char::from(byte).to_digit(radix)?)
        })
    };
    match kind {
        b'"' | b'\\' | b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' => Some(rest),
        b'x' => digits(16, rest.get(..2)?).map(|_| &rest[2..]),
        b'u' => digits(16, rest.get(..4)?)
            .and_then(char::from_u32)
            .map(|_| &rest[4..]),
        b'U' => {
            let sequence = rest.get(..8)?;
            // Eight digits overflow only above any character.
            let leading_zeros = sequence.starts_with(b"00");
            digits(16, sequence.get(2..)?)
                .filter(|_| leading_zeros)
                .and_then(char::from_u32)
                .map(|_| &rest[8..])
        }
        b'0'..=b'7' => digits(8, text.get(..3)?)
            .filter(|value| *value < 256)
            .map(|_| &text[3..]),
        _ => None,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]".contains(&byte)
}

fn is_url_character(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"#<>[\\]^`{|}".contains(&byte)
}

fn check_percent(text: &str) -> Result<(), DataUrlError> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at += if bytes[at] == b'%' {
            escaped_byte(&bytes[at + 1..]).map(|_| 3)?
        } else {
            1
        };
    }
    Ok(())
}

fn unescape(text: &str) -> Result<Vec<u8>, DataUrlError> {
    let bytes = text.as_bytes();
    let mut contents = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            contents.push(escaped_byte(&bytes[at + 1..])?);
            at += 3;
        } else {
            contents.push(bytes[at]);
            at += 1;
        }
    }
    Ok(contents)
}

/// Returns the byte for the two characters after a percent sign.
fn escaped_byte(digits: &[u8]) -> Result<u8, DataUrlError> {
    let digit = |index: usize| {
        let byte = digits.get(index).ok_or(DataUrlError::EscapeUnfinished)?;
        let value = char::from(*byte).to_digit(16).ok_or(DataUrlError::Escape)?;
        u8::try_from(value).map_err(|_| DataUrlError::Escape)
    };
    Ok(digit(0)? << 4 | digit(1)?)
}
