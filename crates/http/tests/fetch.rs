//! Fetches from https servers on the loopback interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use mco_http::fetch::{FetchError, FetchSettings, Network, ProxySettings, fetch};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A name that only a proxy resolves: the proxy is not used for the loopback interface.
const UNRESOLVABLE: &str = "files.invalid";

struct Server {
    url: String,
    port: u16,
    certificate: CertificateDer<'static>,
}

/// Serves https on 127.0.0.1. `respond` gets the request and returns the raw response.
async fn serve(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
    serve_some(move |request| Some(respond(request))).await
}

/// The same; `None` never answers.
async fn serve_some(respond: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Server {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::IpAddress("127.0.0.1".parse().unwrap()),
        SanType::DnsName("localhost".try_into().unwrap()),
        SanType::DnsName(UNRESOLVABLE.try_into().unwrap()),
    ];
    let certificate = params.self_signed(&key).unwrap();
    let der = certificate.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![der.clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, respond) = (acceptor.clone(), Arc::clone(&respond));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else {
                        return;
                    };
                    request.push(byte);
                }
                match respond(&String::from_utf8_lossy(&request)) {
                    Some(response) => {
                        let _ = stream.write_all(response.as_bytes()).await;
                        let _ = stream.shutdown().await;
                    }
                    None => std::future::pending().await,
                }
            });
        }
    });
    Server {
        url: format!("https://127.0.0.1:{port}"),
        port,
        certificate: der,
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

fn settings(server: &Server) -> FetchSettings {
    FetchSettings {
        certificates: vec![server.certificate.to_vec()],
        proxy: ProxySettings::default(),
        allowed_networks: vec!["127.0.0.1/32".parse::<Network>().unwrap()],
        limit: 64,
        timeout: Duration::from_secs(20),
    }
}

async fn message(settings: &FetchSettings, url: &str) -> String {
    fetch(settings, url, &[]).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_document_is_fetched_with_its_headers() {
    let server = serve(|request| {
        assert!(request.contains("x-token: s3cr3t\r\n"), "{request}");
        assert!(request.starts_with("GET /motd?a=b HTTP/1.1\r\n"), "{request}");
        ok("hello")
    })
    .await;
    let headers = [("X-Token".to_owned(), "s3cr3t".to_owned())];
    let body = fetch(
        &settings(&server),
        &format!("{}/motd?a=b#part", server.url),
        &headers,
    )
    .await;
    assert_eq!(body.unwrap(), "hello");
}

#[tokio::test]
async fn private_addresses_are_not_connected_to_unless_allowed() {
    let server = serve(|_| ok("secret")).await;
    let none = FetchSettings {
        allowed_networks: Vec::new(),
        ..settings(&server)
    };
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
    ] {
        let error = fetch(&none, &format!("https://{host}:{}/", server.port), &[])
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                FetchError::PrivateAddress { .. } | FetchError::Resolve { .. }
            ),
            "{host}: {error}"
        );
    }
    let text = message(&none, "https://169.254.169.254/latest/meta-data").await;
    assert!(
        text.contains("private address") && text.contains("--contents-network"),
        "{text}"
    );
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    for (location, expected) in [
        ("https://127.0.0.2/secret", "private address"),
        ("https://169.254.169.254/", "private address"),
        ("//127.0.0.2/secret", "private address"),
        ("http://127.0.0.1/secret", "http is not fetched, only https is"),
        ("file:///etc/shadow", "the URL is not valid"),
    ] {
        let server = serve(move |_| redirect(location)).await;
        let text = message(&settings(&server), &server.url).await;
        assert!(text.contains(expected), "{location}: {text}");
    }
    let server = serve(|request| {
        if request.starts_with("GET /a/b ") {
            redirect("c")
        } else if request.starts_with("GET /a/c ") {
            redirect("/d")
        } else {
            assert!(request.starts_with("GET /d "), "{request}");
            ok("there")
        }
    })
    .await;
    let body = fetch(&settings(&server), &format!("{}/a/b", server.url), &[]).await;
    assert_eq!(body.unwrap(), "there");
    let server = serve(|_| redirect("/again")).await;
    assert!(
        message(&settings(&server), &server.url)
            .await
            .contains("redirects more than")
    );
}

#[tokio::test]
async fn headers_are_not_sent_to_another_server() {
    let other = serve(|request| {
        assert!(!request.contains("s3cr3t"), "{request}");
        ok("other")
    })
    .await;
    let location = format!("{}/x", other.url);
    let first = serve(move |request| {
        assert!(request.contains("s3cr3t"), "{request}");
        redirect(&location)
    })
    .await;
    let mut both = settings(&first);
    both.certificates.push(other.certificate.to_vec());
    let headers = [("Authorization".to_owned(), "s3cr3t".to_owned())];
    assert_eq!(fetch(&both, &first.url, &headers).await.unwrap(), "other");
}

#[tokio::test]
async fn size_and_time_are_limited_and_errors_are_reported() {
    let large = "x".repeat(65);
    let server = serve_some(move |request| match request.split(' ').nth(1).unwrap() {
        "/large" => Some(ok(&large)),
        "/endless" => Some(format!("HTTP/1.1 200 OK\r\n\r\n{large}")),
        "/missing" => Some("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()),
        _ => None,
    })
    .await;
    let settings = settings(&server);
    for path in ["/large", "/endless"] {
        let text = message(&settings, &format!("{}{path}", server.url)).await;
        assert_eq!(text, "the contents are larger than 64 bytes", "{path}");
    }
    let text = message(&settings, &format!("{}/missing", server.url)).await;
    assert_eq!(text, "127.0.0.1 answered 404");
    let hasty = FetchSettings {
        timeout: Duration::from_millis(300),
        ..settings.clone()
    };
    let text = message(&hasty, &format!("{}/slow", server.url)).await;
    assert!(text.starts_with("there was no complete answer within"), "{text}");
    let stranger = FetchSettings {
        certificates: Vec::new(),
        ..settings.clone()
    };
    let text = message(&stranger, &server.url).await;
    assert!(
        text.contains("certificate") || text.contains("UnknownIssuer"),
        "{text}"
    );
    for (url, expected) in [
        ("http://127.0.0.1/", "http is not fetched, only https is"),
        ("https://a@127.0.0.1/", "the URL is not valid"),
        ("/etc/passwd", "the URL is not valid"),
    ] {
        assert_eq!(message(&settings, url).await, expected, "{url}");
    }
}

#[tokio::test]
async fn a_proxy_is_used_and_its_password_is_not_reported() {
    let server = serve(|_| ok("contents")).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let target = server.port;
    tokio::spawn(async move {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(
            head.starts_with(&format!("CONNECT {UNRESOLVABLE}:{target} ")),
            "{head}"
        );
        assert!(head.contains("Proxy-Authorization: Basic bWU6czNjcjN0"), "{head}");
        let mut upstream = tokio::net::TcpStream::connect(("127.0.0.1", target))
            .await
            .unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
    });
    let through = FetchSettings {
        proxy: ProxySettings {
            https_proxy: format!("http://me:s3cr3t@{address}"),
            no_proxy: String::new(),
        },
        ..settings(&server)
    };
    let url = format!("https://{UNRESOLVABLE}:{}", server.port);
    assert_eq!(fetch(&through, &url, &[]).await.unwrap(), "contents");
    let broken = FetchSettings {
        proxy: ProxySettings {
            https_proxy: "http://me:s3cr3t@127.0.0.1:1".to_owned(),
            no_proxy: String::new(),
        },
        ..settings(&server)
    };
    let text = message(&broken, &url).await;
    assert!(text.contains("the proxy 127.0.0.1:1 cannot be reached"), "{text}");
    assert!(!text.contains("s3cr3t"), "{text}");
    // The loopback interface is this machine's and not the proxy's.
    let body = fetch(&broken, &server.url, &[]).await;
    assert_eq!(body.unwrap(), "contents");
    let none = FetchSettings {
        allowed_networks: Vec::new(),
        ..broken
    };
    let text = message(&none, &server.url).await;
    assert!(text.contains("private address"), "{text}");
}
