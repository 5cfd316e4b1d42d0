//! Responses of the metrics endpoint.

use std::fmt;

use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use super::access::Denial;
use crate::{TextResponse, text};

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

pub(super) fn metrics(encoded: Result<String, fmt::Error>) -> TextResponse {
    match encoded {
        Ok(encoded) => {
            let mut response = text(StatusCode::OK, encoded);
            response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
            response
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) fn denial(denial: Denial) -> TextResponse {
    match denial {
        Denial::PlainText => text(StatusCode::FORBIDDEN, "metrics are served over TLS only\n"),
        Denial::Unauthenticated => {
            let message = "a bearer token that the cluster accepts is required\n";
            let mut response = text(StatusCode::UNAUTHORIZED, message);
            response.headers_mut().insert(WWW_AUTHENTICATE, BEARER);
            response
        }
        Denial::Forbidden => text(
            StatusCode::FORBIDDEN,
            "the cluster does not authorize you to get /metrics\n",
        ),
        Denial::NoReview => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster did not review the token; try again later\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_has_the_status_that_scrapers_expect() {
        for (name, response, status) in [
            ("metrics", metrics(Ok(String::new())), 200),
            ("metrics that cannot be encoded", metrics(Err(fmt::Error)), 500),
            ("plain text", denial(Denial::PlainText), 403),
            ("an unknown token", denial(Denial::Unauthenticated), 401),
            ("an unauthorized user", denial(Denial::Forbidden), 403),
            ("an unreachable API server", denial(Denial::NoReview), 503),
        ] {
            assert_eq!(response.status(), status, "{name}");
            let asks_for_token = response.headers().contains_key(WWW_AUTHENTICATE);
            assert_eq!(asks_for_token, status == 401, "{name}");
        }
    }
}
