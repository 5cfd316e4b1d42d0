//! `mco up --rotate`: revokes all credentials of administrators and creates new ones.
//!
//! Client certificates have a CA of their own. Replacing it revokes all of them at once, without a list of serial
//! numbers that could be incomplete. Nodes authenticate with tokens and trust the CA of the server, which stays.

use std::sync::{Arc, OnceLock, Weak};

use anyhow::anyhow;
use http::{Method, Request, StatusCode};
use mco_apiserver::ApiServer;
use mco_apiserver::error::ApiError;
use mco_apiserver::http::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
use serde_json::json;

use super::{DataDirectory, join_tokens};
use crate::connection::to_cli_error;
use crate::output;

const SEGMENT: &str = "rotate-administrators";

/// `POST /rotate-administrators`, for administrators.
#[derive(Debug, Default)]
pub struct RotationRoute {
    /// The server and its URL, which exist after the routes.
    server: OnceLock<(Weak<ApiServer>, String)>,
}

impl RotationRoute {
    pub fn set_server(&self, server: &Arc<ApiServer>, url: &str) {
        // Set once, at the start.
        let _ = self.server.set((Arc::downgrade(server), url.to_owned()));
    }

    fn rotate(&self) -> Result<RouteResponse, ApiError> {
        let stopped = || ApiError::internal("the server is starting or stopping");
        let (server, url) = self.server.get().ok_or_else(stopped)?;
        let server = server.upgrade().ok_or_else(stopped)?;
        server.rotate_administrators(url).map_err(ApiError::internal)?;
        tracing::warn!(target: "audit", "all credentials of administrators were revoked");
        Ok(RouteResponse {
            status: StatusCode::OK,
            body: json!({"rotated": true}),
        })
    }
}

/// Makes one rotation available as a route of the API and to the control plane.
#[derive(Debug)]
pub struct SharedRotation(pub Arc<RotationRoute>);

impl ExtraRoute for SharedRotation {
    fn segment(&self) -> &'static str {
        SEGMENT
    }

    fn access(&self) -> RouteAccess {
        RouteAccess::Authorized
    }

    fn serve<'a>(&'a self, _context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a> {
        Box::pin(async move {
            match (request.method, request.below) {
                (&Method::POST, []) => self.0.rotate(),
                _ => Err(ApiError::method_not_allowed()),
            }
        })
    }
}

/// Rotates the credentials of the `mco up` in this directory, running or not.
pub async fn rotate(directory: &DataDirectory) -> anyhow::Result<()> {
    let kubeconfig = directory.kubeconfig();
    if directory.is_in_use() {
        let (client, _) = join_tokens::connect(directory).await?;
        let request = Request::post(format!("/{SEGMENT}")).body(Vec::new())?;
        let answer = client.request::<serde_json::Value>(request).await;
        to_cli_error(answer, "rotate the credentials")?;
        return output::print(&format!(
            "revoked all credentials of administrators; the new kubeconfig is {}\n",
            kubeconfig.display()
        ));
    }
    if !directory.has_store() {
        return Err(anyhow!(
            "there is no mco up in {}; set its directory with --data-dir",
            directory.path().display()
        ));
    }
    ApiServer::revoke_administrators_of(directory.path())?;
    output::print(&format!(
        "revoked all credentials of administrators; the next start writes a new {}\n",
        kubeconfig.display()
    ))
}
