//! A machine whose OS tools are doubles: small programs that take the arguments and print the JSON of the real ones,
//! and keep state. A staged deployment is lost in a power cut, and a full `/boot` fails its finalization.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test without its doubles cannot go on"
)]

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::repository_root;

/// The tools that boot images on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OsTools {
    RpmOstree,
    Bootc,
    /// An ostree system with neither of them.
    None,
}

/// The state of the doubles of one machine.
#[derive(Debug, Clone)]
pub struct OsDouble {
    root: PathBuf,
    state: PathBuf,
    programs: PathBuf,
}

/// What the registry serves under one reference.
#[derive(Debug, Clone, Default)]
pub struct PublishedImage<'a> {
    pub digest: &'a str,
    /// This machine's one if empty.
    pub architecture: &'a str,
    /// Compressed, in bytes.
    pub size: u64,
    /// `key=value`, separated by commas.
    pub labels: &'a str,
}

const HELPERS: [&str; 9] = [
    "journalctl",
    "getenforce",
    "setenforce",
    "rpm",
    "systemd-run",
    "systemctl",
    "chcon",
    "nice",
    "ionice",
];

impl OsDouble {
    /// Prepares a machine in `root` that has booted `reference` with `digest`. The state is kept in `state`, outside the
    /// machine.
    pub fn new(root: &Path, state: &Path, tools: OsTools, reference: &str, digest: &str) -> Self {
        let double = Self {
            root: root.to_owned(),
            state: state.join("state"),
            programs: state.join("programs"),
        };
        double.link_programs(tools);
        let booted = double.state.join("booted");
        fs::create_dir_all(&booted).expect("the state directory");
        let reference = match reference {
            "" => String::new(),
            reference => format!("ostree-unverified-registry:{reference}\n"),
        };
        for (file, text) in [
            ("reference", reference.as_str()),
            ("digest", &format!("{digest}\n")),
            ("checksum", "4cbe\n"),
            ("kargs", "BOOT_IMAGE=/ostree/vmlinuz\nro\nroot=UUID=1\n"),
            ("packages", ""),
            ("removals", ""),
            ("local", ""),
        ] {
            fs::write(booted.join(file), text).expect("the booted deployment");
        }
        for directory in ["run", "proc", "etc"] {
            fs::create_dir_all(root.join(directory)).expect("a directory of the machine");
        }
        fs::write(root.join("run/ostree-booted"), "").expect("the marker of an ostree system");
        fs::write(
            root.join("proc/cmdline"),
            "BOOT_IMAGE=/ostree/vmlinuz ro root=UUID=1",
        )
        .expect("/proc/cmdline");
        double.write("architecture", image_architecture());
        double
    }

    fn link_programs(&self, tools: OsTools) {
        fs::create_dir_all(&self.programs).expect("the directory of programs");
        let source =
            fs::canonicalize(repository_root().join("crates/testkit/programs")).expect("the doubles");
        let tool = match tools {
            OsTools::RpmOstree => Some("rpm-ostree"),
            OsTools::Bootc => Some("bootc"),
            OsTools::None => None,
        };
        let common = ["os-double-lib", "os-double", "ostree", "podman", "skopeo"];
        for program in common.into_iter().chain(tool) {
            symlink(source.join(program), self.programs.join(program)).expect("a link to a double");
        }
        for helper in HELPERS {
            symlink(source.join("os-double-helper"), self.programs.join(helper)).expect("a link to a helper");
        }
    }

    /// Returns the command prefix that runs a tool of this machine.
    pub fn launcher(&self) -> Vec<OsString> {
        let variable = |name: &str, value: &Path| {
            let mut text = OsString::from(format!("{name}="));
            text.push(value);
            text
        };
        let mut path = OsString::from("PATH=");
        path.push(&self.programs);
        path.push(":/usr/bin:/bin");
        vec![
            "/usr/bin/env".into(),
            path,
            variable("OS_DOUBLE_STATE", &self.state),
            variable("OS_DOUBLE_ROOT", &self.root),
            variable("OS_DOUBLE_PROGRAMS", &self.programs),
        ]
    }

    /// Runs a shell script on this machine; returns whether it succeeded.
    pub fn shell(&self, script: &str) -> bool {
        let launcher = self.launcher();
        let mut command = Command::new("/usr/bin/env");
        command
            .args(launcher.iter().skip(1))
            .args(["/bin/sh", "-c", script]);
        command.status().expect("a shell").success()
    }

    /// Puts an image into the registry.
    pub fn publish(&self, reference: &str, image: &PublishedImage<'_>) {
        let architecture = match image.architecture {
            "" => image_architecture(),
            other => other,
        };
        let labels = match image.labels {
            "" => "ostree.bootable=true",
            other => other,
        };
        let line = format!(
            "{reference} {} {architecture} {} {labels}\n",
            image.digest, image.size
        );
        self.append("images", &line);
    }

    /// Puts an ordinary image into the registry.
    pub fn publish_digest(&self, reference: &str, digest: &str) {
        self.publish(
            reference,
            &PublishedImage {
                digest,
                size: 1000,
                ..PublishedImage::default()
            },
        );
    }

    /// Removes all images from the registry.
    pub fn clear_registry(&self) {
        self.write("images", "");
    }

    /// Puts an image into the local container storage.
    pub fn store_locally(&self, reference: &str, digest: &str) {
        self.append("local", &format!("{reference} {digest}\n"));
    }

    /// Lets the next `count` commands that match a shell pattern fail with a message.
    pub fn fail(&self, count: u32, pattern: &str, message: &str) {
        self.append("fail", &format!("{count}|{pattern}|{message}\n"));
    }

    /// Ends all failures.
    pub fn repair(&self) {
        self.write("fail", "");
    }

    /// Writes a file of the doubles' state: `boot-full`, `private`, `features`, `selinux`, ...
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.state.join(file), text).expect("a file of the state");
    }

    pub fn remove(&self, file: &str) {
        let _ = fs::remove_file(self.state.join(file));
    }

    fn append(&self, file: &str, text: &str) {
        let path = self.state.join(file);
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("a file of the state");
    }

    /// Returns a fact of a deployment (`booted`, `staged` or `rollback`), for example its `digest`; empty without it.
    pub fn fact(&self, deployment: &str, fact: &str) -> String {
        let text = fs::read_to_string(self.state.join(deployment).join(fact));
        text.unwrap_or_default().trim().to_owned()
    }

    /// Sets a fact of a deployment.
    pub fn set_fact(&self, deployment: &str, fact: &str, value: &str) {
        let directory = self.state.join(deployment);
        fs::create_dir_all(&directory).expect("the directory of a deployment");
        fs::write(directory.join(fact), value).expect("a fact of a deployment");
    }

    pub fn has(&self, deployment: &str) -> bool {
        self.state.join(deployment).exists()
    }

    /// An orderly reboot: a staged deployment is finalized, unless `/boot` is full or the deployment is locked.
    pub fn boot(&self) {
        assert!(self.shell("os-double boot"), "the machine boots");
    }

    /// A reboot without a shutdown.
    pub fn cut_power(&self) {
        assert!(self.shell("os-double power-cut"), "the machine boots");
    }

    /// Returns all commands so far.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.state.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the commands that change something, of one tool.
    pub fn changes_by(&self, tool: &str) -> Vec<String> {
        let changes = |line: &String| {
            let rest = line.strip_prefix(tool).and_then(|rest| rest.strip_prefix(' '));
            rest.is_some_and(|rest| !rest.starts_with("status") && !rest.starts_with("--version"))
        };
        self.log().into_iter().filter(changes).collect()
    }

    pub fn clear_log(&self) {
        self.write("log", "");
    }
}

/// Returns this machine's architecture as image configs name it.
pub fn image_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
