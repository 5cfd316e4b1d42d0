//! Kinds of the group `mco.dev`, for clusters other than OpenShift. They have the schemas of OpenShift's kinds, whose
//! groups such a cluster must not have: other operators conclude from a group alone that they run on OpenShift.

use crate::crd::{CrdDefinition, CustomResourceDefinition, Installable};
use crate::foreign::Extra;
use crate::foreign::cluster_operator::{ClusterOperator, ClusterOperatorSpec, ClusterOperatorStatus};
use crate::foreign::mirrors::{
    self, ImageDigestMirrorSet as OpenShiftDigestMirrors, ImageDigestMirrorSetSpec,
    ImageTagMirrorSet as OpenShiftTagMirrors, ImageTagMirrorSetSpec,
};
use crate::machine_configuration::{
    self, MachineConfiguration as OpenShiftConfiguration, MachineConfigurationSpec,
    MachineConfigurationStatus,
};
use crate::resource::resource;

/// The group of these kinds.
pub const GROUP: &str = "mco.dev";

resource! {
    /// The state of our operator, in place of its ClusterOperator.
    MachineConfigOperator, ClusterResourceScope, "mco.dev" / "v1", "machineconfigoperators",
    spec: ClusterOperatorSpec,
    status: ClusterOperatorStatus,
    unknown fields kept in extra
}

resource! {
    /// Settings of the operator as a whole.
    MachineConfiguration, ClusterResourceScope, "mco.dev" / "v1", "machineconfigurations",
    spec: MachineConfigurationSpec,
    status: MachineConfigurationStatus
}

resource! {
    /// Mirrors for images that are pulled by digest.
    ImageDigestMirrorSet, ClusterResourceScope, "mco.dev" / "v1", "imagedigestmirrorsets",
    spec: ImageDigestMirrorSetSpec,
    status: Extra,
    unknown fields kept in extra
}

resource! {
    /// Mirrors for images that are pulled by tag.
    ImageTagMirrorSet, ClusterResourceScope, "mco.dev" / "v1", "imagetagmirrorsets",
    spec: ImageTagMirrorSetSpec,
    status: Extra,
    unknown fields kept in extra
}

impl Installable for MachineConfigOperator {
    fn crd() -> CustomResourceDefinition {
        let definition = CrdDefinition::of::<Self>("How the operator is, and which version it runs.");
        ClusterOperator::define(definition.short_name("mco")).build()
    }
}

impl Installable for MachineConfiguration {
    fn crd() -> CustomResourceDefinition {
        machine_configuration::define(CrdDefinition::of::<Self>("Settings of the operator as a whole."))
    }
}

impl Installable for ImageDigestMirrorSet {
    fn crd() -> CustomResourceDefinition {
        let about = "Mirrors for images that are pulled by digest.";
        mirrors::define::<ImageDigestMirrorSetSpec>(CrdDefinition::of::<Self>(about).short_name("idms"))
    }
}

impl Installable for ImageTagMirrorSet {
    fn crd() -> CustomResourceDefinition {
        let about = "Mirrors for images that are pulled by tag.";
        mirrors::define::<ImageTagMirrorSetSpec>(CrdDefinition::of::<Self>(about).short_name("itms"))
    }
}

impl From<ImageDigestMirrorSet> for OpenShiftDigestMirrors {
    fn from(own: ImageDigestMirrorSet) -> Self {
        Self {
            metadata: own.metadata,
            spec: own.spec,
            status: own.status,
            extra: own.extra,
        }
    }
}

impl From<ImageTagMirrorSet> for OpenShiftTagMirrors {
    fn from(own: ImageTagMirrorSet) -> Self {
        Self {
            metadata: own.metadata,
            spec: own.spec,
            status: own.status,
            extra: own.extra,
        }
    }
}

impl From<MachineConfiguration> for OpenShiftConfiguration {
    fn from(own: MachineConfiguration) -> Self {
        Self {
            metadata: own.metadata,
            spec: own.spec,
            status: own.status,
        }
    }
}

impl From<MachineConfigOperator> for ClusterOperator {
    fn from(own: MachineConfigOperator) -> Self {
        Self {
            metadata: own.metadata,
            spec: own.spec,
            status: own.status,
            extra: own.extra,
        }
    }
}
