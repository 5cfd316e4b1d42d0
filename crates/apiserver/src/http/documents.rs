//! Non-resource paths: health, version, discovery, metrics, OpenAPI.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::ApiBody;
use super::negotiate;
use super::{Api, ApiCall, discovery, respond};
use crate::catalog::Catalog;
use crate::error::ApiError;
use crate::metrics;
use crate::store::ObjectStore;

/// The Kubernetes release whose behaviour this server follows.
const KUBERNETES_MINOR: &str = "36";

/// Returns the health of the server. A store that cannot be written fails all checks but `livez`: a restart does not
/// help.
pub(super) fn health(store: &ObjectStore, path: &str, query: &str) -> Response<ApiBody> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let name = parts.next().unwrap_or_default();
    let checked = parts.next();
    let outage = store
        .outage()
        .filter(|_| name != "livez" && checked.is_none_or(|check| check == "store"));
    let Some(cause) = outage else {
        let is_verbose = checked.is_none() && query.contains("verbose");
        let report = format!("[+]ping ok\n[+]store ok\n{name} check passed\n");
        return respond::text(StatusCode::OK, if is_verbose { report } else { "ok".to_owned() });
    };
    respond::text(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("[+]ping ok\n[-]store failed: {cause}\n{name} check failed\n"),
    )
}

pub(super) fn serve(api: &Arc<Api>, call: &ApiCall, parts: &[String]) -> Result<Response<ApiBody>, ApiError> {
    if call.method != Method::GET && call.method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let catalog = api.registry.catalog();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    if let ["openapi", rest @ ..] = parts.as_slice() {
        return open_api(api, call, &catalog, rest);
    }
    let found = match parts.as_slice() {
        [] => Some(
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
            "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["version"] => Some(version()),
        ["metrics"] => {
            let text = api
                .metrics
                .encode(&api.registry.store)
                .map_err(ApiError::internal)?;
            return Ok(respond::document(metrics::CONTENT_TYPE, Bytes::from(text)));
        }
        ["api" | "apis"] => {
            if let Some(version) = negotiate::aggregated_discovery(&call.headers) {
                return Ok(aggregated(
                    &discovery::aggregated(&catalog, parts == ["api"], version),
                    version,
                ));
            }
            Some(if parts == ["api"] {
                discovery::core_versions()
            } else {
                discovery::groups(&catalog)
            })
        }
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => discovery::group(&catalog, group),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        _ => None,
    };
    let Some(found) = found else {
        return Ok(respond::not_found_page());
    };
    if !negotiate::accepts_json(&call.headers) {
        return Err(ApiError::not_acceptable());
    }
    Ok(respond::json(StatusCode::OK, &found))
}

fn open_api(
    api: &Arc<Api>,
    call: &ApiCall,
    catalog: &Arc<Catalog>,
    parts: &[&str],
) -> Result<Response<ApiBody>, ApiError> {
    if !negotiate::accepts_json(&call.headers) {
        return Err(ApiError::not_acceptable());
    }
    let documents = api.schemas.documents(catalog);
    let bytes = match parts {
        ["v2"] => Some(documents.swagger()),
        ["v3"] => Some(documents.index()),
        ["v3", path @ ..] => documents.group(&path.join("/")),
        _ => None,
    };
    Ok(match bytes {
        Some(bytes) => respond::bytes(StatusCode::OK, bytes.clone()),
        None => respond::not_found_page(),
    })
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v1.{KUBERNETES_MINOR}.0+mco-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// Returns the architecture as Go names it, which clients compare.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn aggregated(list: &Value, version: &str) -> Response<ApiBody> {
    let content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    respond::document(content_type, Bytes::from(list.to_string()))
}
