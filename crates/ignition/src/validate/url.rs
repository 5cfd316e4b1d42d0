//! Parses URLs as Ignition's URL library does: lenient about hosts and schemes, strict about escapes.
//!
//! Crates that follow the WHATWG or RFC rules accept and reject different texts, and a config that the machine would
//! reject must be rejected here.

use std::net::Ipv6Addr;

/// The parts of a URL that the rules check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedUrl {
    /// In lower case; empty when the URL has none.
    pub(crate) scheme: String,
    /// What follows the scheme when it is not a path, without query and fragment.
    opaque: Option<String>,
    query: String,
}

/// The text is not a URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unparsable;

impl ParsedUrl {
    /// Returns whether the URL is fetched over HTTP, with or without TLS.
    pub(crate) fn is_web(&self) -> bool {
        matches!(self.scheme.as_str(), "http" | "https")
    }

    /// Returns the first value of a query parameter, decoded. Parameters that cannot be decoded are ignored.
    pub(crate) fn query_value(&self, name: &str) -> Option<String> {
        self.query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .find_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                let key = unescape_query(key)?;
                let value = unescape_query(value)?;
                (key == name.as_bytes()).then(|| String::from_utf8_lossy(&value).into_owned())
            })
    }
}

pub(crate) fn parse(text: &str) -> Result<ParsedUrl, Unparsable> {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(Unparsable);
    }
    check_escapes(fragment)?;
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = ParsedUrl {
        scheme: scheme.to_ascii_lowercase(),
        opaque: None,
        query: query.to_owned(),
    };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = Some(rest.to_owned());
            return Ok(url);
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(Unparsable);
        }
    }
    let mut path = rest;
    if (!scheme.is_empty() || !rest.starts_with("///"))
        && let Some(after) = rest.strip_prefix("//")
    {
        let end = after.find('/').unwrap_or(after.len());
        check_authority(&after[..end])?;
        path = &after[end..];
    }
    check_escapes(path)?;
    Ok(url)
}

/// Returns whether an `arn:` URL names an object in S3, in a bucket or behind an access point.
pub(crate) fn is_s3_object_arn(url: &ParsedUrl) -> bool {
    let Some(opaque) = &url.opaque else { return false };
    let sections: Vec<&str> = opaque.splitn(5, ':').collect();
    let [_partition, service, _region, _account, resource] = sections[..] else {
        return false;
    };
    if service != "s3" {
        return false;
    }
    // Ignition counts the slashes of the whole name.
    let needed = if resource.starts_with("accesspoint/") {
        2
    } else {
        1
    };
    opaque.matches('/').count() >= needed
}

/// Splits off the scheme: letters, then also digits and `+-.`, up to a colon; otherwise there is no scheme.
fn split_scheme(text: &str) -> Result<(&str, &str), Unparsable> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(Unparsable),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn check_authority(authority: &str) -> Result<(), Unparsable> {
    match authority.rsplit_once('@') {
        None => check_host(authority),
        Some((user, host)) => {
            check_host(host)?;
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !user.bytes().all(allowed) {
                return Err(Unparsable);
            }
            check_escapes(user)
        }
    }
}

fn check_host(host: &str) -> Result<(), Unparsable> {
    if let Some(open) = host.rfind('[') {
        let close = host.rfind(']').filter(|close| *close > open).ok_or(Unparsable)?;
        check_port(&host[close + 1..])?;
        let inside = &host[open + 1..close];
        let (address, zone) = match inside.find("%25") {
            Some(at) => (&inside[..at], &inside[at..]),
            None => (inside, ""),
        };
        check_host_escapes(zone, Escapes::Zone)?;
        if open > 0 || address.parse::<Ipv6Addr>().is_err() {
            return Err(Unparsable);
        }
        return Ok(());
    }
    if let Some(colon) = host.rfind(':') {
        check_port(&host[colon..])?;
    }
    check_host_escapes(host, Escapes::Host)
}

/// Accepts nothing, or a colon and digits.
fn check_port(port: &str) -> Result<(), Unparsable> {
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(()),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(Unparsable),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Host,
    Zone,
}

fn check_host_escapes(text: &str, kind: Escapes) -> Result<(), Unparsable> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let value = escaped_byte(bytes, at).ok_or(Unparsable)?;
            let allowed = match kind {
                // A host may escape only what is not ASCII, and the percent sign itself.
                Escapes::Host => value >= 0x80 || value == b'%',
                Escapes::Zone => value == b'%' || value == b' ' || is_host_byte(value),
            };
            if !allowed {
                return Err(Unparsable);
            }
            at += 3;
        } else {
            if bytes[at] < 0x80 && !is_host_byte(bytes[at]) {
                return Err(Unparsable);
            }
            at += 1;
        }
    }
    Ok(())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn check_escapes(text: &str) -> Result<(), Unparsable> {
    let bytes = text.as_bytes();
    for at in 0..bytes.len() {
        if bytes[at] == b'%' && escaped_byte(bytes, at).is_none() {
            return Err(Unparsable);
        }
    }
    Ok(())
}

fn unescape_query(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                decoded.push(escaped_byte(bytes, at)?);
                at += 3;
                continue;
            }
            b'+' => decoded.push(b' '),
            other => decoded.push(other),
        }
        at += 1;
    }
    Some(decoded)
}

/// Returns the byte for `%XX` at this position.
fn escaped_byte(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |offset: usize| {
        bytes
            .get(at + offset)
            .and_then(|&byte| char::from(byte).to_digit(16))
    };
    u8::try_from(digit(1)? * 16 + digit(2)?).ok()
}
