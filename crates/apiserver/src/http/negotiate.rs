//! Content negotiation: the formats of bodies and the representation of responses.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use super::query::QueryParameters;
use crate::error::ApiError;
use crate::present::Representation;

pub const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The format of an object in a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The encoding of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseEncoding {
    Json,
    Yaml,
}

/// One alternative of an `Accept` header.
#[derive(Debug, Default)]
struct AcceptedType<'a> {
    media_type: &'a str,
    shape: &'a str,
    group: &'a str,
    version: &'a str,
}

fn alternatives(headers: &HeaderMap) -> Vec<AcceptedType<'_>> {
    let texts = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut found = Vec::new();
    for text in texts.flat_map(|text| text.split(',')) {
        let mut parts = text.split(';').map(str::trim);
        let mut alternative = AcceptedType {
            media_type: parts.next().unwrap_or_default(),
            ..AcceptedType::default()
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "as" => alternative.shape = value,
                "g" => alternative.group = value,
                "v" => alternative.version = value,
                _ => {}
            }
        }
        found.push(alternative);
    }
    found
}

fn encoding(media_type: &str) -> Option<ResponseEncoding> {
    match media_type {
        JSON | "*/*" | "application/*" | "" => Some(ResponseEncoding::Json),
        YAML => Some(ResponseEncoding::Yaml),
        _ => None,
    }
}

/// Returns the representation that the client prefers among those served.
pub fn form(
    headers: &HeaderMap,
    query: &QueryParameters,
    list: bool,
) -> Result<(Representation, ResponseEncoding), ApiError> {
    let alternatives = alternatives(headers);
    if alternatives.is_empty() {
        return Ok((Representation::Whole, ResponseEncoding::Json));
    }
    for alternative in &alternatives {
        let Some(encoding) = encoding(alternative.media_type) else {
            continue;
        };
        let served = matches!(
            (alternative.group, alternative.version),
            ("meta.k8s.io", "v1" | "v1beta1")
        );
        match alternative.shape {
            "" => return Ok((Representation::Whole, encoding)),
            "Table" if served => return Ok((Representation::Table(query.include_object()?), encoding)),
            "PartialObjectMetadataList" if served && list => return Ok((Representation::Metadata, encoding)),
            "PartialObjectMetadata" if served && (!list || query.is_watch()) => {
                return Ok((Representation::Metadata, encoding));
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable())
}

/// Returns whether the client accepts documents (discovery, health, OpenAPI) as JSON.
pub fn accepts_json(headers: &HeaderMap) -> bool {
    let alternatives = alternatives(headers);
    alternatives.is_empty()
        || alternatives
            .iter()
            .any(|alternative| encoding(alternative.media_type).is_some())
}

/// Returns the version of aggregated discovery that the client requests, if any.
pub fn aggregated_discovery(headers: &HeaderMap) -> Option<&'static str> {
    let preferred = alternatives(headers);
    for alternative in &preferred {
        if alternative.media_type != JSON {
            continue;
        }
        match (alternative.shape, alternative.group, alternative.version) {
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Some("v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => return Some("v2beta1"),
            ("", _, _) => return None,
            _ => {}
        }
    }
    None
}

fn content_type(headers: &HeaderMap) -> &str {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Custom resources have no protobuf form.
pub fn body_format(headers: &HeaderMap, custom: bool) -> Result<BodyFormat, ApiError> {
    match content_type(headers) {
        "" | JSON => Ok(BodyFormat::Json),
        YAML => Ok(BodyFormat::Yaml),
        PROTOBUF if !custom => Ok(BodyFormat::Protobuf),
        _ if custom => Err(ApiError::unsupported_media_type(&[JSON, YAML])),
        _ => Err(ApiError::unsupported_media_type(&[JSON, YAML, PROTOBUF])),
    }
}

pub fn patch_format(headers: &HeaderMap, custom: bool) -> Result<PatchFormat, ApiError> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchFormat::Json),
        "application/merge-patch+json" => Ok(PatchFormat::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchFormat::Strategic),
        "application/apply-patch+yaml" => Ok(PatchFormat::Apply),
        _ if custom => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        _ => Err(ApiError::unsupported_patch()),
    }
}
