//! The target load of the embedded control plane: every node of a large fleet patched once while many clients watch.
//!
//! Prints figures without limits. `cargo bench -p mco-apiserver --bench load`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks to the person who runs it"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::{ApiServer, ApiServerOptions, ApiService};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const NODES: usize = 5000;
const WATCHERS: usize = 200;
/// Concurrent patches: a controller at full speed and some daemons.
const AT_ONCE: usize = 64;
const LISTS: u32 = 20;
const MARK: &[u8] = b"\"bench-index\":\"";

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let service = server.service();

    let started = Instant::now();
    let creations = futures::stream::iter(0..NODES).map(|index| {
        send(
            service.clone(),
            Method::POST,
            "/api/v1/nodes".to_owned(),
            node(index),
        )
    });
    creations
        .buffer_unordered(AT_ONCE)
        .for_each(|_| std::future::ready(()))
        .await;
    report("create", NODES, started.elapsed());
    println!(
        "memory with {NODES} nodes of {} bytes: {} MB",
        node(0).to_string().len(),
        resident_megabytes()
    );

    list(&service).await;
    patch_while_watching(&server, &service).await;
    server.shutdown().await;
}

async fn list(service: &ApiService) {
    let mut best = Duration::MAX;
    let started = Instant::now();
    for _ in 0..LISTS {
        let one = Instant::now();
        let bytes = send(
            service.clone(),
            Method::GET,
            "/api/v1/nodes".to_owned(),
            Value::Null,
        )
        .await;
        best = best.min(one.elapsed());
        assert!(bytes.len() > NODES);
    }
    println!(
        "list of {NODES} nodes: {:?} on average, {best:?} at best (budget: under 100 ms)",
        started.elapsed() / LISTS
    );
}

async fn patch_while_watching(server: &ApiServer, service: &ApiService) {
    let revision = server.registry().store.revision();
    let sent: Arc<Vec<Mutex<Option<Instant>>>> = Arc::new((0..NODES).map(|_| Mutex::new(None)).collect());
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| tokio::spawn(watch(service.clone(), revision, Arc::clone(&sent))))
        .collect();
    let started = Instant::now();
    let patches = futures::stream::iter(0..NODES).map(|index| {
        let (service, sent) = (service.clone(), Arc::clone(&sent));
        async move {
            let began = Instant::now();
            *sent[index].lock() = Some(began);
            let patch = json!({"metadata": {"annotations": {"bench-index": index.to_string()}}});
            send(
                service,
                Method::PATCH,
                format!("/api/v1/nodes/node-{index:05}"),
                patch,
            )
            .await;
            began.elapsed()
        }
    });
    let mut answers: Vec<Duration> = patches.buffer_unordered(AT_ONCE).collect().await;
    report("patch", NODES, started.elapsed());
    let mut delays: Vec<Duration> = Vec::new();
    for watcher in watchers {
        delays.extend(watcher.await.unwrap());
    }
    let elapsed = started.elapsed();
    report("events delivered", delays.len(), elapsed);
    println!("answer to a patch: {}", percentiles(&mut answers));
    println!("patch sent to event seen: {}", percentiles(&mut delays));
    println!("memory at the end: {} MB", resident_megabytes());
}

async fn watch(service: ApiService, revision: u64, sent: Arc<Vec<Mutex<Option<Instant>>>>) -> Vec<Duration> {
    let request = Request::builder()
        .uri(format!("/api/v1/nodes?watch=true&resourceVersion={revision}"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut body = service.oneshot(request).await.unwrap().into_body();
    let mut delays = Vec::with_capacity(NODES);
    while delays.len() < NODES {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let at = frame
            .windows(MARK.len())
            .position(|window| window == MARK)
            .unwrap()
            + MARK.len();
        let end = at + frame[at..].iter().position(|byte| *byte == b'"').unwrap();
        let index: usize = std::str::from_utf8(&frame[at..end]).unwrap().parse().unwrap();
        let began = sent[index].lock().unwrap();
        delays.push(began.elapsed());
    }
    delays
}

async fn send(service: ApiService, method: Method, path: String, body: Value) -> Bytes {
    let content_type = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
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
    let response = service.oneshot(request).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Returns a node of realistic size: conditions, addresses and images.
fn node(index: usize) -> Value {
    let image = |number: usize| {
        let names = [
            format!("registry.example.com/project/component-{number}@sha256:{number:064}"),
            format!("registry.example.com/project/component-{number}:v1.2.3"),
        ];
        json!({"names": names, "sizeBytes": 123_456_789})
    };
    let condition = |kind: &str| {
        json!({"type": kind, "status": "False", "reason": "KubeletHasSufficient", "message": "kubelet has sufficient resources available",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("node-{index:05}"), "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/arch": "amd64"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "node"}],
            "conditions": conditions,
            "images": (0..30).map(image).collect::<Vec<_>>(),
        },
    })
}

fn report(what: &str, count: usize, elapsed: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = count as f64 / elapsed.as_secs_f64();
    println!("{what}: {count} in {elapsed:?}, {rate:.0} per second");
}

fn percentiles(values: &mut [Duration]) -> String {
    values.sort_unstable();
    let at = |share: usize| values[(values.len() - 1) * share / 100];
    format!("p50 {:?}, p99 {:?}, most {:?}", at(50), at(99), at(100))
}

fn resident_megabytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096 / (1 << 20)
}
