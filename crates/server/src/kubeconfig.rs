//! The bootstrap kubeconfig with which the kubelet of a new machine requests its certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mco_core::config::goyaml;
use serde_json::json;

/// Returns a kubeconfig for `api_server_url` with a CA in PEM and a bearer token, which is used verbatim.
pub fn bootstrap(api_server_url: &str, ca: &[u8], token: &str) -> String {
    goyaml::to_string(&json!({
        "clusters": [{
            "cluster": {"certificate-authority-data": STANDARD.encode(ca), "server": api_server_url},
            "name": "local",
        }],
        "contexts": [{"context": {"cluster": "local", "user": "kubelet"}, "name": "kubelet"}],
        "current-context": "kubelet",
        "users": [{"name": "kubelet", "user": {"token": token}}],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_server_its_authority_and_the_token() {
        assert_eq!(
            bootstrap("https://api-int.example.com:6443", b"PEM", "secret"),
            "clusters:\n- cluster:\n    certificate-authority-data: UEVN\n    server: https://api-int.example.com:6443\n  name: local\n\
             contexts:\n- context:\n    cluster: local\n    user: kubelet\n  name: kubelet\ncurrent-context: kubelet\n\
             users:\n- name: kubelet\n  user:\n    token: secret\n"
        );
    }

    #[test]
    fn an_empty_url_is_no_error_here() {
        assert!(bootstrap("", b"", "t").contains("server: \"\""));
    }
}
