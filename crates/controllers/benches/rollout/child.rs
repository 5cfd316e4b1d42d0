//! The controllers in a child process. It ends with its input, and then prints the numbers of writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mco_controllers::Options;
use mco_simulator::{Counting, RequestCounts};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;
use tower::layer::layer_fn;

const FLAG: &str = "--controllers-of";
pub const VERSION: &str = "v-bench";

pub fn kubeconfig_of(arguments: &[String]) -> Option<&str> {
    let at = arguments.iter().position(|argument| argument == FLAG)?;
    arguments.get(at + 1).map(String::as_str)
}

pub async fn config(kubeconfig: &Path) -> Config {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    config
}

/// Runs the child.
pub async fn run(kubeconfig: &str) {
    let counts = RequestCounts::default();
    let counting = counts.clone();
    let client: Client = ClientBuilder::try_from(config(Path::new(kubeconfig)).await)
        .unwrap()
        .with_layer(&layer_fn(move |inner| Counting::new(inner, counting.clone())))
        .build();
    let stop = CancellationToken::new();
    let controllers = tokio::spawn(mco_controllers::run(
        client,
        Options::new(VERSION, VERSION),
        stop.clone(),
    ));
    // Each line requests the counts since the last one; the end of the input stops it.
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    while let Ok(Some(_)) = lines.next_line().await {
        let text = serde_json::to_string(&counts.snapshot()).unwrap();
        counts.reset();
        output.write_all(format!("{text}\n").as_bytes()).await.unwrap();
        output.flush().await.unwrap();
    }
    stop.cancel();
    controllers.await.unwrap().unwrap();
}

/// The running child.
pub struct Controllers {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Controllers {
    pub fn start(kubeconfig: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(FLAG)
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            process,
            input,
            output,
        }
    }

    /// Returns the writes since the last call.
    pub async fn writes(&mut self) -> BTreeMap<String, u64> {
        self.input.write_all(b"\n").await.unwrap();
        self.input.flush().await.unwrap();
        let line = self.output.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns its peak memory in megabytes.
    pub fn peak_megabytes(&self) -> f64 {
        let path = format!("/proc/{}/status", self.process.id().unwrap());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes / 1024.0
    }

    pub async fn stop(mut self) {
        drop(self.input);
        let mut rest = String::new();
        let _ = self.output.into_inner().read_to_string(&mut rest).await;
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "the controllers ended with {status}");
    }
}
