//! Input that would exhaust memory or time is rejected within a fixed memory limit, and terminal escape sequences in
//! input are escaped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Address space limit of the program, in KiB. Rejecting an input needs the input's limit (64 MiB) and little more.
const MEMORY_LIMIT: &str = "600000";

fn validate(input: &[u8]) -> Output {
    let script = format!("ulimit -v {MEMORY_LIMIT} && exec \"$0\" validate -");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_mco")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may stop reading before the end of its input, which is what is tested.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn what_cannot_be_a_manifest_is_refused() {
    let block: Vec<u8> = (0..100_000u64)
        .map(|i| i.wrapping_mul(6_364_136_223_846_793_005).to_be_bytes()[0])
        .collect();
    let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let reference = format!("*a{}", level - 1);
        let _ = writeln!(
            bomb,
            "a{level}: &a{level} [{}]",
            [reference.as_str(); 10].join(", ")
        );
    }
    let mut staircase = String::new();
    for depth in 0..2_000 {
        let _ = writeln!(staircase, "{}a:", " ".repeat(depth));
    }
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("100 MB of noise", block.repeat(1_000), "too much for a manifest"),
        ("references that multiply", bomb.into_bytes(), "not valid YAML"),
        ("brackets without end", b"[".repeat(1_000_000), "not valid YAML"),
        (
            "indentation without end",
            staircase.into_bytes(),
            "not valid YAML",
        ),
        (
            "twenty thousand documents",
            b"---\na: 1\n".repeat(21_000),
            "error:",
        ),
        ("not text at all", vec![0xff; 1_000], "not text"),
    ];
    for (name, input, expected) in cases {
        let output = validate(&input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        assert!(stderr.contains(expected), "{name}: {stderr}");
    }
}

#[test]
fn nothing_in_a_config_reaches_the_terminal_as_a_command() {
    let escape = "\u{1b}]0;owned\u{7}\u{1b}[2J<script>alert(1)</script>\u{202e}";
    let mut contents = String::new();
    for byte in escape.bytes() {
        let _ = write!(contents, "%{byte:02x}");
    }
    let config = |version: &str, other: &str| {
        serde_json::json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "50-hostile", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {
                "kernelArguments": [format!("a={escape}{version}")],
                "config": {
                    "ignition": {"version": "3.5.0"},
                    "storage": {"files": [
                        {"path": format!("/etc/{escape}"), "mode": 420,
                            "contents": {"source": format!("data:,{contents}%0A{version}%0A")}},
                        {"path": "/etc/other", "contents": {"source": format!("data:,{other}")}},
                    ]},
                    "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-rsa AAAA {escape}{version}")]}]},
                    "systemd": {"units": [{"name": "a.service", "enabled": true,
                        "contents": format!("[Unit]\nDescription={escape}{version}\n")}]},
                },
            },
        })
        .to_string()
    };
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for (directory, version) in [("old", "1"), ("new", "2")] {
        std::fs::create_dir(path(directory)).unwrap();
        std::fs::write(path(directory).join("hostile.json"), config(version, "")).unwrap();
    }
    let (old, new, file) = (path("old"), path("new"), path("new").join("hostile.json"));
    let (old, new, file) = (
        old.to_str().unwrap(),
        new.to_str().unwrap(),
        file.to_str().unwrap(),
    );
    // Large contents are counted, not shown.
    let large = path("large.json");
    std::fs::write(&large, config("3", "x".repeat(1 << 20).as_str())).unwrap();
    let large = large.to_str().unwrap();
    for (arguments, shown_word) in [
        (vec!["validate", file], "1 object valid"),
        (vec!["render", "--manifests", new, "--out", "-"], "owned"),
        (vec!["explain", "--manifests", new, "--pool", "worker"], "owned"),
        (vec!["diff", "--show-contents", old, new], "owned"),
        (
            vec!["plan", "--manifests", old, "-f", file, "--show-contents"],
            "owned",
        ),
        (vec!["plan", "--manifests", old, "--delete", escape], "owned"),
        (vec!["plan", "--manifests", old, "-f", large], "1048576 bytes"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(&arguments)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // Rendered objects are for programs and must be unchanged; YAML itself escapes control characters.
        let turns_writing = |c: char| c == '\u{202e}' && !arguments.contains(&"render");
        let live = shown
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t') || turns_writing(*c));
        assert_eq!(live, None, "{arguments:?}");
        assert!(shown.contains(shown_word), "{arguments:?}: {shown}");
        assert!(shown.len() < 1 << 20, "{arguments:?} shows {} bytes", shown.len());
    }
}
