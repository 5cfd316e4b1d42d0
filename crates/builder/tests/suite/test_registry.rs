//! The real `docker-registry` with TLS and credentials, where it is installed.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use mco_http::pki::{CertificateAuthority, CertificateRequest, CertificateUsage};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::eventually;

/// `builder:registry-password`, as htpasswd writes it.
const ACCOUNTS: &str = "builder:$2y$05$h9W3AODexziroLtGW7yeJe03vR2222opDJFlPniH1NuUZoplqYESC\n";
/// A name that only a proxy resolves.
pub const UNRESOLVABLE: &str = "registry.test";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub struct TestRegistry {
    pub address: SocketAddr,
    /// The certificate that has signed the registry's.
    pub authority: String,
    directory: tempfile::TempDir,
    process: Child,
}

impl TestRegistry {
    /// Starts a registry. `None`, with a note, where none is installed; in CI that is a failure.
    #[expect(clippy::print_stderr, reason = "a test that tests nothing says so")]
    pub async fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|directory| directory.join("docker-registry").is_file()) {
            let note = "docker-registry is not installed, so that nothing is tested against a registry";
            assert!(std::env::var_os("CI").is_none(), "{note}");
            eprintln!("note: {note}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let file = |name: &str| directory.path().join(name);
        let now = Timestamp::now();
        let authority = CertificateAuthority::create("test", now, 1.day()).unwrap();
        let hosts = ["127.0.0.1".to_owned(), UNRESOLVABLE.to_owned()];
        let request = CertificateRequest {
            common_name: None,
            organization: None,
            usage: CertificateUsage::Server { hosts: &hosts },
            lifetime: 1.day(),
        };
        let own = CertificateAuthority::load(&authority)
            .unwrap()
            .sign(&request, now)
            .unwrap();
        fs::write(file("tls.crt"), own.certificate).unwrap();
        fs::write(file("tls.key"), own.key).unwrap();
        fs::write(file("accounts"), ACCOUNTS).unwrap();
        let settings = json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": file("images")}, "delete": {"enabled": true}},
            "http": {
                "addr": address.to_string(),
                "tls": {"certificate": file("tls.crt"), "key": file("tls.key")},
            },
            "auth": {"htpasswd": {"realm": "test", "path": file("accounts")}},
        });
        fs::write(file("settings.yml"), settings.to_string()).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(file("settings.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the registry", async || TcpStream::connect(address).await.ok()).await;
        Some(Self {
            address,
            authority: authority.certificate,
            directory,
            process,
        })
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    fn repository(&self) -> PathBuf {
        self.directory
            .path()
            .join("images/docker/registry/v2/repositories/os/_manifests/revisions/sha256")
    }

    /// Stores an image without layers in the repository `os`, as a push leaves it on disk, and returns its digest.
    pub fn store(&self, name: &str) -> String {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "annotations": {"name": name}, "layers": [],
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json", "size": 2,
                "digest": format!("sha256:{}", "0".repeat(64)),
            },
        })
        .to_string();
        let hash = hex(&Sha256::digest(&manifest));
        let blob = self
            .directory
            .path()
            .join("images/docker/registry/v2/blobs/sha256");
        let blob = blob.join(&hash[..2]).join(&hash);
        fs::create_dir_all(&blob).unwrap();
        fs::write(blob.join("data"), &manifest).unwrap();
        let revision = self.repository().join(&hash);
        fs::create_dir_all(&revision).unwrap();
        fs::write(revision.join("link"), format!("sha256:{hash}")).unwrap();
        format!("sha256:{hash}")
    }

    pub fn has(&self, digest: &str) -> bool {
        let hash = digest.strip_prefix("sha256:").unwrap();
        self.repository().join(hash).join("link").exists()
    }

    pub fn remove(&self, digest: &str) {
        let hash = digest.strip_prefix("sha256:").unwrap();
        fs::remove_file(self.repository().join(hash).join("link")).unwrap();
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An HTTP proxy that connects every request to one address, whatever name it asks for, and demands credentials.
pub struct TestProxy {
    pub address: SocketAddr,
    /// Tunnels that were opened to the unresolvable name.
    pub tunnels: Arc<AtomicUsize>,
}

impl TestProxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tunnels = Arc::<AtomicUsize>::default();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            tunnels: Arc::clone(&tunnels),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(tunnel(client, target, Arc::clone(&tunnels)));
            }
        });
        proxy
    }
}

async fn tunnel(mut client: TcpStream, target: SocketAddr, tunnels: Arc<AtomicUsize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    // user:p@ss
    if !head.contains("Proxy-Authorization: Basic dXNlcjpwQHNz\r\n") {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let _ = client.write_all(refusal).await;
        return;
    }
    if head.starts_with(&format!("CONNECT {UNRESOLVABLE}:")) {
        tunnels.fetch_add(1, Ordering::SeqCst);
    }
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
