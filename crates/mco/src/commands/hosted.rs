//! `mco daemon start --desired-configmap`: the daemon of a node of a hosted cluster.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mco_daemon::agent::hosted;
use mco_host::{Machine, Root, RootedPath};

use super::daemon::{client_config, serve};
use crate::cli::daemon::DaemonStart;
use crate::output::CommandOutcome;

/// The size limit of a kubeconfig and of the files that it names.
const LARGEST: u64 = 1 << 20;

pub fn start(
    arguments: &DaemonStart,
    machine: Arc<Machine>,
    directory: &Path,
) -> anyhow::Result<CommandOutcome> {
    let Some(node) = arguments.node_name.clone() else {
        bail!("--desired-configmap needs the Node of this machine: set --node-name or NODE_NAME");
    };
    let directory = directory.to_path_buf();
    let kubeconfig = arguments.kubeconfig.clone();
    serve(None, |_, stop| async move {
        // The node's own kubeconfig is a file of the machine, and so are the certificates that it names.
        let of_machine = kubeconfig
            .as_deref()
            .map(|path| of_machine(&machine.root, path))
            .transpose()?;
        let config = match of_machine.flatten() {
            Some(file) => kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?,
            None => client_config(kubeconfig.as_deref()).await?,
        };
        let client = kube::Client::try_from(config)?;
        Ok(hosted::run(client, machine, node, directory, stop).await?)
    })
}

/// Reads a kubeconfig of the machine, with the contents of the files that it names; `None` if the machine has no such
/// file.
fn of_machine(root: &Root, path: &Path) -> anyhow::Result<Option<Kubeconfig>> {
    let Some(text) = read(root, path)? else {
        return Ok(None);
    };
    let text = String::from_utf8(text).with_context(|| format!("{} is not text", path.display()))?;
    let mut file =
        Kubeconfig::from_yaml(&text).with_context(|| format!("{} is no kubeconfig", path.display()))?;
    let base = path.parent().unwrap_or(Path::new("/"));
    let embed = |named: &mut Option<String>| -> anyhow::Result<Option<String>> {
        let Some(name) = named.take() else {
            return Ok(None);
        };
        let path = base.join(&name);
        let bytes = read(root, &path)?.with_context(|| format!("{} does not exist", path.display()))?;
        Ok(Some(STANDARD.encode(bytes)))
    };
    for cluster in file
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        if let Some(data) = embed(&mut cluster.certificate_authority)? {
            cluster.certificate_authority_data = Some(data);
        }
    }
    for user in file
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
    {
        if let Some(data) = embed(&mut user.client_certificate)? {
            user.client_certificate_data = Some(data);
        }
        if let Some(data) = embed(&mut user.client_key)? {
            user.client_key_data = Some(data.into());
        }
        if let Some(name) = user.token_file.take() {
            let path = base.join(&name);
            let token = read(root, &path)?.with_context(|| format!("{} does not exist", path.display()))?;
            user.token = Some(String::from_utf8_lossy(&token).trim().to_owned().into());
        }
    }
    Ok(Some(file))
}

fn read(root: &Root, path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(text) = path.to_str().filter(|text| text.starts_with('/')) else {
        return Ok(None);
    };
    Ok(root.read(&RootedPath::new(text)?, LARGEST)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The pod has no such files: the daemon of the reference reads them after it has changed its root.
    #[test]
    fn the_kubeconfig_of_the_kubelet_is_read_below_the_machines_root() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir_all(at("var/lib/kubelet/pki")).unwrap();
        fs::write(at("var/lib/kubelet/pki/kubelet-client-2026.pem"), "pem").unwrap();
        std::os::unix::fs::symlink(
            "/var/lib/kubelet/pki/kubelet-client-2026.pem",
            at("var/lib/kubelet/pki/kubelet-client-current.pem"),
        )
        .unwrap();
        fs::write(at("var/lib/kubelet/ca.crt"), "ca").unwrap();
        fs::write(
            at("var/lib/kubelet/kubeconfig"),
            "clusters:\n- name: a\n  cluster:\n    server: https://a:6443\n    certificate-authority: ca.crt\n\
             users:\n- name: a\n  user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    \
             client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n",
        )
        .unwrap();
        let machine = Machine::directory(directory.path()).unwrap();
        let path = Path::new("/var/lib/kubelet/kubeconfig");
        let file = of_machine(&machine.root, path).unwrap().unwrap();
        let cluster = file.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        let user = file.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.client_certificate_data.as_deref(), Some("cGVt"));
        assert!(user.client_key_data.is_some() && user.client_key.is_none());
        assert!(of_machine(&machine.root, Path::new("/none")).unwrap().is_none());
        fs::remove_file(at("var/lib/kubelet/ca.crt")).unwrap();
        let error = of_machine(&machine.root, path).unwrap_err();
        assert!(error.to_string().contains("/var/lib/kubelet/ca.crt"), "{error}");
    }
}
