//! The whole system from one binary: plan, apply, roll out, cause drift, repair it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use support::{Up, eventually, text};

const CHRONY: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-worker-chrony
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
      - path: /etc/chrony.conf
        mode: 420
        contents:
          source: data:,pool%20ntp.example%20iburst%0A
";

#[test]
fn a_change_is_planned_rolled_out_guarded_and_reverted() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(&scratch.path().join("data"));
    up.wait("master");
    up.wait("worker");

    // The plan matches what happens.
    let manifest = scratch.path().join("50-worker-chrony.yaml");
    fs::write(&manifest, CHRONY).unwrap();
    let plan = up.mco(&["plan", "-f", manifest.to_str().unwrap(), "-o", "json"]);
    assert_eq!(plan.status.code(), Some(3), "{}", text(&plan));
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let forecast = |pool: &str| {
        let pools = plan["pools"].as_array().unwrap();
        pools.iter().find(|one| one["pool"] == pool).unwrap().clone()
    };
    assert_eq!(forecast("master")["old"], forecast("master")["new"]);
    let worker = forecast("worker");
    assert_eq!(worker["changes"]["files"][0]["path"], "/etc/chrony.conf");
    assert_eq!(
        worker["rollout"]["waves"],
        serde_json::json!([["worker-0"], ["worker-1"]]),
        "one at a time: {worker}"
    );

    up.create(CHRONY).unwrap();
    up.wait("worker");
    assert_eq!(up.status("worker")["target"], worker["new"]);
    for node in ["worker-0", "worker-1"] {
        let contents = fs::read_to_string(up.file(node, "etc/chrony.conf")).unwrap();
        assert_eq!(contents, "pool ntp.example iburst\n", "{node}");
    }
    assert!(!up.file("master-0", "etc/chrony.conf").exists());

    // An invalid object is rejected by admission, and so is the deletion of one in use.
    let bad = CHRONY
        .replace("50-worker-chrony", "51-bad")
        .replace("/etc/chrony", "etc/chrony");
    let refusal = up.create(&bad).unwrap_err();
    assert!(refusal.contains("path not absolute"), "{refusal}");
    let in_use = up.status("worker")["target"].as_str().unwrap().to_owned();
    let refusal = up.delete(&in_use).unwrap_err();
    assert!(refusal.contains("worker-0"), "{refusal}");

    // A managed file is edited by hand.
    let file = up.file("worker-1", "etc/chrony.conf");
    fs::write(&file, "pool evil.example\n").unwrap();
    eventually("the pool is degraded with a message", || {
        let status = up.status("worker");
        let problem = status["problem"].as_str().unwrap_or_default().to_owned();
        (status["state"] == "Degraded" && problem.contains("/etc/chrony.conf")).then_some(())
    });
    fs::write(&file, "pool ntp.example iburst\n").unwrap();
    up.wait("worker");

    // Killed at any moment, it resumes.
    drop(up);
    let up = Up::start(&scratch.path().join("data"));
    up.delete("50-worker-chrony").unwrap();
    up.wait("worker");
    for node in ["worker-0", "worker-1"] {
        assert!(!up.file(node, "etc/chrony.conf").exists(), "{node}");
    }
}

#[test]
fn simulated_machines_fail_as_asked_and_recover_when_they_are_sent_back() {
    let scratch = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let options = [
        "--metrics-listen",
        &metrics,
        "--simulate",
        "6",
        "--simulate-seconds",
        "0.1",
        "--simulate-failures",
        "worker-1",
    ];
    let up = Up::start_with(&scratch.path().join("data"), &options);
    up.wait("master");
    up.wait("worker");
    up.create(CHRONY).unwrap();
    let reported = "simulated failure: worker-1 cannot apply rendered-worker-";
    eventually("the pool is degraded with a message", || {
        let status = up.status("worker");
        let problem = status["problem"].as_str().unwrap_or_default().to_owned();
        (status["state"] == "Degraded" && problem.contains(reported)).then_some(())
    });
    eventually("the metrics of controllers and operator report it too", || {
        let reported = scrape(&metrics);
        assert_eq!(reported.matches("# EOF").count(), 1, "{reported}");
        let degraded = reported.contains("mco_degraded_machine_count{pool=\"worker\"} 1\n");
        (degraded && reported.contains("mco_operator_condition{")).then_some(())
    });
    up.delete("50-worker-chrony").unwrap();
    up.wait("worker");

    let alone = up.mco(&["up", "--simulate-failures", "5%"]);
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone));
    assert!(text(&alone).contains("--simulate <N>"), "{}", text(&alone));
}

/// Returns an address on which nothing listens.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
