//! The HTTPS endpoint of daemons: authenticates the node that a token names, and answers with its values.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::Api;
use mco_api::vocabulary::names::component;
use mco_core::config::node_files::ANSWER_PATH;
use mco_http::{TextResponse, bearer_token, text};
use mco_runtime::FieldManager;
use serde_json::json;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::values::{SecretRefusal, values};
use crate::manifests;

const MANAGER: FieldManager = FieldManager::new("machine-config-operator-secret-files");
/// The audience of the daemons' tokens: they authenticate nothing else, and no other token authenticates here.
pub const AUDIENCE: &str = "mco.dev/secret-files";
/// The claim of a pod's token with the node it runs on.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";
/// Any client can cause reviews of tokens.
const REVIEWS: usize = 8;
const DEADLINE: Duration = Duration::from_secs(25);

/// Answers requests of daemons.
#[derive(Clone)]
pub struct SecretEndpoint {
    client: kube::Client,
    slots: Arc<Semaphore>,
}

impl std::fmt::Debug for SecretEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretEndpoint")
    }
}

impl SecretEndpoint {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            slots: Arc::new(Semaphore::new(REVIEWS)),
        }
    }

    /// Returns the config that a request is for; `None` if it is for another endpoint.
    pub fn config_of(path: &str) -> Option<&str> {
        let config = path.strip_prefix(ANSWER_PATH)?;
        let is_name = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character)
        };
        (!config.is_empty() && config.chars().all(is_name)).then_some(config)
    }

    pub async fn respond<B>(&self, request: &Request<B>, config: &str) -> TextResponse {
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        let answered = tokio::time::timeout(DEADLINE, self.answer(request.headers(), config));
        let late = |_| {
            Err((
                StatusCode::GATEWAY_TIMEOUT,
                "the API server did not answer in time".to_owned(),
            ))
        };
        match answered.await.unwrap_or_else(late) {
            Ok(body) => document(StatusCode::OK, body),
            Err((status, why)) => {
                warn!(
                    config,
                    status = status.as_u16(),
                    "refused values of Secrets: {why}"
                );
                let body = json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
                    "message": why, "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
                    "code": status.as_u16(),
                });
                document(status, body.to_string())
            }
        }
    }

    async fn answer(&self, headers: &HeaderMap, config: &str) -> Result<String, (StatusCode, String)> {
        let unauthenticated = |why: &str| (StatusCode::UNAUTHORIZED, why.to_owned());
        let token = bearer_token(headers).ok_or_else(|| unauthenticated("the request has no token"))?;
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "the operator stops".to_owned()))?;
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = reviews.create(&MANAGER.post_params(), &review).await;
        let review = review.map_err(|error| {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("cannot review the token: {error}"),
            )
        })?;
        let node = node_of(&review.status.unwrap_or_default()).map_err(|why| unauthenticated(&why))?;
        let answer = values(&self.client, &node, config).await;
        let answer = answer.map_err(|refusal: SecretRefusal| (refusal.status(), refusal.to_string()))?;
        info!(
            node,
            config,
            files = answer.files.len(),
            "answered with values of Secrets"
        );
        serde_json::to_string(&answer).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

/// Returns the node of a daemon that a review authenticates.
fn node_of(review: &TokenReviewStatus) -> Result<String, String> {
    if review.authenticated != Some(true) {
        return Err("the token is not valid".to_owned());
    }
    // An API server that does not know audiences accepts tokens for itself.
    let audiences = review.audiences.as_deref().unwrap_or_default();
    if !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err(format!("the token is not for audience {AUDIENCE}"));
    }
    let user = review.user.clone().unwrap_or_default();
    if user.username.as_deref() != Some(&manifests::user(component::DAEMON)) {
        return Err("the token is not one of a machine-config-daemon".to_owned());
    }
    let mut claims = user
        .extra
        .unwrap_or_default()
        .remove(NODE_CLAIM)
        .unwrap_or_default();
    match (claims.pop(), claims.is_empty()) {
        (Some(node), true) if !node.is_empty() => Ok(node),
        _ => Err(
            "the token does not name the node that its pod runs on, which it does since Kubernetes 1.30"
                .to_owned(),
        ),
    }
}

fn document(status: StatusCode, body: String) -> TextResponse {
    let mut response = text(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(change: impl Fn(&mut serde_json::Value)) -> Result<String, String> {
        let mut review = json!({
            "authenticated": true,
            "audiences": [AUDIENCE],
            "user": {
                "username": "system:serviceaccount:openshift-machine-config-operator:machine-config-daemon",
                "extra": {NODE_CLAIM: ["worker-1"]},
            },
        });
        change(&mut review);
        node_of(&serde_json::from_value(review).unwrap())
    }

    #[test]
    fn only_the_token_of_a_daemon_for_this_audience_names_a_node() {
        type Change = fn(&mut serde_json::Value);
        assert_eq!(review(|_| {}).unwrap(), "worker-1");
        let cases: [(&str, Change, &str); 6] = [
            (
                "a wrong token",
                |one| one["authenticated"] = json!(false),
                "not valid",
            ),
            (
                "a token for the API server",
                |one| one["audiences"] = json!(["https://kubernetes.default.svc"]),
                "not for audience",
            ),
            (
                "an API server without audiences",
                |one| one["audiences"] = json!(null),
                "not for audience",
            ),
            (
                "another component",
                |one| {
                    one["user"]["username"] =
                        json!("system:serviceaccount:openshift-machine-config-operator:machine-config-server")
                },
                "not one of a machine-config-daemon",
            ),
            (
                "a token without a node",
                |one| one["user"]["extra"] = json!({}),
                "does not name the node",
            ),
            (
                "two nodes",
                |one| one["user"]["extra"][NODE_CLAIM] = json!(["a", "b"]),
                "does not name the node",
            ),
        ];
        for (name, change, expected) in cases {
            let why = review(change).unwrap_err();
            assert!(why.contains(expected), "{name}: {why}");
        }
    }

    #[test]
    fn only_names_of_configs_are_paths() {
        assert_eq!(
            SecretEndpoint::config_of("/secret-files/rendered-worker-1"),
            Some("rendered-worker-1")
        );
        for path in [
            "/secret-files/",
            "/secret-files/a/b",
            "/secret-files/A",
            "/secret-files/a%2f",
            "/validate",
        ] {
            assert_eq!(SecretEndpoint::config_of(path), None, "{path}");
        }
    }
}
