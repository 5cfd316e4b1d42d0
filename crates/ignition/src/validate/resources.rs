//! Validates resources to fetch: URL, headers, compression and verification; and proxies.

use super::rule::{self, ValidationRule};
use super::url::{self, ParsedUrl};
use super::{Checker, duplicates};
use crate::model::{HttpHeader, Proxy, Resource};
use crate::resource::data_url;
use crate::version::SpecVersion;

/// Validates a resource that may be absent.
pub(super) fn resource(resource: &Resource, check: &mut Checker) {
    verified_resource(resource, check);
    if resource.source.is_none() && resource.verification.hash.is_some() {
        check.field("verification", |check| {
            check.error_at("hash", rule::VERIFICATION_WITHOUT_SOURCE);
        });
    }
}

/// Validates the config that replaces this one; may be absent.
pub(super) fn replacement(entry: &Resource, check: &mut Checker) {
    if check.at_least(SpecVersion::V3_1) {
        resource(entry, check);
    } else {
        verified_resource(entry, check);
    }
}

/// Validates a further config to merge, which must have a source.
pub(super) fn required_resource(entry: &Resource, check: &mut Checker) {
    replacement(entry, check);
    if check.at_least(SpecVersion::V3_1) && is_blank(entry.source.as_deref()) {
        check.error(rule::SOURCE_MISSING);
    }
}

/// Validates a certificate authority, which must have a source.
pub(super) fn required_certificate(entry: &Resource, check: &mut Checker) {
    required_resource(entry, check);
    if !check.at_least(SpecVersion::V3_1) && is_blank(entry.source.as_deref()) {
        check.error_at("source", rule::URL_SCHEME);
    }
}

fn verified_resource(resource: &Resource, check: &mut Checker) {
    let source = resource.source.as_deref().filter(|source| !source.is_empty());
    if let Some(Err(rule)) = source.map(|source| source_url(source, check.version)) {
        check.error_at("source", rule);
    }
    if !matches!(resource.compression.as_deref(), None | Some("" | "gzip")) {
        check.error_at("compression", rule::COMPRESSION);
    }
    if let Some(Err(rule)) = resource
        .verification
        .hash
        .as_deref()
        .map(|hash| hash_sum(hash, check.version))
    {
        check.field("verification", |check| check.error_at("hash", rule));
    }
    headers(&resource.http_headers, source, check);
}

fn headers(headers: &[HttpHeader], source: Option<&str>, check: &mut Checker) {
    if headers.is_empty() {
        return;
    }
    check.field("httpHeaders", |check| {
        duplicates::by_key(headers, check);
        match source.map(url::parse) {
            None | Some(Err(_)) => check.error(rule::URL_UNPARSABLE),
            Some(Ok(url)) if url.is_web() => {}
            Some(Ok(_)) => check.error(rule::HEADERS_WITHOUT_WEB),
        }
    });
    check.each("httpHeaders", headers, |header, check| {
        if header.name.is_empty() {
            check.error_at("name", rule::HEADER_NAME_MISSING);
        }
        if header.value.as_deref() == Some("") {
            check.error_at("value", rule::HEADER_VALUE_EMPTY);
        }
    });
}

pub(super) fn proxy(proxy: &Proxy, check: &mut Checker) {
    for (name, value) in [
        ("httpProxy", &proxy.http_proxy),
        ("httpsProxy", &proxy.https_proxy),
    ] {
        let Some(value) = value else { continue };
        match url::parse(value) {
            Err(url::Unparsable) => check.error_at(name, rule::URL_UNPARSABLE),
            Ok(url) if !url.is_web() => check.error_at(name, rule::PROXY_SCHEME),
            Ok(url) if name == "httpsProxy" && url.scheme == "http" => {
                check.warn_at(name, rule::PROXY_INSECURE);
            }
            Ok(_) => {}
        }
    }
    check.field("noProxy", |check| duplicates::strings(&proxy.no_proxy, check));
}

fn source_url(source: &str, version: SpecVersion) -> Result<(), ValidationRule> {
    let url = url::parse(source).map_err(|url::Unparsable| rule::URL_UNPARSABLE)?;
    match url.scheme.as_str() {
        "http" | "https" => Ok(()),
        "tftp" if version >= SpecVersion::V2_1 => Ok(()),
        "gs" if version >= SpecVersion::V3_2 => Ok(()),
        "s3" if version >= SpecVersion::V2_1 => s3_version(&url),
        "arn" if version >= SpecVersion::V3_4 => {
            if !url::is_s3_object_arn(&url) {
                return Err(rule::S3_ARN);
            }
            s3_version(&url)
        }
        "data" => data_url::check(source).map_err(|error| {
            ValidationRule::about(
                error.to_string(),
                "write the contents as \"data:,\" with %XX sequences or as \"data:;base64,\"",
            )
        }),
        _ => Err(rule::URL_SCHEME),
    }
}

fn s3_version(url: &ParsedUrl) -> Result<(), ValidationRule> {
    if url
        .query_value("versionId")
        .is_some_and(|version| version.is_empty())
    {
        return Err(rule::S3_VERSION);
    }
    Ok(())
}

/// Validates only the length of the sum; Ignition compares it after fetching the resource.
fn hash_sum(hash: &str, version: SpecVersion) -> Result<(), ValidationRule> {
    let (function, sum) = hash.split_once('-').ok_or(rule::HASH_MALFORMED)?;
    let digits = match function {
        "sha512" => 128,
        "sha256" if version >= SpecVersion::V3_1 => 64,
        _ => return Err(rule::HASH_UNKNOWN),
    };
    if sum.len() == digits {
        Ok(())
    } else {
        Err(rule::HASH_SIZE)
    }
}

fn is_blank(text: Option<&str>) -> bool {
    text.is_none_or(str::is_empty)
}
