//! URLs, parsed as Go does.

use std::collections::{BTreeMap, HashMap};

use cel::common::types::{CelBool, CelList, CelMap, CelMapKey, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, opaque};

/// The parts of a URL, still escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CelUrl {
    scheme: String,
    host: String,
    path: String,
    query: String,
}
opaque!(CelUrl, "kubernetes.URL");

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn is_url: (CelString) -> CelBool, name = "isURL")?;
    cel::add_overload!(env, fn url: (CelString) -> Result<CelUrl>)?;
    cel::add_member_overload!(env, fn get_scheme: (CelUrl) -> CelString)?;
    cel::add_member_overload!(env, fn get_host: (CelUrl) -> CelString)?;
    cel::add_member_overload!(env, fn get_hostname: (CelUrl) -> CelString)?;
    cel::add_member_overload!(env, fn get_port: (CelUrl) -> CelString)?;
    cel::add_member_overload!(env, fn get_escaped_path: (CelUrl) -> CelString)?;
    cel::add_member_overload!(env, fn get_query: (CelUrl) -> CelMap)?;
    Ok(())
}

/// An absolute URI or an absolute path.
fn parse(text: &str) -> Result<CelUrl, String> {
    let problem =
        |reason: &str| format!("URL parse error during conversion from string: parse {text:?}: {reason}");
    if text.is_empty() {
        return Err(problem("empty url"));
    }
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err(problem("net/url: invalid control character in URL"));
    }
    let (scheme, rest) = if text.starts_with('/') {
        ("", text)
    } else {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| problem("invalid URI for request"))?;
        let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        if !valid || !rest.starts_with('/') {
            return Err(problem("invalid URI for request"));
        }
        (scheme, rest)
    };
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match location.strip_prefix("//") {
        Some(authority) if !scheme.is_empty() || !location.starts_with("///") => {
            let end = authority.find('/').unwrap_or(authority.len());
            let host = authority[..end].rsplit('@').next().unwrap_or_default();
            (host, &authority[end..])
        }
        _ => ("", location),
    };
    if host.contains(' ') {
        return Err(problem("invalid character \" \" in host name"));
    }
    if !port_is_valid(host) {
        return Err(problem("invalid port after host"));
    }
    Ok(CelUrl {
        scheme: scheme.to_ascii_lowercase(),
        host: host.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

fn port_is_valid(host: &str) -> bool {
    let after_brackets = host.rsplit(']').next().unwrap_or_default();
    after_brackets
        .split_once(':')
        .is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_url(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text.inner()).is_ok())
}

fn url(text: &CelString<'_>) -> Result<CelUrl, ExecutionError> {
    parse(text.inner()).map_err(|error| failed("url", error))
}

fn get_scheme(this: &CelUrl) -> CelString<'static> {
    CelString::from(this.scheme.clone())
}

fn get_host(this: &CelUrl) -> CelString<'static> {
    CelString::from(this.host.clone())
}

fn get_hostname(this: &CelUrl) -> CelString<'static> {
    let name = match this.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => this.host.split(':').next().unwrap_or_default(),
    };
    CelString::from(name.to_owned())
}

fn get_port(this: &CelUrl) -> CelString<'static> {
    let after_brackets = this.host.rsplit(']').next().unwrap_or_default();
    CelString::from(
        after_brackets
            .split_once(':')
            .map(|(_, port)| port.to_owned())
            .unwrap_or_default(),
    )
}

fn get_escaped_path(this: &CelUrl) -> CelString<'static> {
    CelString::from(this.path.replace(' ', "%20"))
}

fn get_query(this: &CelUrl) -> CelMap<'static> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in this.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        values.entry(unescape(name)).or_default().push(unescape(value));
    }
    let entries: HashMap<CelMapKey<'static>, Box<dyn Val>> = values
        .into_iter()
        .map(|(name, values)| {
            let list: CelList<'static> = super::texts(values);
            let value: Box<dyn Val> = Box::new(list);
            (CelMapKey::String(CelString::from(name)), value)
        })
        .collect();
    CelMap::from(entries)
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match (
            bytes[at],
            escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()),
        ) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
