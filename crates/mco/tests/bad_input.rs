//! What goes wrong most often is told in one sentence, with a way out, and ends with exit code 1.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use support::{Up, eventually, text};

/// A mistake, and the words that must be in the answer: what is wrong, and the way out.
struct Case<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    kubeconfig: &'a Path,
    says: [&'a str; 2],
}

fn mco(case: &Case<'_>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(&case.arguments)
        .env("KUBECONFIG", case.kubeconfig)
        .output()
        .unwrap()
}

fn check(case: &Case<'_>) {
    let output = mco(case);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{}: {said}", case.name);
    assert!(said.starts_with("error: "), "{}: {said}", case.name);
    assert_eq!(said.lines().count(), 1, "{}: one sentence: {said}", case.name);
    for words in case.says {
        assert!(said.contains(words), "{}: {words:?} is not in: {said}", case.name);
    }
}

fn kubeconfig(path: &Path, server: &str, authority: &str, token: &str) {
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "only",
        "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "only", "context": {"cluster": "it", "user": "me"}}],
    });
    fs::write(path, text.to_string()).unwrap();
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn mistakes_without_a_cluster() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let ca = path("ca.crt");
    fs::write(&ca, include_str!("data/ca.crt")).unwrap();
    let (missing, broken, nobody) = (path("missing"), path("broken"), path("nobody"));
    fs::write(&broken, "clusters: [").unwrap();
    kubeconfig(
        &nobody,
        &format!("https://127.0.0.1:{closed}"),
        ca.to_str().unwrap(),
        "x",
    );
    let corrupt = path("corrupt");
    fs::create_dir(&corrupt).unwrap();
    fs::write(corrupt.join("store.redb"), "not a store").unwrap();
    let file = path("file");
    fs::write(&file, "").unwrap();
    let below_file = file.join("data");
    let fresh = path("data");
    let (corrupt, below_file, fresh) = (
        corrupt.to_str().unwrap(),
        below_file.to_str().unwrap(),
        fresh.to_str().unwrap(),
    );
    let out = path("no/such/directory.tar.gz");
    let cases = [
        Case {
            name: "a kubeconfig that is not there",
            arguments: vec!["status"],
            kubeconfig: &missing,
            says: ["cannot use $KUBECONFIG", "choose one with --kubeconfig"],
        },
        Case {
            name: "a kubeconfig that is none",
            arguments: vec!["plan", "--delete", "x"],
            kubeconfig: &broken,
            says: ["cannot use $KUBECONFIG", "choose one with --kubeconfig"],
        },
        Case {
            name: "a context that is not there",
            arguments: vec!["node", "worker-0", "--context", "other"],
            kubeconfig: &nobody,
            says: ["other", "choose one with --kubeconfig"],
        },
        Case {
            name: "a server that is not there",
            arguments: vec!["status"],
            kubeconfig: &nobody,
            says: ["the cluster does not answer", "is it running"],
        },
        Case {
            name: "a server that is not there, and drift is asked for",
            arguments: vec!["drift"],
            kubeconfig: &nobody,
            says: ["the cluster does not answer", "is it running"],
        },
        Case {
            name: "a server that is not there, and everything is gathered",
            arguments: vec!["gather", "--out", out.to_str().unwrap()],
            kubeconfig: &nobody,
            says: ["the cluster does not answer", "is it running"],
        },
        Case {
            name: "a port that is taken",
            arguments: vec!["up", "--data-dir", fresh, "--port", &port],
            kubeconfig: &missing,
            says: ["is taken", "choose another with --port"],
        },
        Case {
            name: "a data directory that is corrupt",
            arguments: vec!["up", "--data-dir", corrupt, "--port", "0"],
            kubeconfig: &missing,
            says: ["corrupt", "use --fresh"],
        },
        Case {
            name: "a data directory that cannot be",
            arguments: vec!["up", "--data-dir", below_file, "--port", "0"],
            kubeconfig: &missing,
            says: ["cannot create", below_file],
        },
    ];
    for case in &cases {
        check(case);
    }
    assert!(!out.exists());
}

#[test]
fn mistakes_with_a_cluster() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start_with(&scratch.path().join("data"), &["--nodes", "none"]);
    let bootstrap = up.data.join("server/bootstrap");
    let token = eventually("there is a token without rights", || {
        fs::read_to_string(bootstrap.join("token")).ok()
    });
    let admin = kube::config::Kubeconfig::read_from(up.data.join("kubeconfig")).unwrap();
    let server = admin.clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .server
        .clone()
        .unwrap();
    let authority = bootstrap.join("ca.crt");
    let config = |name: &str, token: &str| {
        let path = scratch.path().join(name);
        kubeconfig(&path, &server, authority.to_str().unwrap(), token.trim());
        path
    };
    let (stranger, newcomer) = (config("stranger", "wrong"), config("newcomer", &token));
    let admin = up.data.join("kubeconfig");
    eventually("the pools are there", || {
        up.mco(&["status", "worker"]).status.success().then_some(())
    });
    let cases = [
        Case {
            name: "a token that nobody knows",
            arguments: vec!["status"],
            kubeconfig: &stranger,
            says: ["does not accept these credentials", "--kubeconfig"],
        },
        Case {
            name: "a user who may not look",
            arguments: vec!["status"],
            kubeconfig: &newcomer,
            says: ["forbidden", "choose another user with --context"],
        },
        Case {
            name: "a user who may not change",
            arguments: vec!["rollout", "pause", "worker"],
            kubeconfig: &newcomer,
            says: ["forbidden", "choose another user with --context"],
        },
        Case {
            name: "a pool that is not there",
            arguments: vec!["status", "wrokers"],
            kubeconfig: &admin,
            says: ["there is no pool wrokers", "there are: master, worker"],
        },
        Case {
            name: "a node that is not there",
            arguments: vec!["node", "nobody"],
            kubeconfig: &admin,
            says: ["there is no node nobody", "mco status --nodes"],
        },
        Case {
            name: "an object that is not there",
            arguments: vec!["plan", "--delete", "50-tpyo"],
            kubeconfig: &admin,
            says: ["--delete", "there is no object named 50-tpyo to delete"],
        },
        Case {
            name: "nothing to undo",
            arguments: vec!["rollout", "undo", "worker", "--yes"],
            kubeconfig: &admin,
            says: ["pool worker has had no other config", "remembers"],
        },
        Case {
            name: "a bundle that cannot be written",
            arguments: vec!["gather", "--out", "/proc/no/bundle.tar.gz"],
            kubeconfig: &admin,
            says: ["cannot write /proc/no/bundle.tar.gz", "--out"],
        },
    ];
    for case in &cases {
        check(case);
    }
}
