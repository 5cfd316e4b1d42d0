//! Short text responses.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

/// A response whose body is in memory.
pub type TextResponse = Response<Full<Bytes>>;

/// Returns a response with a short text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> TextResponse {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
