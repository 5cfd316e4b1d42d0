//! Certificates and pull secrets, which change more often than configs. They are synced from the cluster's
//! ControllerConfig without a drain or reboot, and validation ignores a config's copy of them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use mco_api::ControllerConfig;
use mco_host::{Attributes, FileKind, FsError, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::paths;
use crate::target::{self, TargetError};

const CERTIFICATE: Attributes = Attributes::root(0o644);
const SECRET: Attributes = Attributes::root(0o600);
const LARGEST: u64 = 16 << 20;
/// The only file that we manage in a registry's directory.
const REGISTRY_CA: &str = "ca.crt";

#[derive(Debug, Error)]
pub enum LiveError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Target(#[from] TargetError),
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
) -> Result<Vec<RootedPath>, LiveError> {
    let mut touched = Vec::new();
    for path in stale_registries(root, wanted, current)? {
        root.remove_file(&path)?;
        if let Some(directory) = path.parent() {
            root.remove_directory(&directory)?;
        }
        touched.push(path);
    }
    for (path, (contents, attributes)) in &wanted.files {
        if put(root, path, contents, *attributes)? {
            touched.push(path.clone());
        }
    }
    for path in &wanted.empty {
        if root.entry(path)?.is_some() && put(root, path, b"\n", CERTIFICATE)? {
            touched.push(path.clone());
        }
    }
    Ok(touched)
}

/// Writes a file if its contents differ. An existing file keeps its mode and owner.
fn put(root: &Root, path: &RootedPath, contents: &[u8], attributes: Attributes) -> Result<bool, FsError> {
    let attributes = match root.entry(path)? {
        Some(entry) if entry.kind == FileKind::File => {
            if root.read(path, LARGEST)?.as_deref() == Some(contents) {
                return Ok(false);
            }
            Attributes {
                mode: entry.mode,
                owner: entry.owner,
            }
        }
        _ => attributes,
    };
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(path, attributes, contents)?;
    Ok(true)
}

/// Returns the certificates of registries that are no longer listed. A directory that contains other files is not ours.
fn stale_registries(
    root: &Root,
    wanted: &LiveContent,
    current: Option<&NodeConfig>,
) -> Result<Vec<RootedPath>, LiveError> {
    let all = RootedPath::new(paths::REGISTRY_CAS).map_err(FsError::from)?;
    if root
        .entry(&all)?
        .is_none_or(|entry| entry.kind != FileKind::Directory)
    {
        return Ok(Vec::new());
    }
    let managed: Vec<RootedPath> = match current {
        Some(config) => target::managed_paths(config)?
            .into_iter()
            .map(|(path, _)| path)
            .collect(),
        None => Vec::new(),
    };
    let mut stale = Vec::new();
    for name in root.list(&all)? {
        let directory = all.join(&name).map_err(FsError::from)?;
        let certificate = directory.join(REGISTRY_CA).map_err(FsError::from)?;
        let is_directory = root
            .entry(&directory)?
            .is_some_and(|entry| entry.kind == FileKind::Directory);
        if is_directory
            && !wanted.files.contains_key(&certificate)
            && !managed.contains(&certificate)
            && root.list(&directory)? == [REGISTRY_CA]
        {
            stale.push(certificate);
        }
    }
    Ok(stale)
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
        let touched = sync(&root, &first, None).unwrap();
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
        assert_eq!(sync(&root, &first, None).unwrap(), []);
        // Missing data is no reason to remove a working certificate.
        let nothing = wanted(&config(&json!({"kubeAPIServerServingCAData": null}))).unwrap();
        assert_eq!(sync(&root, &nothing, None).unwrap(), []);
    }

    #[test]
    fn an_existing_file_keeps_its_mode() {
        let (directory, root) = machine();
        let path = directory.path().join("etc/kubernetes/kubelet-ca.crt");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "old\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let wanted = wanted(&config(&json!({"kubeAPIServerServingCAData": base64("ca2")}))).unwrap();
        sync(&root, &wanted, None).unwrap();
        let entry = root.entry(&RootedPath::new(paths::KUBELET_CA).unwrap()).unwrap();
        assert_eq!(entry.unwrap().mode, 0o640);
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
        sync(&root, &both, None).unwrap();
        assert_eq!(fs::read_to_string(at("r.example:5000/ca.crt")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(at("s.example/ca.crt")).unwrap(), "mine\n");
        assert_eq!(sync(&root, &both, None).unwrap(), []);

        fs::create_dir_all(at("users.example")).unwrap();
        fs::write(at("users.example/client.key"), "x").unwrap();
        let none = wanted(&config(&json!({"kubeAPIServerServingCAData": base64("ca")}))).unwrap();
        sync(&root, &none, None).unwrap();
        assert!(!at("r.example:5000").exists() && !at("s.example").exists());
        assert!(at("users.example/client.key").exists());
    }
}
