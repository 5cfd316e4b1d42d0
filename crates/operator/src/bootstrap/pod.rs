//! The static pod of a bootstrap machine, which renders the first configurations and serves them to the control plane.

use mco_api::vocabulary::names::component;
use mco_core::generators::tls_profile::TlsSettings;
use serde_json::{Value, json};

use crate::manifests::tls_arguments;
use crate::options::OperatorOptions;

/// Paths of installers on a bootstrap machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The input of the render.
    pub manifests: String,
    /// The rendered output, which is served.
    pub rendered: String,
    /// The config server's certificate and key, as `tls.crt` and `tls.key`.
    pub certificates: String,
    /// The kubeconfig of new machines.
    pub kubeconfig: String,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            manifests: "/etc/mcc/bootstrap".to_owned(),
            rendered: "/etc/mcs/bootstrap".to_owned(),
            certificates: "/etc/ssl/mcs".to_owned(),
            kubeconfig: "/etc/kubernetes/kubeconfig".to_owned(),
        }
    }
}

pub(super) fn pod(
    image: &str,
    places: &Places,
    options: &OperatorOptions,
    tls: Option<&TlsSettings>,
) -> Value {
    let Places {
        manifests,
        rendered,
        certificates,
        kubeconfig,
    } = places;
    let mut render = vec![
        "render".to_owned(),
        format!("--manifests={manifests}"),
        format!("--out={rendered}"),
        format!("--pull-secret={manifests}/machineconfigcontroller-pull-secret"),
    ];
    if let Some(version) = &options.release_version {
        render.push(format!("--payload-version={version}"));
    }
    let mut serve = vec![
        "server".to_owned(),
        format!("--bootstrap-dir={rendered}"),
        format!("--bootstrap-kubeconfig={kubeconfig}"),
        format!("--cert={certificates}/tls.crt"),
        format!("--key={certificates}/tls.key"),
    ];
    serve.extend(tls_arguments("", tls));
    let readable = |path: &str| json!({"name": volume(path), "mountPath": path, "readOnly": true});
    let container = |name: &str, arguments: &[String], mounts: Value| {
        json!({
            "name": name,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments,
            "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            // The files of a bootstrap machine belong to root.
            "securityContext": {"privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": true},
            "volumeMounts": mounts,
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bootstrap-machine-config-operator", "namespace": "default"},
        "spec": {
            "hostNetwork": true,
            "restartPolicy": "Always",
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [container(
                component::CONTROLLER,
                &render,
                json!([readable(manifests), {"name": volume(rendered), "mountPath": rendered}]),
            )],
            "containers": [container(
                component::SERVER,
                &serve,
                json!([readable(rendered), readable(certificates), readable(kubeconfig)]),
            )],
            "volumes": [
                host_path(manifests, "Directory"),
                host_path(rendered, "DirectoryOrCreate"),
                host_path(certificates, "Directory"),
                host_path(kubeconfig, "File"),
            ],
        },
    })
}

fn host_path(path: &str, type_: &str) -> Value {
    json!({"name": volume(path), "hostPath": {"path": path, "type": type_}})
}

/// Returns a volume's name, which is a DNS label.
fn volume(path: &str) -> String {
    let letters = path.trim_matches('/').bytes();
    letters
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b.to_ascii_lowercase())
            } else {
                '-'
            }
        })
        .collect()
}
