//! HTTP routes of the embedding program, served beside the Kubernetes API.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use super::body::ApiBody;
use super::{Api, bearer, respond};
use crate::auth::{Identity, Pki, TokenStore};
use crate::error::ApiError;
use crate::registry::ObjectRegistry;

pub type RouteFuture<'a> = Pin<Box<dyn Future<Output = Result<RouteResponse, ApiError>> + Send + 'a>>;

/// A route of the embedding program.
pub trait ExtraRoute: Send + Sync + Debug {
    /// Returns the path segment below `/` that this route serves.
    fn segment(&self) -> &'static str;

    fn access(&self) -> RouteAccess;

    fn serve<'a>(&'a self, context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a>;
}

/// The callers that reach a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Any client; the route authenticates the request itself. Serves its segment only, nothing below it.
    Open,
    /// Callers that are authorized for the path, as for any other non-resource path.
    Authorized,
    /// Any authenticated caller; the route authorizes the request itself.
    Authenticated,
}

/// The parts of the server that a route may use.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    pub registry: &'a ObjectRegistry,
    pub tokens: &'a TokenStore,
    pub pki: &'a Pki,
}

#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    pub method: &'a Method,
    /// The path segments below the route's own.
    pub below: &'a [String],
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
    /// `None` for an open route.
    pub caller: Option<&'a Identity>,
}

impl RouteRequest<'_> {
    /// Returns the bearer token of the request, if it has one.
    pub fn bearer_token(&self) -> Option<String> {
        bearer(self.headers)
    }
}

/// A JSON response.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteResponse {
    pub status: StatusCode,
    pub body: Value,
}

/// Returns the open route with this path.
pub(super) fn open<'a>(api: &'a Api, path: &str) -> Option<&'a dyn ExtraRoute> {
    let segment = path.strip_prefix('/')?;
    find(api, RouteAccess::Open, segment)
}

/// Returns the route for authorized callers with these path segments, and the segments below it.
pub(super) fn authorized<'a, 'b>(
    api: &'a Api,
    segments: &'b [String],
) -> Option<(&'a dyn ExtraRoute, &'b [String])> {
    let (first, below) = segments.split_first()?;
    find(api, RouteAccess::Authorized, first).map(|route| (route, below))
}

/// Returns the route for authenticated callers with these path segments, and the segments below it.
pub(super) fn authenticated<'a, 'b>(
    api: &'a Api,
    segments: &'b [String],
) -> Option<(&'a dyn ExtraRoute, &'b [String])> {
    let (first, below) = segments.split_first()?;
    find(api, RouteAccess::Authenticated, first).map(|route| (route, below))
}

fn find<'a>(api: &'a Api, access: RouteAccess, segment: &str) -> Option<&'a dyn ExtraRoute> {
    let mut routes = api.extra_routes.iter().map(AsRef::as_ref);
    routes.find(|route| route.access() == access && route.segment() == segment)
}

pub(super) async fn serve(
    api: &Api,
    route: &dyn ExtraRoute,
    method: &Method,
    below: &[String],
    headers: &HeaderMap,
    body: &Bytes,
    caller: Option<&Identity>,
) -> Result<Response<ApiBody>, ApiError> {
    let context = RouteContext {
        registry: &api.registry,
        tokens: &api.tokens,
        pki: &api.pki,
    };
    let request = RouteRequest {
        method,
        below,
        headers,
        body,
        caller,
    };
    let response = route.serve(context, request).await?;
    Ok(respond::json(response.status, &response.body))
}
