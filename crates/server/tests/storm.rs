//! Many machines boot at once while other clients misbehave.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mco_http::ListenerLimits;
use mco_server::http::{DEFAULT_LIMITS, IgnitionApp};
use mco_server::prepared::Unavailable;
use support::{Pair, Server, client, exchange, rendered_directory, tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const GOOD: usize = 800;
const BAD: usize = 200;
const SIZE: usize = 100_000;
/// A small host does a few hundred handshakes per second; the clients share its processors.
const HANDSHAKES_AT_ONCE: usize = 64;

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// Misbehaves in one of several ways until the server closes the connection or the test ends.
async fn misbehave(kind: usize, connector: TlsConnector, address: std::net::SocketAddr) {
    let endless = vec![b'x'; 64 << 10];
    match kind % 5 {
        // Garbage instead of a handshake.
        0 => {
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let _ = stream.write_all(&endless).await;
                let _ = stream.read(&mut [0; 16]).await;
            }
        }
        // Half of a handshake.
        1 => {
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let _ = stream.write_all(&[0x16, 3, 1, 2, 0]).await;
                let _ = stream.read(&mut [0; 16]).await;
            }
        }
        // Headers, one byte at a time.
        2 => {
            if let Ok(mut stream) = tls(&connector, address).await {
                for byte in b"GET /config/master HTTP/1.1\r\nX: ".iter().cycle() {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Headers without end.
        3 => {
            if let Ok(mut stream) = tls(&connector, address).await {
                let _ = stream.write_all(b"GET /config/master HTTP/1.1\r\nX: ").await;
                while stream.write_all(&endless).await.is_ok() {}
            }
        }
        // A request whose response is not read.
        _ => {
            if let Ok(mut stream) = tls(&connector, address).await {
                let request = b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n";
                for _ in 0..100 {
                    if stream.write_all(request).await.is_err() {
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_machines_boot_at_once_although_some_clients_misbehave() {
    let base = tempfile::tempdir().unwrap();
    let (pair, trusted) = Pair::write(base.path());
    let (transport, _) = pair.acceptor();
    let app = IgnitionApp::default();
    app.store
        .publish(rendered_directory(base.path(), SIZE).read(), Unavailable::Refused);
    mco_http::raise_descriptor_limit();
    let limits = ListenerLimits {
        // All clients have one address here, which gets half of them.
        connections: 2 * DEFAULT_LIMITS.connections,
        headers: Duration::from_secs(20),
        handshake: Duration::from_mins(1),
        ..DEFAULT_LIMITS
    };
    let server = Server::start(app, transport, limits).await;
    let address = server.address;
    let connector = client(&trusted, &[]);
    let before = resident();

    let over = Arc::new(AtomicBool::new(false));
    let mut misbehaving = JoinSet::new();
    for kind in 0..BAD {
        let (connector, over) = (connector.clone(), Arc::clone(&over));
        misbehaving.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                misbehave(kind, connector.clone(), address).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }

    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_AT_ONCE));
    let all_connected = Arc::new(Barrier::new(GOOD));
    let mut machines = JoinSet::new();
    for _ in 0..GOOD {
        let (connector, handshakes) = (connector.clone(), Arc::clone(&handshakes));
        let all_connected = Arc::clone(&all_connected);
        machines.spawn(async move {
            let permit = handshakes.acquire().await.unwrap();
            let stream = tls(&connector, address).await;
            drop(permit);
            // A machine that failed to connect must not block the others.
            all_connected.wait().await;
            let accept = "application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1";
            let reply = exchange(stream?, "GET", "/config/master", &[("Accept", accept)]).await?;
            Ok::<_, std::io::Error>((reply.status, reply.body.len()))
        });
    }
    let mut failures = Vec::new();
    while let Some(result) = machines.join_next().await {
        match result.unwrap() {
            Ok((200, bytes)) if bytes > SIZE => {}
            other => failures.push(other),
        }
    }
    over.store(true, Ordering::Relaxed);
    misbehaving.abort_all();
    assert!(
        failures.is_empty(),
        "{} machines did not boot: {:?}",
        failures.len(),
        failures.first()
    );

    // Clients and server share this process: both ends of a thousand connections, and 800 whole documents.
    let grown = resident().saturating_sub(before);
    assert!(grown < 400 << 20, "memory grew by {} MB", grown >> 20);
    assert_eq!(server.get_over(&connector).await, 200, "it still serves");
}

impl Server {
    async fn get_over(&self, connector: &TlsConnector) -> u16 {
        let stream = tls(connector, self.address).await.unwrap();
        exchange(stream, "GET", "/config/master", &[])
            .await
            .unwrap()
            .status
    }
}
