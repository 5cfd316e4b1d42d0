//! Requests to addresses outside of the Kubernetes API: gates and notifications.
//!
//! Made with kube's client, which already has TLS, timeouts and no redirects.

use std::path::Path;
use std::time::Duration;

use futures::AsyncReadExt as _;
use http::{Method, Request, Uri};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config};
use mco_api::rollout_policy::SecretKey;
use mco_api::vocabulary::names;
use x509_parser::pem::Pem;

use crate::context::Context;
use crate::policy_secrets;

/// The longest response that is read.
const MAX_RESPONSE: u64 = 1024 * 1024;
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
    let timeout = request.timeout;
    let sent = tokio::time::timeout(timeout, exchange(ctx, request)).await;
    sent.unwrap_or_else(|_| Err(format!("no answer within {} s", timeout.as_secs())))
}

async fn exchange(ctx: &Context, request: OutboundRequest) -> Result<OutboundResponse, String> {
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
    config.root_cert = Some(certificate_authorities(ctx, request.trust)).filter(|all| !all.is_empty());
    if let Some(token) = request.token {
        config.auth_info.token = Some(token.into());
    }
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let http = Request::builder()
        .method(request.method)
        .uri(path)
        .header("content-type", request.content_type)
        .body(request.body)
        .map_err(|error| error.to_string())?;
    let response = match client.request_stream(http).await {
        Ok(response) => response,
        Err(kube::Error::Api(status)) => {
            return Ok(OutboundResponse::Refused {
                code: status.code,
                message: status.message.clone(),
            });
        }
        Err(error) => return Err(reason(&error)),
    };
    let mut text = String::new();
    let response = std::pin::pin!(response);
    let mut limited = response.take(MAX_RESPONSE);
    limited
        .read_to_string(&mut text)
        .await
        .map_err(|error| error.to_string())?;
    Ok(OutboundResponse::Success(text))
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
