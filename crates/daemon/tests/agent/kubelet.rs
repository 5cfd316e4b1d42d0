//! Metrics of the kubelet health check.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mco_daemon::agent::{AgentOptions, KubeletCheck};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::observability::{free_address, get};
use crate::support::{config, file, files};
use crate::world::World;

const WELL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const UNWELL: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 9\r\n\r\n[-]syncer";
const NOTHING: &str = "";
const STRANGE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// The health endpoint of a fake kubelet.
struct Kubelet {
    address: SocketAddr,
    says: watch::Sender<&'static str>,
    connections: Arc<AtomicUsize>,
    questions: Arc<AtomicUsize>,
    listens: AbortHandle,
}

impl Kubelet {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (connections, questions) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (says, said) = watch::channel(WELL);
        let (connected, asked) = (Arc::clone(&connections), Arc::clone(&questions));
        let address = listener.local_addr().unwrap();
        let listens = tokio::spawn(async move {
            // Open connections are closed when the task set is dropped.
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connected.fetch_add(1, Ordering::Relaxed);
                open.spawn(answer(stream, said.clone(), Arc::clone(&asked)));
            }
        });
        Self {
            address,
            says,
            connections,
            questions,
            listens: listens.abort_handle(),
        }
    }

    fn check(&self) -> KubeletCheck {
        let endpoint = format!("http://{}/healthz", self.address);
        KubeletCheck {
            every: Duration::from_millis(5),
            ..KubeletCheck::new(endpoint.parse().unwrap())
        }
    }
}

async fn answer(mut stream: TcpStream, said: watch::Receiver<&'static str>, asked: Arc<AtomicUsize>) {
    let mut buffer = [0; 1024];
    let mut question = Vec::new();
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => question.extend_from_slice(&buffer[..length]),
        }
        if !question.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut question)).unwrap();
        assert!(text.starts_with("GET /healthz HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("host: 127.0.0.1:"), "{text}");
        asked.fetch_add(1, Ordering::Relaxed);
        let answer = *said.borrow();
        if answer == NOTHING {
            return;
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn state(address: SocketAddr) -> u32 {
    let metrics = get(address, "/metrics").await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("mcd_kubelet_state "));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_the_kubelet_are_counted_until_it_is_well_again() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    let kubelet = Kubelet::start().await;
    let metrics = free_address().await;
    world.start_daemon_with(AgentOptions {
        listen: Some(metrics),
        kubelet: Some(kubelet.check()),
        ..AgentOptions::default()
    });
    world.until_done(&first).await;
    world.until_idle().await;
    for complaint in [UNWELL, STRANGE, NOTHING] {
        kubelet.says.send_replace(complaint);
        world
            .eventually("three failures in a row", async |_: &World| {
                state(metrics).await >= 3
            })
            .await;
        kubelet.says.send_replace(WELL);
        world
            .eventually("a kubelet that is well", async |_: &World| {
                state(metrics).await == 0
            })
            .await;
    }
    let connections = kubelet.connections.load(Ordering::Relaxed);
    let asked = kubelet.questions.load(Ordering::Relaxed);
    world
        .eventually("more questions", async |_: &World| {
            kubelet.questions.load(Ordering::Relaxed) > asked + 5
        })
        .await;
    assert_eq!(
        kubelet.connections.load(Ordering::Relaxed),
        connections,
        "one connection is enough while the kubelet is well"
    );

    kubelet.listens.abort();
    world
        .eventually("failures without a kubelet", async |_: &World| {
            state(metrics).await >= 3
        })
        .await;
    // The kubelet's health does not affect the node's state.
    world.until_done(&first).await;
    world.stop_daemon().await;
}
