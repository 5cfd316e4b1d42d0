//! Reboots by update agents that speak FleetLock, over HTTP.

use mco_simulator::Behaviour;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, file_config, target};

/// Sends a request and returns status and body.
async fn ask(address: &str, operation: &str, id: &str, group: &str) -> (u16, Value) {
    let body = json!({"client_params": {"id": id, "group": group}}).to_string();
    let request = format!(
        "POST /v1/{operation} HTTP/1.1\r\nHost: fleetlock\r\nfleet-lock-protocol: true\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn reboots_of_other_agents_share_the_budget_of_the_pool() {
    let cluster = Cluster::start(3, Behaviour::default()).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let serving = mco_server::fleetlock::serve(socket, cluster.client.clone(), stop.clone());
    let serving = tokio::spawn(serving);

    assert_eq!(
        ask(&address, "steady-state", "worker-0", "worker").await.0,
        200,
        "nothing is held"
    );
    assert_eq!(ask(&address, "pre-reboot", "worker-0", "worker").await.0, 200);
    assert_eq!(
        ask(&address, "pre-reboot", "worker-0", "default").await.0,
        200,
        "recursive"
    );
    let (status, refusal) = ask(&address, "pre-reboot", "worker-1", "worker").await;
    assert_eq!(
        (status, &refusal["kind"]),
        (409, &json!("failed_lock_semaphore_full")),
        "{refusal}"
    );
    let (status, refusal) = ask(&address, "pre-reboot", "worker-1", "master").await;
    assert_eq!(
        (status, &refusal["kind"]),
        (400, &json!("unknown_group")),
        "{refusal}"
    );
    let (status, refusal) = ask(&address, "pre-reboot", "stranger", "worker").await;
    assert_eq!(
        (status, &refusal["kind"]),
        (404, &json!("unknown_client")),
        "{refusal}"
    );

    // Our own update waits for the reboot of the other agent.
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    cluster.at_rest().await;
    for node in ["worker-0", "worker-1", "worker-2"] {
        let node = cluster.node(node).await;
        assert_eq!(Cluster::annotation(&node, "desiredConfig"), before);
    }
    assert_eq!(ask(&address, "steady-state", "worker-0", "worker").await.0, 200);
    cluster.updated("worker").await;
    assert_eq!(
        ask(&address, "pre-reboot", "worker-1", "worker").await.0,
        200,
        "there is room again"
    );
    stop.cancel();
    serving.await.unwrap();
}
