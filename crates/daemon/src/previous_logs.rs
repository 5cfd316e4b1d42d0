//! The logs of the daemon's pods, which the kubelet deletes together with the pods. Kept when the daemon stops, because
//! its next pod has no log of why a change was left unfinished.

use mco_host::{Attributes, FileKind, FsError, Root, RootedPath};

use crate::custody::Custody;
use crate::disk::DiskError;
use crate::paths;

/// The kubelet's logs: a directory `NAMESPACE_POD_UID` for each pod, with one for each container.
const PODS: &str = "/var/log/pods";
const POD: &str = "machine-config-daemon";
/// Logs may contain what a failing tool has printed.
const DIRECTORY: Attributes = Attributes::root(0o700);

/// Replaces the kept logs by those of the present pods and returns their number. Where the daemon is no pod, what is
/// there stays. An adopted machine gets no files that its release would have to remove.
pub fn keep(root: &Root) -> Result<usize, DiskError> {
    if !Custody::of(root)?.is_installed() {
        return Ok(0);
    }
    Ok(replace(root)?)
}

fn replace(root: &Root) -> Result<usize, FsError> {
    let logs = logs(root)?;
    if logs.is_empty() {
        return Ok(0);
    }
    let (pods, kept) = (RootedPath::new(PODS)?, RootedPath::new(paths::PREVIOUS_LOGS)?);
    remove(root, &kept)?;
    for [pod, container, file] in &logs {
        let from = pods.join(pod)?.join(container)?.join(file)?;
        let directory = kept.join(pod)?.join(container)?;
        root.create_directories(&directory, DIRECTORY)?;
        root.copy_file(&from, &directory.join(file)?)?;
    }
    Ok(logs.len())
}

/// Returns pod, container and name of each log of the daemon.
fn logs(root: &Root) -> Result<Vec<[String; 3]>, FsError> {
    let pods = RootedPath::new(PODS)?;
    let mut logs = Vec::new();
    for pod in root.list(&pods)? {
        let is_ours = pod.split('_').nth(1).is_some_and(|name| name.starts_with(POD));
        if !is_ours {
            continue;
        }
        let pod_path = pods.join(&pod)?;
        for container in root.list(&pod_path)? {
            let container_path = pod_path.join(&container)?;
            for file in root.list(&container_path)? {
                let entry = root.entry(&container_path.join(&file)?)?;
                if entry.is_some_and(|entry| entry.kind == FileKind::File) {
                    logs.push([pod.clone(), container.clone(), file]);
                }
            }
        }
    }
    Ok(logs)
}

fn remove(root: &Root, path: &RootedPath) -> Result<(), FsError> {
    match root.entry(path)?.map(|entry| entry.kind) {
        None => {}
        Some(FileKind::Directory) => {
            for name in root.list(path)? {
                remove(root, &path.join(&name)?)?;
            }
            root.remove_directory(path)?;
        }
        Some(_) => {
            root.remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mco_host::Ownership;

    use super::*;

    fn machine() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    fn write(directory: &tempfile::TempDir, path: &str, text: &str) {
        let path = directory.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_logs_of_a_stopped_daemon_were_gone_with_its_pod() {
        let (directory, root) = machine();
        write(&directory, paths::INSTALLED_CONFIG, "{}");
        let of = |pod: &str| format!("openshift-machine-config-operator_{pod}_1/machine-config-daemon/0.log");
        for (pod, text) in [
            ("machine-config-daemon-a", "one"),
            ("machine-config-server-b", "no"),
        ] {
            write(&directory, &format!("{PODS}/{}", of(pod)), text);
        }
        assert_eq!(keep(&root).unwrap(), 1);
        let kept = |pod: &str| {
            let path = format!("{}/{}", paths::PREVIOUS_LOGS, of(pod));
            fs::read_to_string(directory.path().join(path.trim_start_matches('/'))).ok()
        };
        assert_eq!(kept("machine-config-daemon-a").as_deref(), Some("one"));
        assert_eq!(kept("machine-config-server-b"), None);

        fs::remove_dir_all(directory.path().join(&PODS[1..])).unwrap();
        assert_eq!(keep(&root).unwrap(), 0);
        assert_eq!(kept("machine-config-daemon-a").as_deref(), Some("one"), "no pod");
        write(
            &directory,
            &format!("{PODS}/{}", of("machine-config-daemon-c")),
            "two",
        );
        assert_eq!(keep(&root).unwrap(), 1);
        assert_eq!(
            kept("machine-config-daemon-a"),
            None,
            "the copy before is replaced"
        );
        assert_eq!(kept("machine-config-daemon-c").as_deref(), Some("two"));
    }

    #[test]
    fn an_adopted_machine_keeps_no_logs() {
        let (directory, root) = machine();
        let log = format!("{PODS}/n_machine-config-daemon-a_1/machine-config-daemon/0.log");
        write(&directory, &log, "one");
        assert_eq!(keep(&root).unwrap(), 0);
        assert!(
            !root
                .exists(&RootedPath::new(paths::PREVIOUS_LOGS).unwrap())
                .unwrap()
        );
    }
}
