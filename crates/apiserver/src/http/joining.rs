//! How machines come in without anybody's kubeconfig: a join token and a name in, a credential of their own out.
//!
//! The machine makes its credential itself and keeps it before it asks, so that asking again after a lost answer, a crash or
//! a restart changes nothing. Its Node is made here, because the token and not the machine decides which pool it is for.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::ApiBody;
use super::{Api, Call, bearer, respond};
use crate::auth::{Grant, Identity, JoinTokens, hexadecimal};
use crate::error::{ApiError, Subject};
use crate::meta::Object;
use crate::registry::{Target, WriteContext};

/// Open to everybody who has a join token.
pub(super) const JOIN: &str = "/join";
/// For administrators: where join tokens are made and revoked.
pub(super) const TOKENS: &str = "join-tokens";

const MANAGER: &str = "join";
/// 256 bits in the alphabet of URLs; less would be too easy to guess, more is not one of ours.
const CREDENTIAL_LENGTH: usize = 43;
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// What joining needs besides the API.
#[derive(Debug)]
pub struct Joining {
    pub tokens: JoinTokens,
    /// What those who join have to trust from then on.
    pub authority: String,
    pub fingerprint: [u8; 32],
    /// Two machines that want the same name come one after the other.
    pub turn: tokio::sync::Mutex<()>,
}

#[derive(Deserialize)]
struct Wanted {
    node: String,
    credential: String,
}

#[derive(Deserialize)]
struct NewToken {
    #[serde(flatten)]
    grant: Grant,
    seconds: i64,
}

/// Lets a machine in.
pub(super) async fn join(
    api: &Arc<Api>,
    method: &Method,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response<ApiBody>, ApiError> {
    if method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let now = api.registry.clock().now();
    let token = bearer(headers).unwrap_or_default();
    let grant = api
        .joining
        .tokens
        .redeem(&token, now)
        .map_err(|refusal| ApiError::unauthorized_because(refusal.to_string()))?;
    let wanted: Wanted = parse(body)?;
    let identity = Identity::node(&wanted.node);
    let _turn = api.joining.turn.lock().await;
    let node = node_target(api, &wanted.node)?;
    let exists = api.registry.get(&node).is_ok();
    let known = api.tokens.identify(&wanted.credential);
    let is_same = known.as_ref().is_some_and(|(owner, _)| *owner == identity);
    if exists && !is_same {
        return Err(taken(&wanted.node));
    }
    if !is_same {
        // A credential that is good for something else stays what it is.
        if known.is_some() || !is_credential(&wanted.credential) {
            return Err(ApiError::bad_request(
                "the credential is not one that can be used",
            ));
        }
        api.tokens
            .adopt(&identity, &wanted.credential)
            .map_err(ApiError::internal)?;
    }
    if !exists {
        let object = node_object(&wanted.node, &grant);
        let created = api
            .registry
            .create(&node, &WriteContext::internal(MANAGER), object)
            .await;
        if let Err(error) = created {
            // Most likely no name for a Node, which then needs no credential either.
            api.tokens.revoke(&identity.user).map_err(ApiError::internal)?;
            return Err(error);
        }
    }
    tracing::info!(target: "audit", node = wanted.node, pool = grant.pool, "a machine joined");
    Ok(respond::json(
        StatusCode::OK,
        &json!({"node": wanted.node, "pool": grant.pool, "certificateAuthority": api.joining.authority}),
    ))
}

/// Makes and revokes join tokens.
pub(super) fn manage(api: &Arc<Api>, call: &Call, parts: &[String]) -> Result<Response<ApiBody>, ApiError> {
    match (&call.method, parts) {
        (&Method::POST, [_]) => issue(api, &call.body),
        (&Method::DELETE, [_, id]) => {
            if api.joining.tokens.revoke(id).map_err(ApiError::internal)? {
                Ok(respond::json(StatusCode::OK, &json!({"revoked": id})))
            } else {
                Err(ApiError::not_found(Subject {
                    group: "",
                    resource: TOKENS,
                    name: id,
                }))
            }
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn issue(api: &Arc<Api>, body: &Bytes) -> Result<Response<ApiBody>, ApiError> {
    let wanted: NewToken = parse(body)?;
    let life = SignedDuration::from_secs(wanted.seconds);
    if life <= SignedDuration::ZERO || life > LONGEST_LIFE {
        return Err(ApiError::bad_request(
            "a join token lives for at least a second and at most a year",
        ));
    }
    let now = api.registry.clock().now();
    let expires = now.checked_add(life).map_err(ApiError::internal)?;
    let issued = api
        .joining
        .tokens
        .issue(wanted.grant, now, expires)
        .map_err(ApiError::internal)?;
    let fingerprint = &api.joining.fingerprint;
    Ok(respond::json(
        StatusCode::CREATED,
        &json!({
            "id": issued.id,
            // With the fingerprint in it, a machine that has nothing but the token recognises us.
            "token": format!("{}.{}", issued.token, URL_SAFE_NO_PAD.encode(fingerprint)),
            "authority": format!("sha256:{}", hexadecimal(fingerprint)),
            "expires": issued.expires,
        }),
    ))
}

/// Whether a machine's Node is there, on which its credential depends.
pub(super) fn has_node(api: &Api, identity: &Identity) -> bool {
    let target = identity.node_name().map(|name| node_target(api, name));
    matches!(target, Some(Ok(target)) if api.registry.get(&target).is_ok())
}

fn node_target(api: &Api, name: &str) -> Result<Target, ApiError> {
    let catalog = api.registry.catalog();
    let definition = catalog
        .resource("", "v1", "nodes")
        .ok_or_else(|| ApiError::internal("nodes are not served"))?;
    Ok(Target {
        definition: Arc::clone(definition),
        namespace: String::new(),
        name: name.to_owned(),
        subresource: String::new(),
    })
}

fn node_object(name: &str, grant: &Grant) -> Object {
    let mut labels = json!(grant.labels);
    labels["kubernetes.io/hostname"] = Value::from(name);
    labels["kubernetes.io/os"] = Value::from("linux");
    let object = json!({"metadata": {"name": name, "labels": labels}});
    object.as_object().cloned().unwrap_or_default()
}

fn is_credential(text: &str) -> bool {
    text.len() == CREDENTIAL_LENGTH && URL_SAFE_NO_PAD.decode(text).is_ok()
}

fn taken(name: &str) -> ApiError {
    let subject = Subject {
        group: "",
        resource: "nodes",
        name,
    };
    ApiError::conflict(subject, "another machine has this name")
}

fn parse<T: for<'any> Deserialize<'any>>(body: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))
}
