//! Requests to addresses outside of the Kubernetes API: gates and notifications.
//!
//! Made with kube's client, which already has TLS, timeouts and no redirects. Its own interpretation of responses is
//! bypassed: it is for Kubernetes, takes a redirect for a success and the code of an error from its body.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::{Api, Client, Config};
use mco_api::rollout_policy::SecretKey;
use mco_api::vocabulary::names;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use x509_parser::pem::Pem;

use crate::context::Context;
use crate::policy_secrets;

/// How much of a response is read.
const MAX_RESPONSE: usize = 1024 * 1024;
const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Bundles of certificate authorities that a container or a machine may have.
const CA_FILES: [&str; 4] = [
    SERVICE_ACCOUNT_CA,
    "/var/run/secrets/kubernetes.io/serviceaccount/service-ca.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-certificates.crt",
];

/// A request to an address outside of the Kubernetes API.
#[derive(Debug, Clone)]
pub(crate) struct OutboundRequest {
    pub method: Method,
    pub url: String,
    pub token: Option<String>,
    pub content_type: &'static str,
    pub body: Vec<u8>,
    pub timeout: Duration,
    pub trust: Trust,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<&'static str>,
}

impl OutboundRequest {
    pub fn get(url: String, timeout: Duration) -> Self {
        Self {
            method: Method::GET,
            url,
            token: None,
            content_type: "application/json",
            body: Vec::new(),
            timeout,
            trust: Trust::Any,
            server_name: None,
        }
    }
}

/// The certificate authorities that a server's certificate is verified against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those of the cluster, its additional trust bundle and those of the system.
    Any,
    /// Those that sign the certificates of the cluster's API servers.
    ApiServers,
}

/// The response to a request that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutboundResponse {
    /// Status 200 to 299.
    Success(String),
    /// Any other status.
    Refused { code: u16, message: String },
}

/// Sends a request; the error is the reason why no response was received.
pub(crate) async fn send(ctx: &Context, request: OutboundRequest) -> Result<OutboundResponse, String> {
    exchange(certificate_authorities(ctx, request.trust), request).await
}

async fn exchange(authorities: Vec<Vec<u8>>, request: OutboundRequest) -> Result<OutboundResponse, String> {
    let timeout = request.timeout;
    let late = || format!("no answer within {} s", timeout.as_secs());
    let deadline = Instant::now() + timeout;
    let response = timeout_at(deadline, respond(authorities, request)).await;
    let response = response.unwrap_or_else(|_| Err(late()))?;
    let status = response.status();
    let mut bytes = Vec::new();
    let read = timeout_at(deadline, read_start(response.into_body(), &mut bytes)).await;
    let text = String::from_utf8_lossy(&bytes);
    if !status.is_success() {
        // The body only explains the status, so that a slow or broken one does not turn a refusal into no answer.
        return Ok(OutboundResponse::Refused {
            code: status.as_u16(),
            message: explanation(status, &text),
        });
    }
    read.unwrap_or_else(|_| Err(late()))?;
    Ok(OutboundResponse::Success(text.into_owned()))
}

async fn respond(authorities: Vec<Vec<u8>>, request: OutboundRequest) -> Result<Response<Body>, String> {
    let uri: Uri = request
        .url
        .parse()
        .map_err(|error| format!("{:?}: {error}", request.url))?;
    let (scheme, authority) = (uri.scheme_str().unwrap_or("https"), uri.authority());
    let authority = authority.ok_or_else(|| format!("{:?} has no host", request.url))?;
    let base: Uri = format!("{scheme}://{authority}")
        .parse()
        .map_err(|error| format!("{authority}: {error}"))?;
    let mut config = Config::new(base);
    config.connect_timeout = Some(request.timeout);
    config.read_timeout = Some(request.timeout);
    config.default_retry = false;
    config.tls_server_name = request.server_name.map(str::to_owned);
    config.root_cert = Some(authorities).filter(|all| !all.is_empty());
    if let Some(token) = request.token {
        config.auth_info.token = Some(token.into());
    }
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let http = Request::builder()
        .method(request.method)
        .uri(path)
        .header("content-type", request.content_type)
        .body(Body::from(request.body))
        .map_err(|error| error.to_string())?;
    client.send(http).await.map_err(|error| reason(&error))
}

/// Reads the start of a body, up to [`MAX_RESPONSE`]; what was read before an error is kept.
async fn read_start(mut body: Body, bytes: &mut Vec<u8>) -> Result<(), String> {
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| reason(&error))?.into_data() else {
            continue;
        };
        let room = MAX_RESPONSE - bytes.len();
        bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() >= room {
            break;
        }
    }
    Ok(())
}

/// Returns why a server refused a request: the message of a JSON object, else the text.
fn explanation(status: StatusCode, text: &str) -> String {
    if status.is_redirection() {
        return "redirects are not followed".to_owned();
    }
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    let message = ["message", "error"]
        .iter()
        .find_map(|field| object[*field].as_str());
    message.unwrap_or(text).trim().to_owned()
}

/// Returns the innermost cause, such as `connection refused`.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns certificate authorities in DER.
pub(crate) fn certificate_authorities(ctx: &Context, trust: Trust) -> Vec<Vec<u8>> {
    let files = match trust {
        Trust::Any => CA_FILES.as_slice(),
        Trust::ApiServers => &[SERVICE_ACCOUNT_CA],
    };
    let read = |file: &&str| std::fs::read(Path::new(file)).ok();
    let mut bundles: Vec<Vec<u8>> = files.iter().filter_map(read).collect();
    if let Some(config) = ctx.controller_config() {
        bundles.push(config.spec.root_ca_data.0.clone());
        match (trust, &config.spec.additional_trust_bundle) {
            (Trust::Any, Some(additional)) => bundles.push(additional.0.clone()),
            (Trust::Any, None) => {}
            (Trust::ApiServers, _) => bundles.push(config.spec.kube_api_server_serving_ca_data.0.clone()),
        }
    }
    let certificates = bundles.iter().flat_map(|bundle| {
        Pem::iter_from_buffer(bundle)
            .filter_map(Result::ok)
            .collect::<Vec<_>>()
    });
    certificates
        .filter(|pem| pem.label == "CERTIFICATE")
        .map(|pem| pem.contents)
        .collect()
}

/// Returns the token of the controller's own service account; `None` outside of a pod.
pub(crate) fn service_account_token() -> Option<String> {
    let token = std::fs::read_to_string(SERVICE_ACCOUNT_TOKEN).ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// Returns a value of a Secret in the namespace of the operator.
pub(crate) async fn secret(ctx: &Context, from: &SecretKey, default_key: &str) -> Result<String, String> {
    let key = if from.key.is_empty() {
        default_key
    } else {
        &from.key
    };
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), names::NAMESPACE);
    let secret = secrets
        .get(&from.name)
        .await
        .map_err(|error| format!("cannot read Secret {}: {}", from.name, reason(&error)))?;
    policy_secrets::value(secret, key).map_err(|why| format!("Secret {}: {why}", from.name))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns what a request makes of this response, whose body is repeated until the client closes the connection.
    async fn response(head: &str, body: &str, times: usize) -> Result<OutboundResponse, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/path", listener.local_addr().unwrap());
        let (head, body) = (
            format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n"),
            body.to_owned(),
        );
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(head.as_bytes()).await;
            for _ in 0..times {
                if stream.write_all(body.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        exchange(Vec::new(), OutboundRequest::get(url, Duration::from_mins(1))).await
    }

    fn refused(code: u16, message: &str) -> OutboundResponse {
        OutboundResponse::Refused {
            code,
            message: message.to_owned(),
        }
    }

    #[tokio::test]
    async fn the_status_decides_and_not_the_body() {
        let status = r#"{"kind":"Status","code":200,"message":"not today"}"#;
        for (head, body, expected) in [
            ("200 OK", "yes", OutboundResponse::Success("yes".to_owned())),
            (
                "302 Found\r\nLocation: /",
                "moved",
                refused(302, "redirects are not followed"),
            ),
            (
                "307 X\r\nLocation: /",
                "",
                refused(307, "redirects are not followed"),
            ),
            ("403 Forbidden", " no\n", refused(403, "no")),
            ("403 Forbidden", status, refused(403, "not today")),
            ("503 X", r#"{"ok":false}"#, refused(503, r#"{"ok":false}"#)),
            (
                "400 X",
                r#"{"status":"error","error":"bad query"}"#,
                refused(400, "bad query"),
            ),
        ] {
            assert_eq!(response(head, body, 1).await, Ok(expected), "{head} {body}");
        }
    }

    #[tokio::test]
    async fn a_response_without_an_end_was_read_until_the_memory_was_full() {
        let line = "x".repeat(64 * 1024);
        for (head, is_refused) in [("500 X", true), ("403 X", true), ("200 OK", false)] {
            let text = match response(head, &line, usize::MAX).await.unwrap() {
                OutboundResponse::Refused { message, .. } if is_refused => message,
                OutboundResponse::Success(text) if !is_refused => text,
                other => panic!("{other:?}"),
            };
            assert_eq!(text.len(), MAX_RESPONSE, "{head}");
        }
    }

    #[tokio::test]
    async fn a_refusal_with_a_broken_body_is_a_refusal() {
        let head = "403 X\r\nContent-Length: 1000";
        assert_eq!(response(head, "no", 1).await, Ok(refused(403, "no")));
        assert!(
            response("200 OK\r\nContent-Length: 1000", "yes", 1)
                .await
                .is_err()
        );
    }
}
