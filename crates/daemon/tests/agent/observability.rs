//! Events, status, metrics and health endpoints of the daemon.

use std::net::SocketAddr;

use mco_daemon::agent::AgentOptions;
use mco_http::metrics::ScrapeAccess;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{config, config_with, file, files};
use crate::world::World;

pub async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Returns an unused address.
pub async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_serve_liveness_readiness_and_state() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    let address = free_address().await;
    world.start_daemon_with(AgentOptions {
        listen: Some(address),
        ..AgentOptions::default()
    });
    world.until_done(&first).await;
    world.until_idle().await;
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
    assert!(get(address, "/other").await.starts_with("HTTP/1.1 404 "));
    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.contains("mcd_state{state=\"Done\",reason=\"\"} "),
        "{metrics}"
    );
    world.write("/etc/a", "edited");
    world.until_failing("Degraded", "/etc/a").await;
    let metrics = get(address, "/metrics").await;
    assert!(metrics.contains("mcd_state{state=\"Degraded\""), "{metrics}");
    assert!(!metrics.contains("mcd_config_drift 0"), "{metrics}");
    world.stop_daemon().await;
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liveness_is_served_while_metrics_are_guarded_and_the_certificate_is_missing() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    let address = free_address().await;
    let (certificate, key) = (world.path("/not-yet/tls.crt"), world.path("/not-yet/tls.key"));
    world.start_daemon_with(AgentOptions {
        listen: Some(address),
        metrics_access: ScrapeAccess::with_files(&certificate, &key, world.client()).unwrap(),
        ..AgentOptions::default()
    });
    world.until_done(&first).await;
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = get(address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    let answer = get(address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(!answer.contains("mcd_"), "{answer}");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_and_events_report_every_step_of_an_update() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    world.publish_and_target(&second).await;
    world.until_waiting_for("drain-rendered-worker-2").await;
    let progress = world.progress().await;
    assert_eq!(progress["Updated"].0, "False");
    assert_eq!(
        progress["UpdatePrepared"],
        (
            "True".to_owned(),
            "Update Compatible. Post Cfg Actions: [reboot] Drain Required: true".to_owned()
        )
    );
    world.until_waiting_for_uncordon().await;
    let progress = world.progress().await;
    for (type_, status) in [
        ("UpdateExecuted", "True"),
        ("AppliedFilesAndOS", "True"),
        ("RebootedNode", "True"),
        ("Resumed", "True"),
    ] {
        assert_eq!(progress[type_].0, status, "{type_}");
    }
    world.until_done(&second).await;
    world
        .eventually("the update is over", async |world: &World| {
            world.progress().await["Updated"].0 == "True"
        })
        .await;
    // Events are written in the background, so the last one may arrive after the status.
    for reason in [
        "Cordon",
        "Drain",
        "Reboot",
        "Uncordon",
        "NodeDone",
        "ConfigDriftMonitorStarted",
    ] {
        world
            .eventually(&format!("an event {reason}"), async |world: &World| {
                world.event_reasons().await.contains(&reason.to_owned())
            })
            .await;
    }
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_os_change_and_a_start_during_an_update_are_reported() {
    let system = |image: u8, arguments: &[&str]| json!({"osImageURL": format!("registry.example/os@sha256:{image}"), "kernelArguments": arguments});
    let nothing = files(&[file("/etc/a", "1\n")]);
    let first = config_with("rendered-worker-1", &nothing, &system(1, &[]));
    let second = config_with("rendered-worker-2", &nothing, &system(2, &["nosmt"]));
    let third = config_with("rendered-worker-3", &nothing, &system(2, &[]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    assert_eq!(
        world.event_texts("BootResync").await,
        [""; 0],
        "the node is up to date"
    );
    world.stop_daemon().await;
    world.publish_and_target(&second).await;
    world.start_daemon();
    world.until_done(&second).await;
    let reported = async |world: &World, reason: &str, texts: &[&str]| {
        let what = format!("events {reason} are {texts:?}");
        world
            .eventually(&what, async |world: &World| {
                world.event_texts(reason).await == texts
            })
            .await;
    };
    for (reason, text) in [
        (
            "BootResync",
            "Booting node worker-1, currentConfig rendered-worker-1, desiredConfig rendered-worker-2",
        ),
        (
            "InClusterUpgrade",
            "Updating from oscontainer registry.example/os@sha256:2",
        ),
        ("OSUpdateStarted", "Upgrading OS; Changing kernel arguments"),
        (
            "OSUpgradeApplied",
            "OS upgrade applied; new MachineConfig (rendered-worker-2) has new OS image (registry.example/os@sha256:2)",
        ),
        ("OSUpdateStaged", "Changes to OS staged"),
    ] {
        reported(&world, reason, &[text]).await;
    }
    // Twice: when the new node applied its first config, and now.
    for (reason, text) in [
        ("AddSigtermProtection", "Adding SIGTERM protection"),
        ("RemoveSigtermProtection", "Removing SIGTERM protection"),
    ] {
        reported(&world, reason, &[text, text]).await;
    }
    world.publish_and_target(&third).await;
    world.until_done(&third).await;
    reported(
        &world,
        "OSUpgradeSkipped",
        &["OS upgrade skipped; new MachineConfig (rendered-worker-3) has same OS image (registry.example/os@sha256:2) as old MachineConfig (rendered-worker-2)"],
    )
    .await;
    reported(
        &world,
        "OSUpdateStarted",
        &[
            "Changing kernel arguments",
            "Upgrading OS; Changing kernel arguments",
        ],
    )
    .await;
    world.stop_daemon().await;
}
