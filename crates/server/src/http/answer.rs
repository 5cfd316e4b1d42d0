//! Responses to requests for configurations.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, RETRY_AFTER, USER_AGENT, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use mco_http::TextResponse;
use tracing::{error, info, warn};

use super::guard::TokenGuard;
use super::path::RequestTarget;
use crate::metrics::{self, ServerMetrics};
use crate::negotiate;
use crate::prepared::{BodyEncoding, PreparedBody, PreparedStore, Unavailable};

/// The state that requests share.
#[derive(Debug, Default)]
pub struct IgnitionApp {
    pub store: PreparedStore,
    pub(crate) metrics: ServerMetrics,
    pub(crate) tokens: Option<TokenGuard>,
    draining: AtomicBool,
}

/// Why a request is not answered with a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestRefusal {
    Method,
    NotFound,
    Version,
    Token,
    TooManyFailures,
    NotReady,
    NotYet,
    Broken,
}

impl IgnitionApp {
    /// Without `tokens` no token is required.
    pub fn new(tokens: Option<TokenGuard>) -> Self {
        Self {
            tokens,
            ..Self::default()
        }
    }

    /// Makes health probes fail from now on, so that load balancers stop sending requests here.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.store.current().is_some()
    }

    /// Returns the response to a request from `client`.
    pub async fn answer<B>(&self, request: &Request<B>, client: SocketAddr) -> TextResponse {
        let started = Instant::now();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match RequestTarget::of(request.uri().path()) {
            _ if !is_read => refuse(&RequestRefusal::Method),
            RequestTarget::Unknown => refuse(&RequestRefusal::NotFound),
            RequestTarget::Health if self.is_ready() => empty(StatusCode::OK),
            RequestTarget::Health => refuse(&RequestRefusal::NotReady),
            RequestTarget::Config { pool } => {
                let headers = request.headers();
                let (response, label) = self.config(headers, &pool, client).await;
                let known = self
                    .store
                    .current()
                    .is_some_and(|configs| configs.contains(&pool));
                let label = metrics::RequestLabels {
                    pool: if known { pool } else { metrics::UNKNOWN.to_owned() },
                    version: label,
                    code: response.status().as_u16(),
                };
                let bytes = if *request.method() == Method::GET {
                    size(&response)
                } else {
                    0
                };
                self.metrics.answered(&label, bytes, started.elapsed());
                response
            }
        }
    }

    async fn config(
        &self,
        headers: &HeaderMap,
        pool: &str,
        client: SocketAddr,
    ) -> (TextResponse, &'static str) {
        let accept = text(headers, &ACCEPT);
        info!(
            "Pool {pool:?} requested by address:\"{client}\" User-Agent:{:?} Accept-Header: {:?}",
            text(headers, &USER_AGENT).unwrap_or_default(),
            accept.as_deref().unwrap_or_default(),
        );
        if let Some(tokens) = &self.tokens
            && let Err(refusal) = tokens.check(headers, pool, client.ip(), &self.metrics)
        {
            return (refuse(&refusal), "");
        }
        let version = match negotiate::version(accept.as_deref()) {
            Ok(version) => version,
            Err(unacceptable) => {
                warn!("pool {pool:?}: {unacceptable}");
                return (refuse(&RequestRefusal::Version), "");
            }
        };
        let encoding = encoding(headers);
        let response = match self.body(pool, version, encoding).await {
            Ok(body) => success(body, encoding, headers),
            Err(refusal) => refuse(&refusal),
        };
        (response, version.as_str())
    }

    async fn body(
        &self,
        pool: &str,
        version: mco_ignition::SpecVersion,
        encoding: BodyEncoding,
    ) -> Result<PreparedBody, RequestRefusal> {
        let configs = self.store.current().ok_or(RequestRefusal::NotReady)?;
        let prepared = configs.pool(pool).map_err(|unavailable| match unavailable {
            Unavailable::NotYet(reason) => {
                info!("pool {pool:?} is not available yet: {reason}");
                RequestRefusal::NotYet
            }
            Unavailable::Broken(reason) => {
                error!("couldn't get config for pool {pool:?}: {reason}");
                RequestRefusal::Broken
            }
            Unavailable::Refused => {
                info!("refusing to serve bootstrap configuration to pool {pool:?}");
                RequestRefusal::Broken
            }
        })?;
        let body = Arc::clone(prepared)
            .body(version, encoding)
            .await
            .map_err(|reason| {
                error!("couldn't convert config for pool {pool:?}: {reason}");
                RequestRefusal::Broken
            })?;
        // A booting machine treats an empty success as "no configuration" and boots without any.
        if body.bytes.is_empty() {
            error!("pool {pool:?}: the prepared document is empty");
            return Err(RequestRefusal::Broken);
        }
        Ok(body)
    }
}

fn success(body: PreparedBody, encoding: BodyEncoding, headers: &HeaderMap) -> TextResponse {
    let unchanged = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| body.etag == tag.trim());
    let mut response = if unchanged {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = Response::new(Full::new(body.bytes));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if encoding == BodyEncoding::Gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, body.etag);
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    // It holds credentials, which proxies must not cache.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

fn refuse(refusal: &RequestRefusal) -> TextResponse {
    match refusal {
        RequestRefusal::Method => {
            let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        RequestRefusal::NotFound => empty(StatusCode::NOT_FOUND),
        RequestRefusal::Version => empty(StatusCode::BAD_REQUEST),
        RequestRefusal::Broken => empty(StatusCode::INTERNAL_SERVER_ERROR),
        RequestRefusal::Token => {
            let mut response = with_text(
                StatusCode::UNAUTHORIZED,
                "a valid token for this pool is required\n",
            );
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        // Not 429: a machine behind the same address with a valid token must retry instead of failing its boot.
        RequestRefusal::TooManyFailures => later(
            "too many failed attempts from this address; try again later\n",
            "60",
        ),
        RequestRefusal::NotReady => later("not ready yet; try again\n", "1"),
        RequestRefusal::NotYet => later("no configuration for this pool yet; try again\n", "5"),
    }
}

fn later(text: &'static str, seconds: &'static str) -> TextResponse {
    let mut response = with_text(StatusCode::SERVICE_UNAVAILABLE, text);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    response
}

/// Returns the response to connections over the limit.
pub fn overloaded() -> TextResponse {
    later("too many connections; try again\n", "1")
}

fn with_text(status: StatusCode, text: &'static str) -> TextResponse {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn empty(status: StatusCode) -> TextResponse {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    if status != StatusCode::NOT_MODIFIED {
        // Also in responses to HEAD, where hyper omits it otherwise.
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    response
}

fn size(response: &TextResponse) -> usize {
    let size = hyper::body::Body::size_hint(response.body()).exact();
    size.and_then(|size| usize::try_from(size).ok())
        .unwrap_or_default()
}

/// Returns the first value of a header; further ones are ignored.
fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns the content encoding that the client accepts. Ignition accepts identity only.
fn encoding(headers: &HeaderMap) -> BodyEncoding {
    let accepts_gzip = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let is_gzip = parts
                .next()
                .is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
            let refused = parts
                .filter_map(|part| part.strip_prefix("q="))
                .any(|quality| quality.trim().parse() == Ok(0.0_f32));
            is_gzip && !refused
        });
    if accepts_gzip {
        BodyEncoding::Gzip
    } else {
        BodyEncoding::Identity
    }
}
