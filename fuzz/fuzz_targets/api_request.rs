//! Fuzzes the embedded API in process with whole requests: path, query, headers and body of any shape, as five
//! identities. Each request gets a well-formed response, and only authenticated callers get more than health.

#![no_main]

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use libfuzzer_sys::fuzz_target;
use mco_apiserver::http::ApiBody;
use mco_apiserver::{ApiServer, ApiServerOptions, ApiService, Identity};
use mco_fuzz::values;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// The server, its runtime and its directory, for the whole run.
struct Fixture {
    runtime: Runtime,
    server: ApiServer,
    _directory: tempfile::TempDir,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    // The fuzzer ends without dropping it; scripts/fuzz removes it, and has it in memory, where no write waits.
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let server = runtime
        .block_on(ApiServer::open(directory.path(), ApiServerOptions::default()))
        .expect("an empty store");
    Fixture {
        runtime,
        server,
        _directory: directory,
    }
});

const PATHS: &[&str] = &[
    "/api/v1/nodes",
    "/api/v1/nodes/a",
    "/api/v1/nodes/a/status",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/default/finalize",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/a",
    "/api/v1/namespaces/default/pods/a/eviction",
    "/api/v1/namespaces/default/pods/a/binding",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces/default/secrets/a",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/watch/nodes",
    "/apis",
    "/apis/apps/v1/namespaces/default/deployments/a/scale",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tests.example.io",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/example.io/v1/tests",
    "/apis/example.io/v1/tests/a",
    "/openapi/v2",
    "/openapi/v3/api/v1",
    "/metrics",
    "/readyz",
    "/version",
];

const PARAMETERS: &[&str] = &[
    "watch=true",
    "watch=0",
    "timeoutSeconds=9223372036854775807",
    "timeoutSeconds=1",
    "resourceVersion=0",
    // Not of the future: such a request waits three seconds, as in Kubernetes.
    "resourceVersion=1",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true",
    "allowWatchBookmarks=true",
    "limit=1",
    "limit=-1",
    "continue=e30",
    "labelSelector=a%3Db%2C!c",
    "labelSelector=a%20in%20(b%2Cc)",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name%3Da%5C%2C%2Cstatus.phase!%3DX",
    "dryRun=All",
    "fieldManager=fuzz",
    "force=true",
    "fieldValidation=Strict",
    "fieldValidation=Ignore",
    "gracePeriodSeconds=-1",
    "propagationPolicy=Foreground",
    "orphanDependents=true",
    "includeObject=Object",
    "pretty=true",
];

const ACCEPTED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=NaN",
    "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
    "*/*",
    "text/plain",
];

const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json; charset=utf-8",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
];

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let fixture = &*FIXTURE;
    for _ in 0..4 {
        if send(fixture, &mut input).is_err() || input.is_empty() {
            break;
        }
    }
});

fn send(fixture: &Fixture, input: &mut Unstructured<'_>) -> Result<()> {
    let caller = *input.choose(&["admin", "node", "user", "component", "anonymous"])?;
    let service = service(&fixture.server, caller);
    let Some((path, request)) = request(input)? else {
        return Ok(());
    };
    fixture.runtime.block_on(async {
        let response = service.oneshot(request).await.expect("infallible");
        check(caller, &path, response).await;
    });
    Ok(())
}

fn service(server: &ApiServer, caller: &str) -> ApiService {
    match caller {
        "admin" => server.service(),
        "node" => server.service_as(Identity::node("a")),
        "user" => server.service_as(Identity::new("alice", &[])),
        "component" => server.service_as(Identity::component("fuzz")),
        _ => server.anonymous_service(),
    }
}

/// Returns a request and its path; none if it is not even HTTP.
fn request(input: &mut Unstructured<'_>) -> Result<Option<(String, Request<Full<Bytes>>)>> {
    let method = *input.choose(&[
        "GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS",
    ])?;
    let mut path = if input.ratio(9, 10)? {
        (*input.choose(PATHS)?).to_owned()
    } else {
        format!("/{}", values::text(input)?)
    };
    let mut query = Vec::new();
    for _ in 0..input.int_in_range(0..=3)? {
        query.push(if input.ratio(9, 10)? {
            (*input.choose(PARAMETERS)?).to_owned()
        } else {
            values::text(input)?
        });
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let body = body(input, method)?;
    let mut request = Request::builder()
        .method(method)
        .uri(&path)
        .header("accept", *input.choose(ACCEPTED)?)
        .header("content-type", *input.choose(CONTENT_TYPES)?);
    if input.ratio(1, 20)? {
        request = request.header(
            *input.choose(&["impersonate-user", "impersonate-group"])?,
            values::text(input)?,
        );
    }
    let request = request.body(Full::new(Bytes::from(body)));
    Ok(request.ok().map(|request| (path, request)))
}

fn body(input: &mut Unstructured<'_>, method: &str) -> Result<Vec<u8>> {
    if method == "GET" || input.ratio(1, 10)? {
        return Ok(Vec::new());
    }
    if input.ratio(1, 8)? {
        return Ok(input.arbitrary::<&[u8]>()?.to_vec());
    }
    if method == "PATCH" && input.ratio(1, 3)? {
        let path = format!("/metadata/{}", values::key(input)?);
        let operations = json!([{"op": input.choose(&["add", "replace", "copy", "remove"])?, "path": path,
            "from": "/metadata", "value": values::value(input, 3)?}]);
        return Ok(operations.to_string().into_bytes());
    }
    let mut object = values::object(input, 4)?;
    if input.ratio(3, 4)? {
        let names = ["a", "b", "tests.example.io", "default"];
        object.insert("metadata".to_owned(), json!({"name": input.choose(&names)?}));
        object.insert("spec".to_owned(), values::value(input, 4)?);
    }
    Ok(Value::Object(object).to_string().into_bytes())
}

async fn check(caller: &str, path: &str, response: Response<ApiBody>) {
    let status = response.status();
    let is_health = ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|root| path.starts_with(root));
    if caller == "anonymous" && !is_health {
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    if caller == "node" && path.contains("/secrets") {
        assert_ne!(status, StatusCode::OK, "{path}");
    }
    // 504 is a resourceVersion of the future; 500 is Kubernetes' own answer to some contradictory patches.
    assert!(
        !status.is_server_error() || matches!(status.as_u16(), 500 | 504),
        "{path}: {status}"
    );
    let is_json = response
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if status.is_success() || !is_json {
        // A watch does not end by itself, so only what is there at once is read.
        let mut body = std::pin::pin!(response.into_body());
        let _ = tokio::time::timeout(std::time::Duration::ZERO, body.frame()).await;
        return;
    }
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    if !body.is_empty() {
        let error: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            (&error["kind"], &error["code"]),
            (&json!("Status"), &json!(status.as_u16())),
            "{error}"
        );
    }
}
