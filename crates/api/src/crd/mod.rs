//! The CustomResourceDefinitions that we install, and their YAML.

mod definition;
mod yaml;

pub use definition::Installable;
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
pub use yaml::{crds_yaml, to_yaml};

pub(crate) use definition::{CrdDefinition, column};

use crate::foreign::cluster_operator::ClusterOperator;
use crate::foreign::image::Image;
use crate::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use crate::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, NodeAdoption, OSImageStream,
    PinnedImageSet, RolloutPolicy,
};

/// Returns every CustomResourceDefinition that we install: [`own_crds`], then [`companion_crds`].
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = own_crds();
    all.extend(companion_crds());
    all
}

/// Returns the definitions of our own kinds, by name.
pub fn own_crds() -> Vec<CustomResourceDefinition> {
    vec![
        ContainerRuntimeConfig::crd(),
        ControllerConfig::crd(),
        KubeletConfig::crd(),
        MachineConfigNode::crd(),
        MachineConfigPool::crd(),
        MachineConfig::crd(),
        MachineConfiguration::crd(),
        MachineOSBuild::crd(),
        MachineOSConfig::crd(),
        NodeAdoption::crd(),
        OSImageStream::crd(),
        PinnedImageSet::crd(),
        RolloutPolicy::crd(),
    ]
}

/// Returns the definitions of foreign kinds that we or our users write, for clusters without them.
pub fn companion_crds() -> Vec<CustomResourceDefinition> {
    vec![
        ClusterOperator::crd(),
        ImageContentSourcePolicy::crd(),
        ImageDigestMirrorSet::crd(),
        Image::crd(),
        ImageTagMirrorSet::crd(),
    ]
}
