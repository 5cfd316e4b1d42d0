//! From a request to a response.

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
use tracing::{error, info, warn};

use super::guard::TokenGuard;
use super::path::Target;
use crate::metrics::{self, Metrics};
use crate::negotiate;
use crate::prepared::{Body, Encoding, Store, Trouble};

/// Everything a request needs.
#[derive(Debug, Default)]
pub struct App {
    pub store: Store,
    pub(crate) metrics: Metrics,
    pub(crate) tokens: Option<TokenGuard>,
    draining: AtomicBool,
}

/// Why a request gets no configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Method,
    Nothing,
    Version,
    Token,
    TooManyFailures,
    NotReady,
    NotYet,
    Broken,
}

type Answer = Response<Full<Bytes>>;

impl App {
    /// Without `tokens` nobody is asked for one.
    pub fn new(tokens: Option<TokenGuard>) -> Self {
        Self {
            tokens,
            ..Self::default()
        }
    }

    /// From now on the server says that it is going away.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.store.current().is_some()
    }

    /// Answers one request from `client`.
    pub async fn answer<B>(&self, request: &Request<B>, client: SocketAddr) -> Answer {
        let started = Instant::now();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match Target::of(request.uri().path()) {
            _ if !is_read => refuse(&Refusal::Method),
            Target::Nothing => refuse(&Refusal::Nothing),
            Target::Health if self.is_ready() => empty(StatusCode::OK),
            Target::Health => refuse(&Refusal::NotReady),
            Target::Config { pool } => {
                let headers = request.headers();
                let (answer, label) = self.config(headers, &pool, client).await;
                let known = self.store.current().is_some_and(|answers| answers.knows(&pool));
                let label = metrics::Request {
                    pool: if known { pool } else { metrics::UNKNOWN.to_owned() },
                    version: label,
                    code: answer.status().as_u16(),
                };
                let bytes = if *request.method() == Method::GET {
                    size(&answer)
                } else {
                    0
                };
                self.metrics.answered(&label, bytes, started.elapsed());
                answer
            }
        }
    }

    async fn config(&self, headers: &HeaderMap, pool: &str, client: SocketAddr) -> (Answer, &'static str) {
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
                return (refuse(&Refusal::Version), "");
            }
        };
        let encoding = encoding(headers);
        let answer = match self.body(pool, version, encoding).await {
            Ok(body) => success(body, encoding, headers),
            Err(refusal) => refuse(&refusal),
        };
        (answer, version.as_str())
    }

    async fn body(
        &self,
        pool: &str,
        version: mco_ignition::SpecVersion,
        encoding: Encoding,
    ) -> Result<Body, Refusal> {
        let answers = self.store.current().ok_or(Refusal::NotReady)?;
        let pool_answers = answers.pool(pool).map_err(|trouble| match trouble {
            Trouble::NotYet(reason) => {
                info!("pool {pool:?} is not available yet: {reason}");
                Refusal::NotYet
            }
            Trouble::Broken(reason) => {
                error!("couldn't get config for pool {pool:?}: {reason}");
                Refusal::Broken
            }
            Trouble::Refused => {
                info!("refusing to serve bootstrap configuration to pool {pool:?}");
                Refusal::Broken
            }
        })?;
        let pool_answers = Arc::clone(pool_answers);
        let body = pool_answers.body(version, encoding).await.map_err(|reason| {
            error!("couldn't convert config for pool {pool:?}: {reason}");
            Refusal::Broken
        })?;
        // A booting machine takes an empty success for "no configuration" and goes on without any.
        if body.bytes.is_empty() {
            error!("pool {pool:?}: the prepared document is empty");
            return Err(Refusal::Broken);
        }
        Ok(body)
    }
}

fn success(body: Body, encoding: Encoding, headers: &HeaderMap) -> Answer {
    let unchanged = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| body.etag == tag.trim());
    let mut answer = if unchanged {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut answer = Response::new(Full::new(body.bytes));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if encoding == Encoding::Gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, body.etag);
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    // It holds credentials: a cache in between must not keep it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    answer
}

fn refuse(refusal: &Refusal) -> Answer {
    match refusal {
        Refusal::Method => {
            let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
        Refusal::Nothing => empty(StatusCode::NOT_FOUND),
        Refusal::Version => empty(StatusCode::BAD_REQUEST),
        Refusal::Broken => empty(StatusCode::INTERNAL_SERVER_ERROR),
        Refusal::Token => {
            let mut answer = said(
                StatusCode::UNAUTHORIZED,
                "a valid token for this pool is required\n",
            );
            answer
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        // Not 429: a machine behind the same address that has the right token must ask again, not give up.
        Refusal::TooManyFailures => later(
            "too many failed attempts from this address; try again later\n",
            "60",
        ),
        Refusal::NotReady => later("not ready yet; try again\n", "1"),
        Refusal::NotYet => later("no configuration for this pool yet; try again\n", "5"),
    }
}

fn later(text: &'static str, seconds: &'static str) -> Answer {
    let mut answer = said(StatusCode::SERVICE_UNAVAILABLE, text);
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    answer
}

/// What a connection beyond the limit gets.
pub fn overloaded() -> Answer {
    later("too many connections; try again\n", "1")
}

fn said(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()));
    *answer.status_mut() = status;
    if status != StatusCode::NOT_MODIFIED {
        // Also in answers to HEAD, where it would be left out otherwise.
        answer
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    answer
}

fn size(answer: &Answer) -> usize {
    let size = hyper::body::Body::size_hint(answer.body()).exact();
    size.and_then(|size| usize::try_from(size).ok())
        .unwrap_or_default()
}

/// The first line of a header, which is all that counts.
fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Gzip for those who ask for it; Ignition asks for the plain text.
fn encoding(headers: &HeaderMap) -> Encoding {
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
        Encoding::Gzip
    } else {
        Encoding::Identity
    }
}
