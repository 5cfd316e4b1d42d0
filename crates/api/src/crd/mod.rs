//! The CustomResourceDefinitions that we install, and their YAML.

mod definition;
mod yaml;

pub use definition::Installable;
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
pub use yaml::{crds_yaml, crds_yaml_with, to_yaml};

pub(crate) use definition::{CrdDefinition, column};

use crate::foreign::cluster_operator::ClusterOperator;
use crate::foreign::image::Image;
use crate::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use crate::plain;
use crate::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, NodeAdoption, OSImageStream,
    PinnedImageSet, RolloutPolicy,
};

/// The group of OpenShift's operators, which no other cluster has.
const OPERATOR_GROUP: &str = "operator.openshift.io";

/// Whose kinds a cluster has beside ours: the ones of OpenShift's groups, or those of `mco.dev` in place of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompanionKinds {
    #[default]
    OpenShift,
    Plain,
}

/// Returns the definitions of a cluster with these kinds.
pub fn crds_with(kinds: CompanionKinds) -> Vec<CustomResourceDefinition> {
    match kinds {
        CompanionKinds::OpenShift => crds(),
        CompanionKinds::Plain => plain_crds(),
    }
}

/// Returns the definitions of a cluster other than OpenShift: none of a group of OpenShift's operators.
pub fn plain_crds() -> Vec<CustomResourceDefinition> {
    let mut all = own_crds();
    all.retain(|definition| definition.spec.group != OPERATOR_GROUP);
    all.extend([
        plain::ImageDigestMirrorSet::crd(),
        plain::ImageTagMirrorSet::crd(),
        plain::MachineConfigOperator::crd(),
        plain::MachineConfiguration::crd(),
    ]);
    all
}

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
