//! A data directory on a filesystem that is full, and later has space again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{eventually, request};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::{ApiServer, ApiServerOptions};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The directory of the small filesystem; set in the process that runs inside the mount namespace.
const MOUNT: &str = "MCO_TEST_SMALL_FILESYSTEM";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs the test below in a mount namespace with a small filesystem.
#[test]
fn a_full_disk_refused_all_writes_until_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=24m none \"$0\" || exit 99
        exec \"$1\" --ignored --exact on_a_small_filesystem --nocapture";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .env(MOUNT, directory.path())
        .output();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output {
        Ok(output) if output.status.success() => assert!(text(&output.stdout).contains("1 passed")),
        Ok(output) if output.status.code() == Some(99) || text(&output.stderr).starts_with("unshare:") => {
            eprintln!("skipped: mounting needs root: {}", text(&output.stderr));
        }
        Ok(output) => panic!("{}\n{}", text(&output.stdout), text(&output.stderr)),
        Err(error) => eprintln!("skipped: no unshare: {error}"),
    }
}

struct SmallDisk {
    server: ApiServer,
    ballast: PathBuf,
}

impl SmallDisk {
    async fn open(directory: &Path) -> ApiServer {
        ApiServer::open(&directory.join("data"), ApiServerOptions::default())
            .await
            .unwrap()
    }

    /// Uses up all space.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(&self.ballast).unwrap();
        let block = vec![0_u8; 64 << 10];
        while file.write_all(&block).is_ok() {}
    }

    async fn put(&self, name: &str, bytes: usize) -> (StatusCode, Value) {
        let object = json!({"metadata": {"name": name}, "data": {"x": "x".repeat(bytes)}});
        request(
            self.server.service(),
            Method::POST,
            CONFIG_MAPS,
            "application/json",
            &object,
        )
        .await
    }

    async fn names(&self) -> Vec<String> {
        let (status, list) = request(
            self.server.service(),
            Method::GET,
            CONFIG_MAPS,
            "application/json",
            &Value::Null,
        )
        .await;
        assert_eq!(status, StatusCode::OK, "reads are served");
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .filter(|name| name != "kube-root-ca.crt")
            .collect()
    }

    async fn health(&self, path: &str) -> (StatusCode, String) {
        let probe = Request::builder()
            .uri(path)
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = self.server.anonymous_service().oneshot(probe).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in a mount namespace"]
async fn on_a_small_filesystem() {
    let directory = PathBuf::from(std::env::var(MOUNT).expect("the directory of the filesystem"));
    let disk = SmallDisk {
        server: SmallDisk::open(&directory).await,
        ballast: directory.join("ballast"),
    };
    assert_eq!(disk.put("before", 10).await.0, StatusCode::CREATED);
    disk.fill();
    let mut acknowledged = vec!["before".to_owned()];
    let mut refused = Vec::new();
    // The file has some free pages of its own; after them the filesystem is needed.
    for at in 0..100 {
        let name = format!("n{at:02}");
        let start = Instant::now();
        let (status, body) = disk.put(&name, 500_000).await;
        if status == StatusCode::CREATED {
            acknowledged.push(name);
            continue;
        }
        assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{body}");
        assert_eq!(body["reason"], "InsufficientStorage");
        let message = body["message"].as_str().unwrap();
        let data = directory.join("data");
        assert!(message.contains(data.to_str().unwrap()), "{message}");
        assert!(message.contains("No space left on device"), "{message}");
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        refused.push(name);
        if refused.len() == 5 {
            break;
        }
    }
    assert_eq!(refused.len(), 5);
    let (status, report) = disk.health("/readyz").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        report.contains("[-]store failed: No space left on device"),
        "{report}"
    );
    assert_eq!(
        disk.health("/livez").await.0,
        StatusCode::OK,
        "a restart does not help"
    );
    assert_eq!(disk.names().await, acknowledged);

    std::fs::remove_file(&disk.ballast).unwrap();
    eventually("ready again", || async {
        disk.health("/readyz").await.0 == StatusCode::OK
    })
    .await;
    assert_eq!(disk.put("z", 500_000).await.0, StatusCode::CREATED);
    acknowledged.push("z".to_owned());
    assert_eq!(disk.names().await, acknowledged);

    disk.server.shutdown().await;
    let restarted = SmallDisk {
        server: SmallDisk::open(&directory).await,
        ballast: disk.ballast.clone(),
    };
    assert_eq!(restarted.names().await, acknowledged, "after a restart");
}
