//! The objects of a cluster that configs are generated from, by kind.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::foreign::node::Node;
use mco_api::vocabulary::names;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfigPool, MachineOSConfig,
    OSImageStream,
};

use crate::config::manifest::{Manifest, ManifestError};
use crate::config::node_versions::NodeVersions;

/// A kind of object that configs are generated from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

const OWN: &str = "machineconfiguration.openshift.io";
const CONFIG: &str = "config.openshift.io";

macro_rules! kinds {
    ($($group:ident $version:literal $kind:literal),* $(,)?) => {
        &[$(SourceKind { group: $group, version: $version, kind: $kind }),*]
    };
}

const OPERATOR: &str = "operator.openshift.io";
/// The kinds of clusters other than OpenShift.
const PLAIN: &str = "mco.dev";

/// The kinds that configs are generated from, in addition to pools and MachineConfigs. Clusters that are not
/// OpenShift lack some of them.
pub const SOURCE_KINDS: &[SourceKind] = kinds![
    OWN "v1" "ControllerConfig",
    OWN "v1" "KubeletConfig",
    OWN "v1" "ContainerRuntimeConfig",
    OWN "v1" "MachineOSConfig",
    OWN "v1" "OSImageStream",
    CONFIG "v1" "Image",
    CONFIG "v1" "ImageDigestMirrorSet",
    CONFIG "v1" "ImageTagMirrorSet",
    CONFIG "v1" "ClusterImagePolicy",
    CONFIG "v1" "ImagePolicy",
    CONFIG "v1" "FeatureGate",
    CONFIG "v1" "Node",
    CONFIG "v1" "APIServer",
    CONFIG "v1" "ClusterVersion",
    CONFIG "v1" "CRIOCredentialProviderConfig",
    OPERATOR "v1alpha1" "ImageContentSourcePolicy",
    PLAIN "v1" "ImageDigestMirrorSet",
    PLAIN "v1" "ImageTagMirrorSet",
];

/// All objects that the render pipeline reads, except for MachineConfigs.
#[derive(Debug, Clone, Default)]
pub struct ClusterObjects {
    pub pools: Vec<MachineConfigPool>,
    pub controller_config: Option<Arc<ControllerConfig>>,
    pub kubelet_configs: Vec<KubeletConfig>,
    pub runtime_configs: Vec<ContainerRuntimeConfig>,
    pub digest_mirrors: Vec<ImageDigestMirrorSet>,
    pub tag_mirrors: Vec<ImageTagMirrorSet>,
    pub content_policies: Vec<ImageContentSourcePolicy>,
    pub cluster_policies: Vec<ClusterImagePolicy>,
    pub policies: Vec<ImagePolicy>,
    pub credential_provider: Option<CRIOCredentialProviderConfig>,
    pub os_configs: Vec<MachineOSConfig>,
    pub image: Option<Image>,
    pub feature_gate: Option<FeatureGate>,
    pub node: Option<Node>,
    pub api_server: Option<APIServer>,
    pub cluster_version: Option<ClusterVersion>,
    pub os_image_stream: Option<OSImageStream>,
    /// The nodes, which decide about the generated configs of an additive base.
    pub nodes: Vec<NodeVersions>,
}

impl ClusterObjects {
    /// Whether any object modifies the base configuration, which is then required.
    pub fn refer_to_base(&self) -> bool {
        self.has_registry_settings()
            || !self.kubelet_configs.is_empty()
            || !self.runtime_configs.is_empty()
            || !self.os_configs.is_empty()
            || self.credential_provider.is_some()
            || self.feature_gate.is_some()
            || self.node.is_some()
            || self.api_server.is_some()
    }

    /// Whether any object configures registries.
    pub fn has_registry_settings(&self) -> bool {
        self.image.is_some()
            || !self.digest_mirrors.is_empty()
            || !self.tag_mirrors.is_empty()
            || !self.content_policies.is_empty()
            || !self.cluster_policies.is_empty()
            || !self.policies.is_empty()
    }

    /// Returns the worker pool, whose OS image stream custom pools follow.
    pub fn worker(&self) -> Option<&MachineConfigPool> {
        let mut pools = self.pools.iter();
        pools.find(|pool| pool.metadata.name.as_deref() == Some(names::pool::WORKER))
    }

    /// Returns the image of the cluster's release: the ClusterVersion's, else the ControllerConfig's.
    pub fn release_image(&self) -> &str {
        let running = self
            .cluster_version
            .as_ref()
            .and_then(|version| version.status.as_ref());
        let written = || {
            let config = self.controller_config.as_deref();
            config.map_or("", |config| config.spec.release_image.as_str())
        };
        running.map_or_else(written, |status| status.desired.image.as_str())
    }

    /// Adds the manifest if its kind belongs here. Pools and the ControllerConfig are added by the caller, which
    /// resolves duplicates.
    pub(crate) fn add(&mut self, manifest: &Manifest) -> Result<bool, ManifestError> {
        let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
        let singleton = manifest.name == names::SINGLETON;
        match (group, manifest.kind.as_str()) {
            (OWN, "KubeletConfig") => self.kubelet_configs.push(manifest.decode()?),
            (OWN, "ContainerRuntimeConfig") => self.runtime_configs.push(manifest.decode()?),
            (OWN, "MachineOSConfig") => self.os_configs.push(manifest.decode()?),
            (OWN, "OSImageStream") => self.os_image_stream = Some(manifest.decode()?),
            (CONFIG | PLAIN, "ImageDigestMirrorSet") => self.digest_mirrors.push(manifest.decode()?),
            (CONFIG | PLAIN, "ImageTagMirrorSet") => self.tag_mirrors.push(manifest.decode()?),
            (CONFIG, "ClusterImagePolicy") => self.cluster_policies.push(manifest.decode()?),
            (CONFIG, "ImagePolicy") => self.policies.push(manifest.decode()?),
            (CONFIG, "Image") => self.image = Some(manifest.decode()?),
            (CONFIG, "FeatureGate") if singleton => self.feature_gate = Some(manifest.decode()?),
            (CONFIG, "Node") if singleton => self.node = Some(manifest.decode()?),
            (CONFIG, "APIServer") if singleton => self.api_server = Some(manifest.decode()?),
            (CONFIG, "ClusterVersion") => self.cluster_version = Some(manifest.decode()?),
            (CONFIG, "CRIOCredentialProviderConfig") if singleton => {
                self.credential_provider = Some(manifest.decode()?);
            }
            ("", "Node") if manifest.api_version == "v1" => {
                self.nodes.push(NodeVersions::of(&manifest.decode()?));
            }
            (OPERATOR, "ImageContentSourcePolicy") => self.content_policies.push(manifest.decode()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sorts objects by namespace and name, the order in which the controllers see them.
    pub fn sort(&mut self) {
        macro_rules! sort {
            ($($field:ident),*) => {
                $(self.$field.sort_by(|a, b| {
                    let key = |metadata: &ObjectMeta| (metadata.namespace.clone(), metadata.name.clone());
                    key(&a.metadata).cmp(&key(&b.metadata))
                });)*
            };
        }
        sort!(
            pools,
            kubelet_configs,
            runtime_configs,
            digest_mirrors,
            tag_mirrors,
            content_policies,
            cluster_policies,
            policies,
            os_configs
        );
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }
}
