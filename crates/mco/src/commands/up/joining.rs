//! Joining: a machine exchanges a join token and a name for access as a node.
//!
//! The machine generates its credential and stores it before it sends it, so that a retry after a lost response, a
//! crash or a restart changes nothing. The Node is created here, because the token and not the machine determines the
//! pool. The credential is bound to the UID of that Node: after it is deleted, only a new join under the rules of a
//! valid token restores access.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use mco_apiserver::Identity;
use mco_apiserver::auth::{TokenLifetime, TokenStoreError};
use mco_apiserver::error::{ApiError, ErrorSubject};
use mco_apiserver::http::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
use mco_apiserver::meta::JsonObject;
use mco_apiserver::registry::{WriteContext, new_uid};
use serde::Deserialize;
use serde_json::{Value, json};

use super::join_token_store::{JoinAttempt, JoinGrant, JoinTokenRejection, JoinTokenStore, hexadecimal};

const JOIN: &str = "join";
const JOIN_TOKENS: &str = "join-tokens";
const MANAGER: &str = "join";
/// 256 bits in the URL-safe base64 alphabet.
const CREDENTIAL_LENGTH: usize = 43;
/// The longest name of an object.
const MAX_NAME: usize = 253;
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

/// `GET` and `POST /join-tokens` and `DELETE /join-tokens/ID`, for administrators.
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
        let machine: Result<JoinRequest, ApiError> = parse(request.body);
        let name = machine.as_ref().map_or("", |machine| machine.node.as_str());
        let outcome = self.admit(context, &token, machine.as_ref()).await;
        record(&token, name, &outcome);
        let grant = outcome?;
        Ok(RouteResponse {
            status: StatusCode::OK,
            body: json!({
                "node": name,
                "pool": grant.pool,
                "certificateAuthority": context.pki.bundle(),
            }),
        })
    }

    /// Admits a machine with a valid token.
    async fn admit(
        &self,
        context: RouteContext<'_>,
        token: &str,
        machine: Result<&JoinRequest, &ApiError>,
    ) -> Result<JoinGrant, ApiError> {
        let now = context.registry.clock().now();
        let grant = self
            .tokens
            .authenticate(token, now)
            .map_err(|rejection| rejected(&rejection))?;
        let machine = machine.map_err(|error| ApiError::bad_request(error.message.clone()))?;
        let _lock = self.lock.lock().await;
        let attempt = JoinAttempt {
            token,
            node: &machine.node,
            credential: &machine.credential,
        };
        if registration(context, machine)? == Registration::Complete {
            // The server may have stopped before it counted the join.
            self.tokens.complete(attempt).map_err(ApiError::internal)?;
            return Ok(grant);
        }
        let reserved = self.tokens.reserve(attempt).map_err(ApiError::internal)?;
        reserved.map_err(|rejection| rejected(&rejection))?;
        match create_node(context, machine, &grant).await {
            Ok(()) => self.tokens.complete(attempt).map_err(ApiError::internal)?,
            Err(error) => {
                self.tokens.release(attempt).map_err(ApiError::internal)?;
                return Err(error);
            }
        }
        Ok(grant)
    }
}

/// Writes the outcome of a join to the audit log.
fn record(token: &str, node: &str, outcome: &Result<JoinGrant, ApiError>) {
    let token_id: String = token
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .take(16)
        .collect();
    let node: String = node.chars().take(MAX_NAME).collect();
    match outcome {
        Ok(grant) => {
            tracing::info!(target: "audit", node, pool = grant.pool, token_id, code = 200, "node joined");
        }
        Err(error) => {
            let code = error.code.as_u16();
            tracing::warn!(target: "audit", node, token_id, code, reason = error.message, "join rejected");
        }
    }
}

/// Whether a machine has joined already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    Complete,
    None,
}

/// Returns whether the machine has joined already; an error if its name or credential is in use.
fn registration(context: RouteContext<'_>, machine: &JoinRequest) -> Result<Registration, ApiError> {
    let identity = Identity::node(&machine.node);
    let target = context
        .registry
        .cluster_target("", "v1", "nodes", &machine.node)?;
    let node = context.registry.get(&target).ok();
    let owner = context.tokens.identify(&machine.credential);
    if let Some(node) = node {
        let bound = TokenLifetime::WhileNodeExists {
            uid: node.metadata.uid.clone(),
        };
        let is_deleted = node.metadata.deletion_timestamp.is_some();
        if is_deleted || owner != Some((identity, bound)) {
            return Err(name_taken(&machine.node));
        }
        return Ok(Registration::Complete);
    }
    // A token of another identity must not change its owner.
    let is_foreign = owner.is_some_and(|(owner, _)| owner != identity);
    if is_foreign || !is_credential(&machine.credential) {
        return Err(ApiError::bad_request("the credential cannot be used"));
    }
    Ok(Registration::None)
}

/// Registers the machine's credential for a new Node, then creates the Node.
async fn create_node(
    context: RouteContext<'_>,
    machine: &JoinRequest,
    grant: &JoinGrant,
) -> Result<(), ApiError> {
    let identity = Identity::node(&machine.node);
    let target = context
        .registry
        .cluster_target("", "v1", "nodes", &machine.node)?;
    let uid = new_uid()?;
    // The credential comes first: a Node without one could never be used by the machine that created it. A credential
    // without its Node authenticates nothing.
    context
        .tokens
        .register_node_token(&identity, &uid, &machine.credential)
        .map_err(ApiError::internal)?;
    let write = WriteContext {
        object_uid: Some(uid),
        ..WriteContext::internal(MANAGER)
    };
    let object = node_object(&machine.node, grant);
    if let Err(error) = context.registry.create(&target, &write, object).await {
        // Most likely an invalid Node name.
        context
            .tokens
            .revoke(&identity.user)
            .map_err(ApiError::internal)?;
        return Err(error);
    }
    Ok(())
}

fn rejected(rejection: &JoinTokenRejection) -> ApiError {
    match rejection {
        JoinTokenRejection::NodeName { .. } => {
            ApiError::bad_request(format!("{rejection}; choose its name with --node-name"))
        }
        _ => ApiError::unauthorized_because(rejection.to_string()),
    }
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
                (&Method::GET, []) => Ok(self.list()),
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
        if wanted.grant.max_uses == Some(0) {
            return Err(ApiError::bad_request("a join token can be used at least once"));
        }
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

    fn list(&self) -> RouteResponse {
        RouteResponse {
            status: StatusCode::OK,
            body: json!({"items": self.tokens.list()}),
        }
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
