//! Other agents on a machine that reboot it or write the same files, detected by their units and settings.

use mco_api::node_adoption::NodeAgent;
use mco_host::systemd::{self, Enablement};
use mco_host::{FileKind, FsError, Root, RootedPath};

use crate::config::NodeConfig;
use crate::target;

const LARGEST: u64 = 1 << 20;
const APT_SETTINGS: &str = "/etc/apt/apt.conf.d";
const ZINCATI_SETTINGS: &str = "/etc/zincati/config.d";
const UPDATE_SETTINGS: [&str; 2] = ["/etc/flatcar/update.conf", "/etc/coreos/update.conf"];
const CLOUD_INIT: &str = "/etc/cloud/cloud.cfg";
const CLOUD_INIT_OFF: &str = "/etc/cloud/cloud-init.disabled";
const USER_DATA: [&str; 2] = [
    "/var/lib/cloud/instance/user-data.txt",
    "/var/lib/cloud/instance/vendor-data.txt",
];
/// What kured reboots a node for.
const REBOOT_REQUIRED: &str = "/var/run/reboot-required";

/// Files that cloud-init writes by itself, depending on its settings.
const OF_CLOUD_INIT: [&str; 7] = [
    "/etc/hostname",
    "/etc/hosts",
    "/etc/netplan/50-cloud-init.yaml",
    "/etc/network/interfaces.d/50-cloud-init",
    "/etc/resolv.conf",
    "/etc/apt/sources.list",
    "/etc/default/locale",
];

pub(super) fn detect(root: &Root, new: &NodeConfig) -> Result<Vec<NodeAgent>, FsError> {
    let mut found = Vec::new();
    let mut add = |name: &str, effect: String| {
        found.push(NodeAgent {
            name: name.to_owned(),
            effect,
        });
    };
    if let Some(effect) = unattended_upgrades(root)? {
        add("unattended-upgrades", effect);
    }
    if is_enabled(root, "zincati.service")? && !mentions(root, ZINCATI_SETTINGS, "enabled = false")? {
        let effect = "installs OS updates and reboots the node by itself; set updates.enabled = false in \
                      /etc/zincati/config.d";
        add("zincati", effect.to_owned());
    }
    if is_enabled(root, "locksmithd.service")? && !is_locksmith_off(root)? {
        let effect = "reboots the node after OS updates; mask locksmithd.service or set REBOOT_STRATEGY=off";
        add("locksmithd", effect.to_owned());
    }
    if exists(root, REBOOT_REQUIRED)? {
        let effect = "/var/run/reboot-required exists: where kured runs in the cluster, it reboots the node, without \
                      regard to the budget of the pool";
        add("kured", effect.to_owned());
    }
    if let Some(effect) = cloud_init(root, new)? {
        add("cloud-init", effect);
    }
    Ok(found)
}

fn unattended_upgrades(root: &Root) -> Result<Option<String>, FsError> {
    let is_active =
        is_enabled(root, "unattended-upgrades.service")? || is_enabled(root, "apt-daily-upgrade.timer")?;
    if !is_active || !mentions(root, APT_SETTINGS, "Unattended-Upgrade")? {
        return Ok(None);
    }
    let reboots = mentions(
        root,
        APT_SETTINGS,
        "Unattended-Upgrade::Automatic-Reboot \"true\"",
    )?;
    Ok(Some(if reboots {
        "installs packages and reboots the node by itself; set Unattended-Upgrade::Automatic-Reboot to \"false\""
            .to_owned()
    } else {
        "installs packages by itself, which may replace units and configuration files; it does not reboot"
            .to_owned()
    }))
}

fn cloud_init(root: &Root, new: &NodeConfig) -> Result<Option<String>, FsError> {
    if !exists(root, CLOUD_INIT)? || exists(root, CLOUD_INIT_OFF)? {
        return Ok(None);
    }
    let mut data = String::new();
    for path in USER_DATA {
        data.push_str(
            &root
                .read_text(&RootedPath::new(path)?, LARGEST)
                .ok()
                .flatten()
                .unwrap_or_default(),
        );
    }
    let managed = target::managed_paths(new).unwrap_or_default();
    let shared: Vec<&str> = managed
        .iter()
        .map(|(path, _)| path.as_str())
        .filter(|path| OF_CLOUD_INIT.contains(path) || data.contains(path))
        .collect();
    Ok((!shared.is_empty()).then(|| {
        format!(
            "writes the same files when the machine boots: {}; create {CLOUD_INIT_OFF} or remove them from its data",
            shared.join(", ")
        )
    }))
}

fn is_locksmith_off(root: &Root) -> Result<bool, FsError> {
    for path in UPDATE_SETTINGS {
        let text = root
            .read_text(&RootedPath::new(path)?, LARGEST)?
            .unwrap_or_default();
        if text
            .lines()
            .any(|line| line.trim().trim_matches('"') == "REBOOT_STRATEGY=off")
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_enabled(root: &Root, unit: &str) -> Result<bool, FsError> {
    let state = systemd::state(root, unit)?;
    Ok(matches!(state, Enablement::Enabled | Enablement::EnabledRuntime))
}

fn exists(root: &Root, path: &str) -> Result<bool, FsError> {
    root.exists(&RootedPath::new(path)?)
}

/// Whether a setting is in a file of a directory, in a line that is no comment.
fn mentions(root: &Root, directory: &str, setting: &str) -> Result<bool, FsError> {
    let directory = RootedPath::new(directory)?;
    let entry = root.entry(&directory)?;
    if entry.is_none_or(|entry| entry.kind != FileKind::Directory) {
        return Ok(false);
    }
    for name in root.list(&directory)? {
        let text = root.read_text(&directory.join(&name)?, LARGEST).ok().flatten();
        let is_set = |line: &str| {
            let line = line.trim_start();
            !line.starts_with("//") && !line.starts_with('#') && line.contains(setting)
        };
        if text.is_some_and(|text| text.lines().any(is_set)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use mco_host::Ownership;
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_that_reboot_or_write_the_same_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let enable = |unit: &str| {
            write(
                &format!("usr/lib/systemd/system/{unit}"),
                "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            );
            let wants = directory
                .path()
                .join("etc/systemd/system/multi-user.target.wants");
            fs::create_dir_all(&wants).unwrap();
            symlink(format!("/usr/lib/systemd/system/{unit}"), wants.join(unit)).unwrap();
        };
        let object = json!({"metadata": {"name": "a"}, "spec": {"config": {"ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": "/etc/hosts"}, {"path": "/etc/app.conf"}, {"path": "/etc/other"}]}}}});
        let config = NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        assert_eq!(detect(&root, &config).unwrap(), []);
        enable("unattended-upgrades.service");
        enable("locksmithd.service");
        enable("zincati.service");
        write(
            "etc/apt/apt.conf.d/50unattended-upgrades",
            "// Unattended-Upgrade::Automatic-Reboot \"true\";\nUnattended-Upgrade::Mail \"root\";\n",
        );
        write("etc/cloud/cloud.cfg", "");
        write(
            "var/lib/cloud/instance/user-data.txt",
            "write_files:\n- path: /etc/app.conf\n",
        );
        let found = detect(&root, &config).unwrap();
        let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(
            names,
            ["unattended-upgrades", "zincati", "locksmithd", "cloud-init"]
        );
        assert!(found[0].effect.contains("does not reboot"), "{}", found[0].effect);
        assert!(found[3].effect.contains("/etc/app.conf") && found[3].effect.contains("/etc/hosts"));
        assert!(!found[3].effect.contains("/etc/other"));
        write(
            "etc/apt/apt.conf.d/99own",
            "Unattended-Upgrade::Automatic-Reboot \"true\";\n",
        );
        write("etc/flatcar/update.conf", "REBOOT_STRATEGY=off\n");
        write("etc/zincati/config.d/90-off.toml", "[updates]\nenabled = false\n");
        let found = detect(&root, &config).unwrap();
        let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["unattended-upgrades", "cloud-init"]);
        assert!(
            found[0].effect.contains("reboots the node"),
            "{}",
            found[0].effect
        );
    }
}
