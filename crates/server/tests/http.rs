//! The server over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Read as _;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mco_http::{ListenerLimits, ListenerTransport};
use mco_server::http::{DEFAULT_LIMITS, IgnitionApp, TokenGuard};
use mco_server::prepared::{PoolSources, Unavailable};
use mco_server::tokens::{PoolTokens, TokenRecord};
use support::{DEADLINE, Pair, Server, client, exchange, rendered_directory, tls, write_pool};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn every_answer_makes_a_booting_machine_do_the_right_thing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::plain(&rendered_directory(directory.path(), 100)).await;
    for (name, method, path, status) in [
        ("a pool", "GET", "/config/master", 200),
        ("a pool with a slash", "GET", "/config/master/", 200),
        ("a query", "GET", "/config/master?x=y", 200),
        ("a pool whose files may come", "GET", "/config/arbiter", 503),
        (
            "a pool that another server will serve",
            "GET",
            "/config/worker",
            500,
        ),
        ("no pool", "GET", "/config/", 404),
        ("no name that a pool can have", "GET", "/config/No%20Pool", 404),
        ("nothing", "GET", "/", 404),
        ("nothing, without a body", "HEAD", "/", 404),
        ("health", "GET", "/healthz", 200),
        ("health with a slash", "GET", "/healthz/", 404),
        ("writing a config", "POST", "/config/master", 405),
        ("writing health", "PUT", "/healthz", 405),
        ("writing anything", "DELETE", "/", 405),
    ] {
        let reply = server.request(method, path, &[]).await;
        assert_eq!(reply.status, status, "{name}");
        assert_eq!(
            reply.status == 200 && path.starts_with("/config"),
            reply.body.len() > 100,
            "{name}"
        );
        if matches!(status, 400 | 404 | 405 | 500) {
            assert_eq!(reply.header("content-length"), Some("0"), "{name}");
        }
    }
    let refused = server.get(
        "/config/worker",
        &[("Accept", "application/vnd.coreos.ignition+json;version=4.0.0")],
    );
    assert_eq!(refused.await.status, 400, "the version is judged before the pool");
}

#[tokio::test]
async fn before_anything_is_known_machines_are_told_to_ask_again() {
    let server = Server::start(IgnitionApp::default(), ListenerTransport::Plain, DEFAULT_LIMITS).await;
    for path in ["/config/worker", "/healthz"] {
        let reply = server.get(path, &[]).await;
        assert_eq!(reply.status, 503, "{path}");
        assert!(reply.header("retry-after").is_some(), "{path}");
    }
    server
        .app
        .store
        .publish(PoolSources::new(), Unavailable::NotYet("unknown".to_owned()));
    assert_eq!(
        server.get("/config/worker", &[]).await.status,
        503,
        "it may be created yet"
    );
    assert_eq!(server.get("/healthz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_pool_that_appears_later_is_served_then() {
    let base = tempfile::tempdir().unwrap();
    let directory = rendered_directory(base.path(), 100);
    let server = Server::plain(&directory).await;
    let following = tokio::spawn(directory.follow(server.app.clone()));
    assert_eq!(server.get("/config/arbiter", &[]).await.status, 503);
    write_pool(base.path(), "arbiter", 100);
    let appears = async {
        while server.get("/config/arbiter", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, appears)
        .await
        .expect("it is served in time");
    following.abort();
}

#[tokio::test]
async fn tags_and_encodings_belong_to_the_bytes_that_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::plain(&rendered_directory(directory.path(), 10_000)).await;
    let plain = server
        .get("/config/master", &[("Accept-Encoding", "identity")])
        .await;
    let packed = server
        .get("/config/master", &[("Accept-Encoding", "br, gzip;q=0.5")])
        .await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < plain.body.len() / 2);
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_end(&mut text)
        .unwrap();
    assert_eq!(text, plain.body);
    let refused = server
        .get("/config/master", &[("Accept-Encoding", "gzip;q=0")])
        .await;
    assert_eq!(refused.body, plain.body);

    let tag = plain.header("etag").unwrap();
    assert_ne!(Some(tag), packed.header("etag"));
    let again = server.get("/config/master", &[("If-None-Match", tag)]).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let changed = server
        .get("/config/master", &[("If-None-Match", "\"other\"")])
        .await;
    assert_eq!(changed.body, plain.body);
    assert_eq!(plain.header("vary"), Some("Accept, Accept-Encoding"));
}

#[tokio::test]
async fn a_token_is_needed_once_tokens_are_on() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("tokens.json");
    let now = Timestamp::now();
    let later = now + SignedDuration::from_hours(1);
    PoolTokens::add_to(&file, TokenRecord::new("master", "good", later), now).unwrap();
    PoolTokens::add_to(&file, TokenRecord::new("arbiter", "other", later), now).unwrap();
    let app = IgnitionApp::new(Some(TokenGuard::load(&file).unwrap()));
    app.store
        .publish(rendered_directory(base.path(), 100).read(), Unavailable::Refused);
    let server = Server::start(app, ListenerTransport::Plain, DEFAULT_LIMITS).await;
    let with = async |token: &str| {
        server
            .get("/config/master", &[("Authorization", token)])
            .await
            .status
    };
    assert_eq!(with("Bearer good").await, 200);
    assert_eq!(server.get("/config/master", &[]).await.status, 401);
    assert_eq!(with("Bearer wrong").await, 401);
    assert_eq!(with("Bearer other").await, 401, "a token of another pool");
    assert_eq!(server.get("/healthz", &[]).await.status, 200, "health needs none");

    for _ in 0..10 {
        with("Bearer guess").await;
    }
    assert_eq!(with("Bearer guess").await, 503, "further guesses are slowed down");
    assert_eq!(with("Bearer good").await, 200, "a valid token always passes");
}

#[tokio::test]
async fn a_replaced_certificate_is_used_by_new_connections_and_drops_none() {
    let base = tempfile::tempdir().unwrap();
    let (pair, first) = Pair::write(base.path());
    let (transport, certificates) = pair.acceptor();
    let app = IgnitionApp::default();
    app.store
        .publish(rendered_directory(base.path(), 100).read(), Unavailable::Refused);
    let server = Server::start(app, transport, DEFAULT_LIMITS).await;
    let open = tls(&client(&first, &[]), server.address).await.unwrap();

    let (_, second) = Pair::write(base.path());
    assert!(certificates.reload().unwrap());
    assert!(
        tls(&client(&first, &[]), server.address).await.is_err(),
        "the old one is gone"
    );
    let new = tls(&client(&second, &[]), server.address).await.unwrap();
    for (name, stream) in [("opened before", open), ("opened after", new)] {
        let reply = exchange(stream, "GET", "/config/master", &[]).await.unwrap();
        assert_eq!(reply.status, 200, "{name}");
    }
}

#[tokio::test]
async fn only_http_1_1_is_spoken() {
    let base = tempfile::tempdir().unwrap();
    let (pair, trusted) = Pair::write(base.path());
    let (transport, _) = pair.acceptor();
    let server = Server::start(IgnitionApp::default(), transport, DEFAULT_LIMITS).await;
    assert!(tls(&client(&trusted, &[b"h2"]), server.address).await.is_err());
    let stream = tls(&client(&trusted, &[b"h2", b"http/1.1"]), server.address)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn connections_over_the_limit_are_asked_to_retry() {
    let limits = ListenerLimits {
        // One client gets half of them.
        connections: 4,
        ..DEFAULT_LIMITS
    };
    let directory = tempfile::tempdir().unwrap();
    let app = IgnitionApp::default();
    // More than fits into the buffers of a socket.
    app.store.publish(
        rendered_directory(directory.path(), 12 << 20).read(),
        Unavailable::Refused,
    );
    let server = Server::start(app, ListenerTransport::Plain, limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        held.push(stream);
    }
    let reply = server.get("/config/master", &[]).await;
    assert_eq!(reply.status, 503);
    drop(held);
    let recovers = async {
        while server.get("/config/master", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, recovers)
        .await
        .expect("it serves again");
}

#[tokio::test]
async fn a_slow_or_malformed_client_is_disconnected() {
    let limits = ListenerLimits {
        headers: Duration::from_millis(200),
        handshake: Duration::from_millis(200),
        stall: Some(Duration::from_millis(200)),
        ..DEFAULT_LIMITS
    };
    let base = tempfile::tempdir().unwrap();
    let large = rendered_directory(base.path(), 6 << 20);
    let app = IgnitionApp::default();
    app.store.publish(large.read(), Unavailable::Refused);
    let server = Server::start(app, ListenerTransport::Plain, limits).await;
    let huge = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Large: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: b\r\n".repeat(500));
    for (name, bytes) in [
        ("silence", ""),
        ("half a request", "GET /config/master HTTP/1.1\r\nHos"),
        ("garbage", "\x16\x03\x01 this is no HTTP\r\n\r\n"),
        ("huge headers", huge.as_str()),
        ("many headers", many.as_str()),
        (
            "reading nothing",
            "GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n",
        ),
    ] {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // The receive buffer must be smaller than the response.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        // The server may have responded and closed already.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let ends = async {
            if name == "reading nothing" {
                // Once the response has begun, it is not read for ten times the stall limit.
                let _ = stream.read_exact(&mut [0; 1]).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        let answer = tokio::time::timeout(DEADLINE, ends)
            .await
            .unwrap_or_else(|_| panic!("{name}: not disconnected"));
        if name == "reading nothing" {
            assert!(answer.len() < 6 << 20, "{name}: {} bytes arrived", answer.len());
        } else {
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{name}");
        }
    }
    assert_eq!(server.get("/healthz", &[]).await.status, 200);
}

#[tokio::test]
async fn open_transfers_finish_after_a_stop() {
    let base = tempfile::tempdir().unwrap();
    let server = Server::plain(&rendered_directory(base.path(), 6 << 20)).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut begun = [0; 1000];
    slow.read_exact(&mut begun).await.unwrap();
    server.app.drain();
    server.stop.cancel();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() > 6 << 20, "the body is complete: {} bytes", rest.len());
    tokio::time::timeout(DEADLINE, server.task)
        .await
        .expect("it ends")
        .unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "the socket is closed"
    );
}
