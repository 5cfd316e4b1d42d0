//! The documents are correct: every shell block is run in order, as a reader would, with the real `mco` (those of the
//! first hour also with the machine's own `kubectl`), and must print what the document shows.
//!
//! A block shows what a terminal shows. What a test needs in addition is in a comment before it, which readers do not see:
//!
//! ```text
//! <!-- exit: 3 -->     the exit code of its last command
//! <!-- varies -->      names of rendered configs, times and widths of columns differ each time
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use support::{Killed, eventually};

/// The page whose commands need a running system.
const FIRST_HOUR: &str = "docs/first-hour.md";
/// Timeout of one command, which may wait for a rollout.
const PATIENCE: Duration = Duration::from_mins(3);
const END: &str = "--- the command has ended with";
/// Runs in a terminal of its own, because it does not end by itself.
const UP: &str = "mco up";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Block {
    language: String,
    line: usize,
    text: Vec<String>,
    /// The exit code of its last command.
    exit: i32,
    varies: bool,
}

impl Block {
    /// Reads the comment before the block.
    fn with_comment(mut self, comment: &str) -> Self {
        let inside = comment
            .strip_prefix("<!--")
            .and_then(|rest| rest.strip_suffix("-->"));
        for word in inside.unwrap_or_default().split(',') {
            match word.trim().split_once(": ") {
                Some(("exit", code)) => self.exit = code.parse().unwrap(),
                _ => self.varies |= word.trim() == "varies",
            }
        }
        self
    }
}

/// The fenced blocks of a document.
fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut before = "";
    for (index, line) in document.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => {
                let block = Block {
                    language: language.trim().to_owned(),
                    line: index + 1,
                    ..Block::default()
                };
                open = Some(block.with_comment(before));
            }
            (None, Some(mut block)) => {
                block.text.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
        if !line.is_empty() {
            before = line;
        }
    }
    assert_eq!(open, None, "a block is not closed");
    blocks
}

/// A command and its expected output.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    code: i32,
    output: Vec<String>,
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, text) in block.text.iter().enumerate() {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step {
                line: block.line + 1 + index,
                command: command.to_owned(),
                code: 0,
                output: Vec::new(),
            });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        if let Some(more) = text.strip_prefix("> ").filter(|_| step.output.is_empty()) {
            step.command.push('\n');
            step.command.push_str(more);
        } else {
            step.output.push(text.clone());
        }
    }
    if let Some(last) = steps.last_mut() {
        last.code = block.exit;
    }
    for step in &mut steps {
        while step.output.last().is_some_and(String::is_empty) {
            step.output.pop();
        }
    }
    steps
}

/// Returns whether the output matches the document, in which a line `...` stands for any number of lines.
fn matches(said: &[String], printed: &[&str]) -> bool {
    match said.split_first() {
        None => printed.is_empty(),
        Some((elision, rest)) if elision == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| line == first && matches(rest, others)),
    }
}

/// Removes what differs with every run: names of rendered configs, times, and the width of columns that hold them.
fn without_the_moment(line: &str) -> String {
    let patterns = [
        (r"rendered-([a-z]+)-[0-9a-f]{32}", "rendered-$1-HASH"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "MOMENT"),
        (r"\b(\d+[dhm])*\d+[dhms]\b", "TIME"),
        (r" {2,}", "  "),
        // The last event, which differs with the timing.
        (r"^(MOMENT +done).*", "$1"),
    ];
    patterns.iter().fold(line.to_owned(), |line, (pattern, instead)| {
        regex::Regex::new(pattern)
            .unwrap()
            .replace_all(&line, *instead)
            .into_owned()
    })
}

/// A shell that keeps variables and the directory from one command to the next.
struct Terminal {
    shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Terminal {
    fn open(directory: &Path, home: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_mco")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(directory)
            .env("HOME", home)
            .env("PATH", path)
            .env_remove("KUBECONFIG")
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, output) = mpsc::channel();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut input = shell.stdin.take().unwrap();
        writeln!(input, "exec 2>&1").unwrap();
        Self { shell, input, output }
    }

    fn run(&mut self, command: &str) -> (i32, Vec<String>) {
        writeln!(
            self.input,
            "{{ {command}\n}} < /dev/null\ncode=$?; echo; echo {END} $code"
        )
        .unwrap();
        let mut lines = Vec::new();
        loop {
            let line = self.output.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{command:?}: {error}; so far: {lines:#?}"));
            if let Some(code) = line.strip_prefix(END) {
                while lines.last().is_some_and(String::is_empty) {
                    lines.pop();
                }
                return (code.trim().parse().unwrap(), lines);
            }
            lines.push(line);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The process in the reader's other terminal.
struct OtherTerminal(#[expect(dead_code, reason = "ends with it")] Killed);

impl OtherTerminal {
    fn start(home: &Path) -> Self {
        let log = home.join("up.output");
        let file = fs::File::create(&log).unwrap();
        // Only the ports differ from what a reader runs.
        let child = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(["up", "--port", "0", "--server-port", "0"])
            .env("HOME", home)
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let started = Self(Killed(child));
        eventually("mco up has started, and every pool is updated", || {
            let text = fs::read_to_string(&log).unwrap();
            text.contains("Ctrl-C stops it").then_some(())?;
            ["master", "worker"]
                .iter()
                .all(|pool| {
                    Command::new(env!("CARGO_BIN_EXE_mco"))
                        .args(["wait", pool, "--timeout", "30s", "--kubeconfig"])
                        .arg(home.join(".local/share/mco/kubeconfig"))
                        .output()
                        .unwrap()
                        .status
                        .success()
                })
                .then_some(())
        });
        started
    }
}

/// A copy of the examples, so that nothing is written into the repository.
fn copy_of_the_repository(to: &Path) {
    let mut directories = vec![PathBuf::from("examples")];
    while let Some(directory) = directories.pop() {
        fs::create_dir_all(to.join(&directory)).unwrap();
        for entry in fs::read_dir(mco_testkit::repository_root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.path().is_dir() {
                directories.push(path);
            } else {
                fs::copy(entry.path(), to.join(path)).unwrap();
            }
        }
    }
}

/// Returns how a command differs from what a document shows.
fn difference(document: &str, step: &Step, varies: bool, code: i32, printed: &[String]) -> Option<String> {
    let lines: Vec<&str> = printed.iter().map(|line| line.trim_end()).collect();
    let fits = if varies {
        let said: Vec<String> = step.output.iter().map(|line| without_the_moment(line)).collect();
        let lines: Vec<String> = lines.iter().map(|line| without_the_moment(line)).collect();
        matches(&said, &lines.iter().map(String::as_str).collect::<Vec<_>>())
    } else {
        matches(&step.output, &lines)
    };
    (code != step.code || !fits).then(|| {
        format!(
            "{document}:{}: $ {}\nends with {code} instead of {} and prints\n{}",
            step.line,
            step.command,
            step.code,
            lines.join("\n")
        )
    })
}

/// The guides, with their paths in the repository.
fn guides() -> Vec<(String, String)> {
    let root = mco_testkit::repository_root();
    let mut found = Vec::new();
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn commands_print_what_the_guides_show() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, home) = (scratch.path().join("mco"), scratch.path().join("home"));
    fs::create_dir_all(&home).unwrap();
    copy_of_the_repository(&directory);
    let mut wrong = Vec::new();
    let mut number = 0;
    for (name, text) in guides().into_iter().filter(|(name, _)| name != FIRST_HOUR) {
        let mut terminal = None;
        for block in blocks(&text).iter().filter(|block| block.language == "console") {
            let terminal = terminal.get_or_insert_with(|| Terminal::open(&directory, &home));
            for step in steps(block) {
                number += 1;
                let (code, printed) = terminal.run(&step.command);
                wrong.extend(difference(&name, &step, block.varies, code, &printed));
            }
        }
    }
    assert!(number > 10, "only {number} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_a_test_needs_is_not_shown_to_readers() {
    let readme = fs::read_to_string(mco_testkit::repository_root().join("README.md")).unwrap();
    for (name, text) in guides().into_iter().chain([("README.md".to_owned(), readme)]) {
        for block in blocks(&text).iter().filter(|block| block.language == "console") {
            for line in &block.text {
                let marker = line.starts_with("? ") || line.contains("[..]");
                assert!(!marker, "{name}:{}: {line}", block.line);
            }
        }
    }
}

#[test]
fn the_first_hour_is_as_its_page_shows() {
    let kubectl = Command::new("kubectl").args(["version", "--client"]).output();
    if !kubectl.is_ok_and(|output| output.status.success()) {
        let why = "the first hour needs kubectl, and there is none on this machine: install it";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("not checked: {why}");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (directory, home) = (scratch.path().join("mco"), scratch.path().join("home"));
    fs::create_dir_all(&home).unwrap();
    copy_of_the_repository(&directory);
    let page = fs::read_to_string(mco_testkit::repository_root().join(FIRST_HOUR)).unwrap();
    let mut terminal = Terminal::open(&directory, &home);
    let mut other = None;
    let mut wrong = Vec::new();
    for block in blocks(&page) {
        if block.language != "console" {
            continue;
        }
        for step in steps(&block) {
            if step.command == UP {
                other = Some(OtherTerminal::start(&home));
                continue;
            }
            let (code, printed) = terminal.run(&step.command);
            // Without a cluster the output is deterministic.
            let is_live = step.command.starts_with("mco plan") || !step.command.contains("examples/");
            wrong.extend(difference(
                FIRST_HOUR,
                &step,
                block.varies || is_live,
                code,
                &printed,
            ));
        }
    }
    assert!(other.is_some(), "the page starts mco up");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_shell_block_is_run_by_some_test() {
    let readme = fs::read_to_string(mco_testkit::repository_root().join("README.md")).unwrap();
    for (name, text) in guides().into_iter().chain([("README.md".to_owned(), readme)]) {
        for block in blocks(&text) {
            assert!(
                ["console", "text", "yaml"].contains(&block.language.as_str()),
                "{name}:{}: a block of {:?} is not run by any test; use console, or text if it needs a real cluster",
                block.line,
                block.language
            );
        }
    }
}

#[test]
fn every_reason_for_degraded_is_explained() {
    let path = mco_testkit::repository_root().join("docs/troubleshooting.md");
    let guide = fs::read_to_string(path).unwrap();
    for advice in mco_client::advice::all() {
        let heading = format!("### {}\n", advice.title);
        assert!(guide.contains(&heading), "{:?} is not explained", advice.title);
    }
}

#[test]
fn documents_may_leave_out_what_is_different_each_time() {
    let said = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (document, printed, expected) in [
        ("a\nb", vec!["a", "b"], true),
        ("a", vec!["a", "b"], false),
        ("...\nz", vec!["a", "b", "z"], true),
        ("a\n...", vec!["a"], true),
        ("...\nz", vec!["a"], false),
    ] {
        assert_eq!(
            matches(&said(document), &printed),
            expected,
            "{document:?} {printed:?}"
        );
    }
}
