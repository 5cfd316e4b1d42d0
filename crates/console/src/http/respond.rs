//! Responses, all with security headers.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

use crate::assets::Asset;

/// A response of the console.
pub type ConsoleResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Allows only files of the console, no inline script or style, and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub fn page(html: String) -> ConsoleResponse {
    page_with(StatusCode::OK, html)
}

pub fn page_with(status: StatusCode, html: String) -> ConsoleResponse {
    // The page depends on the rights of the user, which may be revoked.
    with_type(status, "text/html; charset=utf-8", "no-store", html.into())
}

pub fn text(status: StatusCode, text: &'static str) -> ConsoleResponse {
    with_type(
        status,
        "text/plain; charset=utf-8",
        "no-store",
        Bytes::from_static(text.as_bytes()),
    )
}

pub fn asset(asset: Asset) -> ConsoleResponse {
    let bytes = Bytes::from_static(asset.bytes);
    with_type(StatusCode::OK, asset.content_type, "public, max-age=86400", bytes)
}

/// Redirects to another page with GET.
pub fn redirect(location: &str) -> ConsoleResponse {
    let mut response = text(StatusCode::SEE_OTHER, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

pub fn stream(body: UnsyncBoxBody<Bytes, Infallible>) -> ConsoleResponse {
    let mut response = text(StatusCode::OK, "").map(|_| body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[must_use]
pub fn with_cookie(mut response: ConsoleResponse, cookie: &str) -> ConsoleResponse {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn with_type(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    bytes: Bytes,
) -> ConsoleResponse {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 8] = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Only pages of the console receive the referrer.
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
