//! The accept loop over real sockets: isolation, deadlines and drain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use mco_http::{
    ConnectionMetrics, ConnectionPeer, Http1Limits, Http2Limits, HttpProtocol, Listener, ListenerLimits,
    ListenerTransport, Overflow, ServeOptions, serve,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No exchange on the loopback interface takes this long.
const DEADLINE: Duration = Duration::from_mins(1);
const BOTH: [HttpProtocol; 2] = [
    HttpProtocol::Http1(Http1Limits {
        headers: None,
        header_bytes: None,
        buffer_bytes: None,
    }),
    HttpProtocol::Http1AndHttp2(Http2Limits {
        keep_alive: Duration::from_secs(30),
        streams: 100,
    }),
];

const LIMITS: ListenerLimits = ListenerLimits {
    connections: 16,
    overflow: Overflow::Wait,
    handshake: DEADLINE,
    headers: DEADLINE,
    stall: None,
    lifetime: None,
    drain: DEADLINE,
};

type TestBody = UnsyncBoxBody<Bytes, Infallible>;

struct TestServer {
    address: SocketAddr,
    metrics: ConnectionMetrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Lets requests for `/slow` finish.
    release: Arc<Notify>,
    /// Notified when a request for `/slow` has begun.
    begun: Arc<Notify>,
}

impl TestServer {
    async fn start(protocol: HttpProtocol, limits: ListenerLimits) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let options = ServeOptions::new(protocol, limits);
        let (metrics, stop) = (options.metrics.clone(), CancellationToken::new());
        let (release, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = (Arc::clone(&release), Arc::clone(&begun));
        let connect = move |_: &ConnectionPeer| {
            let slow = slow.clone();
            move |request| respond(request, slow.clone())
        };
        let listener = Listener {
            socket,
            transport: ListenerTransport::Plain,
        };
        let task = tokio::spawn(serve(listener, options, connect, stop.clone()));
        Self {
            address,
            metrics,
            stop,
            task,
            release,
            begun,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        within(self.task).await.unwrap();
    }
}

async fn respond(
    request: Request<Incoming>,
    (release, begun): (Arc<Notify>, Arc<Notify>),
) -> Response<TestBody> {
    match request.uri().path() {
        "/panic" => panic!("a request that panics"),
        "/panic-in-body" => {
            let frames = futures::stream::unfold(0, |step| async move {
                assert_eq!(step, 0, "a body that panics");
                let frame = Frame::data(Bytes::from_static(b"begun"));
                Some((Ok::<_, Infallible>(frame), step + 1))
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        "/slow" => {
            begun.notify_one();
            release.notified().await;
            Response::new(Full::new(Bytes::from_static(b"done")).boxed_unsync())
        }
        _ => Response::new(Full::new(Bytes::from_static(b"ok")).boxed_unsync()),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("in time")
}

async fn send(stream: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Reads one response of a connection that stays open, and returns its status and body.
async fn receive(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    loop {
        let read = within(stream.read_buf(&mut text)).await.unwrap();
        assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&text));
        let response = String::from_utf8(text.clone()).unwrap();
        let Some((head, body)) = response.split_once("\r\n\r\n") else {
            continue;
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == length.unwrap().parse::<usize>().unwrap() {
            return (status, body.to_owned());
        }
    }
}

async fn get(stream: &mut TcpStream, path: &str) -> (u16, String) {
    send(stream, path).await;
    receive(stream).await
}

#[tokio::test]
async fn a_panicking_request_ends_neither_the_process_nor_its_connection_nor_its_siblings() {
    for protocol in BOTH {
        let server = TestServer::start(protocol, LIMITS).await;
        let (mut sibling, mut client) = (server.connect().await, server.connect().await);
        send(&mut sibling, "/slow").await;
        within(server.begun.notified()).await;

        let (status, body) = get(&mut client, "/panic").await;
        assert_eq!((status, body.as_str()), (500, "internal error\n"));
        assert_eq!(server.metrics.panics.get(), 1);
        assert!(
            mco_telemetry::panics_of("http") > 0,
            "counted for its component as well"
        );
        assert_eq!(get(&mut client, "/").await, (200, "ok".to_owned()));
        server.release.notify_one();
        assert_eq!(receive(&mut sibling).await, (200, "done".to_owned()));
        server.end().await;
    }
}

#[tokio::test]
async fn a_panic_in_a_body_cuts_its_own_response_only() {
    for protocol in BOTH {
        let server = TestServer::start(protocol, LIMITS).await;
        let mut client = server.connect().await;
        send(&mut client, "/panic-in-body").await;
        let mut text = Vec::new();
        let _ = within(client.read_to_end(&mut text)).await;
        assert!(
            !text.ends_with(b"0\r\n\r\n"),
            "a cut response must not look complete"
        );
        assert_eq!(server.metrics.panics.get(), 1);
        assert_eq!(get(&mut server.connect().await, "/").await.0, 200);
        server.end().await;
    }
}

#[tokio::test]
async fn slow_headers_are_cut() {
    let limits = ListenerLimits {
        headers: Duration::from_millis(200),
        ..LIMITS
    };
    for protocol in BOTH {
        for sent in [
            "",
            "GE",
            "GET / HTTP/1.1\r\nHos",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let server = TestServer::start(protocol, limits).await;
            let mut client = server.connect().await;
            client.write_all(sent.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let _ = within(client.read_to_end(&mut rest)).await;
            assert!(!rest.starts_with(b"HTTP/1.1 2"), "{sent:?}");
            assert_eq!(get(&mut server.connect().await, "/").await.0, 200, "{sent:?}");
            server.end().await;
        }
    }
}

#[tokio::test]
async fn drain_waits_for_open_requests_and_not_for_idle_connections() {
    for protocol in BOTH {
        let server = TestServer::start(protocol, LIMITS).await;
        let (mut busy, mut idle) = (server.connect().await, server.connect().await);
        let _silent = server.connect().await;
        assert_eq!(get(&mut idle, "/").await.0, 200);
        send(&mut busy, "/slow").await;
        within(server.begun.notified()).await;

        server.stop.cancel();
        let mut rest = Vec::new();
        within(idle.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty(), "an idle connection is closed");
        assert!(!server.task.is_finished(), "a request is still open");
        server.release.notify_one();
        assert_eq!(receive(&mut busy).await, (200, "done".to_owned()));
        within(server.task).await.unwrap();
        assert!(
            TcpStream::connect(server.address).await.is_err(),
            "the socket is closed"
        );
    }
}

#[tokio::test]
async fn drain_ends_with_its_limit() {
    let limits = ListenerLimits {
        drain: Duration::from_millis(100),
        ..LIMITS
    };
    let server = TestServer::start(BOTH[0], limits).await;
    let mut client = server.connect().await;
    send(&mut client, "/slow").await;
    within(server.begun.notified()).await;
    let metrics = server.metrics.clone();
    server.end().await;
    let mut rest = Vec::new();
    let _ = within(client.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "the connection is closed without a response");
    assert_eq!(metrics.open.get(), 0);
}

#[tokio::test]
async fn a_connection_over_the_limit_is_refused() {
    let busy = || mco_http::text(StatusCode::SERVICE_UNAVAILABLE, "busy\n");
    let limits = ListenerLimits {
        connections: 1,
        overflow: Overflow::Refuse(busy),
        ..LIMITS
    };
    let server = TestServer::start(BOTH[0], limits).await;
    let mut first = server.connect().await;
    send(&mut first, "/slow").await;
    within(server.begun.notified()).await;
    let mut second = server.connect().await;
    assert_eq!(get(&mut second, "/").await, (503, "busy\n".to_owned()));
    let mut rest = Vec::new();
    within(second.read_to_end(&mut rest)).await.unwrap();
    server.release.notify_one();
    assert_eq!(receive(&mut first).await, (200, "done".to_owned()));
    assert_eq!(server.metrics.shed.get(), 1);
    server.end().await;
}
