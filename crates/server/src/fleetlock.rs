//! The FleetLock endpoint: agents that update the operating system of their node by themselves, such as Zincati, ask here
//! before they reboot it.
//!
//! Nothing is decided here. A request becomes an annotation of the Node, which the controller answers together with its
//! own updates, so that both share the budget of the pool.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use hyper::body::Body;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::annotations::{NODE_FILES_UPDATE, REBOOT_LOCK, REBOOT_REQUEST};
use mco_core::config::pools::{Membership, NodePools};
use mco_http::{
    ConnectionPeer, Http1Limits, HttpProtocol, Listener, ListenerLimits, ListenerTransport, Overflow,
    ServeOptions, TextResponse, read_body, text,
};
use mco_runtime::{FieldManager, patch};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

const MANAGER: FieldManager = FieldManager::new("machine-config-server-fleetlock");
/// The header that shows that a request is no accident.
const PROTOCOL_HEADER: &str = "fleet-lock-protocol";
/// The group that clients name unless they are configured otherwise. Every pool answers to it.
const DEFAULT_GROUP: &str = "default";
/// The application id from which Zincati derives its client id and the machine id.
const ZINCATI: [u8; 16] = 0xde35_106b_6ec2_4688_b63a_fdda_a156_679b_u128.to_be_bytes();
/// Requests are two short names.
const MAX_BODY: usize = 4096;
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client waits for the controller. Clients ask again by themselves.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The first pause between two reads of the Node. It doubles, because a request that is not granted at once usually waits
/// for another node.
const FIRST_POLL: Duration = Duration::from_millis(200);
const LONGEST_POLL: Duration = Duration::from_secs(2);
/// The maximum number of requests of each operation at a time. Every client may send them, and each takes several
/// requests to the API server.
const REQUESTS: usize = 32;
/// The nodes are listed at most this often for ids that are not known.
const RELIST: Duration = Duration::from_secs(10);

const LIMITS: ListenerLimits = ListenerLimits {
    connections: 256,
    overflow: Overflow::Wait,
    handshake: Duration::from_secs(10),
    headers: Duration::from_secs(15),
    stall: Some(Duration::from_secs(30)),
    lifetime: Some(Duration::from_mins(2)),
    drain: Duration::from_secs(10),
};

/// Why a request is not fulfilled, as the protocol reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    status: StatusCode,
    /// One of few.
    kind: &'static str,
    value: String,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, value: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            value: value.into(),
        }
    }

    fn cluster(attempt: &str, error: &kube::Error) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "cluster_unavailable",
            format!("cannot {attempt}: {error}"),
        )
    }
}

#[derive(Debug, Deserialize)]
struct LockRequest {
    client_params: ClientParams,
}

#[derive(Debug, Deserialize)]
struct ClientParams {
    id: String,
    group: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Reserve a slot, recursively.
    PreReboot,
    /// Release it, if it is held.
    SteadyState,
}

/// The endpoint and the names of the nodes by the ids that their agents may have.
struct FleetLock {
    client: Client,
    names: Mutex<(Option<Instant>, HashMap<String, String>)>,
    locking: Semaphore,
    /// Apart, so that waiting requests do not keep others from releasing what these wait for.
    unlocking: Semaphore,
}

/// Serves the endpoint until `stop`.
pub async fn serve(socket: tokio::net::TcpListener, client: Client, stop: CancellationToken) {
    let lock = Arc::new(FleetLock::new(client));
    let protocol = HttpProtocol::Http1(Http1Limits {
        headers: Some(64),
        header_bytes: Some(16 << 10),
        buffer_bytes: Some(32 << 10),
    });
    let options = ServeOptions {
        component: "fleetlock",
        ..ServeOptions::new(protocol, LIMITS)
    };
    let listener = Listener {
        socket,
        transport: ListenerTransport::Plain,
    };
    let connect = move |peer: &ConnectionPeer| {
        let (lock, client) = (Arc::clone(&lock), peer.address);
        move |request: Request<hyper::body::Incoming>| {
            let lock = Arc::clone(&lock);
            async move { lock.respond(request, client).await }
        }
    };
    mco_http::serve(listener, options, connect, stop).await;
}

impl FleetLock {
    fn new(client: Client) -> Self {
        Self {
            client,
            names: Mutex::default(),
            locking: Semaphore::new(REQUESTS),
            unlocking: Semaphore::new(REQUESTS),
        }
    }

    async fn respond<B>(&self, request: Request<B>, client: SocketAddr) -> TextResponse
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        match self.handle(request).await {
            Ok(node) => {
                info!(%client, node, "answered a request of FleetLock");
                text(StatusCode::OK, "")
            }
            Err(refusal) => {
                info!(%client, kind = refusal.kind, "refused a request of FleetLock: {}", refusal.value);
                let body = json!({"kind": refusal.kind, "value": refusal.value});
                let mut response = text(refusal.status, body.to_string());
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
        }
    }

    async fn handle<B>(&self, request: Request<B>) -> Result<String, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (operation, params) = read(request).await?;
        let slots = match operation {
            Operation::PreReboot => &self.locking,
            Operation::SteadyState => &self.unlocking,
        };
        let busy = |_| {
            let value = format!("{REQUESTS} requests are being answered; ask again later");
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", value)
        };
        let _slot = slots.try_acquire().map_err(busy)?;
        let node = self.find(&params.id).await?;
        let name = node.metadata.name.clone().unwrap_or_default();
        self.check_group(&node, &name, &params.group).await?;
        match operation {
            Operation::PreReboot => self.lock(&node, &name).await?,
            Operation::SteadyState => self.unlock(&node, &name).await?,
        }
        Ok(name)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Returns the Node of a client id: its name, its machine id, or what Zincati derives from that.
    async fn find(&self, id: &str) -> Result<Node, Refusal> {
        for _ in 0..2 {
            let Some(name) = self.name_of(id).await? else {
                break;
            };
            let node = self.nodes().get_opt(&name).await;
            let node = node.map_err(|error| Refusal::cluster("read the node", &error))?;
            if let Some(node) = node {
                return Ok(node);
            }
            // A machine whose Node was deleted may have come back under another name.
            self.names.lock().await.1.remove(id);
        }
        Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "unknown_client",
            format!("no node has the name or the machine id of client {id:?}"),
        ))
    }

    /// Returns the name of the node with an id. Lists the nodes again for an id that is not known, but not often.
    async fn name_of(&self, id: &str) -> Result<Option<String>, Refusal> {
        let mut names = self.names.lock().await;
        let is_old = names.0.is_none_or(|listed| listed.elapsed() >= RELIST);
        if !names.1.contains_key(id) && is_old {
            let nodes = self.nodes().list(&ListParams::default()).await;
            let nodes = nodes.map_err(|error| Refusal::cluster("list the nodes", &error))?;
            *names = (Some(Instant::now()), nodes.iter().flat_map(ids).collect());
        }
        Ok(names.1.get(id).cloned())
    }

    async fn check_group(&self, node: &Node, name: &str, group: &str) -> Result<(), Refusal> {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let pools = pools.list(&ListParams::default()).await;
        let pools = pools.map_err(|error| Refusal::cluster("list the pools", &error))?;
        let selectors = NodePools::new(pools.iter());
        let refused = |value: String| Err(Refusal::new(StatusCode::BAD_REQUEST, "unknown_group", value));
        match selectors.of_node(node.metadata.labels.as_ref()) {
            Membership::Member { pool, .. } if [pool, DEFAULT_GROUP].contains(&group) => Ok(()),
            Membership::Member { pool, .. } => refused(format!(
                "node {name} belongs to pool {pool}; set the group of its agent to {pool:?}"
            )),
            _ => refused(format!(
                "node {name} belongs to no pool, so no budget is known for it"
            )),
        }
    }

    /// Requests a slot and waits until the controller has granted it.
    async fn lock(&self, node: &Node, name: &str) -> Result<(), Refusal> {
        if annotation(node, NODE_FILES_UPDATE).is_some() {
            return Err(Refusal::new(
                StatusCode::CONFLICT,
                "failed_lock_semaphore_full",
                format!(
                    "node {name} may not be rebooted now: its daemon waits to write files, or writes them"
                ),
            ));
        }
        if annotation(node, REBOOT_LOCK).is_some() {
            return Ok(());
        }
        let now = Timestamp::now().to_string();
        self.annotate(name, &json!({REBOOT_REQUEST: now})).await?;
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let mut pause = FIRST_POLL;
        while Instant::now() < deadline {
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            if self.is_granted(name).await? {
                return Ok(());
            }
            pause = LONGEST_POLL.min(pause * 2);
        }
        // The controller must not grant what is not waited for any more.
        self.annotate(name, &json!({REBOOT_REQUEST: null})).await?;
        if self.is_granted(name).await? {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::CONFLICT,
            "failed_lock_semaphore_full",
            format!(
                "node {name} may not be rebooted now: the budget of its pool has no room, or its policy holds it"
            ),
        ))
    }

    async fn is_granted(&self, name: &str) -> Result<bool, Refusal> {
        let node = self.nodes().get(name).await;
        let node = node.map_err(|error| Refusal::cluster("read the node", &error))?;
        Ok(annotation(&node, REBOOT_LOCK).is_some())
    }

    async fn unlock(&self, node: &Node, name: &str) -> Result<(), Refusal> {
        if annotation(node, NODE_FILES_UPDATE).is_some() {
            // The daemon of the node holds it.
            return Ok(());
        }
        let held = [REBOOT_REQUEST, REBOOT_LOCK];
        if held.iter().all(|key| annotation(node, key).is_none()) {
            return Ok(());
        }
        self.annotate(name, &json!({REBOOT_REQUEST: null, REBOOT_LOCK: null}))
            .await
    }

    async fn annotate(&self, name: &str, annotations: &serde_json::Value) -> Result<(), Refusal> {
        let change = json!({"metadata": {"annotations": annotations}});
        let written = patch::merge(&self.nodes(), name, MANAGER, &change).await;
        written
            .map(drop)
            .map_err(|error| Refusal::cluster("annotate the node", &error))
    }
}

fn annotation<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

async fn read<B>(request: Request<B>) -> Result<(Operation, ClientParams), Refusal>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let operation = match request.uri().path() {
        "/v1/pre-reboot" => Operation::PreReboot,
        "/v1/steady-state" => Operation::SteadyState,
        path => {
            let value = format!("{path} is neither /v1/pre-reboot nor /v1/steady-state");
            return Err(Refusal::new(StatusCode::NOT_FOUND, "unknown_path", value));
        }
    };
    if request.method() != Method::POST {
        let value = "use POST";
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "wrong_method",
            value,
        ));
    }
    let header = request.headers().get(PROTOCOL_HEADER);
    if header.is_none_or(|value| value != "true") {
        let value = format!("the header {PROTOCOL_HEADER} is not \"true\"");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "missing_header", value));
    }
    let invalid = |value: String| Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", value);
    let body = read_body(request.into_body(), MAX_BODY, BODY_DEADLINE).await;
    let body = body.map_err(|error| invalid(error.to_string()))?;
    let request: LockRequest =
        serde_json::from_slice(&body).map_err(|error| invalid(format!("the body is invalid: {error}")))?;
    let params = request.client_params;
    let is_label = |character: char| character.is_ascii_alphanumeric() || ".-".contains(character);
    if params.id.is_empty() || params.group.is_empty() || !params.group.chars().all(is_label) {
        return Err(invalid(
            "id or group is empty or has invalid characters".to_owned(),
        ));
    }
    Ok((operation, params))
}

/// Returns every id by which an agent of the node may ask, each with the node's name.
fn ids(node: &Node) -> Vec<(String, String)> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let machine = info.map(|info| info.machine_id.replace('-', "").to_lowercase());
    let machine = machine.filter(|id| !id.is_empty());
    let derived = machine.as_deref().and_then(zincati_id);
    let ids = [Some(name.clone()), machine, derived];
    ids.into_iter().flatten().map(|id| (id, name.clone())).collect()
}

/// Derives the id of Zincati from a machine id, as systemd derives ids for applications: the HMAC-SHA256 of the
/// application id under the machine id, as a UUID of version 4.
fn zincati_id(machine_id: &str) -> Option<String> {
    if machine_id.len() != 32 {
        return None;
    }
    let machine = u128::from_str_radix(machine_id, 16).ok()?.to_be_bytes();
    let mut key = [0_u8; 64];
    key.iter_mut().zip(machine).for_each(|(byte, id)| *byte = id);
    let inner = Sha256::new()
        .chain_update(key.map(|byte| byte ^ 0x36))
        .chain_update(ZINCATI)
        .finalize();
    let outer = Sha256::new()
        .chain_update(key.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize();
    let start: [u8; 16] = outer.get(..16)?.try_into().ok()?;
    let version = 0x0000_0000_0000_f000_0000_0000_0000_0000_u128;
    let variant = 0x0000_0000_0000_0000_c000_0000_0000_0000_u128;
    let id = u128::from_be_bytes(start) & !version & !variant;
    let id = id | 0x0000_0000_0000_4000_8000_0000_0000_0000_u128;
    Some(format!("{id:032x}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex as SyncMutex;

    use futures::future::{join, join_all};
    use http_body_util::Full;
    use serde_json::Value;

    use super::*;

    const MACHINE: &str = "1c09ca98649c4c7abc779cd04c96812e";

    /// The Nodes of an API server whose writes nothing answers, and the requests that it got.
    #[derive(Clone, Default)]
    struct FakeApi {
        nodes: Arc<SyncMutex<BTreeMap<String, Value>>>,
        requests: Arc<SyncMutex<Vec<String>>>,
    }

    impl FakeApi {
        fn add(&self, name: &str, machine: &str) {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"node-role/worker": ""}},
                "status": {"nodeInfo": {"machineID": machine, "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
                    "operatingSystem": "", "osImage": "", "systemUUID": ""}},
            });
            self.nodes.lock().unwrap().insert(name.to_owned(), node);
        }

        fn respond<B>(&self, request: &Request<B>) -> ::http::Response<Full<Bytes>> {
            let path = request.uri().path();
            self.requests
                .lock()
                .unwrap()
                .push(format!("{} {path}", request.method()));
            let nodes = self.nodes.lock().unwrap();
            let found = if path.ends_with("/machineconfigpools") {
                let selector = json!({"matchLabels": {"node-role/worker": ""}});
                let pool = json!({"metadata": {"name": "worker"}, "spec": {"nodeSelector": selector}});
                Some(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [pool]}))
            } else if path.ends_with("/nodes") {
                let items: Vec<&Value> = nodes.values().collect();
                Some(json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}))
            } else {
                nodes.get(path.rsplit('/').next().unwrap()).cloned()
            };
            let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let status = if found.is_some() {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            };
            let body = found.unwrap_or(missing).to_string();
            ::http::Response::builder()
                .status(status)
                .body(Full::new(Bytes::from(body)))
                .unwrap()
        }

        fn fleet_lock(&self) -> FleetLock {
            let api = self.clone();
            let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                std::future::ready(Ok::<_, Infallible>(api.respond(&request)))
            });
            FleetLock::new(Client::new(service, "default"))
        }
    }

    async fn ask(lock: &FleetLock, operation: &str, id: &str) -> StatusCode {
        let body = json!({"client_params": {"id": id, "group": "worker"}}).to_string();
        let request = Request::post(format!("/v1/{operation}")).header(PROTOCOL_HEADER, "true");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        lock.handle(request)
            .await
            .map_or_else(|refusal| refusal.status, |_| StatusCode::OK)
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_came_back_under_another_name_was_unknown_until_a_restart() {
        let api = FakeApi::default();
        api.add("before", MACHINE);
        let lock = api.fleet_lock();
        assert_eq!(ask(&lock, "steady-state", MACHINE).await, StatusCode::OK);
        api.nodes.lock().unwrap().clear();
        api.add("after", MACHINE);
        assert_eq!(
            ask(&lock, "steady-state", MACHINE).await,
            StatusCode::NOT_FOUND,
            "the nodes were listed a moment ago"
        );
        tokio::time::advance(RELIST).await;
        assert_eq!(lock.find(MACHINE).await.unwrap().metadata.name.unwrap(), "after");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_any_client_kept_the_api_server_busy() {
        let api = FakeApi::default();
        api.add("worker-1", MACHINE);
        let lock = api.fleet_lock();
        let locks = join_all((0..REQUESTS + 8).map(|_| ask(&lock, "pre-reboot", "worker-1")));
        let (locks, unlocked) = join(locks, ask(&lock, "steady-state", "worker-1")).await;
        let count = |status| locks.iter().filter(|answer| **answer == status).count();
        assert_eq!(count(StatusCode::TOO_MANY_REQUESTS), 8, "{locks:?}");
        assert_eq!(count(StatusCode::CONFLICT), REQUESTS, "{locks:?}");
        assert_eq!(unlocked, StatusCode::OK, "a node may release its place meanwhile");
        assert_eq!(
            ask(&lock, "pre-reboot", "unknown").await,
            StatusCode::NOT_FOUND,
            "the slots are free again"
        );
        let requests = api.requests.lock().unwrap().len();
        assert!(requests < REQUESTS * 15, "{requests} requests to the API server");
    }

    #[test]
    fn ids_are_those_of_systemd_and_zincati() {
        assert_eq!(
            zincati_id("1c09ca98649c4c7abc779cd04c96812e").as_deref(),
            Some("978a225b3d7b40e9acd7ce9b62f68444")
        );
        assert_eq!(zincati_id("1c09"), None);
        assert_eq!(zincati_id("not hexadecimal, but 32 letters!"), None);
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "worker-1"},
            "status": {"nodeInfo": {"machineID": "1C09CA98-649c-4c7a-bc77-9cd04c96812e", "architecture": "",
                "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}},
        }))
        .unwrap();
        let ids: Vec<String> = ids(&node).into_iter().map(|(id, _)| id).collect();
        let expected = [
            "worker-1",
            "1c09ca98649c4c7abc779cd04c96812e",
            "978a225b3d7b40e9acd7ce9b62f68444",
        ];
        assert_eq!(ids, expected);
    }

    #[tokio::test]
    async fn requests_are_read_as_the_protocol_has_them() {
        let valid = r#"{"client_params": {"id": "a", "group": "worker"}}"#;
        for (name, method, path, header, body, expected) in [
            (
                "lock",
                "POST",
                "/v1/pre-reboot",
                "true",
                valid,
                Ok(Operation::PreReboot),
            ),
            (
                "unlock",
                "POST",
                "/v1/steady-state",
                "true",
                valid,
                Ok(Operation::SteadyState),
            ),
            (
                "no header",
                "POST",
                "/v1/pre-reboot",
                "",
                valid,
                Err("missing_header"),
            ),
            (
                "a redirection",
                "GET",
                "/v1/pre-reboot",
                "true",
                "",
                Err("wrong_method"),
            ),
            (
                "another path",
                "POST",
                "/v2/pre-reboot",
                "true",
                valid,
                Err("unknown_path"),
            ),
            (
                "no JSON",
                "POST",
                "/v1/pre-reboot",
                "true",
                "x",
                Err("invalid_request"),
            ),
            (
                "no id",
                "POST",
                "/v1/pre-reboot",
                "true",
                r#"{"client_params": {"id": "", "group": "worker"}}"#,
                Err("invalid_request"),
            ),
            (
                "a group that is no label",
                "POST",
                "/v1/pre-reboot",
                "true",
                r#"{"client_params": {"id": "a", "group": "a b"}}"#,
                Err("invalid_request"),
            ),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(PROTOCOL_HEADER, header);
            let request = request
                .body(Full::new(Bytes::from_static(body.as_bytes())))
                .unwrap();
            let read = read(request).await.map(|(operation, _)| operation);
            assert_eq!(read.map_err(|refusal| refusal.kind), expected, "{name}");
        }
    }
}
