//! Input that wants to exhaust memory or time is refused within a fixed bound of memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Address space the program may use, in KiB. A refusal needs the input's limit (64 MiB) and little more.
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
    // The program may stop reading before the end of its input; that is the point.
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
