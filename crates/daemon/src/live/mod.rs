//! Certificates and pull secrets, which change more often than configs. They are synced from the cluster's
//! ControllerConfig without a drain or reboot, and validation ignores a config's copy of them.
//!
//! Only files that the daemon has written are removed again, by a record on disk. On an adopted machine, a file that was
//! there before is kept and restored, and files that neither a config nor a registry's CA needs are not written.

pub mod api_server_ca;
mod record;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::ByteString;
use mco_api::ControllerConfig;
use mco_host::systemd::ServiceError;
use mco_host::{Attributes, FileKind, FsError, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::disk::DiskError;
use crate::paths;
use crate::plan::originals;
use crate::target::{self, TargetError};
use record::{LiveRecord, WrittenFile, hash};

const CERTIFICATE: Attributes = Attributes::root(0o644);
const SECRET: Attributes = Attributes::root(0o600);
const LARGEST: u64 = 16 << 20;
/// The only file that we manage in a registry's directory.
const REGISTRY_CA: &str = "ca.crt";

/// The record is read and written by the agent and by the task that pins images.
static RECORD: Mutex<()> = Mutex::new(());

fn lock_record() -> MutexGuard<'static, ()> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Error)]
pub enum LiveError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The desired contents, by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LiveContent {
    files: BTreeMap<RootedPath, (Vec<u8>, Attributes)>,
    /// Paths to truncate if they exist; missing ones are not created.
    empty: Vec<RootedPath>,
}

/// Returns the contents that a ControllerConfig defines.
pub fn wanted(config: &ControllerConfig) -> Result<LiveContent, FsError> {
    let spec = &config.spec;
    let mut wanted = LiveContent::default();
    let singles = [
        (
            paths::KUBELET_CA,
            Some(&spec.kube_api_server_serving_ca_data),
            CERTIFICATE,
        ),
        (paths::CLOUD_CA, spec.cloud_provider_ca_data.as_ref(), CERTIFICATE),
        (
            paths::MERGED_PULL_SECRET,
            spec.internal_registry_pull_secret.as_ref(),
            SECRET,
        ),
    ];
    for (path, data, attributes) in singles {
        let path = RootedPath::new(path)?;
        match data.filter(|data| !data.0.is_empty()) {
            Some(data) => {
                wanted.files.insert(path, (with_newline(data), attributes));
            }
            // An operator that has not found its data yet must not cut nodes off.
            None if path.as_str() == paths::CLOUD_CA => wanted.empty.push(path),
            None => {}
        }
    }
    // The user's own bundles come last and win.
    let bundles = spec
        .image_registry_bundle_data
        .iter()
        .chain(&spec.image_registry_bundle_user_data);
    for bundle in bundles {
        let directory = RootedPath::new(paths::REGISTRY_CAS)?.join(&registry(&bundle.file))?;
        wanted.files.insert(
            directory.join(REGISTRY_CA)?,
            (with_newline(&bundle.data), CERTIFICATE),
        );
    }
    Ok(wanted)
}

/// Returns the registry's directory name. A ConfigMap key cannot contain a colon, so two dots precede the port.
fn registry(file: &str) -> String {
    file.replace("..", ":")
}

fn with_newline(data: &ByteString) -> Vec<u8> {
    let mut bytes = data.0.clone();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    bytes
}

/// Writes what differs and returns the changed paths. `current` is the machine's config: paths it manages are not
/// removed.
pub fn sync(
    root: &Root,
    wanted: &LiveContent,
    current: Option<&NodeConfig>,
    custody: Custody,
) -> Result<Vec<RootedPath>, LiveError> {
    let managed = managed_paths(current)?;
    let _locked = lock_record();
    let mut record = LiveRecord::read(root)?;
    let mut touched = Vec::new();
    remove_stale(root, &mut record, &mut touched, |path| {
        // A missing CA may only not be known yet, but the tools of the OS prefer an old merged pull secret to the
        // kubelet's.
        let is_removable = path.is_within(paths::REGISTRY_CAS) || path.as_str() == paths::MERGED_PULL_SECRET;
        wanted.files.contains_key(path) || managed.contains(path) || !is_removable
    })?;
    for (path, (contents, attributes)) in &wanted.files {
        let is_asked_for = path.is_within(paths::REGISTRY_CAS) || managed.contains(path);
        if (custody.is_installed() || is_asked_for)
            && put(root, &mut record, path, (contents, *attributes), custody)?
        {
            touched.push(path.clone());
        }
    }
    if custody.is_installed() && restrict_kubeconfig(root)? {
        touched.push(RootedPath::new(paths::BOOTSTRAP_KUBECONFIG).map_err(FsError::from)?);
    }
    for path in &wanted.empty {
        let is_ours = custody.is_installed() || managed.contains(path);
        if is_ours
            && root.entry(path)?.is_some()
            && put(root, &mut record, path, (b"\n", CERTIFICATE), custody)?
        {
            touched.push(path.clone());
        }
    }
    Ok(touched)
}

/// Makes the bootstrap kubeconfig readable for root only: Ignition has written its token for every user of the machine.
/// Returns whether it was not.
fn restrict_kubeconfig(root: &Root) -> Result<bool, FsError> {
    let path = RootedPath::new(paths::BOOTSTRAP_KUBECONFIG)?;
    let Some(entry) = root.entry(&path)? else {
        return Ok(false);
    };
    if entry.kind != FileKind::File || entry.mode.trailing_zeros() >= 6 {
        return Ok(false);
    }
    let Some(contents) = root.read(&path, LARGEST)? else {
        return Ok(false);
    };
    let attributes = Attributes {
        mode: 0o600,
        owner: entry.owner,
    };
    root.write_atomically(&path, attributes, &contents)?;
    Ok(true)
}

/// Removes all files that the daemon has written, when a machine is released. Returns the changed paths.
pub fn remove_all(root: &Root) -> Result<Vec<RootedPath>, LiveError> {
    let _locked = lock_record();
    let mut record = LiveRecord::read(root)?;
    let mut touched = Vec::new();
    remove_stale(root, &mut record, &mut touched, |_| false)?;
    root.remove_file(&RootedPath::new(paths::LIVE_RECORD).map_err(FsError::from)?)?;
    Ok(touched)
}

/// Writes another file that changes at any time, on a machine that was not installed from its config. Keeps what was
/// there before; returns whether it differed.
pub(crate) fn write_recorded(
    root: &Root,
    path: &RootedPath,
    contents: &[u8],
    custody: Custody,
) -> Result<bool, LiveError> {
    let _locked = lock_record();
    let mut record = LiveRecord::read(root)?;
    Ok(put(root, &mut record, path, (contents, CERTIFICATE), custody)?)
}

/// Returns whether [`write_recorded`] has written a path, and nothing was restored since.
pub(crate) fn is_recorded(root: &Root, path: &RootedPath) -> Result<bool, DiskError> {
    Ok(LiveRecord::read(root)?.files.contains_key(path.as_str()))
}

/// Restores what was at a path before [`write_recorded`]; returns whether there was anything to do.
pub(crate) fn restore_recorded(root: &Root, path: &RootedPath) -> Result<bool, LiveError> {
    let _locked = lock_record();
    let mut record = LiveRecord::read(root)?;
    let mut touched = Vec::new();
    remove_stale(root, &mut record, &mut touched, |other| other != path)?;
    Ok(!touched.is_empty())
}

fn managed_paths(current: Option<&NodeConfig>) -> Result<Vec<RootedPath>, TargetError> {
    match current {
        Some(config) => Ok(target::managed_paths(config)?
            .into_iter()
            .map(|(path, _)| path)
            .collect()),
        None => Ok(Vec::new()),
    }
}

/// Writes a file if its contents differ. An existing file keeps its mode and owner. The record is written first: after
/// an interruption it has a hash that the file does not have, and the file counts as foreign.
fn put(
    root: &Root,
    record: &mut LiveRecord,
    path: &RootedPath,
    (contents, attributes): (&[u8], Attributes),
    custody: Custody,
) -> Result<bool, FsError> {
    let entry = root.entry(path)?;
    let found = match entry {
        Some(entry) if entry.kind == FileKind::File => root.read(path, LARGEST)?,
        _ => None,
    };
    let is_equal = found.as_deref() == Some(contents);
    // An equal file on an adopted machine was there before, unless the record has it.
    if is_equal && (record.has(path, contents) || !custody.is_installed()) {
        return Ok(false);
    }
    let known = record.files.remove(path.as_str());
    let is_foreign = match (&known, &found) {
        (Some(known), Some(found)) => known.sha256 != hash(found),
        (None, _) => entry.is_some(),
        (Some(_), None) => false,
    };
    if is_foreign && !custody.is_installed() {
        originals::keep_now(root, path)?;
    }
    let parent = path.parent();
    let known = known.unwrap_or_default();
    let replaced = entry.is_some() && (known.replaced || (is_foreign && !custody.is_installed()));
    let mut created = known.created;
    if let Some(parent) = &parent {
        let missing = root.missing_directories(parent)?;
        created.extend(missing.iter().map(ToString::to_string));
    }
    let written = WrittenFile {
        sha256: hash(contents),
        replaced,
        created,
    };
    record.files.insert(path.to_string(), written);
    record.write(root)?;
    if is_equal {
        return Ok(false);
    }
    if let Some(parent) = &parent {
        root.create_directories(parent, Attributes::root(0o755))?;
    }
    let attributes = match entry {
        Some(entry) if entry.kind == FileKind::File => Attributes {
            mode: entry.mode,
            owner: entry.owner,
        },
        _ => attributes,
    };
    root.write_atomically(path, attributes, contents)?;
    Ok(true)
}

/// Removes the recorded files that are no longer needed. One that was changed since is foreign and stays.
fn remove_stale(
    root: &Root,
    record: &mut LiveRecord,
    touched: &mut Vec<RootedPath>,
    is_needed: impl Fn(&RootedPath) -> bool,
) -> Result<(), LiveError> {
    let mut stale = Vec::new();
    for recorded in record.files.keys() {
        let path = RootedPath::new(recorded).map_err(FsError::from)?;
        if !is_needed(&path) {
            stale.push(path);
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    for path in &stale {
        let found = match root.entry(path)? {
            Some(entry) if entry.kind == FileKind::File => root.read(path, LARGEST)?,
            _ => None,
        };
        if found.is_some_and(|found| record.has(path, &found)) {
            let was_replaced = record
                .files
                .get(path.as_str())
                .is_some_and(|known| known.replaced);
            // Without its original, one that had replaced another was restored with the config that named it.
            let is_restored = originals::give_back_now(root, path)? || was_replaced;
            if !is_restored {
                root.remove_file(path)?;
            }
            touched.push(path.clone());
        }
        let created = record.files.remove(path.as_str()).map(|file| file.created);
        for directory in created.unwrap_or_default().iter().rev() {
            root.remove_directory(&RootedPath::new(directory).map_err(FsError::from)?)?;
        }
    }
    Ok(record.write(root)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mco_host::Ownership;
    use serde_json::json;

    use super::*;

    fn config(spec: &serde_json::Value) -> ControllerConfig {
        serde_json::from_value(json!({"metadata": {"name": "machine-config-controller"}, "spec": spec}))
            .unwrap()
    }

    fn machine() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    /// Encodes bytes as the API does.
    fn base64(text: &str) -> serde_json::Value {
        serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn certificates_follow_the_cluster_and_are_written_once() {
        let (directory, root) = machine();
        let first = wanted(&config(&json!({
            "kubeAPIServerServingCAData": base64("ca1"),
            "internalRegistryPullSecret": base64("{}\n"),
        })))
        .unwrap();
        let touched = sync(&root, &first, None, Custody::Installed).unwrap();
        assert_eq!(
            touched.iter().map(RootedPath::as_str).collect::<Vec<_>>(),
            [paths::KUBELET_CA, paths::MERGED_PULL_SECRET]
        );
        assert_eq!(
            fs::read_to_string(directory.path().join("etc/kubernetes/kubelet-ca.crt")).unwrap(),
            "ca1\n"
        );
        let secret = RootedPath::new(paths::MERGED_PULL_SECRET).unwrap();
        assert_eq!(root.entry(&secret).unwrap().unwrap().mode, 0o600);
        assert_eq!(sync(&root, &first, None, Custody::Installed).unwrap(), []);
        // Missing data is no reason to remove a working certificate.
        let nothing =
            json!({"kubeAPIServerServingCAData": null, "internalRegistryPullSecret": base64("{}\n")});
        let nothing = wanted(&config(&nothing)).unwrap();
        assert_eq!(sync(&root, &nothing, None, Custody::Installed).unwrap(), []);
    }

    /// The tools of the OS kept using the credentials of an image registry that the cluster had removed.
    #[test]
    fn the_merged_pull_secret_stayed_when_the_cluster_had_none_any_more() {
        let (directory, root) = machine();
        let path = directory.path().join(&paths::MERGED_PULL_SECRET[1..]);
        let with = |secret: &str| {
            let spec = json!({"kubeAPIServerServingCAData": base64("ca"), "internalRegistryPullSecret": base64(secret)});
            wanted(&config(&spec)).unwrap()
        };
        let none = wanted(&config(&json!({"kubeAPIServerServingCAData": base64("ca")}))).unwrap();
        sync(&root, &with("{}"), None, Custody::Installed).unwrap();
        assert!(path.exists());
        let touched = sync(&root, &none, None, Custody::Installed).unwrap();
        assert_eq!(
            touched.iter().map(RootedPath::as_str).collect::<Vec<_>>(),
            [paths::MERGED_PULL_SECRET]
        );
        assert!(!path.exists());
        assert_eq!(sync(&root, &none, None, Custody::Installed).unwrap(), []);

        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "{\"auths\": {}}").unwrap();
        assert_eq!(
            sync(&root, &none, None, Custody::Installed).unwrap(),
            [],
            "not ours"
        );
        sync(&root, &with("{}"), None, Custody::Installed).unwrap();
        fs::write(&path, "edited").unwrap();
        sync(&root, &none, None, Custody::Installed).unwrap();
        assert!(path.exists(), "edited since");
    }

    #[test]
    fn an_existing_file_keeps_its_mode() {
        let (directory, root) = machine();
        let path = directory.path().join("etc/kubernetes/kubelet-ca.crt");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "old\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let wanted = wanted(&config(&json!({"kubeAPIServerServingCAData": base64("ca2")}))).unwrap();
        sync(&root, &wanted, None, Custody::Installed).unwrap();
        let entry = root.entry(&RootedPath::new(paths::KUBELET_CA).unwrap()).unwrap();
        assert_eq!(entry.unwrap().mode, 0o640);
    }

    #[test]
    fn the_bootstrap_token_was_readable_for_every_user_of_an_installed_machine() {
        let (directory, root) = machine();
        let path = directory.path().join("etc/kubernetes/kubeconfig");
        let wanted = wanted(&config(&json!({}))).unwrap();
        assert_eq!(
            sync(&root, &wanted, None, Custody::Installed).unwrap(),
            [],
            "there is none"
        );
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "token\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let mode = || {
            let entry = root.entry(&RootedPath::new(paths::BOOTSTRAP_KUBECONFIG).unwrap());
            entry.unwrap().unwrap().mode
        };
        assert_eq!(sync(&root, &wanted, None, Custody::Adopted).unwrap(), []);
        assert_eq!(mode(), 0o644, "an adopted machine has a kubeconfig of its own");
        let touched = sync(&root, &wanted, None, Custody::Installed).unwrap();
        assert_eq!(
            touched.iter().map(RootedPath::as_str).collect::<Vec<_>>(),
            [paths::BOOTSTRAP_KUBECONFIG]
        );
        assert_eq!(
            (mode(), fs::read_to_string(&path).unwrap()),
            (0o600, "token\n".to_owned())
        );
        assert_eq!(sync(&root, &wanted, None, Custody::Installed).unwrap(), []);
    }

    #[test]
    fn registries_come_and_go_and_ports_stay_quiet() {
        let (directory, root) = machine();
        let at = |path: &str| directory.path().join("etc/docker/certs.d").join(path);
        let both = config(&json!({
            "kubeAPIServerServingCAData": base64("ca"),
            "imageRegistryBundleData": [{"file": "r.example..5000", "data": base64("one")}, {"file": "s.example", "data": base64("two")}],
            "imageRegistryBundleUserData": [{"file": "s.example", "data": base64("mine")}],
        }));
        let both = wanted(&both).unwrap();
        sync(&root, &both, None, Custody::Installed).unwrap();
        assert_eq!(fs::read_to_string(at("r.example:5000/ca.crt")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(at("s.example/ca.crt")).unwrap(), "mine\n");
        assert_eq!(sync(&root, &both, None, Custody::Installed).unwrap(), []);

        fs::create_dir_all(at("users.example")).unwrap();
        fs::write(at("users.example/client.key"), "x").unwrap();
        let none = wanted(&config(&json!({"kubeAPIServerServingCAData": base64("ca")}))).unwrap();
        sync(&root, &none, None, Custody::Installed).unwrap();
        assert!(!at("r.example:5000").exists() && !at("s.example").exists());
        assert!(at("users.example/client.key").exists());
    }

    fn registries(entries: &[(&str, &str)]) -> LiveContent {
        let bundles: Vec<_> = entries
            .iter()
            .map(|(file, data)| json!({"file": file, "data": base64(data)}))
            .collect();
        let spec =
            json!({"kubeAPIServerServingCAData": base64("ca"), "imageRegistryBundleUserData": bundles});
        wanted(&config(&spec)).unwrap()
    }

    #[test]
    fn the_ca_of_a_registry_that_another_program_has_written_is_never_removed() {
        let (directory, root) = machine();
        let foreign = directory
            .path()
            .join("etc/docker/certs.d/registry.corp:5000/ca.crt");
        fs::create_dir_all(foreign.parent().unwrap()).unwrap();
        fs::write(&foreign, "theirs\n").unwrap();
        for custody in [Custody::Installed, Custody::Adopted] {
            // The first sync of an upgrade has no record.
            sync(&root, &registries(&[]), None, custody).unwrap();
            sync(&root, &registries(&[("other", "ours")]), None, custody).unwrap();
            sync(&root, &registries(&[]), None, custody).unwrap();
            assert_eq!(fs::read_to_string(&foreign).unwrap(), "theirs\n");
        }
        assert!(!directory.path().join("etc/docker/certs.d/other").exists());
    }

    #[test]
    fn a_certificate_that_was_edited_since_is_foreign() {
        let (directory, root) = machine();
        let path = directory.path().join("etc/docker/certs.d/r/ca.crt");
        sync(&root, &registries(&[("r", "ours")]), None, Custody::Installed).unwrap();
        fs::write(&path, "edited\n").unwrap();
        sync(&root, &registries(&[]), None, Custody::Installed).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "edited\n");
    }

    #[test]
    fn an_adopted_machine_gets_only_what_was_asked_for_and_its_own_back() {
        let (directory, root) = machine();
        let at = |path: &str| directory.path().join(path);
        let mine = at("etc/docker/certs.d/r/ca.crt");
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(&mine, "mine\n").unwrap();
        sync(
            &root,
            &registries(&[("r", "ours"), ("s", "ours")]),
            None,
            Custody::Adopted,
        )
        .unwrap();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "ours\n");
        assert!(!at("etc/kubernetes/kubelet-ca.crt").exists());
        remove_all(&root).unwrap();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
        assert!(!at("etc/docker/certs.d/s").exists());
        assert!(!at("etc/machine-config-daemon/live.json").exists());
    }

    #[test]
    fn a_file_that_a_plan_has_restored_already_is_not_removed() {
        let (directory, root) = machine();
        let mine = directory.path().join("etc/docker/certs.d/r/ca.crt");
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(&mine, "mine\n").unwrap();
        sync(&root, &registries(&[("r", "ours")]), None, Custody::Adopted).unwrap();
        // The cluster has the same certificate as the administrator had, and a plan restores the original.
        sync(&root, &registries(&[("r", "mine")]), None, Custody::Adopted).unwrap();
        let path = RootedPath::new("/etc/docker/certs.d/r/ca.crt").unwrap();
        assert!(originals::give_back_now(&root, &path).unwrap());
        remove_all(&root).unwrap();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    }

    #[test]
    fn the_record_is_not_world_readable() {
        let (_directory, root) = machine();
        sync(&root, &registries(&[("r", "ours")]), None, Custody::Installed).unwrap();
        let record = RootedPath::new(paths::LIVE_RECORD).unwrap();
        assert_eq!(root.entry(&record).unwrap().unwrap().mode, 0o600);
    }
}
