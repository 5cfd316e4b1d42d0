//! Paths that no MachineConfig changes on an adopted node without an explicit allowance, because a node without them
//! cannot be reached or repaired any more: credentials, the start of kubelet and container runtime, boot loader and
//! network.
//!
//! On nodes that were installed from a rendered config these paths belong to the config, and nothing here applies.

mod units;

use std::collections::{BTreeMap, BTreeSet};

use mco_api::vocabulary::annotations::ALLOW_GUARDED_PATHS;
use mco_ignition::Config;
use mco_ignition::model::{Dropin, File, Unit};

use crate::config::node_files;
pub use units::{
    GuardedUnitPath, guarded_unit_path, is_environment_file, is_guarded_unit, names_credentials, replaced_by,
    sets_start,
};
use units::{UNIT_DIRECTORY, is_reserved};

/// Kubeconfigs and keys of the kubelet and of the control plane. A trailing slash covers a directory.
const CREDENTIALS: [&str; 17] = [
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/super-admin.conf",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/scheduler.conf",
    "/etc/kubernetes/kubeconfig",
    "/etc/kubernetes/pki/",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/pki/",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/rancher/rke2/rke2.yaml",
    "/etc/rancher/node/password",
    // The token and the server of the node, as the installer of k3s writes them.
    "/etc/systemd/system/k3s.service.env",
    "/etc/systemd/system/k3s-agent.service.env",
    "/var/lib/rancher/k3s/",
    "/var/lib/rancher/rke2/",
];

/// Drop-in directories of the distributions above that hold no credentials.
const NOT_CREDENTIALS: [&str; 2] = [
    "/var/lib/rancher/k3s/agent/etc/",
    "/var/lib/rancher/rke2/agent/etc/",
];

/// The arguments that `kubeadm join` has chosen for this node, such as the socket of its runtime.
const KUBEADM_ARGUMENTS: &str = "/var/lib/kubelet/kubeadm-flags.env";

const BOOT_LOADER: [&str; 7] = [
    "/boot/",
    "/efi/",
    "/etc/default/grub",
    "/etc/default/grub.d/",
    "/etc/grub.d/",
    "/etc/kernel/cmdline",
    "/etc/zipl.conf",
];

/// Which of these matter depends on the interface of the route to the API server, so only the node can decide.
const NETWORK: [&str; 8] = [
    "/etc/netplan/",
    "/etc/NetworkManager/system-connections/",
    "/etc/NetworkManager/conf.d/",
    "/etc/systemd/network/",
    "/etc/network/interfaces",
    "/etc/network/interfaces.d/",
    "/etc/sysconfig/network-scripts/",
    "/etc/resolv.conf",
];

pub const IS_CREDENTIAL: &str = "it is a credential of the kubelet or of the control plane";
pub const STARTS_KUBELET: &str = "it changes how the kubelet or the container runtime is started";
pub const IS_BOOT_LOADER: &str = "it belongs to the boot loader";
pub const IS_API_NETWORK: &str = "it configures the network that the API server is reached through";

/// A path or unit that a config would change, and why that is guarded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuardedPath {
    pub path: String,
    pub why: &'static str,
}

/// Returns the guarded paths that a config names, as far as the config alone decides it.
pub fn of_config(config: &Config) -> Vec<GuardedPath> {
    let config = &*node_files::on_nodes(config);
    let storage = &config.storage;
    let mut found = BTreeSet::new();
    let mut add = |path: &str, why: &'static str| {
        found.insert(GuardedPath {
            path: path.to_owned(),
            why,
        });
    };
    let directories = storage.directories.iter().map(|directory| &directory.path);
    let links = storage.links.iter().map(|link| &link.path);
    for path in directories.chain(links) {
        let starts = guarded_unit_path(path).is_some() || is_environment_file(path);
        if let Some(why) = by_path(path).or_else(|| starts.then_some(STARTS_KUBELET)) {
            add(path, why);
        }
    }
    for file in &storage.files {
        if let Some(why) = by_path(&file.path).or_else(|| file_starts(file).then_some(STARTS_KUBELET)) {
            add(&file.path, why);
        }
    }
    for unit in &config.systemd.units {
        for path in guarded_of_unit(unit) {
            add(&path, STARTS_KUBELET);
        }
    }
    found.into_iter().collect()
}

/// Returns why a path is guarded regardless of its contents.
pub fn by_path(path: &str) -> Option<&'static str> {
    let covers = |entry: &&str| match entry.strip_suffix('/') {
        Some(directory) => path == directory || path.starts_with(*entry),
        None => path == *entry,
    };
    if CREDENTIALS.iter().any(covers) && !NOT_CREDENTIALS.iter().any(covers) {
        return Some(IS_CREDENTIAL);
    }
    if path == KUBEADM_ARGUMENTS {
        return Some(STARTS_KUBELET);
    }
    BOOT_LOADER.iter().any(covers).then_some(IS_BOOT_LOADER)
}

/// Whether a file changes how the kubelet or the container runtime is started.
fn file_starts(file: &File) -> bool {
    let path = &file.path;
    // Contents that are fetched or compressed in an unknown way are not trusted.
    let text = || super::diff::file_bytes(file).and_then(|bytes| String::from_utf8(bytes).ok());
    match guarded_unit_path(path) {
        Some(GuardedUnitPath::Unit | GuardedUnitPath::Directory) => true,
        Some(dropin) => is_reserved(dropin) || text().is_none_or(|text| sets_start(&text)),
        None => is_environment_file(path) && text().is_none_or(|text| names_credentials(&text)),
    }
}

/// Whether a path configures the network, which is guarded if it affects the route to the API server.
pub fn is_network(path: &str) -> bool {
    NETWORK.iter().any(|entry| match entry.strip_suffix('/') {
        Some(_) => path.starts_with(entry),
        None => path == *entry,
    })
}

/// Whether a file is a kubeconfig, or holds a private key, by its contents.
pub fn is_credential(contents: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(contents) else {
        return false;
    };
    let has = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
    let is_kubeconfig = has("kind: Config") && has("users:") && has("clusters:");
    let is_json_kubeconfig = text.trim_start().starts_with('{')
        && text.contains("\"clusters\"")
        && text.contains("\"users\"")
        && text.contains("\"contexts\"");
    is_kubeconfig || is_json_kubeconfig
}

fn guarded_of_unit(unit: &Unit) -> Vec<String> {
    let mut paths = Vec::new();
    let stops = unit.mask == Some(true) || unit.enabled == Some(false);
    let replaces = unit.contents.as_deref().is_some_and(|text| !text.is_empty());
    if is_guarded_unit(&unit.name) && (stops || replaces) {
        paths.push(unit_path(unit));
    }
    for dropin in &unit.dropins {
        let path = dropin_path(unit, dropin);
        let sets_start = || dropin.contents.as_deref().is_some_and(sets_start);
        if guarded_unit_path(&path).is_some_and(|found| is_reserved(found) || sets_start()) {
            paths.push(path);
        }
    }
    paths
}

fn unit_path(unit: &Unit) -> String {
    format!("{UNIT_DIRECTORY}/{}", unit.name)
}

fn dropin_path(unit: &Unit, dropin: &Dropin) -> String {
    format!("{UNIT_DIRECTORY}/{}.d/{}", unit.name, dropin.name)
}

/// The paths that MachineConfigs explicitly allow to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowance(BTreeSet<String>);

impl Allowance {
    /// Reads the annotation of a MachineConfig or of a rendered config.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|all| all.get(ALLOW_GUARDED_PATHS));
        let items = text.into_iter().flat_map(|text| {
            text.split(|character: char| character == ',' || character.is_whitespace())
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
        });
        Self(items.collect())
    }

    /// Whether a path may change: it is listed, or its directory with a trailing slash, or the unit it belongs to.
    pub fn allows(&self, path: &str) -> bool {
        self.0.iter().any(|item| match item.strip_suffix('/') {
            Some(_) => path.starts_with(item.as_str()),
            None if item.contains('/') => path == item,
            None => path
                .split('/')
                .any(|part| part == item || part.strip_suffix(".d") == Some(item)),
        })
    }

    /// Returns the annotation of the rendered config: the paths that a source names and allows. A source allows nothing
    /// on behalf of another.
    pub fn rendered<'a>(
        sources: impl IntoIterator<Item = (&'a Config, Option<&'a BTreeMap<String, String>>)>,
    ) -> Option<String> {
        let mut allowed = BTreeSet::new();
        for (config, annotations) in sources {
            let allowance = Self::of(annotations);
            if allowance.0.is_empty() {
                continue;
            }
            allowed.extend(named(config).into_iter().filter(|path| allowance.allows(path)));
        }
        (!allowed.is_empty()).then(|| allowed.into_iter().collect::<Vec<_>>().join(","))
    }
}

/// Returns all paths that a config names.
fn named(config: &Config) -> Vec<String> {
    let storage = &config.storage;
    let files = storage.files.iter().map(|file| &file.path);
    let directories = storage.directories.iter().map(|directory| &directory.path);
    let links = storage.links.iter().map(|link| &link.path);
    let paths = files.chain(directories).chain(links).cloned();
    let units = config.systemd.units.iter().flat_map(|unit| {
        let dropins = unit.dropins.iter().map(|dropin| dropin_path(unit, dropin));
        std::iter::once(unit_path(unit)).chain(dropins)
    });
    paths.chain(units).collect()
}

/// Returns the guarded paths that a config names and does not allow.
pub fn not_allowed(config: &Config, allowance: &Allowance) -> Vec<GuardedPath> {
    let mut found = of_config(config);
    found.retain(|guarded| !allowance.allows(&guarded.path));
    found
}

/// Returns the message about guarded paths, with the remedy.
pub fn refusal(paths: &[GuardedPath]) -> String {
    let shown: Vec<String> = paths
        .iter()
        .map(|guarded| format!("{} ({})", guarded.path, guarded.why))
        .collect();
    let list: Vec<&str> = paths.iter().map(|guarded| guarded.path.as_str()).collect();
    format!(
        "guarded paths of nodes that were not installed from their config would be changed: {}. If that is intended, \
         annotate the MachineConfig that names them with {ALLOW_GUARDED_PATHS}: {}",
        shown.join("; "),
        list.join(",")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: &serde_json::Value) -> Config {
        let mut all = json!({"ignition": {"version": "3.5.0"}});
        for (key, value) in body.as_object().unwrap() {
            all[key] = value.clone();
        }
        mco_ignition::parse(&all).unwrap().config
    }

    fn guarded(body: &serde_json::Value) -> Vec<String> {
        of_config(&parse(body))
            .into_iter()
            .map(|found| found.path)
            .collect()
    }

    #[test]
    fn credentials_boot_loader_and_the_start_of_the_kubelet_are_guarded() {
        let file =
            |path: &str, text: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let body = json!({
            "storage": {"files": [
                file("/etc/kubernetes/kubelet.conf", "a"),
                file("/etc/kubernetes/kubelet.conf.d/10-a.conf", "a"),
                file("/etc/kubernetes/pki/ca.key", "a"),
                file("/etc/default/grub", "a"),
                file("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/10-a.conf", "a"),
                file("/var/lib/rancher/k3s/server/token", "a"),
                file("/usr/lib/systemd/system/kubelet.service.d/90-a.conf", "%5BService%5D%0AExecStart=%0A"),
                file("/etc/systemd/system/kubelet.service.d/90-b.conf", "%5BService%5D%0AEnvironment=A=B%0A"),
                file("/etc/chrony.conf", "a"),
            ]},
            "systemd": {"units": [
                {"name": "containerd.service", "dropins": [
                    {"name": "a.conf", "contents": "[Service]\nExecStart=\nExecStart=/bin/a\n"},
                    {"name": "b.conf", "contents": "[Service]\nLimitNOFILE=1\n"},
                ]},
                {"name": "kubelet.service", "enabled": false},
                {"name": "chrony.service", "enabled": true},
            ]},
        });
        assert_eq!(
            guarded(&body),
            [
                "/etc/default/grub",
                "/etc/kubernetes/kubelet.conf",
                "/etc/kubernetes/pki/ca.key",
                "/etc/systemd/system/containerd.service.d/a.conf",
                "/etc/systemd/system/kubelet.service",
                "/usr/lib/systemd/system/kubelet.service.d/90-a.conf",
                "/var/lib/rancher/k3s/server/token",
            ]
        );
    }

    #[test]
    fn a_drop_in_of_kubeadms_name_and_a_unit_of_any_contents_do_not_pass_the_guard() {
        let file =
            |path: &str, text: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let nice = "[Service]\nNice=1\n";
        let body = json!({
            "storage": {"files": [
                file("/etc/systemd/system/containerd.service.d/10-kubeadm.conf", "%5BService%5D%0ANice=1%0A"),
                file("/etc/systemd/system/service.d/a.conf", "%5BService%5D%0AExecStart=%0A"),
                file("/etc/systemd/system.control/kubelet.service.d/a.conf", "%5BService%5D%0AExecStart=%0A"),
                file("/etc/systemd/system/crio.service", "%5BUnit%5D%0ADescription=a%0A"),
                file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--kubeconfig=/a"),
                file("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1"),
                file("/var/lib/kubelet/kubeadm-flags.env", ""),
                file("/etc/systemd/system/k3s-agent.service.env", ""),
            ]},
            "systemd": {"units": [
                {"name": "kubelet.service", "dropins": [
                    {"name": "10-kubeadm.conf", "contents": nice},
                    {"name": "20-mco-config-dir.conf", "contents": "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=\
                        --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubernetes/kubelet.conf.d\"\n"},
                ]},
                {"name": "k3s-.service", "mask": true, "dropins": [
                    {"name": "a.conf", "contents": "[Service]\nExecStart=/bin/a\n"},
                    {"name": "b.conf", "contents": nice},
                ]},
            ]},
        });
        assert_eq!(
            guarded(&body),
            [
                "/etc/default/kubelet",
                "/etc/systemd/system.control/kubelet.service.d/a.conf",
                "/etc/systemd/system/containerd.service.d/10-kubeadm.conf",
                "/etc/systemd/system/crio.service",
                "/etc/systemd/system/k3s-.service.d/a.conf",
                "/etc/systemd/system/k3s-agent.service.env",
                "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
                "/etc/systemd/system/service.d/a.conf",
                "/var/lib/kubelet/kubeadm-flags.env",
            ]
        );
    }

    #[test]
    fn an_allowance_covers_paths_directories_and_units() {
        let allowance = |text: &str| {
            let annotations = BTreeMap::from([(ALLOW_GUARDED_PATHS.to_owned(), text.to_owned())]);
            Allowance::of(Some(&annotations))
        };
        let all = allowance("/etc/kubernetes/kubelet.conf, /boot/\nkubelet.service");
        for path in [
            "/etc/kubernetes/kubelet.conf",
            "/boot/grub/grub.cfg",
            "/etc/systemd/system/kubelet.service",
            "/etc/systemd/system/kubelet.service.d/a.conf",
        ] {
            assert!(all.allows(path), "{path}");
        }
        for path in [
            "/etc/kubernetes/admin.conf",
            "/etc/systemd/system/crio.service",
            "/boots",
        ] {
            assert!(!all.allows(path), "{path}");
        }
        assert!(!allowance("").allows("/etc/kubernetes/kubelet.conf"));
    }

    #[test]
    fn a_source_allows_only_what_it_names_itself() {
        let one = parse(&json!({"storage": {"files": [{"path": "/etc/kubernetes/kubelet.conf"}]}}));
        let two = parse(&json!({"storage": {"files": [{"path": "/etc/kubernetes/admin.conf"}]}}));
        let annotations = BTreeMap::from([(ALLOW_GUARDED_PATHS.to_owned(), "/etc/kubernetes/".to_owned())]);
        assert_eq!(
            Allowance::rendered([(&one, Some(&annotations)), (&two, None)]).as_deref(),
            Some("/etc/kubernetes/kubelet.conf")
        );
        assert_eq!(Allowance::rendered([(&one, None), (&two, None)]), None);
    }

    #[test]
    fn kubeconfigs_are_recognised_wherever_they_are() {
        assert!(is_credential(
            b"apiVersion: v1\nkind: Config\nclusters:\n- a\nusers:\n- b\n"
        ));
        assert!(is_credential(
            b"{\"kind\":\"Config\",\"clusters\":[],\"users\":[],\"contexts\":[]}"
        ));
        assert!(!is_credential(b"kind: KubeletConfiguration\n"));
        assert!(!is_credential(&[0xff, 0xfe]));
    }
}
