//! The most common mistakes are reported in one sentence with a remedy, and exit code 1.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{Up, ended, eventually, text};

/// The cause and the remedy: substrings that must be in the output.
type Says<'a> = [&'a str; 2];

fn mco(arguments: &[&str], kubeconfig: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
    ended(command.args(arguments).env("KUBECONFIG", kubeconfig))
}

/// A mistake, the command with its kubeconfig, and the expected output.
fn check(name: &str, arguments: &[&str], kubeconfig: &Path, says: Says<'_>) {
    let output = mco(arguments, kubeconfig);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{name}: {said}");
    assert!(said.starts_with("error: "), "{name}: {said}");
    assert_eq!(said.lines().count(), 1, "{name}: one sentence: {said}");
    for words in says {
        assert!(said.contains(words), "{name}: {words:?} is not in: {said}");
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
    let server = format!("https://127.0.0.1:{closed}");
    kubeconfig(&nobody, &server, ca.to_str().unwrap(), "x");
    let file = path("file");
    fs::write(&file, "").unwrap();
    let (below_file, fresh, out) = (file.join("data"), path("data"), path("no/such/directory.tar.gz"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (file, below_file, fresh, bundle) = (text(&file), text(&below_file), text(&fresh), text(&out));

    let unusable: Says<'_> = ["cannot use $KUBECONFIG", "choose one with --kubeconfig"];
    let silent: Says<'_> = ["the cluster does not answer", "is it running"];
    let elsewhere: Says<'_> = ["cannot create", "choose another --data-dir"];
    let cases: [(&str, &[&str], &Path, Says<'_>); 11] = [
        ("a kubeconfig that is not there", &["status"], &missing, unusable),
        (
            "a kubeconfig that is none",
            &["plan", "--delete", "x"],
            &broken,
            unusable,
        ),
        (
            "a context that is not there",
            &["node", "worker-0", "--context", "other"],
            &nobody,
            ["other", "choose one with --kubeconfig"],
        ),
        ("a server that is not there", &["status"], &nobody, silent),
        ("drift of a server that is not there", &["drift"], &nobody, silent),
        (
            "everything of a server that is not there",
            &["gather", "--out", &bundle],
            &nobody,
            silent,
        ),
        (
            "a port that is taken",
            &["up", "--data-dir", &fresh, "--port", &port],
            &missing,
            ["is in use", "choose another with --port"],
        ),
        (
            "a data directory below a file",
            &["up", "--data-dir", &below_file, "--port", "0"],
            &missing,
            elsewhere,
        ),
        (
            "a data directory that is a file",
            &["up", "--data-dir", &file, "--port", "0"],
            &missing,
            elsewhere,
        ),
        (
            "a file instead of a data directory that is to be emptied",
            &["up", "--data-dir", &file, "--port", "0", "--fresh"],
            &missing,
            ["cannot empty", "choose another --data-dir"],
        ),
        // Not even root can create a directory there.
        (
            "a data directory without the right to make it",
            &["up", "--data-dir", "/sys/mco", "--port", "0"],
            &missing,
            elsewhere,
        ),
    ];
    for (name, arguments, kubeconfig, says) in cases {
        check(name, arguments, kubeconfig, says);
    }
    assert!(!out.exists());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn mistakes_with_a_cluster() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start_with(&scratch.path().join("data"), &["--nodes", "none"]);
    let bootstrap = up.data.join("server/bootstrap");
    let token = eventually("there is a token without rights", || {
        fs::read_to_string(bootstrap.join("token")).ok()
    });
    let admin = kube::config::Kubeconfig::read_from(up.data.join("kubeconfig")).unwrap();
    let cluster = admin.clusters[0].cluster.as_ref().unwrap();
    let server = cluster.server.clone().unwrap();
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
    let forbidden: Says<'_> = ["forbidden", "choose another user with --context"];
    let data = up.data.to_str().unwrap();
    let cases: [(&str, &[&str], &Path, Says<'_>); 10] = [
        (
            "an unknown token",
            &["status"],
            &stranger,
            ["does not accept these credentials", "--kubeconfig"],
        ),
        ("a user who may not read", &["status"], &newcomer, forbidden),
        (
            "a user who may not change",
            &["rollout", "pause", "worker"],
            &newcomer,
            forbidden,
        ),
        (
            "a pool that is not there",
            &["status", "wrokers"],
            &admin,
            ["there is no pool wrokers", "there are: master, worker"],
        ),
        (
            "a node that is not there",
            &["node", "missing"],
            &admin,
            ["there is no node missing", "mco status --nodes"],
        ),
        (
            "an object that is not there",
            &["plan", "--delete", "50-tpyo"],
            &admin,
            ["--delete", "there is no object named 50-tpyo to delete"],
        ),
        (
            "nothing to undo",
            &["rollout", "undo", "worker", "--yes"],
            &admin,
            ["pool worker has no earlier config", "in the cluster"],
        ),
        (
            "a bundle that cannot be written",
            &["gather", "--out", "/proc/no/bundle.tar.gz"],
            &admin,
            ["cannot write /proc/no/bundle.tar.gz", "--out"],
        ),
        (
            "a second one in the same directory",
            &["up", "--data-dir", data, "--port", "0"],
            &admin,
            ["another mco up works in", "choose another --data-dir"],
        ),
        (
            "a second one that would empty the directory",
            &["up", "--data-dir", data, "--port", "0", "--fresh"],
            &admin,
            ["another mco up works in", "choose another --data-dir"],
        ),
    ];
    for (name, arguments, kubeconfig, says) in cases {
        check(name, arguments, kubeconfig, says);
    }
    assert!(up.mco(&["status"]).status.success(), "it still runs");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from).unwrap(), to).unwrap();
        } else if kind.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// The kinds of damage to a file.
enum Damage {
    Holds(&'static [u8]),
    Cut,
    IsADirectory,
    IsAFile,
}

const GARBAGE: Damage = Damage::Holds(b"\xff\x00 no file of ours");

impl Damage {
    fn inflict(&self, path: &Path) {
        match self {
            Self::Holds(bytes) => fs::write(path, bytes).unwrap(),
            Self::Cut => {
                let whole = fs::read(path).unwrap();
                fs::write(path, &whole[..whole.len() / 2]).unwrap();
            }
            Self::IsADirectory => {
                let _ = fs::remove_file(path);
                fs::create_dir(path).unwrap();
            }
            Self::IsAFile => {
                let _ = fs::remove_dir_all(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
        }
    }
}

#[test]
fn a_damaged_data_directory_is_named_and_can_be_repaired() {
    use Damage::{Cut, Holds, IsADirectory, IsAFile};
    let scratch = tempfile::tempdir().unwrap();
    let whole = scratch.path().join("whole");
    {
        let up = Up::start_with(&whole, &["--nodes", "masters=0,workers=1"]);
        let token = up.mco(&["up", "--join-token", "--data-dir", whole.to_str().unwrap()]);
        assert!(token.status.success(), "{}", text(&token));
    }
    let (damaged, authority) = ("is damaged", "the certificate authority in");
    let (fresh, remove, away) = ("use --fresh", "remove the file", "move it away");
    let (no_file, no_directory) = ("is not a file", "is not a directory");
    let cases: &[(&str, Damage, Says<'_>)] = &[
        ("store.redb", GARBAGE, [damaged, fresh]),
        ("store.redb", Cut, [damaged, fresh]),
        ("store.redb", IsADirectory, [no_file, fresh]),
        ("tokens.json", GARBAGE, ["tokens.json", remove]),
        ("tokens.json", Cut, ["tokens.json", remove]),
        ("tokens.json", IsADirectory, [no_file, away]),
        ("join-tokens.json", Cut, ["join-tokens.json", remove]),
        ("server/tokens.json", Cut, ["server/tokens.json", remove]),
        ("server/tokens.json", Holds(b""), ["server/tokens.json", remove]),
        ("server", IsAFile, [no_directory, away]),
        ("pki", IsAFile, [no_directory, away]),
        ("pki/ca.key", GARBAGE, [authority, "to create a new one"]),
        ("pki/ca.key", Cut, [authority, "to create a new one"]),
        ("pki/ca.key", IsADirectory, [no_file, fresh]),
        ("pki/ca.crt", GARBAGE, [authority, "to create a new one"]),
        ("pki/ca.crt", Holds(b""), [authority, "to create a new one"]),
        ("kubeconfig", IsADirectory, [no_file, away]),
        ("console", IsADirectory, [no_file, away]),
        ("mco.log", IsADirectory, [no_file, away]),
        ("nodes", IsAFile, [no_directory, away]),
        ("nodes/worker-0", IsAFile, [no_directory, away]),
    ];
    let broken = scratch.path().join("broken");
    let data = broken.to_str().unwrap();
    let up = [
        "up",
        "--port",
        "0",
        "--nodes",
        "masters=0,workers=1",
        "--data-dir",
        data,
    ];
    for (file, damage, says) in cases {
        let _ = fs::remove_dir_all(&broken);
        copy(&whole, &broken);
        damage.inflict(&broken.join(file));
        check(file, &up, Path::new("missing"), *says);
    }
    // The suggested remedy works.
    let removed: [PathBuf; 4] =
        ["pki", "tokens.json", "join-tokens.json", "server/tokens.json"].map(|name| broken.join(name));
    let _ = fs::remove_dir_all(&broken);
    copy(&whole, &broken);
    for path in &removed {
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    // These are rewritten at each start.
    for file in [
        "kubeconfig",
        "console",
        "server/tls.key",
        "server/tls.crt",
        "server/bootstrap/token",
    ] {
        GARBAGE.inflict(&broken.join(file));
    }
    let up = Up::start_with(&broken, &["--nodes", "masters=0,workers=1"]);
    up.wait("worker");
    drop(up);
    for file in ["store.redb", "pki/ca.key", "tokens.json"] {
        GARBAGE.inflict(&broken.join(file));
    }
    let up = Up::start_with(&broken, &["--nodes", "masters=0,workers=1", "--fresh"]);
    up.wait("worker");
}
