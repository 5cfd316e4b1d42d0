//! HTTP: authentication, limits, routing and responses.
//!
//! The semantics of the verbs are in [`crate::registry`]; this layer translates.

mod body;
mod cost;
mod discovery;
mod documents;
mod extra_routes;
mod incoming;
mod negotiate;
mod path;
mod query;
mod resources;
mod respond;
mod reviews;
mod schemas;
mod yaml;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::watch;

pub use body::ApiBody;
pub use extra_routes::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
pub use schemas::SchemaCache;

use crate::audit::RejectionLog;
use crate::auth::{
    self, AuthenticatedCaller, AuthorizationDecision, Authorizer, Credential, Identity, Pki,
    RequestAttributes, TokenHash, TokenLifetime, TokenStore,
};
use crate::cpu::CpuThreads;
use crate::error::ApiError;
use crate::limits::RequestLimits;
use crate::metrics::ApiMetrics;
use crate::registry::ObjectRegistry;
use path::RequestPath;
use query::QueryParameters;

/// The API behind every connection.
#[derive(Debug)]
pub struct Api {
    pub registry: Arc<ObjectRegistry>,
    pub tokens: Arc<TokenStore>,
    pub pki: Arc<Pki>,
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    pub extra_routes: Vec<Arc<dyn ExtraRoute>>,
    pub limits: RequestLimits,
    pub cpu: CpuThreads,
    pub metrics: ApiMetrics,
    pub schemas: SchemaCache,
    pub rejections: RejectionLog,
    pub bookmark_interval: Duration,
    /// Becomes true when the server stops, which ends open watches.
    pub stop: watch::Receiver<bool>,
}

/// A request with its body and its authenticated caller.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub method: Method,
    pub path: String,
    pub query: QueryParameters,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub identity: Identity,
    /// The credential of the caller, which an impersonation does not change.
    pub credential: Credential,
}

/// The API as a tower service: one per connection, or for a client in process.
#[derive(Clone, Debug)]
pub struct ApiService {
    api: Arc<Api>,
    connection: Option<AuthenticatedCaller>,
}

impl ApiService {
    /// Requests without a token have the identity of the connection; `None` without a certificate.
    pub(crate) fn new(api: Arc<Api>, connection: Option<AuthenticatedCaller>) -> Self {
        Self { api, connection }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = Arc::clone(&self.api);
        let connection = self.connection.clone();
        Box::pin(async move { Ok(api.serve(request, connection).await) })
    }
}

/// Health endpoints, which need no credentials.
const HEALTH: &[&str] = &["/healthz", "/livez", "/readyz"];

impl Api {
    async fn serve<B>(
        self: Arc<Self>,
        request: Request<B>,
        connection: Option<AuthenticatedCaller>,
    ) -> Response<ApiBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let health = HEALTH
            .iter()
            .any(|root| path == *root || path.starts_with(&format!("{root}/")));
        if health
            && (connection.is_some()
                || self.identify(&head.headers, connection.clone()).is_ok()
                || !head.headers.contains_key(AUTHORIZATION))
        {
            return documents::health(&self.registry.store, &path, head.uri.query().unwrap_or_default());
        }
        let outcome = async {
            if let Some(route) = extra_routes::open(&self, &path) {
                let _permit = self.limits.admit_open()?;
                let (limit, timeout) = (self.limits.open_body_bytes, self.limits.open_body_timeout);
                let body = body::read(body, limit, timeout).await?;
                return extra_routes::serve(&self, route, &head.method, &[], &head.headers, &body, None)
                    .await;
            }
            let caller = self.identify(&head.headers, connection).inspect_err(|error| {
                if error.code == StatusCode::UNAUTHORIZED {
                    self.rejections.unauthenticated(&head.method, &path);
                }
            })?;
            let AuthenticatedCaller { identity, credential } = caller;
            let query = QueryParameters::parse(head.uri.query().unwrap_or_default());
            let is_watch = head.method == Method::GET && query.is_watch();
            let _permit = self.limits.admit(&identity, is_watch).await?;
            let body = body::read(body, self.limits.body_bytes, self.limits.body_timeout).await?;
            let call = Arc::new(ApiCall {
                method: head.method,
                path,
                query,
                headers: head.headers,
                body,
                identity,
                credential,
            });
            self.dispatch(&call).await
        };
        let response = match outcome.await {
            Ok(response) => response,
            Err(error) => respond::error(&error),
        };
        self.metrics.count_response(response.status());
        response
    }

    /// Returns the caller: the owner of the token, or the identity of the connection if there is no token.
    fn identify(
        &self,
        headers: &HeaderMap,
        connection: Option<AuthenticatedCaller>,
    ) -> Result<AuthenticatedCaller, ApiError> {
        let caller = match bearer(headers) {
            Some(token) => self.owner(&token).map(|identity| AuthenticatedCaller {
                identity,
                credential: Credential::Token(TokenHash::of(&token)),
            }),
            // A connection can be older than a revocation.
            None => connection.filter(|caller| self.is_valid(&caller.credential)),
        };
        let caller = caller.ok_or_else(ApiError::unauthorized)?;
        Ok(AuthenticatedCaller {
            identity: self.impersonated(headers, caller.identity)?,
            credential: caller.credential,
        })
    }

    /// Returns the owner of a token that is valid now.
    pub(crate) fn owner(&self, token: &str) -> Option<Identity> {
        self.owner_of(&TokenHash::of(token))
    }

    fn owner_of(&self, token: &TokenHash) -> Option<Identity> {
        let (identity, lifetime) = self.tokens.identify_hash(token)?;
        match lifetime {
            TokenLifetime::UntilRevoked => Some(identity),
            TokenLifetime::WhileNodeExists { uid } => self.has_node(&identity, &uid).then_some(identity),
        }
    }

    /// Returns whether a credential that has been accepted is still valid.
    pub(crate) fn is_valid(&self, credential: &Credential) -> bool {
        match credential {
            Credential::InProcess => true,
            Credential::Token(token) => self.owner_of(token).is_some(),
            Credential::Certificate { issuer } => self.pki.accepts_issuer(issuer),
        }
    }

    /// Returns whether the Node of a node's identity exists and has this UID.
    fn has_node(&self, identity: &Identity, uid: &str) -> bool {
        let node = self.registry.store.by_uid(uid);
        node.is_some_and(|node| {
            &*node.key.resource == "nodes"
                && identity.node_name() == Some(node.key.name())
                && node.metadata.deletion_timestamp.is_none()
        })
    }

    /// Applies impersonation headers, as `kubectl auth can-i --as` sends them, if the caller may impersonate.
    fn impersonated(&self, headers: &HeaderMap, identity: Identity) -> Result<Identity, ApiError> {
        let Some(impersonation) = auth::Impersonation::requested(headers)? else {
            return Ok(identity);
        };
        for wanted in impersonation.attributes() {
            self.require(&identity, &wanted)?;
        }
        Ok(impersonation.identity(&identity))
    }

    pub(crate) fn authorize(&self, identity: &Identity, wanted: &RequestAttributes) -> AuthorizationDecision {
        auth::authorize(identity, wanted, &self.registry.store, &self.authorizers)
    }

    pub(crate) fn require(&self, identity: &Identity, wanted: &RequestAttributes) -> Result<(), ApiError> {
        match self.authorize(identity, wanted) {
            AuthorizationDecision::Allowed { .. } => Ok(()),
            AuthorizationDecision::Denied { because } => {
                self.rejections.denied(identity, wanted);
                Err(auth::forbidden(identity, wanted, &because))
            }
        }
    }

    async fn dispatch(self: &Arc<Self>, call: &Arc<ApiCall>) -> Result<Response<ApiBody>, ApiError> {
        match RequestPath::parse(&call.path) {
            RequestPath::Resource(path) => resources::serve(self, call, path).await,
            RequestPath::Other(parts) => {
                let route = if let Some(route) = extra_routes::authenticated(self, &parts) {
                    Some(route)
                } else {
                    let wanted = RequestAttributes {
                        verb: call.method.as_str().to_ascii_lowercase(),
                        path: call.path.clone(),
                        ..RequestAttributes::default()
                    };
                    self.require(&call.identity, &wanted)?;
                    extra_routes::authorized(self, &parts)
                };
                if let Some((route, below)) = route {
                    let (method, headers, caller) = (&call.method, &call.headers, Some(&call.identity));
                    return extra_routes::serve(self, route, method, below, headers, &call.body, caller)
                        .await;
                }
                if parts.first().is_some_and(|part| part == "openapi") {
                    let (api, call) = (Arc::clone(self), Arc::clone(call));
                    let identity = call.identity.clone();
                    let work = async move { documents::serve(&api, &call, &parts) };
                    return self.cpu.run(&identity, work).await;
                }
                documents::serve(self, call, &parts)
            }
        }
    }
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}
