//! Where the API server is, as seen from the machine itself: pods reach it by an address that exists only while a kubelet
//! runs.

use kube::config::Kubeconfig;
use mco_host::{Root, RootedPath};

use crate::paths;

const LARGEST: u64 = 1 << 20;
/// The kubeconfigs of kubelets: kubeadm, OpenShift, k3s, RKE2, and that of a machine without a kubelet that has joined.
const KUBECONFIGS: [&str; 5] = [
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    paths::MEMBER_KUBECONFIG,
];

/// Returns host and port of the API server of the machine's own kubelet.
pub fn find(root: &Root) -> Option<String> {
    KUBECONFIGS.iter().find_map(|path| {
        let text = root.read_text(&RootedPath::new(path).ok()?, LARGEST).ok()??;
        of_kubeconfig(&text)
    })
}

fn of_kubeconfig(text: &str) -> Option<String> {
    let config = Kubeconfig::from_yaml(text).ok()?;
    let current = config.current_context.as_deref().unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == current);
    let cluster = context.and_then(|context| Some(context.context.as_ref()?.cluster.as_str()));
    let cluster = config
        .clusters
        .iter()
        .find(|known| cluster.is_none_or(|name| known.name == name))?;
    host_and_port(cluster.cluster.as_ref()?.server.as_deref()?)
}

/// Returns host and port of a URL, with the default port of its scheme.
pub fn host_and_port(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    let default = match uri.scheme_str()? {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use mco_host::Ownership;

    use super::*;

    #[test]
    fn the_server_of_the_current_context_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        assert_eq!(find(&root), None);
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        // On OpenShift this file is the kubelet's configuration.
        write(
            "etc/kubernetes/kubelet.conf",
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n",
        );
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: b\n\
                          clusters:\n- {name: x, cluster: {server: 'https://10.0.0.1:6443'}}\n\
                          - {name: y, cluster: {server: 'https://api.example.com'}}\n\
                          contexts:\n- {name: a, context: {cluster: x, user: u}}\n\
                          - {name: b, context: {cluster: y, user: u}}\nusers: []\n";
        write("var/lib/kubelet/kubeconfig", kubeconfig);
        assert_eq!(find(&root).as_deref(), Some("api.example.com:443"));
    }

    #[test]
    fn addresses_keep_their_brackets() {
        for (url, expected) in [
            ("https://[fd00::1]:6443/x", Some("[fd00::1]:6443")),
            ("http://localhost", Some("localhost:80")),
            ("unix:///run/socket", None),
            ("", None),
        ] {
            assert_eq!(host_and_port(url).as_deref(), expected, "{url}");
        }
    }
}
