//! Values of Secrets for the nodes of `mco up`: the operator's answers, as a route of the embedded API.

use std::sync::OnceLock;

use http::{Method, StatusCode};
use kube::Client;
use mco_apiserver::error::{ApiError, ErrorSubject};
use mco_apiserver::http::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
use mco_core::config::node_files::ANSWER_PATH;
use mco_operator::secret_files::{self, SecretRefusal};
use serde_json::json;

/// `GET /secret-files/CONFIG`, for nodes.
#[derive(Default)]
pub struct SecretFilesRoute {
    /// A client with the rights of the operator, which exists after the routes.
    client: OnceLock<Client>,
}

impl std::fmt::Debug for SecretFilesRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretFilesRoute")
    }
}

impl SecretFilesRoute {
    pub fn set_client(&self, client: Client) {
        // Set once, at the start.
        let _ = self.client.set(client);
    }

    async fn answer(&self, request: RouteRequest<'_>) -> Result<RouteResponse, ApiError> {
        let [config] = request.below else {
            return Err(ApiError::unknown_resource());
        };
        if request.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let subject = ErrorSubject {
            group: "",
            resource: ANSWER_PATH.trim_matches('/'),
            name: config,
        };
        let node = request.caller.and_then(|caller| caller.node_name());
        let node = node.ok_or_else(|| ApiError::forbidden(subject, "only nodes get values of Secrets"))?;
        let starting = || ApiError::timeout("the server is starting");
        let client = self.client.get().ok_or_else(starting)?;
        let answer = secret_files::values(client, node, config).await;
        let answer = answer.map_err(|refusal| match &refusal {
            SecretRefusal::Forbidden(why) => ApiError::forbidden(subject, why),
            SecretRefusal::NotFound(_) => ApiError::bad_request(refusal.to_string()),
            SecretRefusal::Changed(why) => ApiError::conflict(subject, why),
            SecretRefusal::Unavailable(_) => ApiError::timeout(&refusal.to_string()),
        })?;
        tracing::info!(target: "audit", node, config, files = answer.files.len(), code = 200, "values of Secrets");
        Ok(RouteResponse {
            status: StatusCode::OK,
            body: json!(answer),
        })
    }
}

/// Makes one route available to the API and to the control plane.
#[derive(Debug)]
pub struct SharedSecretFiles(pub std::sync::Arc<SecretFilesRoute>);

impl ExtraRoute for SharedSecretFiles {
    fn segment(&self) -> &'static str {
        ANSWER_PATH.trim_matches('/')
    }

    fn access(&self) -> RouteAccess {
        RouteAccess::Authenticated
    }

    fn serve<'a>(&'a self, _context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a> {
        Box::pin(self.0.answer(request))
    }
}
