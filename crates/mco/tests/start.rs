//! The output of `mco up` during startup and when it is ready.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::{self, File};
use std::process::{Command, Stdio};

use support::{Killed, eventually};

#[test]
fn on_a_pipe_each_step_is_a_plain_line_and_the_way_on_comes_last() {
    let scratch = tempfile::tempdir().unwrap();
    let (out, err) = (scratch.path().join("out"), scratch.path().join("err"));
    let data = scratch.path().join("data");
    let start = || {
        let process = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(["up", "--port", "0", "--server-port", "0", "--console-port", "0"])
            .args(["--nodes", "masters=1,workers=2", "--data-dir"])
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let process = Killed(process);
        eventually("the console's address, which comes last", || {
            let said = fs::read_to_string(&out).unwrap();
            (said.contains("\nconsole  ") && said.ends_with('\n')).then_some(())
        });
        let read = |path| fs::read_to_string(path).unwrap();
        let said = (read(&out), read(&err));
        drop(process);
        said
    };

    let (out, err) = start();
    assert!(
        !(out.clone() + &err).contains('\u{1b}'),
        "escape codes on a pipe: {out:?} {err:?}"
    );
    let first_words: Vec<&str> = err.lines().map(|line| &line[..15]).collect();
    let of = |part: &str| -> Vec<&str> {
        let own = err.lines().filter(|line| line.starts_with(part));
        own.map(|line| line[15..].trim()).collect()
    };
    assert_eq!(
        first_words[..3],
        ["control plane  ", "operator       ", "nodes          "],
        "{err}"
    );
    assert!(of("control plane")[0].starts_with("https://127.0.0.1:"), "{err}");
    assert_eq!(of("operator").first(), Some(&"installing"), "{err}");
    assert_eq!(of("operator").last(), Some(&"ready"), "{err}");
    assert_eq!(of("nodes").last(), Some(&"3 of 3 registered"), "{err}");
    assert_eq!(of("pool master").last(), Some(&"1 of 1 node updated"), "{err}");
    assert_eq!(of("pool worker").last(), Some(&"2 of 2 nodes updated"), "{err}");
    for (line, next) in err.lines().zip(err.lines().skip(1)) {
        assert_ne!(line, next, "nothing is printed twice");
    }

    let at = |words: &str| {
        out.find(words)
            .unwrap_or_else(|| panic!("{words:?} is not in: {out}"))
    };
    let order = [
        "kubeconfig  ",
        "mco status --watch",
        "kubectl get nodes",
        "mco plan -f",
        "\nconsole     http://127.0.0.1:",
    ];
    let places: Vec<usize> = order.iter().map(|words| at(words)).collect();
    assert_eq!(places[0], 0, "{out}");
    assert!(places.is_sorted(), "{out}");
    assert!(out.lines().last().unwrap().starts_with("console "), "{out}");

    // A later start does not wait for what already exists.
    let (out, err) = start();
    assert!(out.starts_with("kubeconfig  "), "{out}");
    assert!(err.contains("pool worker    2 of 2 nodes updated\n"), "{err}");
}
