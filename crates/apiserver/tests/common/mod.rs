//! A server in a temporary directory, and helpers for requests.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::{ApiServer, ApiServerOptions, ApiService, Identity};
use serde_json::Value;
use tower::ServiceExt as _;

/// The deadline of every wait in a test.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub server: ApiServer,
    // Dropped last: the server writes into it.
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub async fn start() -> Self {
        Self::with(ApiServerOptions::default()).await
    }

    pub async fn with(options: ApiServerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = ApiServer::open(directory.path(), options).await.unwrap();
        Self {
            server,
            _directory: directory,
        }
    }

    /// Returns a kube client in this process.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    pub fn client_as(&self, identity: Identity) -> kube::Client {
        kube::Client::new(self.server.service_as(identity), "default")
    }

    pub async fn request(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        request(self.server.service(), method, path, "application/json", &body).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> (StatusCode, Value) {
        request(self.server.service(), Method::PATCH, path, kind, &body).await
    }
}

/// Sends one request. The response must end within the deadline.
pub async fn request(
    service: ApiService,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let bytes = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Full::new(bytes))
        .unwrap();
    let answer = async {
        let response = service.oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    };
    tokio::time::timeout(DEADLINE, answer)
        .await
        .expect("an answer in time")
}

/// Polls until the condition holds.
pub async fn eventually<F, Fut>(what: &str, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, waiting).await.is_ok(),
        "never happened: {what}"
    );
}
