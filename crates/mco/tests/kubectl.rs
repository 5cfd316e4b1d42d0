//! What kubectl users expect of the command line, against a running cluster of simulated nodes: formats, waiting, applying,
//! tokens, impersonation, the log of requests, colours, completion, and the names under which kubectl runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

use support::{Up, eventually, text};

const RED: &str = "\u{1b}[1m\u{1b}[31m";

#[test]
fn kubectl_users_find_what_they_know() {
    let scratch = tempfile::tempdir().unwrap();
    let options = ["--simulate", "4", "--simulate-seconds", "0.2"];
    let up = Up::start_with(&scratch.path().join("data"), &options);
    eventually("every pool is updated", || {
        let output = up.mco(&["wait", "--all", "--timeout", "60s"]);
        output.status.success().then_some(())
    });

    formats_are_those_of_kubectl(&up);
    a_butane_config_is_applied(&up, scratch.path());
    a_wait_is_for_conditions_too(&up);
    a_restart_is_a_rollout(&up);
    requests_are_logged_without_bodies(&up);
    another_user_is_impersonated(&up);
    a_token_is_created_listed_and_revoked(&up);
    degraded_is_red_where_there_are_colours(&up);
    names_are_completed(&up, scratch.path());
    logs_of_a_daemon_need_its_pod(&up);
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn formats_are_those_of_kubectl(up: &Up) {
    let names = stdout(&up.mco(&["status", "-o", "name"]));
    let pool = |name: &str| format!("machineconfigpool.machineconfiguration.openshift.io/{name}\n");
    assert_eq!(names, pool("master") + &pool("worker"));
    let path = "jsonpath={range [*]}{.name}={.updated}/{.total} {end}";
    let counts = stdout(&up.mco(&["status", "-o", path]));
    assert!(
        counts.starts_with("master=") && counts.contains(" worker="),
        "{counts}"
    );
    let wide = stdout(&up.mco(&["status", "-o", "wide"]));
    assert!(
        wide.contains("NODE") && wide.contains("DESIRED") && wide.contains("MESSAGE"),
        "{wide}"
    );
    let history = stdout(&up.mco(&["rollout", "history", "worker", "-o", "name"]));
    assert!(
        history.starts_with("machineconfig.machineconfiguration.openshift.io/rendered-worker-"),
        "{history}"
    );
    let refused = up.mco(&["status", "-o", "table"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused).contains("wide|name|json|yaml|jsonpath=TEMPLATE"),
        "{}",
        text(&refused)
    );
}

fn a_butane_config_is_applied(up: &Up, scratch: &Path) {
    let file = scratch.join("50-worker-motd.bu");
    let config = "variant: fcos\nversion: 1.5.0\nmetadata:\n  labels:\n    machineconfiguration.openshift.io/role: worker\n\
                  storage:\n  files:\n    - path: /etc/motd\n      contents: {inline: hello}\n";
    fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap();
    let planned = up.mco(&["plan", "-f", file]);
    assert_eq!(planned.status.code(), Some(3), "{}", text(&planned));
    assert!(text(&planned).contains("+ file /etc/motd"), "{}", text(&planned));
    let dry = stdout(&up.mco(&[
        "apply",
        "-f",
        file,
        "--dry-run",
        "-o",
        "jsonpath={.metadata.name}",
    ]));
    assert_eq!(dry, "50-worker-motd");
    let applied = stdout(&up.mco(&["apply", "-f", file]));
    assert_eq!(
        applied,
        "machineconfig.machineconfiguration.openshift.io/50-worker-motd serverside-applied\n"
    );
    let status = up.mco(&["rollout", "status", "worker", "--timeout", "60s"]);
    assert!(stdout(&status).contains("nodes updated"), "{}", text(&status));
    // An invalid object beside a valid one: neither is applied.
    let bad = scratch.join("bad.bu");
    fs::write(
        &bad,
        config.replace("storage:", "boot_device:\n  layout: x86_64\nstorage:"),
    )
    .unwrap();
    let refused = up.mco(&["apply", "-f", file, "-f", bad.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused).contains("boot_device: takes effect at the first boot"),
        "{}",
        text(&refused)
    );
    assert!(
        !text(&refused).contains("serverside-applied"),
        "{}",
        text(&refused)
    );
}

fn a_wait_is_for_conditions_too(up: &Up) {
    let met = up.mco(&[
        "wait",
        "--all",
        "--for",
        "condition=Degraded=False",
        "--timeout",
        "60s",
    ]);
    let met = stdout(&met);
    assert!(met.contains("pool worker: Degraded=False"), "{met}");
    let late = up.mco(&["wait", "worker", "--for", "condition=Degraded", "--timeout", "1s"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(
        text(&late).contains("pool worker is not Degraded=True after 1s"),
        "{}",
        text(&late)
    );
    let unknown = up.mco(&["wait", "nothing", "--for", "condition=Updated"]);
    assert!(
        text(&unknown).contains("there is no pool nothing; there are: "),
        "{}",
        text(&unknown)
    );
}

fn a_restart_is_a_rollout(up: &Up) {
    let dry = up.mco(&["rollout", "restart", "worker", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(3), "{}", text(&dry));
    assert!(text(&dry).contains("cost: reboot"), "{}", text(&dry));
    let before = up.status("worker")["target"].clone();
    for _ in 0..2 {
        stdout(&up.mco(&["rollout", "restart", "worker", "--yes"]));
        stdout(&up.mco(&["rollout", "status", "worker", "--timeout", "60s"]));
    }
    assert_ne!(up.status("worker")["target"], before);
}

fn requests_are_logged_without_bodies(up: &Up) {
    let output = up.mco(&["status", "-v"]);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        log.contains("GET https://") && log.contains(" 200 OK in "),
        "{log}"
    );
    assert!(!log.contains("Authorization"), "{log}");
    let quiet = up.mco(&["status", "-v=2"]);
    assert!(quiet.stderr.is_empty(), "{}", text(&quiet));
}

fn another_user_is_impersonated(up: &Up) {
    let refused = up.mco(&["status", "--as", "somebody", "--request-timeout", "20s"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("somebody"), "{}", text(&refused));
}

fn a_token_is_created_listed_and_revoked(up: &Up) {
    let data = up.data.to_str().unwrap();
    let created = up.mco(&["token", "create", "--once", "--data-dir", data]);
    assert!(text(&created).contains("mco token revoke "), "{}", text(&created));
    let listed = stdout(&up.mco(&["token", "list", "-o", "jsonpath={[*].id}", "--data-dir", data]));
    assert_eq!(listed.len(), 8, "{listed}");
    let named = stdout(&up.mco(&["token", "list", "-o", "name", "--data-dir", data]));
    assert_eq!(named, format!("token/{listed}\n"));
    stdout(&up.mco(&["token", "revoke", &listed, "--data-dir", data]));
    assert_eq!(
        stdout(&up.mco(&["token", "list", "-o", "name", "--data-dir", data])),
        ""
    );
}

fn degraded_is_red_where_there_are_colours(up: &Up) {
    // An owner by name in one and by id in another: the pool cannot be rendered.
    for (name, user) in [("51-a", json!({"id": 1})), ("52-b", json!({"name": "x"}))] {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/owned", "user": user, "contents": {"source": "data:,a"}}]}}},
        });
        up.apply(&config).unwrap();
    }
    let status = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command
            .args(["status"])
            .env("KUBECONFIG", up.data.join("kubeconfig"));
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(variables.iter().copied());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let coloured = eventually("the pool is degraded", || {
        let shown = status(&[("CLICOLOR_FORCE", "1")]);
        shown.contains("Degraded").then_some(shown)
    });
    assert!(coloured.contains(&format!("{RED}Degraded")), "{coloured:?}");
    assert!(coloured.contains("\u{1b}[32mUpdated"), "{coloured:?}");
    for plain in [status(&[]), status(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])] {
        assert!(
            plain.contains("Degraded") && !plain.contains('\u{1b}'),
            "{plain:?}"
        );
    }
}

fn names_are_completed(up: &Up, scratch: &Path) {
    let kubeconfig = up.data.join("kubeconfig");
    let complete = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command.env("KUBECONFIG", &kubeconfig).env("COMPLETE", "bash");
        command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        command
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_IFS", "\n");
        stdout(&command.arg("--").args(words).output().unwrap())
    };
    assert_eq!(complete(&["mco", "wait", "wor"]).trim(), "worker");
    assert!(complete(&["mco", "node", ""]).lines().count() >= 4);
    assert!(complete(&["mco", "plan", "--delete", "50-"]).contains("50-worker-motd"));

    let as_program = |name: &str, arguments: &[&str]| {
        let link = scratch.join(name);
        if !link.exists() {
            symlink(env!("CARGO_BIN_EXE_mco"), &link).unwrap();
        }
        let output = Command::new(&link)
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .output();
        output.unwrap()
    };
    let for_kubectl = stdout(&as_program("kubectl_complete-mco", &["wait", "wor"]));
    assert_eq!(for_kubectl, "worker\n:4\n");
    let help = stdout(&as_program("kubectl-mco", &["wait", "--help"]));
    assert!(
        help.contains("Usage: kubectl mco wait") && help.contains("  kubectl mco wait --all"),
        "{help}"
    );
    let pools = stdout(&as_program("kubectl-mco", &["status", "-o", "name"]));
    assert!(pools.contains("/worker"), "{pools}");
}

fn logs_of_a_daemon_need_its_pod(up: &Up) {
    let node = up.status("worker")["nodes"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = up.mco(&["node", &node, "--logs"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("under mco up all daemons log to mco.log"),
        "{}",
        text(&output)
    );
}
