//! Admission webhooks, called over TLS on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use common::{Cluster, request};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/adm/configmaps";

/// A webhook server. The path of a request decides its response.
struct HookServer {
    port: u16,
    /// The certificate as a `caBundle`.
    bundle: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HookServer {
    async fn start() -> Self {
        Self::with("127.0.0.1", rcgen::IsCa::NoCa).await
    }

    /// Starts a server with a self-signed certificate.
    async fn with(address: &str, is_ca: rcgen::IsCa) -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters(address, is_ca).self_signed(&pair).unwrap();
        Self::serving(&certificate, &pair).await
    }

    /// Starts a server with a certificate whose authority is not in its bundle.
    async fn with_issued(address: &str) -> Self {
        let authority = rcgen::KeyPair::generate().unwrap();
        let is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::Issuer::new(parameters("authority", is_ca), authority);
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters(address, rcgen::IsCa::NoCa).signed_by(&pair, &issuer);
        Self::serving(&certificate.unwrap(), &pair).await
    }

    async fn serving(certificate: &rcgen::Certificate, pair: &rcgen::KeyPair) -> Self {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(
            listener,
            TlsAcceptor::from(Arc::new(config)),
            Arc::clone(&seen),
        ));
        Self {
            port,
            bundle: BASE64.encode(certificate.pem()),
            seen,
            task,
        }
    }

    fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/{path}", self.port), "caBundle": self.bundle})
    }

    /// Returns how often a path was called.
    fn calls(&self, path: &str) -> usize {
        self.seen
            .lock()
            .iter()
            .filter(|(called, _)| called == path)
            .count()
    }
}

fn parameters(address: &str, is_ca: rcgen::IsCa) -> rcgen::CertificateParams {
    let names = [address.to_owned(), "hook.adm.svc".to_owned()];
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    parameters.is_ca = is_ca;
    parameters
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<(String, Value)>>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service =
                service_fn(move |request: http::Request<Incoming>| answer(request, Arc::clone(&seen)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn patch(operations: &Value) -> Value {
    json!({"patchType": "JSONPatch", "patch": BASE64.encode(operations.to_string())})
}

/// Returns the `response` of a review, by the path that was called.
fn verdict(path: &str, review: &Value) -> Value {
    let uid = &review["request"]["uid"];
    let denied = |status: Value| json!({"allowed": false, "status": status});
    let add = |path: &str, value: Value| patch(&json!([{"op": "add", "path": path, "value": value}]));
    let mut response = match path {
        "deny" => denied(json!({"message": "no way"})),
        "deny-none" => json!({"allowed": false}),
        "deny-code" => denied(
            json!({"message": "conflicting", "code": 409, "reason": "Conflict",
            "details": {"name": "n", "kind": "k"}}),
        ),
        "deny-reason" => denied(json!({"reason": "BecauseISaySo"})),
        "warn" => json!({"warnings": ["careful", ""]}),
        "patch" => add("/data", json!({"added": "yes"})),
        "patch-bad" => patch(&json!([{"op": "replace", "path": "/nope/x", "value": 1}])),
        "patch-notype" => json!({"patch": BASE64.encode("[]")}),
        "patch-type" => json!({"patchType": "Nope", "patch": BASE64.encode("[]")}),
        "patch-onlytype" => json!({"patchType": "JSONPatch"}),
        "patch-invalid" => add("/data", json!({"a": 1})),
        "patch-unknown" => add("/nofield", json!({"a": 1})),
        "rename" => add("/metadata/name", json!("other")),
        "count" => {
            let count = &review["request"]["object"]["data"]["count"];
            let count: u64 = count.as_str().unwrap_or("0").parse().unwrap();
            add("/data/count", json!((count + 1).to_string()))
        }
        _ => json!({}),
    };
    response["uid"] = uid.clone();
    if path == "wrong-uid" {
        response["uid"] = json!("x");
    }
    if response.get("allowed").is_none() {
        response["allowed"] = json!(true);
    }
    response
}

async fn answer(
    request: http::Request<Incoming>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    seen.lock().push((path.clone(), review.clone()));
    let response = verdict(&path, &review);
    let whole = |version: &str, kind: &str| {
        json!({"apiVersion": version, "kind": kind, "response": response}).to_string()
    };
    let (code, body) = match path.as_str() {
        "500" => (500, "broken".to_owned()),
        "404" => (404, "gone".to_owned()),
        "400" => (400, "bad".to_owned()),
        "notjson" => (200, "hello".to_owned()),
        "empty" => (200, "{}".to_owned()),
        "noresponse" => (
            200,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
        ),
        "wrong-version" => (200, whole("admission.k8s.io/v1beta1", "AdmissionReview")),
        "wrong-kind" => (200, whole("v1", "Pod")),
        "big" => (200, format!("{{\"x\": \"{}\"}}", "a".repeat(8 << 20))),
        "redirect" => (302, String::new()),
        "slow" => std::future::pending().await,
        _ => (200, whole("admission.k8s.io/v1", "AdmissionReview")),
    };
    let response = Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .header("location", "/followed")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    Ok(response)
}

/// Creates a configuration with one webhook for config maps of one name.
async fn configure(cluster: &Cluster, kind: &str, name: &str, only: &str, client: Value, more: Value) {
    let mut webhook = json!({
        "name": format!("{name}.example.com"),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
        "clientConfig": client,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        "matchConditions": [{"name": "n",
            "expression": format!("(object != null ? object : oldObject).metadata.name == '{only}'")}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": format!("{}-{name}", kind.to_lowercase())}, "webhooks": [webhook]});
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    let (code, body) = cluster.request(Method::POST, &path, body).await;
    assert_eq!(code, 201, "{body}");
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "adm"}});
    assert_eq!(
        cluster
            .request(Method::POST, "/api/v1/namespaces", namespace)
            .await
            .0,
        201
    );
    cluster
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "adm"}})
}

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

/// The client and the settings that a recorded case had, if they are not the usual ones.
fn special(server: &HookServer, name: &str) -> Option<(Value, Value)> {
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let url = format!("https://127.0.0.1:{}/x", server.port);
    let refused = json!({"url": "https://127.0.0.1:1/x", "caBundle": server.bundle});
    Some(match name {
        "v-refused" => (refused, json!({})),
        "v-ign" => (refused, json!({"failurePolicy": "Ignore"})),
        "v-ca" => (
            json!({"url": url, "caBundle": BASE64.encode(other.cert.pem())}),
            json!({}),
        ),
        "v-badca" => (json!({"url": url, "caBundle": "YWJj"}), json!({})),
        "v-svc" => {
            let service = json!({"name": "none", "namespace": "adm", "path": "/p"});
            (json!({"service": service, "caBundle": server.bundle}), json!({}))
        }
        "v-cond" => {
            let expression = "object.metadata.name == 'h-v-cond' ? object.data.nope == 'x' : false";
            (
                server.client("x"),
                json!({"matchConditions": [{"name": "n", "expression": expression}]}),
            )
        }
        "m-del" => {
            let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"],
                "resources": ["configmaps"]}]);
            (server.client("patch"), json!({"rules": rules}))
        }
        _ => return None,
    })
}

#[tokio::test]
async fn webhooks_decide_as_recorded() {
    let golden: Value = serde_json::from_str(include_str!("golden/admission.json")).unwrap();
    let (server, cluster) = (HookServer::start().await, cluster().await);
    assert_eq!(cluster.request(Method::POST, MAPS, map("h-m-del")).await.0, 201);
    let cases = golden["webhooks"].as_array().unwrap();
    assert!(cases.len() > 30);
    let mut problems = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        // Which authorities a system trusts is its own matter.
        if name == "v-noca" {
            continue;
        }
        let kind = if name.starts_with("m-") {
            "Mutating"
        } else {
            "Validating"
        };
        let (client, more) = special(&server, name).unwrap_or_else(|| (server.client(&name[2..]), json!({})));
        configure(&cluster, kind, name, &format!("h-{name}"), client, more).await;
        let method = Method::from_bytes(case["method"].as_str().unwrap().as_bytes()).unwrap();
        let path = case["path"].as_str().unwrap();
        let (code, body) = cluster.request(method, path, case["body"].clone()).await;
        let shown = |body: &Value| {
            let text = body.to_string().replace(&server.port.to_string(), "PORT");
            let mut kept: Value = serde_json::from_str(&text).unwrap();
            let kept = kept.as_object_mut().unwrap();
            kept.retain(|field, _| ["message", "reason", "details"].contains(&field.as_str()));
            json!(kept)
        };
        let expected = case["code"].as_u64().unwrap();
        if u64::from(code.as_u16()) != expected {
            problems.push(format!("{name}: {code} instead of {expected}: {body}"));
        } else if expected >= 400
            && !["v-notjson", "v-wrong-uid"].contains(&name)
            && shown(&body) != shown(&case["status"])
        {
            problems.push(format!(
                "{name}:\n  found  {}\n  wanted {}",
                shown(&body),
                shown(&case["status"])
            ));
        }
        let prefix = message(&case["status"])
            .split("webhook: ")
            .next()
            .unwrap()
            .split("uid=")
            .next()
            .unwrap();
        if !message(&body).starts_with(prefix) {
            problems.push(format!("{name}: {}", message(&body)));
        }
    }
    assert!(
        problems.is_empty(),
        "{} differ:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[tokio::test]
async fn a_patch_of_a_webhook_is_stored() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    configure(
        &cluster,
        "Mutating",
        "m",
        "patched",
        server.client("patch"),
        json!({}),
    )
    .await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("patched")).await;
    assert_eq!(
        (code.as_u16(), &body["data"]["added"]),
        (201, &json!("yes")),
        "{body}"
    );
    let (_, stored) = cluster
        .request(Method::GET, &format!("{MAPS}/patched"), Value::Null)
        .await;
    assert_eq!(stored["data"], json!({"added": "yes"}));
    // An update of the same object is patched again.
    let patch = json!({"data": {"mine": "1"}});
    let path = format!("{MAPS}/patched");
    let (code, body) = cluster.patch(&path, "application/merge-patch+json", patch).await;
    assert_eq!(
        (code.as_u16(), &body["data"]),
        (200, &json!({"added": "yes"})),
        "{body}"
    );
}

#[tokio::test]
async fn a_webhook_cannot_rename_an_object() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    configure(
        &cluster,
        "Mutating",
        "m",
        "mine",
        server.client("rename"),
        json!({}),
    )
    .await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("mine")).await;
    assert_eq!(code, 500, "{body}");
    assert!(message(&body).contains("may not change metadata.name"), "{body}");
}

#[tokio::test]
async fn a_webhook_is_called_again_only_if_it_asks_for_it() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(
        &cluster,
        "Mutating",
        "a",
        "counted",
        server.client("count"),
        again,
    )
    .await;
    configure(
        &cluster,
        "Mutating",
        "b",
        "counted",
        server.client("count"),
        json!({}),
    )
    .await;
    let mut object = map("counted");
    object["data"] = json!({"count": "0"});
    let (code, body) = cluster.request(Method::POST, MAPS, object).await;
    assert_eq!(
        (code.as_u16(), &body["data"]["count"]),
        (201, &json!("3")),
        "{body}"
    );
}

#[tokio::test]
async fn a_response_that_is_too_large_fails_the_call() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    configure(
        &cluster,
        "Validating",
        "fail",
        "closed",
        server.client("big"),
        json!({}),
    )
    .await;
    let open = json!({"failurePolicy": "Ignore"});
    configure(
        &cluster,
        "Validating",
        "ignore",
        "open",
        server.client("big"),
        open,
    )
    .await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("closed")).await;
    assert_eq!(code, 500, "{body}");
    assert!(message(&body).contains("larger than 3145728 bytes"), "{body}");
    assert_eq!(cluster.request(Method::POST, MAPS, map("open")).await.0, 201);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    configure(
        &cluster,
        "Validating",
        "v",
        "redirected",
        server.client("redirect"),
        json!({}),
    )
    .await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("redirected")).await;
    assert_eq!(code, 500, "{body}");
    assert!(message(&body).contains("redirects are not followed"), "{body}");
    assert_eq!((server.calls("redirect"), server.calls("followed")), (1, 0));
}

/// Requires that the first webhook is called, and the second, whose certificate has another name, is not.
async fn accepts_for_its_names_only(server: &HookServer, elsewhere: &HookServer) {
    let cluster = cluster().await;
    let deny = server.client("deny");
    configure(&cluster, "Validating", "own", "trusted", deny, json!({})).await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("trusted")).await;
    let denied = "admission webhook \"own.example.com\" denied the request: no way";
    assert_eq!((code.as_u16(), message(&body)), (400, denied));
    let ok = elsewhere.client("ok");
    configure(&cluster, "Validating", "other", "misnamed", ok, json!({})).await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("misnamed")).await;
    assert_eq!(code, 500, "{body}");
    assert!(
        message(&body).contains("tls: failed to verify certificate"),
        "{body}"
    );
    assert_eq!(elsewhere.calls("ok"), 0);
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_accepted_for_its_names_only() {
    let authority = || rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let server = HookServer::with("127.0.0.1", authority()).await;
    let elsewhere = HookServer::with("127.0.0.9", authority()).await;
    accepts_for_its_names_only(&server, &elsewhere).await;
}

#[tokio::test]
async fn a_bundle_with_the_certificate_itself_and_not_its_authority_was_refused() {
    let server = HookServer::with_issued("127.0.0.1").await;
    let elsewhere = HookServer::with_issued("127.0.0.9").await;
    accepts_for_its_names_only(&server, &elsewhere).await;
}

#[tokio::test]
async fn a_slow_webhook_with_failure_policy_ignore_delays_a_write_only() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    let open = json!({"failurePolicy": "Ignore", "timeoutSeconds": 1});
    configure(
        &cluster,
        "Validating",
        "v",
        "delayed",
        server.client("slow"),
        open,
    )
    .await;
    assert_eq!(cluster.request(Method::POST, MAPS, map("delayed")).await.0, 201);
    assert_eq!(server.calls("slow"), 1);
}

#[tokio::test]
async fn a_service_is_called_at_its_endpoints() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": "adm"},
        "spec": {"clusterIP": "None", "ports": [{"port": 443, "targetPort": 8443}]}});
    let path = "/api/v1/namespaces/adm";
    assert_eq!(
        cluster
            .request(Method::POST, &format!("{path}/services"), service)
            .await
            .0,
        201
    );
    let client =
        json!({"caBundle": server.bundle, "service": {"name": "hook", "namespace": "adm", "path": "/deny"}});
    configure(&cluster, "Validating", "v", "denied", client, json!({})).await;
    let (_, body) = cluster.request(Method::POST, MAPS, map("denied")).await;
    assert!(
        message(&body).contains("no endpoints available for service \"hook\""),
        "{body}"
    );
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hook", "namespace": "adm"},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": server.port}]}]});
    assert_eq!(
        cluster
            .request(Method::POST, &format!("{path}/endpoints"), endpoints)
            .await
            .0,
        201
    );
    let (code, body) = cluster.request(Method::POST, MAPS, map("denied")).await;
    assert_eq!(
        (code.as_u16(), message(&body)),
        (
            400,
            "admission webhook \"v.example.com\" denied the request: no way"
        )
    );
}

#[tokio::test]
async fn a_review_has_the_fields_that_webhooks_read() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    configure(&cluster, "Mutating", "m", "shown", server.client("ok"), json!({})).await;
    let identity = mco_apiserver::Identity::admin();
    let service = cluster.server.service_as(identity);
    let path = format!("{MAPS}?dryRun=All&fieldManager=test");
    let (code, body) = request(service, Method::POST, &path, "application/json", &map("shown")).await;
    assert_eq!(code, 201, "{body}");
    let (_, mut review) = server.seen.lock().remove(0);
    let request = review["request"].as_object_mut().unwrap();
    let object = request.remove("object").unwrap();
    assert_eq!(
        (&object["kind"], &object["metadata"]["uid"]),
        (&json!("ConfigMap"), &Value::Null)
    );
    assert_eq!(request.remove("uid").unwrap().as_str().unwrap().len(), 36);
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let user = json!({"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]});
    let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "test"});
    assert_eq!(
        review,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": "shown",
            "namespace": "adm", "operation": "CREATE", "userInfo": user, "oldObject": null, "dryRun": true,
            "options": options}})
    );
}

#[tokio::test]
async fn webhooks_do_not_review_their_own_configurations() {
    let (server, cluster) = (HookServer::start().await, cluster().await);
    let rules =
        json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let everything = json!({"rules": rules, "matchConditions": []});
    configure(
        &cluster,
        "Validating",
        "v",
        "any",
        server.client("deny"),
        everything,
    )
    .await;
    assert_eq!(cluster.request(Method::POST, MAPS, map("any")).await.0, 400);
    let own = format!("{GROUP}/validatingwebhookconfigurations/validating-v");
    assert_eq!(cluster.request(Method::DELETE, &own, Value::Null).await.0, 200);
    assert_eq!(cluster.request(Method::POST, MAPS, map("any")).await.0, 201);
}
