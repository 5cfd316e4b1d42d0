//! The build itself: prepares the context, then drives buildah or podman. Runs inside the Job's pod, or as a process of
//! this host.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mco_core::generators::os_builds::InputPaths;
use serde_json::{Value, json};
use thiserror::Error;

/// The service account's directory, whose certificates verify the cluster's own registry.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const RHSM: &str = "/var/run/secrets/rhsm";
/// Attempts of a push. The build before it is the expensive part.
const PUSH_ATTEMPTS: usize = 3;
const LARGEST_CONFIG: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum BuildFailure {
    #[error("neither buildah nor podman is installed; install buildah to build OS images")]
    NoTool,
    #[error("cannot {attempt}: {source}")]
    File {
        attempt: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the rendered MachineConfig cannot be read: {0}")]
    Config(String),
    #[error("{tool} {step} failed with {status}; its output is above")]
    Tool {
        tool: &'static str,
        step: &'static str,
        status: String,
    },
}

/// What is built, and where its inputs are.
#[derive(Debug, Clone)]
pub struct ImageBuild {
    pub paths: InputPaths,
    /// A directory of the build's own, for the context, the storage and temporary files.
    pub work: PathBuf,
    /// The reference to push to.
    pub tag: String,
    pub http_proxy: String,
    pub https_proxy: String,
    pub no_proxy: String,
}

/// Builds images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildTool {
    Buildah,
    Podman,
}

impl BuildTool {
    /// Returns the tool that is installed; buildah is preferred.
    pub fn installed() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
        [Self::Buildah, Self::Podman]
            .into_iter()
            .find(|tool| has(tool.name()))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Buildah => "buildah",
            Self::Podman => "podman",
        }
    }

    fn build_command(self) -> &'static str {
        match self {
            Self::Buildah => "bud",
            Self::Podman => "build",
        }
    }
}

impl ImageBuild {
    /// Builds and pushes the image, and writes its digest.
    pub fn run(&self) -> Result<(), BuildFailure> {
        let tool = BuildTool::installed().ok_or(BuildFailure::NoTool)?;
        let context = self.prepare_context()?;
        let certificates = self.prepare_certificates()?;
        let policy = self.policy()?;
        let mut build = self.tool(
            tool,
            tool.build_command(),
            &self.paths.base_credentials,
            &certificates,
        );
        build
            .args(["--isolation", "chroot", "--format", "oci", "--tag", &self.tag])
            .arg("--signature-policy")
            .arg(&policy)
            .arg("--file")
            .arg(context.join("Containerfile"));
        for (key, value) in self.proxies() {
            build.arg("--build-arg").arg(format!("{key}={value}"));
        }
        for volume in self.volumes()? {
            build.arg("--volume").arg(volume);
        }
        execute(tool, "build", build.arg(&context))?;
        self.push(tool, &certificates, &policy)
    }

    fn push(&self, tool: BuildTool, certificates: &Path, policy: &Path) -> Result<(), BuildFailure> {
        let digest = Path::new(&self.paths.done).join("digestfile");
        let mut last = Ok(());
        for _ in 0..PUSH_ATTEMPTS {
            let mut push = self.tool(tool, "push", &self.paths.push_credentials, certificates);
            push.arg("--signature-policy")
                .arg(policy)
                .arg("--digestfile")
                .arg(&digest);
            push.arg(&self.tag).arg(format!("docker://{}", self.tag));
            last = execute(tool, "push", &mut push);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn tool(&self, tool: BuildTool, step: &str, credentials: &str, certificates: &Path) -> Command {
        let mut command = Command::new(tool.name());
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(self.work.join("storage"))
            .arg("--runroot")
            .arg(self.work.join("run"))
            .arg(step)
            .arg("--authfile")
            .arg(Path::new(credentials).join("config.json"))
            .arg("--cert-dir")
            .arg(certificates)
            .env("TMPDIR", self.work.join("tmp"))
            .env("BUILDAH_ISOLATION", "chroot")
            .stdin(Stdio::null());
        if Path::new(&self.paths.registries).is_file() {
            command.env("CONTAINERS_REGISTRIES_CONF", &self.paths.registries);
        }
        for (key, value) in self.proxies() {
            command.env(key, value);
        }
        command
    }

    fn proxies(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("HTTP_PROXY", self.http_proxy.as_str()),
            ("HTTPS_PROXY", self.https_proxy.as_str()),
            ("NO_PROXY", self.no_proxy.as_str()),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Writes the build context: the Containerfile, the rendered config and its Ignition config, and the certificates.
    fn prepare_context(&self) -> Result<PathBuf, BuildFailure> {
        let context = self.work.join("context");
        let configs = context.join("machineconfig");
        for directory in [&configs, &self.work.join("tmp"), &PathBuf::from(&self.paths.done)] {
            make_directory(directory)?;
        }
        copy(
            &Path::new(&self.paths.containerfile).join("Containerfile"),
            &context.join("Containerfile"),
        )?;
        let encoded = read(&Path::new(&self.paths.machine_config).join("machineconfig.json.gz"))?;
        let json = decoded(&encoded)?;
        let config: Value =
            serde_json::from_slice(&json).map_err(|error| BuildFailure::Config(error.to_string()))?;
        let ignition = match &config["spec"]["config"] {
            Value::Null => json!({"ignition": {"version": "3.5.0"}}),
            ignition => ignition.clone(),
        };
        write(&configs.join("machineconfig.json.gz"), &encoded)?;
        write(&configs.join("machineconfig.json"), &json)?;
        write(&configs.join("ignition.json"), ignition.to_string().as_bytes())?;
        let bundle = "openshift-config-user-ca-bundle.crt";
        let source = Path::new(&self.paths.trust_bundle).join(bundle);
        let certificates = if source.is_file() {
            read(&source)?
        } else {
            Vec::new()
        };
        write(&context.join(bundle), &certificates)?;
        Ok(context)
    }

    /// Collects the certificates that verify registries, in addition to the system's.
    fn prepare_certificates(&self) -> Result<PathBuf, BuildFailure> {
        let directory = self.work.join("certificates");
        make_directory(&directory)?;
        let sources = [
            Path::new(&self.paths.trust_bundle),
            Path::new(&self.paths.registry_certificates),
            Path::new(SERVICE_ACCOUNT),
        ];
        let mut number = 0;
        for source in sources {
            for file in files_of(source) {
                let contents = read(&file)?;
                // A service account's directory has its token as well.
                if String::from_utf8_lossy(&contents).contains("-----BEGIN CERTIFICATE-----") {
                    number += 1;
                    write(&directory.join(format!("{number}.crt")), &contents)?;
                }
            }
        }
        Ok(directory)
    }

    /// Returns the signature policy: the rendered config's, else this host's, else the default of the tools.
    fn policy(&self) -> Result<PathBuf, BuildFailure> {
        let candidates = [self.paths.policy.as_str(), "/etc/containers/policy.json"];
        if let Some(found) = candidates
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
        {
            return Ok(found);
        }
        let path = self.work.join("policy.json");
        write(&path, br#"{"default":[{"type":"insecureAcceptAnything"}]}"#)?;
        Ok(path)
    }

    /// Copies subscriptions, repositories and keys, which the build mounts writable, and returns the mounts.
    fn volumes(&self) -> Result<Vec<OsString>, BuildFailure> {
        let in_pod = InputPaths::in_pod();
        let mounts = [
            (Path::new(RHSM), "/run/secrets/rhsm"),
            (Path::new(&self.paths.entitlement), in_pod.entitlement.as_str()),
            (Path::new(&self.paths.yum_repos), in_pod.yum_repos.as_str()),
            (Path::new(&self.paths.rpm_keys), in_pod.rpm_keys.as_str()),
        ];
        // Inside the pod these paths exist in the image as well; only what is mounted there counts.
        let is_mounted = |target: &str| match target {
            "/etc/pki/entitlement" => "ETC_PKI_ENTITLEMENT_MOUNTPOINT",
            "/etc/yum.repos.d" => "ETC_YUM_REPOS_D_MOUNTPOINT",
            "/etc/pki/rpm-gpg" => "ETC_PKI_RPM_GPG_MOUNTPOINT",
            _ => "",
        };
        let mut volumes = Vec::new();
        for (index, (source, target)) in mounts.into_iter().enumerate() {
            let variable = is_mounted(target);
            let is_wanted = variable.is_empty() || std::env::var_os(variable).is_some();
            let files = files_of(source);
            if files.is_empty() || !is_wanted {
                continue;
            }
            let copied = self.work.join(format!("volume-{index}"));
            make_directory(&copied)?;
            for file in files {
                copy(&file, &copied.join(file.file_name().unwrap_or_default()))?;
            }
            let mut volume = copied.into_os_string();
            volume.push(format!(":{target}:z,rw"));
            volumes.push(volume);
        }
        Ok(volumes)
    }
}

fn execute(tool: BuildTool, step: &'static str, command: &mut Command) -> Result<(), BuildFailure> {
    let status = command
        .status()
        .map_err(failed(format!("start {}", tool.name())))?;
    if status.success() {
        return Ok(());
    }
    Err(BuildFailure::Tool {
        tool: tool.name(),
        step,
        status: status.to_string(),
    })
}

fn decoded(encoded: &[u8]) -> Result<Vec<u8>, BuildFailure> {
    let config = |error: &dyn std::fmt::Display| BuildFailure::Config(error.to_string());
    let compressed = STANDARD
        .decode(encoded.trim_ascii())
        .map_err(|error| config(&error))?;
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(&*compressed)
        .take(LARGEST_CONFIG)
        .read_to_end(&mut json)
        .map_err(|error| config(&error))?;
    Ok(json)
}

/// Returns the files of a directory. Those of mounted volumes are symbolic links.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

fn failed(attempt: String) -> impl FnOnce(std::io::Error) -> BuildFailure {
    move |source| BuildFailure::File { attempt, source }
}

fn make_directory(path: &Path) -> Result<(), BuildFailure> {
    fs::create_dir_all(path).map_err(failed(format!("create directory {}", path.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, BuildFailure> {
    fs::read(path).map_err(failed(format!("read {}", path.display())))
}

fn write(path: &Path, contents: &[u8]) -> Result<(), BuildFailure> {
    fs::write(path, contents).map_err(failed(format!("write {}", path.display())))
}

fn copy(from: &Path, to: &Path) -> Result<(), BuildFailure> {
    fs::copy(from, to)
        .map(|_| ())
        .map_err(failed(format!("copy {} to {}", from.display(), to.display())))
}
