//! The images of a new cluster, with their names in a release, in a ConfigMap and in templates.

use std::collections::BTreeMap;

use mco_core::generators::os_streams::release::{ReleaseError, ReleaseImages};
use serde_json::Value;

use crate::facts::release_images;

/// The name of the operator's own image in every list of images.
const OPERATOR: &str = "machineConfigOperator";
/// The names of the images that templates and components need: in a release, and in the operator's ConfigMap. The first
/// name that a release has is used.
const NAMES: [(&[&str], &str); 8] = [
    (&["machine-config-operator"], OPERATOR),
    (&["pod"], "infraImage"),
    (&["keepalived-ipfailover"], "keepalivedImage"),
    (&["coredns"], "corednsImage"),
    (&["haproxy-router-haproxy32", "haproxy-router"], "haproxyImage"),
    (&["baremetal-runtimecfg"], "baremetalRuntimeCfgImage"),
    (&["kube-rbac-proxy"], "kubeRbacProxyImage"),
    (&["docker-registry"], "dockerRegistryImage"),
];
/// The names of the operating system image in the releases of the different distributions.
const OPERATING_SYSTEMS: [&str; 3] = ["rhel-coreos", "stream-coreos", "fedora-coreos"];

/// The images of a new cluster; empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapImages {
    by_name: BTreeMap<String, String>,
    pub os: String,
    pub os_extensions: String,
    /// The OS image under its name in older releases.
    pub os_url: String,
}

impl BootstrapImages {
    /// Returns the images of a release.
    pub fn of_release(release: &ReleaseImages) -> Result<Self, ReleaseError> {
        let mut images = Self::default();
        images.set(OPERATOR, release.image("machine-config-operator")?);
        for (tags, name) in NAMES {
            if let Some(tag) = tags.iter().find_map(|tag| release.find(tag)) {
                images.set(name, &tag.image);
            }
        }
        let os = OPERATING_SYSTEMS.iter().find_map(|name| release.find(name));
        if let Some(os) = os {
            images.os.clone_from(&os.image);
            if let Some(extensions) = release.find(&format!("{}-extensions", os.name)) {
                images.os_extensions.clone_from(&extensions.image);
            }
        }
        Ok(images)
    }

    /// Sets one image by its name in the operator's ConfigMap.
    pub fn set(&mut self, name: &str, image: &str) {
        if !image.is_empty() {
            self.by_name.insert(name.to_owned(), image.to_owned());
        }
    }

    pub fn set_operator(&mut self, image: &str) {
        self.set(OPERATOR, image);
    }

    pub(super) fn operator(&self) -> &str {
        self.by_name.get(OPERATOR).map(String::as_str).unwrap_or_default()
    }

    /// Returns the images by their names in templates.
    pub(super) fn by_template_name(&self) -> BTreeMap<String, String> {
        let document = self.document(None).map(|document| document.to_string());
        let entries = document.map(|document| ("images.json".to_owned(), document));
        release_images(&entries.into_iter().collect())
    }

    /// Returns the entries of the operator's ConfigMap, or `None` if there are none.
    pub(super) fn document(&self, version: Option<&str>) -> Option<Value> {
        if self.by_name.is_empty() {
            return None;
        }
        let mut document = self.by_name.clone();
        if let Some(version) = version {
            document.insert("releaseVersion".to_owned(), version.to_owned());
        }
        Some(document.into_iter().collect())
    }

    /// Returns the ConfigMap's entries about operating systems, empty if there are none.
    pub(super) fn os_entries(&self, version: Option<&str>) -> BTreeMap<String, String> {
        let known = [&self.os, &self.os_extensions, &self.os_url];
        if known.iter().all(|image| image.is_empty()) {
            return BTreeMap::new();
        }
        let entries = [
            ("baseOSContainerImage", self.os.as_str()),
            ("baseOSExtensionsContainerImage", self.os_extensions.as_str()),
            ("osImageURL", self.os_url.as_str()),
            ("releaseVersion", version.unwrap_or_default()),
        ];
        let entries = entries.into_iter();
        entries
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}
