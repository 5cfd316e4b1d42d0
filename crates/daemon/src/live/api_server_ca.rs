//! The CA with which the kubelet, and programs on the host, verify the API server. It is part of their kubeconfigs: a
//! rotation replaces it there and restarts the kubelet once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::Kubeconfig;
use mco_host::systemd::ServiceAction;
use mco_host::{Attributes, FileKind, FsError, Machine, Root, RootedPath};
use x509_parser::pem::Pem;

use super::LiveError;
use crate::custody::Custody;
use crate::paths;

const KUBECONFIGS: [&str; 2] = [paths::BOOTSTRAP_KUBECONFIG, paths::KUBELET_KUBECONFIG];
const BUNDLE: &str = "ca-bundle.crt";
const KUBELET: &str = "kubelet.service";
const LARGEST: u64 = 4 << 20;
const PEM_LINE: usize = 64;

/// Returns the bundle of a ConfigMap: binary, or as text that may be base64.
pub fn of_config_map(map: &ConfigMap) -> Option<Vec<u8>> {
    if let Some(bytes) = map.binary_data.as_ref().and_then(|data| data.get(BUNDLE)) {
        return Some(bytes.0.clone());
    }
    let text = map.data.as_ref()?.get(BUNDLE)?;
    let decoded = STANDARD.decode(text.trim()).ok();
    Some(decoded.unwrap_or_else(|| text.clone().into_bytes()))
}

/// Returns whether the machine has a kubeconfig whose CA the cluster rotates. An adopted machine has its own.
pub fn is_rotated(root: &Root) -> Result<bool, LiveError> {
    let path = RootedPath::new(paths::BOOTSTRAP_KUBECONFIG).map_err(FsError::from)?;
    Ok(root.exists(&path)? && Custody::of(root)?.is_installed())
}

/// Replaces the CA in the kubeconfigs that lack a certificate of the bundle, and restarts the kubelet. A restart that
/// was pending when the daemon stopped is made up for. Returns the changed paths.
pub fn sync(machine: &Machine, bundle: &[u8]) -> Result<Vec<RootedPath>, LiveError> {
    let root = &machine.root;
    let wanted = certificates(bundle);
    let mut stale = Vec::new();
    for path in KUBECONFIGS {
        let path = RootedPath::new(path).map_err(FsError::from)?;
        let Some(entry) = root.entry(&path)?.filter(|entry| entry.kind == FileKind::File) else {
            continue;
        };
        let text = root.read_text(&path, LARGEST)?;
        if let Some(replaced) = text.and_then(|text| replaced(&text, &wanted)) {
            // Credentials, which Ignition writes with another mode.
            let attributes = Attributes {
                mode: 0o600,
                owner: entry.owner,
            };
            stale.push((path, attributes, replaced));
        }
    }
    let owed = RootedPath::new(paths::KUBELET_RESTART_OWED).map_err(FsError::from)?;
    if stale.is_empty() && root.entry(&owed)?.is_none() {
        return Ok(Vec::new());
    }
    if let Some(parent) = owed.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(&owed, Attributes::root(0o644), b"")?;
    for (path, attributes, text) in &stale {
        root.write_atomically(path, *attributes, text.as_bytes())?;
    }
    machine
        .services
        .perform(&ServiceAction::Restart(KUBELET.to_owned()))?;
    root.remove_file(&owed)?;
    Ok(stale.into_iter().map(|(path, ..)| path).collect())
}

/// Returns the kubeconfig with these certificates as the CA of its current cluster; `None` if it has all of them
/// already, or its CA is not part of it. All other bytes are kept.
fn replaced(text: &str, wanted: &[Vec<u8>]) -> Option<String> {
    let config = Kubeconfig::from_yaml(text).ok()?;
    let current = config.current_context.as_deref().unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == *name)?;
    let data = cluster.cluster.as_ref()?.certificate_authority_data.as_deref()?;
    let found = certificates(&STANDARD.decode(data).ok()?);
    if data.is_empty() || wanted.iter().all(|certificate| found.contains(certificate)) {
        return None;
    }
    let bundle: String = wanted.iter().map(|certificate| pem(certificate)).collect();
    Some(text.replace(data, &STANDARD.encode(bundle)))
}

/// Returns the certificates of a bundle that can be parsed.
fn certificates(bundle: &[u8]) -> Vec<Vec<u8>> {
    let blocks = Pem::iter_from_buffer(bundle).filter_map(Result::ok);
    blocks
        .filter(|block| block.parse_x509().is_ok())
        .map(|block| block.contents)
        .collect()
}

fn pem(certificate: &[u8]) -> String {
    let mut rest = STANDARD.encode(certificate);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    while !rest.is_empty() {
        let next = rest.split_off(rest.len().min(PEM_LINE));
        text.push_str(&rest);
        text.push('\n');
        rest = next;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use mco_host::Ownership;
    use mco_host::systemd::SimulatedServices;

    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBkTCCATegAwIBAgIURNLyeW+y18LqyyQ2oTAgLo9+v0QwCgYIKoZIzj0EAwIw\n\
        HTEbMBkGA1UEAwwSa3ViZS1hcGlzZXJ2ZXItb25lMCAXDTI2MTExOTA2MDUxNloY\n\
        DzIxMjYxMDI2MDYwNTE2WjAdMRswGQYDVQQDDBJrdWJlLWFwaXNlcnZlci1vbmUw\n\
        WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATgoks/QNeSgH7CS7byxPYX2exvilmG\n\
        jBs2Le0E0QC2/UwcKVKimUrsOMBAiBBMnj5pv8YWEVF/Bd25B1nq0MFao1MwUTAd\n\
        BgNVHQ4EFgQU+vgQ5lxVhYSOSQlCTq+aY4vOxO0wHwYDVR0jBBgwFoAU+vgQ5lxV\n\
        hYSOSQlCTq+aY4vOxO0wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF\n\
        AiEA7qhvdN0fG2DGVZb8tZXFy6bQHgztTSodmcuFfKRP1U4CIEWsWijFoX33tnMV\n\
        EfQHCFdMyzdnDcoOuW5e5dZItv9d\n\
        -----END CERTIFICATE-----\n";
    const TWO: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBkDCCATegAwIBAgIUeqtwYXKxIAz8gP8wpbxG9WYBseQwCgYIKoZIzj0EAwIw\n\
        HTEbMBkGA1UEAwwSa3ViZS1hcGlzZXJ2ZXItdHdvMCAXDTI2MTExOTA2MDUxNloY\n\
        DzIxMjYxMDI2MDYwNTE2WjAdMRswGQYDVQQDDBJrdWJlLWFwaXNlcnZlci10d28w\n\
        WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATMB4mMjHpv0S4dhh0Yhzx6W7hZsUx4\n\
        GZOxw1cmHFL9HusBY7Tdec6LZ7plv3P5c6sNz/WtcHZRO5MhVHI3wCRvo1MwUTAd\n\
        BgNVHQ4EFgQUZVFsyyAaumpAR2i8Ler92sicvWcwHwYDVR0jBBgwFoAUZVFsyyAa\n\
        umpAR2i8Ler92sicvWcwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBE\n\
        AiAjH0xAHTisYhKH4vnnKOY7VUJmR+QUgYNUDBtsZSs3kAIgFV92qF2DA80VT39B\n\
        TbX7liWQQGZqaxlcFkEKYDCb8DA=\n\
        -----END CERTIFICATE-----\n";

    struct Node {
        directory: tempfile::TempDir,
        services: Arc<SimulatedServices>,
        machine: Machine,
    }

    fn node() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let services: Arc<SimulatedServices> = Arc::default();
        let owned = Box::new(Arc::clone(&services));
        let machine = Machine::directory_with(directory.path(), Ownership::Recorded, owned).unwrap();
        for path in KUBECONFIGS {
            let path = directory.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, kubeconfig(ONE)).unwrap();
        }
        Node {
            directory,
            services,
            machine,
        }
    }

    fn kubeconfig(authority: &str) -> String {
        let data = STANDARD.encode(authority);
        format!(
            "# kept\nclusters:\n- cluster:\n    server: https://api-int:6443\n    certificate-authority-data: {data}\n  name: local\n\
             contexts:\n- context: {{cluster: local, user: kubelet}}\n  name: kubelet\ncurrent-context: kubelet\n"
        )
    }

    impl Node {
        fn read(&self, path: &str) -> String {
            std::fs::read_to_string(self.directory.path().join(path.trim_start_matches('/'))).unwrap()
        }

        fn sync(&self, bundle: &str) -> Result<usize, LiveError> {
            sync(&self.machine, bundle.as_bytes()).map(|touched| touched.len())
        }
    }

    /// Nodes trusted the former CA only, and were NotReady once the API server had a certificate of the next one.
    #[test]
    fn a_rotation_of_the_api_servers_ca_never_reached_the_kubeconfigs() {
        let node = node();
        assert_eq!(node.sync(ONE).unwrap(), 0, "it is trusted already");
        let both = format!("{ONE}# a comment\n{TWO}");
        assert_eq!(node.sync(&both).unwrap(), 2);
        for path in KUBECONFIGS {
            assert_eq!(node.read(path), kubeconfig(&format!("{ONE}{TWO}")), "{path}");
        }
        let path = RootedPath::new(paths::KUBELET_KUBECONFIG).unwrap();
        assert_eq!(node.machine.root.entry(&path).unwrap().unwrap().mode, 0o600);
        assert_eq!(
            node.services.performed(),
            [ServiceAction::Restart(KUBELET.to_owned())]
        );
        assert_eq!(node.sync(&both).unwrap(), 0);
        assert_eq!(node.services.performed().len(), 1, "one restart");
    }

    #[test]
    fn a_restart_of_the_kubelet_that_failed_is_made_up_for() {
        let node = node();
        node.services.set_failing(KUBELET, true);
        assert!(node.sync(TWO).is_err());
        node.services.set_failing(KUBELET, false);
        assert_eq!(node.sync(TWO).unwrap(), 0, "the files are replaced already");
        assert_eq!(node.services.performed().len(), 2);
        node.sync(TWO).unwrap();
        assert_eq!(node.services.performed().len(), 2);
    }

    #[test]
    fn a_bundle_without_certificates_cuts_no_node_off() {
        let node = node();
        for bundle in [
            "",
            "not a certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(node.sync(bundle).unwrap(), 0, "{bundle:?}");
        }
        assert_eq!(node.read(paths::KUBELET_KUBECONFIG), kubeconfig(ONE));
    }

    #[test]
    fn only_installed_machines_follow() {
        let node = node();
        let root = &node.machine.root;
        assert!(
            !is_rotated(root).unwrap(),
            "nothing proves that the files are ours"
        );
        let installed = node
            .directory
            .path()
            .join(paths::INSTALLED_CONFIG.trim_start_matches('/'));
        std::fs::write(installed, "{}").unwrap();
        assert!(is_rotated(root).unwrap());
        let adoption = node
            .directory
            .path()
            .join(paths::ADOPTION.trim_start_matches('/'));
        std::fs::create_dir_all(adoption.parent().unwrap()).unwrap();
        std::fs::write(adoption, "{}").unwrap();
        assert!(!is_rotated(root).unwrap());
    }

    #[test]
    fn the_bundle_is_binary_or_text() {
        let read = |map: serde_json::Value| of_config_map(&serde_json::from_value(map).unwrap());
        let (binary, text) = (ByteString(b"x".to_vec()), STANDARD.encode(ONE));
        for (map, expected) in [
            (
                serde_json::json!({"binaryData": {BUNDLE: binary}}),
                Some(b"x".to_vec()),
            ),
            (
                serde_json::json!({"data": {BUNDLE: ONE}}),
                Some(ONE.as_bytes().to_vec()),
            ),
            (
                serde_json::json!({"data": {BUNDLE: text}}),
                Some(ONE.as_bytes().to_vec()),
            ),
            (serde_json::json!({"data": {}}), None),
        ] {
            assert_eq!(read(map), expected);
        }
    }
}
