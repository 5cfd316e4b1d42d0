//! The files of a bootstrap machine, before there is a cluster: from an installer's manifests to the input of the
//! offline render, the static pod that renders and serves it, and the manifests that are later applied to the cluster.
//!
//! Pure: reads and writes no file. The ControllerConfig comes from the same function as in a cluster, with the same
//! facts, so that the first configurations of the machines are those that the cluster renders.

mod images;
mod installer;
mod pod;

use mco_api::ControllerConfig;
use mco_api::vocabulary::names;
use mco_core::config::goyaml;
use mco_core::config::manifest::{Manifest, ManifestError};
use mco_core::generators::os_streams::release::ReleaseImages;
use mco_core::pipeline::bootstrap::is_rendered_from;
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::controller_config::{controller_config, manifest};
use crate::manifests;
use crate::options::OperatorOptions;
use crate::steps::pools;

pub use images::BootstrapImages;
pub use pod::Places;

/// The input directory of the offline render, below the destination.
pub const RENDER_DIRECTORY: &str = "bootstrap/manifests";
/// The registry credentials, which are a separate input of the offline render.
pub const PULL_SECRET: &str = "bootstrap/manifests/machineconfigcontroller-pull-secret";
/// The manifests to apply to the cluster once its API is available.
const CLUSTER_DIRECTORY: &str = "manifests";
const POD: &str = "bootstrap/machineconfigoperator-bootstrap-pod.yaml";

/// The inputs of an installer.
#[derive(Debug, Default)]
pub struct BootstrapInputs {
    /// The manifests. Of two for the same object the last is used.
    pub manifests: Vec<Manifest>,
    /// Whether the manifests that configs are rendered from are copied.
    pub copies: BootstrapCopies,
    /// The CA that signed the config server's certificate, as PEM.
    pub root_ca: String,
    /// The CAs with which kubelets verify client certificates, as PEM.
    pub kube_ca: Vec<u8>,
    pub cloud_provider_ca: Vec<u8>,
    /// A manifest of the Secret with the registry credentials.
    pub pull_secret: Option<Vec<u8>>,
    pub images: BootstrapImages,
    /// The image references of the release.
    pub release: Option<Value>,
    /// The installed release image.
    pub release_image: String,
}

/// Which program copies the installer's own manifests to the render directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BootstrapCopies {
    /// The installer.
    #[default]
    Elsewhere,
    Made,
}

/// A file to write, with its path below the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapFile {
    pub path: String,
    pub contents: Vec<u8>,
    /// Whether only its owner may read it.
    pub secret: bool,
}

#[derive(Debug, Error)]
pub enum BootstrapFilesError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{kind} {name:?} is not a valid file name; use lower-case letters, digits, '-' and '.'")]
    Name { kind: String, name: String },
    #[error("ConfigMap {namespace}/{name}, named by {by}, is not among the manifests")]
    Missing {
        namespace: &'static str,
        name: String,
        by: &'static str,
    },
    #[error("{object} cannot be represented: {source}")]
    Represent {
        object: String,
        #[source]
        source: serde_json::Error,
    },
}

/// Returns all files to write.
pub fn files(
    inputs: &BootstrapInputs,
    places: &Places,
    options: &OperatorOptions,
) -> Result<Vec<BootstrapFile>, BootstrapFilesError> {
    let manifests = installer::last_of_each(&inputs.manifests);
    let mut facts = installer::facts(&manifests, inputs)?;
    facts.images = inputs.images.by_template_name();
    facts.os_images = inputs.images.os_entries(options.release_version.as_deref());
    let mut config = controller_config(&facts, &inputs.root_ca, options);
    config.spec.release_image.clone_from(&inputs.release_image);

    let mut files = vec![controller_config_file(&config)?];
    for name in pools::required_names(&facts) {
        let pool = mco_core::pipeline::offline::built_in_pool(name);
        files.push(object(
            RENDER_DIRECTORY,
            &format!("{name}.machineconfigpool"),
            &pool,
        )?);
    }
    if let Some(release) = &inputs.release {
        files.push(object(RENDER_DIRECTORY, "image-references", release)?);
    }
    if inputs.copies == BootstrapCopies::Made {
        for manifest in manifests.iter().filter(|manifest| is_copied(manifest)) {
            files.push(copy(manifest)?);
        }
    }
    if let Some(contents) = installer::pull_secret(&manifests, inputs)? {
        files.push(BootstrapFile {
            path: PULL_SECRET.to_owned(),
            contents,
            secret: true,
        });
    }
    let pod = pod::pod(inputs.images.operator(), places, options, facts.tls().as_ref());
    files.push(BootstrapFile {
        path: POD.to_owned(),
        contents: goyaml::to_string(&pod).into_bytes(),
        secret: false,
    });
    for (name, value) in for_the_cluster(inputs, options) {
        files.push(object(CLUSTER_DIRECTORY, name, &value)?);
    }
    Ok(files)
}

fn controller_config_file(config: &ControllerConfig) -> Result<BootstrapFile, BootstrapFilesError> {
    let value = manifest(config).map_err(|source| BootstrapFilesError::Represent {
        object: "the ControllerConfig".to_owned(),
        source,
    })?;
    object(
        RENDER_DIRECTORY,
        "machineconfigcontroller-controllerconfig",
        &value,
    )
}

/// Returns the objects from which the operator of the new cluster derives the same ControllerConfig.
fn for_the_cluster(inputs: &BootstrapInputs, options: &OperatorOptions) -> Vec<(&'static str, Value)> {
    let version = options.release_version.as_deref();
    let mut all = vec![("machine-config-namespace", manifests::namespace())];
    let config_map = |namespace: &str, name: &str, data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": data,
        })
    };
    let mut entries = inputs.images.os_entries(version);
    if let Some(release) = &inputs.release {
        entries.insert("image-references".to_owned(), release.to_string());
    }
    if !entries.is_empty() {
        let data = config_map(names::NAMESPACE, names::config_map::OS_IMAGE_URL, json!(entries));
        all.push(("machine-config-osimageurl", data));
    }
    if let Some(document) = inputs.images.document(version) {
        let data = json!({"images.json": document.to_string()});
        let data = config_map(names::NAMESPACE, names::config_map::IMAGES, data);
        all.push(("machine-config-operator-images", data));
    }
    if !inputs.kube_ca.is_empty() {
        let data = json!({"ca-bundle.crt": String::from_utf8_lossy(&inputs.kube_ca)});
        let name = names::config_map::INITIAL_KUBE_API_SERVER_CA;
        let data = config_map(names::CONFIG_NAMESPACE, name, data);
        all.push(("kube-apiserver-serving-ca-configmap", data));
    }
    all.push(("csr-bootstrap-role-binding", manifests::bootstrapper_binding()));
    all
}

/// Returns whether a manifest is copied. The ControllerConfig is written by us, and the image references already are a
/// separate file.
fn is_copied(manifest: &Manifest) -> bool {
    let is_release = ReleaseImages::read(&manifest.value).is_ok();
    manifest.kind != "ControllerConfig" && !is_release && is_rendered_from(manifest)
}

fn copy(manifest: &Manifest) -> Result<BootstrapFile, BootstrapFilesError> {
    let namespace = manifest.value.pointer("/metadata/namespace");
    let words = [
        Some(manifest.kind.to_lowercase()),
        namespace.and_then(Value::as_str).map(str::to_owned),
        Some(manifest.name.clone()),
    ];
    let name = words.into_iter().flatten().collect::<Vec<_>>().join("-");
    let safe = !manifest.name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if !safe {
        return Err(BootstrapFilesError::Name {
            kind: manifest.kind.clone(),
            name: manifest.name.clone(),
        });
    }
    object(RENDER_DIRECTORY, &format!("installer-{name}"), &manifest.value)
}

fn object(
    directory: &str,
    name: &str,
    object: &impl Serialize,
) -> Result<BootstrapFile, BootstrapFilesError> {
    let value = serde_json::to_value(object).map_err(|source| BootstrapFilesError::Represent {
        object: name.to_owned(),
        source,
    })?;
    Ok(BootstrapFile {
        path: format!("{directory}/{name}.yaml"),
        contents: goyaml::to_string(&value).into_bytes(),
        secret: false,
    })
}

#[cfg(test)]
mod tests;
