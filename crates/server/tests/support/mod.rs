//! A server on a free port of the loopback interface, and a client that sends exactly the bytes of a test.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mco_http::tls::{ALPN_HTTP1, CertificateFiles, TlsPolicy};
use mco_http::{Listener, ListenerLimits, ListenerTransport};
use mco_server::http::{self, DEFAULT_LIMITS, IgnitionApp};
use mco_server::offline::DirectoryBackend;
use mco_server::prepared::Unavailable;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

/// No exchange on the loopback interface takes this long.
pub const DEADLINE: Duration = Duration::from_mins(1);

pub struct Server {
    pub address: SocketAddr,
    pub app: Arc<IgnitionApp>,
    pub stop: CancellationToken,
    pub task: JoinHandle<()>,
}

impl Server {
    pub async fn start(app: IgnitionApp, transport: ListenerTransport, limits: ListenerLimits) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let app = Arc::new(app);
        let stop = CancellationToken::new();
        let listener = Listener { socket, transport };
        let task = tokio::spawn(http::serve(listener, Arc::clone(&app), limits, stop.clone()));
        Self {
            address,
            app,
            stop,
            task,
        }
    }

    /// Serves a directory over plain HTTP.
    pub async fn plain(directory: &DirectoryBackend) -> Self {
        let app = IgnitionApp::default();
        app.store.publish(directory.read(), Unavailable::Refused);
        Self::start(app, ListenerTransport::Plain, DEFAULT_LIMITS).await
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.request("GET", path, headers).await
    }

    pub async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let stream = TcpStream::connect(self.address).await.unwrap();
        exchange(stream, method, path, headers).await.unwrap()
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Some(Self {
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// One request on its own connection.
pub async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Reply> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    let talk = async {
        stream.write_all(text.as_bytes()).await?;
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes).await;
        // Some peers close without a TLS close_notify after a complete response.
        match Reply::parse(&bytes) {
            Some(reply) => Ok(reply),
            None => read.and(Err(std::io::Error::other("no answer"))),
        }
    };
    tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| std::io::Error::other("no answer in time"))?
}

/// A certificate and key for localhost, in files.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    pub fn write(directory: &Path) -> (Self, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pair = Self {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        };
        std::fs::write(&pair.certificate, made.cert.pem()).unwrap();
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).unwrap();
        (pair, made.cert.der().clone())
    }

    pub fn acceptor(&self) -> (ListenerTransport, Arc<CertificateFiles>) {
        let certificates = CertificateFiles::load(&self.certificate, &self.key).unwrap();
        let policy = TlsPolicy::new("", &[]).unwrap();
        let config = policy
            .server_config(Arc::clone(&certificates), ALPN_HTTP1)
            .unwrap();
        (
            ListenerTransport::Tls(TlsAcceptor::from(Arc::new(config))),
            certificates,
        )
    }
}

/// A client that trusts one certificate.
pub fn client(trusted: &CertificateDer<'static>, protocols: &[&[u8]]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

pub async fn tls(
    connector: &TlsConnector,
    address: SocketAddr,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, stream).await
}

/// A directory as an offline render writes it, with one served pool of about `size` bytes of file contents.
pub fn rendered_directory(base: &Path, size: usize) -> DirectoryBackend {
    let write = |path: &str, value: &serde_json::Value| {
        let path = base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    write_pool(base, "master", size);
    write(
        "controller-config/machine-config-controller.yaml",
        &json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
            "metadata": {"name": "machine-config-controller"},
            "spec": {"kubeAPIServerServingCAData": "Y2E=", "rootCAData": ""}}),
    );
    std::fs::write(base.join("kubeconfig"), "a kubeconfig").unwrap();
    DirectoryBackend {
        base: base.to_owned(),
        kubeconfig: base.join("kubeconfig"),
        certificates: Vec::new(),
        pools: vec!["master".to_owned(), "arbiter".to_owned()],
    }
}

pub fn write_pool(base: &Path, pool: &str, size: usize) {
    let write = |path: &str, value: &serde_json::Value| {
        let path = base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    let name = format!("rendered-{pool}-1");
    write(
        &format!("machine-pools/{pool}.yaml"),
        &json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": pool}, "spec": {}, "status": {"configuration": {"name": name}}}),
    );
    write(
        &format!("machine-configs/{name}.yaml"),
        &json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/large", "mode": 420, "contents": {"source": format!("data:,{}", "x".repeat(size))}}]}}}}),
    );
}
