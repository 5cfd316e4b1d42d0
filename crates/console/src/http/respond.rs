//! Answers, all with the headers that keep a page to itself.

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

pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Nothing but our own files, no script or style inside a page, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub fn page(html: String) -> Answer {
    page_with(StatusCode::OK, html)
}

pub fn page_with(status: StatusCode, html: String) -> Answer {
    // What a person may see today must not be found in a cache tomorrow.
    with_type(status, "text/html; charset=utf-8", "no-store", html.into())
}

pub fn text(status: StatusCode, text: &'static str) -> Answer {
    with_type(
        status,
        "text/plain; charset=utf-8",
        "no-store",
        Bytes::from_static(text.as_bytes()),
    )
}

pub fn asset(asset: Asset) -> Answer {
    let bytes = Bytes::from_static(asset.bytes);
    with_type(StatusCode::OK, asset.content_type, "public, max-age=86400", bytes)
}

/// Leads somewhere else with GET.
pub fn see(location: &str) -> Answer {
    let mut answer = text(StatusCode::SEE_OTHER, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

pub fn stream(body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = text(StatusCode::OK, "").map(|_| body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

#[must_use]
pub fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

fn with_type(status: StatusCode, content_type: &'static str, cache: &'static str, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(bytes).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let fixed: [(HeaderName, &'static str); 8] = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Our own pages may know where a request comes from; nobody else may.
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
    answer
}
