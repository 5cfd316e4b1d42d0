//! Construction of responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;

use super::body::ApiBody;
use super::negotiate::{JSON, ResponseEncoding};
use crate::error::ApiError;

/// Returns a JSON response in pieces.
pub fn pieces(code: StatusCode, pieces: Vec<Bytes>) -> Response<ApiBody> {
    build(code, JSON, ApiBody::from_pieces(pieces))
}

pub fn bytes(code: StatusCode, bytes: Bytes) -> Response<ApiBody> {
    build(code, JSON, ApiBody::from(bytes))
}

pub fn json(code: StatusCode, value: &Value) -> Response<ApiBody> {
    bytes(code, Bytes::from(value.to_string()))
}

pub fn text(code: StatusCode, text: impl Into<String>) -> Response<ApiBody> {
    build(
        code,
        "text/plain; charset=utf-8",
        ApiBody::from(Bytes::from(text.into())),
    )
}

pub fn stream(body: ApiBody) -> Response<ApiBody> {
    build(StatusCode::OK, JSON, body)
}

/// Returns a document with its own media type.
pub fn document(content_type: &'static str, bytes: Bytes) -> Response<ApiBody> {
    build(StatusCode::OK, content_type, ApiBody::from(bytes))
}

pub fn not_found_page() -> Response<ApiBody> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub fn error(error: &ApiError) -> Response<ApiBody> {
    let mut response = json(error.code, &error.status());
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a JSON response in the encoding that the client requested.
pub fn encode(
    encoding: ResponseEncoding,
    code: StatusCode,
    parts: Vec<Bytes>,
) -> Result<Response<ApiBody>, ApiError> {
    match encoding {
        ResponseEncoding::Json => Ok(pieces(code, parts)),
        ResponseEncoding::Yaml => {
            let value: Value = serde_json::from_slice(&parts.concat()).map_err(ApiError::internal)?;
            let yaml = serde_saphyr::to_string(&value).map_err(ApiError::internal)?;
            Ok(build(code, "application/yaml", ApiBody::from(Bytes::from(yaml))))
        }
    }
}

/// Adds warning headers.
pub fn warn(response: &mut Response<ApiBody>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        // Bytes, because a warning may have characters that are not ASCII.
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

fn build(code: StatusCode, content_type: &'static str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}
