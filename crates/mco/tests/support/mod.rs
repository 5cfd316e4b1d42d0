//! A whole system from the one binary, for end-to-end tests of the command line.
#![allow(dead_code, reason = "every test uses another part")]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous, because test machines are busy; nothing here takes a tenth of it.
const DEADLINE: Duration = Duration::from_mins(2);

/// A process that is killed when its test ends.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Up {
    process: Killed,
    pub data: PathBuf,
}

impl Up {
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &["--nodes", "masters=1,workers=2"])
    }

    pub fn start_with(data: &Path, options: &[&str]) -> Self {
        let log = fs::File::create(data.with_extension("output")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(["up", "--port", "0", "--server-port", "0", "--data-dir"])
            .arg(data)
            .args(options)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let up = Self {
            process: Killed(process),
            data: data.to_owned(),
        };
        eventually("mco up prints its addresses", || {
            let text = fs::read_to_string(data.with_extension("output")).unwrap();
            text.contains("Ctrl-C stops it").then_some(())
        });
        up
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub fn mco(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(arguments)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .output()
            .unwrap()
    }

    /// Waits for a pool with `mco wait`. Pools do not exist immediately after the start.
    pub fn wait(&self, pool: &str) {
        eventually(&format!("pool {pool} is updated"), || {
            let output = self.mco(&["wait", pool, "--timeout", "60s"]);
            output.status.success().then_some(())
        });
    }

    pub fn status(&self, pool: &str) -> Value {
        let output = self.mco(&["status", pool, "-o", "json"]);
        assert!(output.status.success(), "{}", text(&output));
        let pools: Value = serde_json::from_slice(&output.stdout).unwrap();
        pools[0].clone()
    }

    pub fn file(&self, node: &str, path: &str) -> PathBuf {
        self.data.join("nodes").join(node).join(path)
    }

    pub fn client(&self) -> (tokio::runtime::Runtime, kube::Client) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let kubeconfig = kube::config::Kubeconfig::read_from(self.data.join("kubeconfig")).unwrap();
        let client = runtime.block_on(async {
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            kube::Client::try_from(config.unwrap()).unwrap()
        });
        (runtime, client)
    }

    pub fn create(&self, yaml: &str) -> Result<(), String> {
        let (runtime, client) = self.client();
        let manifest = mco_core::config::manifest::read("test", yaml.as_bytes())
            .unwrap()
            .remove(0);
        let config: mco_api::MachineConfig = manifest.decode().unwrap();
        let configs: kube::Api<mco_api::MachineConfig> = kube::Api::all(client);
        let created = runtime.block_on(configs.create(&kube::api::PostParams::default(), &config));
        created.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Applies any object, server-side.
    pub fn apply(&self, object: &Value) -> Result<(), String> {
        let (runtime, client) = self.client();
        let types: kube::core::TypeMeta = serde_json::from_value(object.clone()).unwrap();
        let kind = kube::core::GroupVersionKind::try_from(&types).unwrap();
        let resource = kube::core::ApiResource::from_gvk(&kind);
        let api: kube::Api<kube::core::DynamicObject> = kube::Api::all_with(client, &resource);
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = kube::api::PatchParams::apply("test").force();
        let patch = kube::api::Patch::Apply(object);
        let applied = runtime.block_on(api.patch(name, &parameters, &patch));
        applied.map(|_| ()).map_err(|error| error.to_string())
    }

    pub fn delete(&self, name: &str) -> Result<(), String> {
        let (runtime, client) = self.client();
        let configs: kube::Api<mco_api::MachineConfig> = kube::Api::all(client);
        let deleted = runtime.block_on(configs.delete(name, &kube::api::DeleteParams::default()));
        deleted.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Runs a command that ends by itself and returns its output, which is short.
pub fn ended(command: &mut Command) -> Output {
    let piped = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Killed(piped.spawn().unwrap());
    let status = eventually(&format!("{command:?} ends"), || process.0.try_wait().unwrap());
    let mut output = Output {
        status,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    let (stdout, stderr) = (process.0.stdout.take(), process.0.stderr.take());
    stdout.unwrap().read_to_end(&mut output.stdout).unwrap();
    stderr.unwrap().read_to_end(&mut output.stderr).unwrap();
    output
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
