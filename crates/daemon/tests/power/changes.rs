//! The changes that are examined: up to three of these elements at once, and one of 200 files.

use mco_daemon::config::NodeConfig;
use serde_json::{Map, Value, json};

use crate::support::{config_with, file};

/// One element of a change: what the old and the new config contain because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    ReplacedFile,
    NewFileInNewDirectories,
    RemovedFile,
    RestoredOriginal,
    ReplacedOriginal,
    DirectoryAttributes,
    EnabledUnit,
    DisabledUnit,
    SshKeys,
    Password,
    KernelArguments,
    Link,
}

pub const ELEMENTS: [Element; 12] = [
    Element::ReplacedFile,
    Element::NewFileInNewDirectories,
    Element::RemovedFile,
    Element::RestoredOriginal,
    Element::ReplacedOriginal,
    Element::DirectoryAttributes,
    Element::EnabledUnit,
    Element::DisabledUnit,
    Element::SshKeys,
    Element::Password,
    Element::KernelArguments,
    Element::Link,
];

#[derive(Debug, Default)]
struct Parts {
    files: Vec<Value>,
    directories: Vec<Value>,
    links: Vec<Value>,
    units: Vec<Value>,
    user: Map<String, Value>,
    arguments: Vec<Value>,
}

impl Parts {
    fn config(self, name: &str) -> NodeConfig {
        let mut body = json!({
            "storage": {"files": self.files, "directories": self.directories, "links": self.links},
            "systemd": {"units": self.units},
        });
        if !self.user.is_empty() {
            let mut user = self.user;
            user.insert("name".to_owned(), json!("core"));
            body["passwd"] = json!({"users": [user]});
        }
        config_with(name, &body, &json!({"kernelArguments": self.arguments}))
    }
}

/// Returns the old and the new config of a change.
pub fn configs(elements: &[Element]) -> (NodeConfig, NodeConfig) {
    let (mut old, mut new) = (Parts::default(), Parts::default());
    // Without any, the config would have the same contents.
    old.files.push(file("/etc/unchanged", "unchanged\n"));
    new.files.push(file("/etc/unchanged", "unchanged\n"));
    for element in elements {
        element.add(&mut old, &mut new);
    }
    (old.config("old"), new.config("new"))
}

impl Element {
    fn add(self, old: &mut Parts, new: &mut Parts) {
        match self {
            Self::ReplacedFile => {
                let mut before = file("/etc/app/replaced", "old contents\n");
                before["mode"] = json!(0o600);
                old.files.push(before);
                new.files.push(file("/etc/app/replaced", "new contents\n"));
            }
            Self::NewFileInNewDirectories => {
                let mut entry = file("/etc/fresh/deep/file", "new\n");
                entry["user"] = json!({"id": 1000});
                new.files.push(entry);
            }
            Self::RemovedFile => old.files.push(file("/etc/app/removed", "old\n")),
            Self::RestoredOriginal => old.files.push(file("/etc/motd", "managed\n")),
            Self::ReplacedOriginal => new.files.push(file("/etc/preexisting", "managed\n")),
            Self::DirectoryAttributes => {
                let directory = |mode| json!({"path": "/etc/directory", "mode": mode});
                old.directories.push(directory(0o755));
                new.directories.push(directory(0o750));
            }
            Self::EnabledUnit => new.units.push(unit("fresh.service", true)),
            Self::DisabledUnit => {
                old.units.push(unit("stopped.service", true));
                new.units.push(unit("stopped.service", false));
            }
            Self::SshKeys => {
                old.user
                    .insert("sshAuthorizedKeys".to_owned(), json!(["ssh-ed25519 old"]));
                new.user.insert(
                    "sshAuthorizedKeys".to_owned(),
                    json!(["ssh-ed25519 new", "ssh-ed25519 more"]),
                );
            }
            Self::Password => {
                old.user.insert("passwordHash".to_owned(), json!("$y$old"));
                new.user.insert("passwordHash".to_owned(), json!("$y$new"));
            }
            Self::KernelArguments => new.arguments.push(json!("new=1")),
            Self::Link => {
                let link = |target| json!({"path": "/etc/link", "target": target, "overwrite": true});
                old.links.push(link("app/old"));
                new.links.push(link("app/new"));
            }
        }
    }
}

fn unit(name: &str, enabled: bool) -> Value {
    let contents = format!(
        "[Unit]\nDescription={enabled}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    );
    json!({"name": name, "enabled": enabled, "contents": contents})
}

/// The change of 200 files: 50 unchanged, 50 replaced, 50 removed, 100 added, with units, keys and kernel arguments.
pub fn large() -> (NodeConfig, NodeConfig) {
    let (mut old, mut new) = (Parts::default(), Parts::default());
    old.files.extend((0..150).map(|index| numbered(index, "old")));
    let version = |index| if index < 100 { "old" } else { "new" };
    new.files
        .extend((50..250).map(|index| numbered(index, version(index))));
    for element in [
        Element::EnabledUnit,
        Element::DisabledUnit,
        Element::SshKeys,
        Element::Password,
        Element::KernelArguments,
        Element::ReplacedOriginal,
        Element::RestoredOriginal,
    ] {
        element.add(&mut old, &mut new);
    }
    (old.config("old"), new.config("new"))
}

fn numbered(index: usize, version: &str) -> Value {
    let text = format!("{version} {index}\n").repeat(1 + index % 40);
    let mut entry = file(&format!("/etc/app/{}/file-{index}", index % 7), &text);
    entry["mode"] = json!(if index.is_multiple_of(5) { 0o600 } else { 0o644 });
    entry
}
