//! A machine joins a running `mco up` with one pasted command: one process each, connected only by TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use mco_api::MachineConfig;
use serde_json::{Value, json};

use support::{Killed, eventually};

/// An `mco up` without local nodes.
struct Up {
    process: support::Up,
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
}

fn mco(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn logged(mut command: Command, log: &Path) -> Killed {
    let log = fs::File::create(log).unwrap();
    Killed(
        command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap(),
    )
}

impl Up {
    fn start(scratch: &Path, listen: &str) -> Self {
        let options = ["--nodes", "none", "--listen", listen];
        let up = support::Up::start_with(&scratch.join("data"), &options);
        let (runtime, client) = up.client();
        Self {
            process: up,
            runtime,
            client,
        }
    }

    fn join_token(&self, options: &[&str]) -> Output {
        let mut command = mco(&["up", "--join-token"]);
        command
            .args(options)
            .arg("--data-dir")
            .arg(&self.process.data)
            .output()
            .unwrap()
    }

    /// Returns the arguments of the join command, with the token as an option instead of standard input.
    fn invitation(&self, options: &[&str]) -> Vec<String> {
        // Pools do not exist immediately after the start.
        let printed = eventually("a join token is made", || {
            let output = self.join_token(options);
            output.status.success().then_some(output)
        });
        let printed = String::from_utf8(printed.stdout).unwrap();
        let words: Vec<&str> = printed.split_whitespace().collect();
        assert_eq!(printed.lines().count(), 1, "one line to paste: {printed}");
        let [
            "echo",
            token,
            "|",
            "mco",
            "daemon",
            "join",
            "--server",
            server,
            "--ca-hash",
            hash,
            "--token-file",
            "-",
        ] = words[..]
        else {
            panic!("another command: {printed}");
        };
        [
            "daemon",
            "join",
            "--server",
            server,
            "--token",
            token,
            "--ca-hash",
            hash,
        ]
        .map(str::to_owned)
        .into()
    }

    fn pool(&self) -> Value {
        let output = self.process.mco(&["status", "worker", "-o", "json"]);
        let pools: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        pools[0].clone()
    }

    fn is_updated_with(&self, nodes: u64) -> Option<()> {
        let pool = self.pool();
        (pool["state"] == "Updated" && pool["total"] == nodes && pool["updated"] == nodes).then_some(())
    }

    fn node(&self, name: &str) -> Option<Node> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.runtime.block_on(nodes.get_opt(name)).unwrap()
    }

    fn create_config(&self) {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "50-chrony", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/chrony.conf", "mode": 420, "contents": {"source": "data:,pool%20ntp.example%0A"}}]}}},
        });
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let config = serde_json::from_value(config).unwrap();
        self.runtime
            .block_on(configs.create(&PostParams::default(), &config))
            .unwrap();
    }

    fn delete_config(&self) {
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        self.runtime
            .block_on(configs.delete("50-chrony", &DeleteParams::default()))
            .unwrap();
    }
}

fn join(invitation: &[String], root: &Path, options: &[&str]) -> Command {
    let mut command = mco(&[]);
    command.args(invitation).args(options).arg("--root").arg(root);
    command
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

#[test]
fn a_machine_joins_survives_a_kill_and_loses_its_access_with_its_node() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "127.0.0.1");
    let invitation = up.invitation(&[]);
    assert!(invitation.contains(&"--ca-hash".to_owned()), "{invitation:?}");
    let root = scratch.path().join("lab-7");

    // The directory has no host name, so the node is named after the directory.
    let joined = logged(join(&invitation, &root, &[]), &scratch.path().join("join.log"));
    eventually(
        "the pool counts the machine and the machine has its config",
        || up.is_updated_with(1),
    );
    let node = up.node("lab-7").unwrap();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    assert!(
        labels.contains_key("node-role.kubernetes.io/worker"),
        "{labels:?}"
    );
    assert!(is_ready(&node), "{node:?}");
    let leases: Api<Lease> = Api::namespaced(up.client.clone(), "kube-node-lease");
    up.runtime.block_on(leases.get("lab-7")).unwrap();
    let kubeconfig = root.join("etc/machine-config-daemon/kubeconfig");
    let mode = kubeconfig.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    up.create_config();
    let file = root.join("etc/chrony.conf");
    eventually("a MachineConfig reaches the machine", || {
        let found = fs::read_to_string(&file).unwrap_or_default();
        (found == "pool ntp.example\n").then_some(())
    });
    eventually("and the pool is updated", || up.is_updated_with(1));

    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", joined.0.id())).unwrap();
    assert!(arguments.contains("start"), "{arguments}");
    assert!(
        !arguments.contains(&invitation[5]),
        "every user of the machine reads the token: {arguments}"
    );

    // Killed immediately, and resumed without a token.
    drop(joined);
    up.delete_config();
    let mut start = mco(&["daemon", "start"]);
    start.arg("--root").arg(&root);
    let resumed = logged(start, &scratch.path().join("start.log"));
    eventually("the file goes with its MachineConfig", || {
        (!file.exists()).then_some(())
    });
    eventually("and the pool is updated again", || up.is_updated_with(1));
    drop(resumed);

    // Running the command again changes nothing, even after the token is revoked.
    let id = invitation[invitation.iter().position(|word| word == "--token").unwrap() + 1]
        .split('.')
        .next()
        .unwrap()
        .to_owned();
    let revoked = mco(&["up", "--revoke-join-token", &id])
        .arg("--data-dir")
        .arg(&up.process.data)
        .output()
        .unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    let credentials = fs::read(&kubeconfig).unwrap();
    let again = logged(join(&invitation, &root, &[]), &scratch.path().join("again.log"));
    eventually("it runs again", || {
        let text = fs::read_to_string(scratch.path().join("again.log")).unwrap();
        text.contains("running until Ctrl-C").then_some(())
    });
    assert_eq!(fs::read(&kubeconfig).unwrap(), credentials);
    drop(again);

    // Without its Node, the machine's credential is rejected.
    let nodes: Api<Node> = Api::all(up.client.clone());
    up.runtime
        .block_on(nodes.delete("lab-7", &DeleteParams::default()))
        .unwrap();
    let refused = join(&invitation, &root, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("join token not found"), "{text}");
    assert!(up.node("lab-7").is_none());
}

#[test]
fn a_machine_that_cannot_apply_its_first_config_reports_why() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "127.0.0.1");
    let root = scratch.path().join("lab-8");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/kubernetes"), "in the way\n").unwrap();
    let _joined = logged(
        join(&up.invitation(&[]), &root, &[]),
        &scratch.path().join("join.log"),
    );
    let annotation = |name: &str| {
        let annotations = up.node("lab-8")?.metadata.annotations?;
        annotations
            .get(&format!("machineconfiguration.openshift.io/{name}"))
            .cloned()
    };
    eventually("the node reports the failure", || {
        (annotation("state")? == "Degraded").then_some(())
    });
    let reason = annotation("reason").unwrap();
    assert!(reason.contains("/etc/kubernetes"), "{reason}");

    fs::remove_file(root.join("etc/kubernetes")).unwrap();
    eventually("it has its config when nothing is in the way", || {
        up.is_updated_with(1)
    });
    assert_eq!(annotation("state").as_deref(), Some("Done"));
    assert_eq!(annotation("reason").unwrap_or_default(), "");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one refusal after the other, against one mco up"
)]
fn a_rejected_join_reports_the_reason_and_the_remedy() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "0.0.0.0");
    let invitation = up.invitation(&[]);
    let root = scratch.path().join("lab-8");
    let refusal = |invitation: &[String], root: &Path, options: &[&str], expected: &[&str]| {
        let output = join(invitation, root, options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "one sentence: {text}");
        for part in expected {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    };
    let with = |option: &str, value: &str| -> Vec<String> {
        let mut changed = invitation.clone();
        let at = changed.iter().position(|word| word == option).unwrap();
        value.clone_into(&mut changed[at + 1]);
        changed
    };
    let value = |option: &str| -> String {
        let at = invitation.iter().position(|word| word == option).unwrap();
        invitation[at + 1].clone()
    };
    let token = value("--token");
    let (secret, authority) = token.rsplit_once('.').unwrap();
    let zeroes = format!("sha256:{}", "00".repeat(32));

    let wrong = with(
        "--token",
        &format!("{}x.{authority}", &secret[..secret.len() - 1]),
    );
    refusal(
        &wrong,
        &root,
        &[],
        &["join token not found", "mco up --join-token"],
    );
    refusal(
        &with("--token", "nonsense"),
        &root,
        &[],
        &["not a join token", "mco up --join-token"],
    );

    let short = up.invitation(&["--ttl", "1s"]);
    let made = Instant::now();
    eventually("the token expires", || {
        (made.elapsed() > Duration::from_secs(1)).then_some(())
    });
    refusal(
        &short,
        &scratch.path().join("late"),
        &[],
        &["expired at", "mco up --join-token"],
    );

    refusal(
        &with("--ca-hash", &zeroes),
        &root,
        &[],
        &["nothing was sent", "--ca-hash"],
    );
    let stranger: String = token.rsplit_once('.').unwrap().0.to_owned() + "." + &"A".repeat(43);
    let mut impostor = with("--token", &stranger);
    impostor.truncate(impostor.len() - 2);
    refusal(&impostor, &root, &[], &["is not the server", "nothing was sent"]);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = taken.local_addr().unwrap();
    drop(taken);
    let nowhere = with("--server", &format!("https://{free}"));
    refusal(&nowhere, &root, &[], &["cannot reach", "--listen 0.0.0.0"]);
    refusal(
        &with("--server", "lab"),
        &root,
        &[],
        &["is not a server address", "https://"],
    );

    let first = scratch.path().join("first");
    let name = ["--node-name", "lab-9"];
    let _joined = logged(join(&invitation, &first, &name), &scratch.path().join("join.log"));
    eventually("the first machine has the name", || up.node("lab-9"));
    refusal(
        &invitation,
        &root,
        &name,
        &[
            "a machine named lab-9 already exists",
            "--node-name",
            "kubectl delete node lab-9",
        ],
    );

    let output = up.join_token(&["--pool", "nosuch"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("there is no pool nosuch") && text.contains("mco status"),
        "{text}"
    );
    let nobody = mco(&["up", "--join-token", "--data-dir"])
        .arg(scratch.path().join("empty"))
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    let text = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        text.contains("no mco up runs on") && text.contains("--data-dir"),
        "{text}"
    );
    assert!(!scratch.path().join("empty").exists(), "asking makes nothing");
}

#[test]
fn a_token_is_read_from_standard_input_used_once_and_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "127.0.0.1");
    let mut arguments = up.invitation(&["--once", "--node-names", "lab-*"]);
    let token = arguments.remove(5);
    arguments[4] = "--token-file=-".to_owned();
    let piped = |name: &str| {
        let root = scratch.path().join(name);
        let mut command = join(&arguments, &root, &[]);
        let file = scratch.path().join("token");
        fs::write(&file, format!("{token}\n")).unwrap();
        command.stdin(fs::File::open(file).unwrap());
        command
    };
    let refused = piped("rack-1").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("lab-*") && text.contains("--node-name"), "{text}");
    let _joined = logged(piped("lab-1"), &scratch.path().join("join.log"));
    eventually("the machine is in", || up.node("lab-1"));
    let refused = piped("lab-2").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("used 1 of 1 times"), "{text}");

    let listed = mco(&["up", "--list-join-tokens", "--data-dir"])
        .arg(&up.process.data)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("1 of 1") && listed.contains("lab-*"), "{listed}");
    let log = fs::read_to_string(up.process.data.join("mco.log")).unwrap();
    assert!(log.contains("join rejected") && log.contains("rack-1"), "{log}");
}

#[test]
fn administrator_credentials_are_rotated_while_nodes_keep_their_access() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "127.0.0.1");
    let root = scratch.path().join("lab-1");
    let _joined = logged(
        join(&up.invitation(&[]), &root, &[]),
        &scratch.path().join("join.log"),
    );
    eventually("the machine is in", || up.node("lab-1").filter(is_ready));
    let copy = scratch.path().join("kubeconfig-copy");
    fs::copy(up.process.data.join("kubeconfig"), &copy).unwrap();
    let status = |kubeconfig: &Path| {
        let mut command = mco(&["status", "--kubeconfig"]);
        command.arg(kubeconfig).output().unwrap()
    };
    assert!(status(&copy).status.success());
    let rotated = mco(&["up", "--rotate", "--data-dir"])
        .arg(&up.process.data)
        .output()
        .unwrap();
    assert!(rotated.status.success(), "{rotated:?}");
    assert!(!status(&copy).status.success(), "the old credentials are invalid");
    let answer = status(&up.process.data.join("kubeconfig"));
    assert!(answer.status.success(), "{answer:?}");
    let nodes: Api<Node> = Api::all(up.client.clone());
    let rejected = up.runtime.block_on(nodes.get_opt("lab-1"));
    assert!(rejected.is_err(), "also on an open connection");

    let kubeconfig = root.join("etc/machine-config-daemon/kubeconfig");
    let own = up.runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .unwrap();
        let nodes: Api<Node> = Api::all(kube::Client::try_from(config).unwrap());
        nodes.get("lab-1").await
    });
    assert!(own.is_ok(), "{own:?}");
}

/// Other machines use another address than loopback, which the certificate has to contain.
#[test]
fn a_server_for_other_machines_is_reached_by_the_machines_own_address() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), "0.0.0.0");
    let invitation = up.invitation(&[]);
    let at = invitation.iter().position(|word| word == "--server").unwrap();
    let server = &invitation[at + 1];
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        assert!(!server.contains("127.0.0.1"), "{server}");
    }
    let _joined = logged(
        join(&invitation, &scratch.path().join("lab-10"), &[]),
        &scratch.path().join("join.log"),
    );
    eventually("the machine is in", || up.node("lab-10").filter(is_ready));
}
