//! `mco daemon` on a directory that simulates a machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest as _, Sha256};

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-motd
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - path: /etc/motd
        mode: 0644
        contents: {source: \"data:,managed%0A\"}
";

fn mco(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco"))
        .arg("daemon")
        .args(arguments)
        .arg("--root")
        .arg(root)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_is_applied_watched_over_and_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/motd"), "original\n").unwrap();
    let file = directory.path().join("50-motd.yaml");
    fs::write(&file, CONFIG).unwrap();
    let file = file.to_str().unwrap();

    let output = mco(&root, &["once-from", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("50-motd: applied, "),
        "{}",
        text(&output.stdout)
    );
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "managed\n");
    assert_eq!(
        text(&mco(&root, &["once-from", file]).stdout),
        "50-motd: nothing to do\n"
    );
    assert_eq!(text(&mco(&root, &["validate"]).stdout), "50-motd: no drift\n");
    let status = text(&mco(&root, &["status"]).stdout);
    assert!(
        status.contains("config:  50-motd\ndoing:   nothing; idle\nsystem:  simulated\n"),
        "{status}"
    );

    fs::write(root.join("etc/motd"), "edited by hand\n").unwrap();
    let output = mco(&root, &["validate"]);
    assert_eq!(output.status.code(), Some(3));
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("content mismatch for file \"/etc/motd\"\n  expected 8 bytes sha256:"),
        "{shown}"
    );
    assert!(!shown.contains("edited"), "contents must not be shown: {shown}");

    let empty = directory.path().join("empty.ign");
    fs::write(&empty, r#"{"ignition": {"version": "3.5.0"}}"#).unwrap();
    let output = mco(&root, &["once-from", empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "original\n");
}

#[test]
fn a_machine_that_never_had_a_config_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let output = mco(directory.path(), &["validate"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no configuration was ever applied"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_config_that_cannot_be_applied_says_why_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let file = directory.path().join("bad.ign");
    let body = r#"{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/x", "user": {"name": "ghost"}}]}}"#;
    fs::write(&file, body).unwrap();
    let output = mco(&root, &["once-from", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("bad was not applied: failed to retrieve UserID for username: ghost"),
        "{error}"
    );
    assert!(!root.join("etc/x").exists());
}

#[test]
fn a_first_boot_is_completed_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let output = mco(root, &["firstboot"]);
    assert_eq!(
        text(&output.stdout),
        "nothing to complete: this is not a first boot\n"
    );
    let file = root.join("etc/ignition-machine-config-encapsulated.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = r#"{"metadata": {"name": "rendered-worker-1"}, "spec": {"config": {"ignition": {"version": "3.2.0"}},
        "kernelArguments": ["nosmt"]}}"#;
    fs::write(&file, config).unwrap();
    let output = mco(root, &["firstboot", "--skip-reboot"]);
    assert_eq!(
        text(&output.stdout),
        "rendered-worker-1: in place; boot the machine to finish\n",
        "{}",
        text(&output.stderr)
    );
    assert!(!file.exists());
    let status = text(&mco(root, &["status"]).stdout);
    assert!(
        status.contains("waiting for a boot into rendered-worker-1: Completing firstboot provisioning to rendered-worker-1"),
        "{status}"
    );
}

#[test]
fn a_machine_that_ignition_provisioned_is_compared_with_what_it_was_installed_with() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("etc/machine-config-daemon")).unwrap();
    let config = r#"{"metadata": {"name": "rendered-worker-1"}, "spec": {"osImageURL": "registry.example/os@sha256:1", "config": {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/etc/a", "mode": 420, "contents": {"source": "data:,right"}}]}}}}"#;
    fs::write(root.join("etc/mcs-machine-config-content.json"), config).unwrap();
    fs::write(root.join("etc/machine-config-daemon/node-annotations.json"), "{}").unwrap();
    fs::write(root.join("etc/a"), "right").unwrap();
    assert_eq!(
        text(&mco(root, &["validate"]).stdout),
        "rendered-worker-1: no drift\n"
    );
    fs::write(root.join("etc/a"), "wrong").unwrap();
    assert_eq!(mco(root, &["validate"]).status.code(), Some(3));
}

/// Serves one document over https on the loopback interface. Returns its origin and its certificate as PEM.
fn serve(body: &'static str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or_default() == 0 {
                    break;
                }
                request.push(byte[0]);
            }
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.flush();
        }
    });
    (origin, certificate.pem())
}

#[test]
fn a_config_at_a_url_is_applied_only_with_its_hash() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let (origin, certificate) = serve(CONFIG);
    let authority = directory.path().join("ca.crt");
    fs::write(&authority, certificate).unwrap();
    let url = format!("{origin}/50-motd.yaml?token=secret");
    let digest = Sha256::digest(CONFIG)
        .iter()
        .fold(String::new(), |mut digest, byte| {
            write!(digest, "{byte:02x}").unwrap();
            digest
        });
    let good = format!("sha256-{digest}");
    let bad = format!("sha256-{}", "0".repeat(64));
    let trusting = ["--contents-ca", authority.to_str().unwrap()];
    let network = ["--contents-network", "127.0.0.0/8"];
    for (name, arguments, expected) in [
        (
            "no hash",
            vec![],
            "applied only if it has the hash that --hash names",
        ),
        (
            "another hash",
            [&["--hash", bad.as_str()][..], &trusting, &network].concat(),
            "/50-motd.yaml is not applied",
        ),
        (
            "a network that is not allowed",
            [&["--hash", good.as_str()][..], &trusting].concat(),
            "is a private address",
        ),
        (
            "a server that is not trusted",
            [&["--hash", good.as_str()][..], &network].concat(),
            "cannot be reached",
        ),
    ] {
        let output = mco(&root, &[&["once-from", url.as_str()][..], &arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{name}: {error}"
        );
        assert!(!root.join("etc/motd").exists(), "{name}");
    }
    let arguments = [
        &["once-from", url.as_str(), "--hash", &good][..],
        &trusting,
        &network,
    ]
    .concat();
    let output = mco(&root, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "managed\n");
}
