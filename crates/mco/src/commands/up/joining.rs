//! Joining: a machine exchanges a join token and a name for access as a node.
//!
//! The machine generates its credential and stores it before it sends it, so that a retry after a lost response, a
//! crash or a restart changes nothing. The Node is created here, because the token and not the machine determines the
//! pool.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use mco_apiserver::Identity;
use mco_apiserver::auth::TokenStoreError;
use mco_apiserver::error::{ApiError, ErrorSubject};
use mco_apiserver::http::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
use mco_apiserver::meta::JsonObject;
use mco_apiserver::registry::WriteContext;
use serde::Deserialize;
use serde_json::{Value, json};

use super::join_token_store::{JoinGrant, JoinTokenStore, hexadecimal};

const JOIN: &str = "join";
const JOIN_TOKENS: &str = "join-tokens";
const MANAGER: &str = "join";
/// 256 bits in the URL-safe base64 alphabet.
const CREDENTIAL_LENGTH: usize = 43;
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Returns the routes for joining, with the join tokens stored in a file of this directory.
pub fn routes(data_directory: &Path) -> Result<Vec<Arc<dyn ExtraRoute>>, TokenStoreError> {
    let tokens = Arc::new(JoinTokenStore::open(&data_directory.join("join-tokens.json"))?);
    let join = JoinRoute {
        tokens: Arc::clone(&tokens),
        lock: tokio::sync::Mutex::default(),
    };
    Ok(vec![Arc::new(join), Arc::new(JoinTokensRoute { tokens })])
}

/// `POST /join`, for clients with a join token.
#[derive(Debug)]
struct JoinRoute {
    tokens: Arc<JoinTokenStore>,
    /// Serializes joins, so that two machines with the same name cannot both succeed.
    lock: tokio::sync::Mutex<()>,
}

/// `POST /join-tokens` and `DELETE /join-tokens/ID`, for administrators.
#[derive(Debug)]
struct JoinTokensRoute {
    tokens: Arc<JoinTokenStore>,
}

#[derive(Deserialize)]
struct JoinRequest {
    node: String,
    credential: String,
}

#[derive(Deserialize)]
struct JoinTokenRequest {
    #[serde(flatten)]
    grant: JoinGrant,
    seconds: i64,
}

impl ExtraRoute for JoinRoute {
    fn segment(&self) -> &'static str {
        JOIN
    }

    fn access(&self) -> RouteAccess {
        RouteAccess::Open
    }

    fn serve<'a>(&'a self, context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a> {
        Box::pin(self.join(context, request))
    }
}

impl JoinRoute {
    async fn join(
        &self,
        context: RouteContext<'_>,
        request: RouteRequest<'_>,
    ) -> Result<RouteResponse, ApiError> {
        if request.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let token = request.bearer_token().unwrap_or_default();
        let grant = self
            .tokens
            .redeem(&token, context.registry.clock().now())
            .map_err(|rejection| ApiError::unauthorized_because(rejection.to_string()))?;
        let machine: JoinRequest = parse(request.body)?;
        let _lock = self.lock.lock().await;
        admit(context, &machine, &grant).await?;
        tracing::info!(target: "audit", node = machine.node, pool = grant.pool, "node joined");
        Ok(RouteResponse {
            status: StatusCode::OK,
            body: json!({
                "node": machine.node,
                "pool": grant.pool,
                "certificateAuthority": context.pki.bundle(),
            }),
        })
    }
}

/// Registers the machine's credential and creates its Node, as far as that is not done yet.
async fn admit(context: RouteContext<'_>, machine: &JoinRequest, grant: &JoinGrant) -> Result<(), ApiError> {
    let identity = Identity::node(&machine.node);
    let node = context
        .registry
        .cluster_target("", "v1", "nodes", &machine.node)?;
    let node_exists = context.registry.get(&node).is_ok();
    let owner = context.tokens.identify(&machine.credential);
    let is_registered = owner.as_ref().is_some_and(|(owner, _)| *owner == identity);
    if node_exists && !is_registered {
        return Err(name_taken(&machine.node));
    }
    if !is_registered {
        // A token of another identity must not change its owner.
        if owner.is_some() || !is_credential(&machine.credential) {
            return Err(ApiError::bad_request("the credential cannot be used"));
        }
        context
            .tokens
            .register_node_token(&identity, &machine.credential)
            .map_err(ApiError::internal)?;
    }
    if !node_exists {
        let object = node_object(&machine.node, grant);
        let created = context
            .registry
            .create(&node, &WriteContext::internal(MANAGER), object)
            .await;
        if let Err(error) = created {
            // Most likely an invalid Node name; without a Node the credential has no use.
            context
                .tokens
                .revoke(&identity.user)
                .map_err(ApiError::internal)?;
            return Err(error);
        }
    }
    Ok(())
}

impl ExtraRoute for JoinTokensRoute {
    fn segment(&self) -> &'static str {
        JOIN_TOKENS
    }

    fn access(&self) -> RouteAccess {
        RouteAccess::Authorized
    }

    fn serve<'a>(&'a self, context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a> {
        Box::pin(async move {
            match (request.method, request.below) {
                (&Method::POST, []) => self.issue(context, request),
                (&Method::DELETE, [id]) => self.revoke(id),
                _ => Err(ApiError::method_not_allowed()),
            }
        })
    }
}

impl JoinTokensRoute {
    fn issue(&self, context: RouteContext<'_>, request: RouteRequest<'_>) -> Result<RouteResponse, ApiError> {
        let wanted: JoinTokenRequest = parse(request.body)?;
        let lifetime = SignedDuration::from_secs(wanted.seconds);
        if lifetime <= SignedDuration::ZERO || lifetime > MAX_LIFETIME {
            return Err(ApiError::bad_request(
                "the lifetime of a join token is at least one second and at most one year",
            ));
        }
        let now = context.registry.clock().now();
        let expires = now.checked_add(lifetime).map_err(ApiError::internal)?;
        let issued = self
            .tokens
            .issue(wanted.grant, now, expires)
            .map_err(ApiError::internal)?;
        let fingerprint = context.pki.fingerprint().map_err(ApiError::internal)?;
        Ok(RouteResponse {
            status: StatusCode::CREATED,
            body: json!({
                "id": issued.id,
                // The fingerprint lets a machine that has only the token verify the server.
                "token": format!("{}.{}", issued.token, URL_SAFE_NO_PAD.encode(fingerprint)),
                "authority": format!("sha256:{}", hexadecimal(&fingerprint)),
                "expires": issued.expires,
            }),
        })
    }

    fn revoke(&self, id: &str) -> Result<RouteResponse, ApiError> {
        if !self.tokens.revoke(id).map_err(ApiError::internal)? {
            return Err(ApiError::not_found(ErrorSubject {
                group: "",
                resource: JOIN_TOKENS,
                name: id,
            }));
        }
        Ok(RouteResponse {
            status: StatusCode::OK,
            body: json!({"revoked": id}),
        })
    }
}

fn node_object(name: &str, grant: &JoinGrant) -> JsonObject {
    let mut labels = json!(grant.labels);
    labels["kubernetes.io/hostname"] = Value::from(name);
    labels["kubernetes.io/os"] = Value::from("linux");
    let object = json!({"metadata": {"name": name, "labels": labels}});
    object.as_object().cloned().unwrap_or_default()
}

fn is_credential(text: &str) -> bool {
    text.len() == CREDENTIAL_LENGTH && URL_SAFE_NO_PAD.decode(text).is_ok()
}

fn name_taken(name: &str) -> ApiError {
    let subject = ErrorSubject {
        group: "",
        resource: "nodes",
        name,
    };
    ApiError::conflict(subject, "another machine has this name")
}

fn parse<T: for<'any> Deserialize<'any>>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))
}
