//! The program under the names of the reference implementation's programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Links as in the image, in a directory that is the whole PATH.
fn links() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["machine-config-daemon", "apiserver-watcher", "flock"] {
        symlink(env!("CARGO_BIN_EXE_mco"), directory.path().join(name)).unwrap();
    }
    directory
}

fn run(links: &Path, name: &str, arguments: &[&str]) -> Output {
    Command::new(links.join(name))
        .args(arguments)
        .env("PATH", links)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_first_boot_of_the_references_templates_found_no_such_program() {
    let links = links();
    let machine = tempfile::tempdir().unwrap();
    let root = format!("--root-mount={}", machine.path().display());
    let command = "firstboot-complete-machineconfig";
    let done = run(links.path(), "machine-config-daemon", &[command, &root, "--v=4"]);
    assert_eq!(
        text(&done.stdout),
        "nothing to complete: this is not a first boot\n",
        "{}",
        text(&done.stderr)
    );
    let file = "--machineconfig-file=/etc/mco/machineconfig-revert.json";
    let done = run(links.path(), "machine-config-daemon", &[command, &root, file]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let other = run(
        links.path(),
        "machine-config-daemon",
        &[command, &root, "--machineconfig-file=/etc/x"],
    );
    assert_eq!(other.status.code(), Some(2), "another file would be ignored");
    let version = run(links.path(), "machine-config-daemon", &["version"]);
    assert!(text(&version.stdout).starts_with(concat!("Client: ", env!("CARGO_PKG_VERSION"))));
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout while waiting for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_static_pod_of_the_references_templates_watches_the_api_server_with_a_lock() {
    let links = links();
    let machine = tempfile::tempdir().unwrap();
    let routes = machine.path().join("run/cloud-routes");
    fs::create_dir_all(&routes).unwrap();
    let lock = routes.join("apiserver-watcher.lock");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let url = format!("--health-check-url=http://127.0.0.1:{port}/readyz");
    let root = format!("--root-mount={}", machine.path().display());
    let lock_text = lock.display().to_string();
    let options = [
        "--verbose",
        "--exclusive",
        "--timeout=300",
        &lock_text,
        "apiserver-watcher",
        "run",
        &url,
        &root,
    ];
    let mut watcher = Command::new(links.path().join("flock"));
    let mut watcher = watcher
        .arg0("flock")
        .args(options)
        .env("PATH", links.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("a route", || routes.join("127.0.0.1.up").exists());
    // The process that replaced flock still holds the lock.
    let second = run(
        links.path(),
        "flock",
        &["--timeout=0", &lock_text, "apiserver-watcher", "version"],
    );
    assert!(
        text(&second.stderr).contains("another process holds the lock"),
        "{}",
        text(&second.stderr)
    );
    let id = watcher.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert!(watcher.wait().unwrap().success(), "SIGTERM ends it");
    assert!(routes.join("127.0.0.1.down").exists() && !routes.join("127.0.0.1.up").exists());
    let free = run(
        links.path(),
        "flock",
        &["--timeout=0", &lock_text, "apiserver-watcher", "version"],
    );
    assert!(free.status.success(), "{}", text(&free.stderr));
}
