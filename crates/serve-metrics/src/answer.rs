//! What scrapers and probes are told.

use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::door::Refusal;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// What a scraper or a probe is told.
pub type Answer = Response<Full<Bytes>>;

/// A line of text.
pub fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer
}

/// Metrics as they are told, or that they cannot be.
pub(crate) fn metrics(text: Result<String, fmt::Error>) -> Answer {
    match text {
        Ok(text) => {
            let mut answer = plain(StatusCode::OK, text);
            answer.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
            answer
        }
        Err(problem) => plain(StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()),
    }
}

pub(crate) fn refusal(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::PlainText => plain(StatusCode::FORBIDDEN, "metrics are told over TLS only\n"),
        Refusal::Unknown => {
            let text = "show a bearer token that the cluster knows\n";
            let mut answer = plain(StatusCode::UNAUTHORIZED, text);
            answer.headers_mut().insert(WWW_AUTHENTICATE, BEARER);
            answer
        }
        Refusal::Forbidden => plain(
            StatusCode::FORBIDDEN,
            "the cluster does not let you get /metrics\n",
        ),
        Refusal::NoAnswer => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster does not say who you are\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_the_status_that_scrapers_understand() {
        for (name, answer, status) in [
            ("metrics", metrics(Ok(String::new())), 200),
            ("metrics that cannot be written", metrics(Err(fmt::Error)), 500),
            ("plain text", refusal(Refusal::PlainText), 403),
            ("nobody's token", refusal(Refusal::Unknown), 401),
            ("somebody who may not", refusal(Refusal::Forbidden), 403),
            ("a cluster that is away", refusal(Refusal::NoAnswer), 503),
        ] {
            assert_eq!(answer.status(), status, "{name}");
            let asks_for_token = answer.headers().contains_key(WWW_AUTHENTICATE);
            assert_eq!(asks_for_token, status == 401, "{name}");
        }
    }
}
