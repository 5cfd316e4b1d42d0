//! The base of a cluster: what is rendered for its nodes beside the users' MachineConfigs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::vocabulary::annotations;

/// The base of a cluster, the value of the annotation [`annotations::BASE`] of its ControllerConfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterBase {
    /// The templates, and whole files for kubelet and CRI-O. A ControllerConfig without the annotation means this one.
    #[default]
    OpenShift,
    /// Nothing: a pool is rendered from its MachineConfigs alone.
    None,
    /// Additions to nodes that kubeadm has joined: kubelet and containerd drop-ins.
    Kubeadm,
    /// Additions to nodes of k3s.
    K3s,
    /// Additions to nodes of RKE2.
    Rke2,
    /// The templates, for machines that boot from the config server in a cluster other than OpenShift.
    Machine,
}

/// A value of the annotation, or of an argument, that is the name of no base.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown base {0:?}\n  hint: a base is one of openshift, none, kubeadm, k3s, rke2 and machine; it is the annotation \
     mco.dev/base of ControllerConfig machine-config-controller, which the operator's argument --base sets"
)]
pub struct UnknownBase(pub String);

impl ClusterBase {
    pub const ALL: [Self; 6] = [
        Self::OpenShift,
        Self::None,
        Self::Kubeadm,
        Self::K3s,
        Self::Rke2,
        Self::Machine,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenShift => "openshift",
            Self::None => "none",
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::Machine => "machine",
        }
    }

    /// Returns the base that the annotations of a ControllerConfig name.
    pub fn of_annotations(annotations: Option<&BTreeMap<String, String>>) -> Result<Self, UnknownBase> {
        let named = annotations.and_then(|all| all.get(annotations::BASE));
        named.map_or(Ok(Self::default()), |name| name.parse())
    }

    /// Whether roles have base configs that are rendered from templates, and the cluster has the built-in pools.
    pub fn has_templates(self) -> bool {
        matches!(self, Self::OpenShift | Self::Machine)
    }

    /// Whether generators add drop-ins to what the node's distribution of Kubernetes has written.
    pub fn is_additive(self) -> bool {
        matches!(self, Self::Kubeadm | Self::K3s | Self::Rke2)
    }

    /// Whether an OpenShift release manages the cluster.
    pub fn is_openshift(self) -> bool {
        self == Self::OpenShift
    }
}

impl fmt::Display for ClusterBase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for ClusterBase {
    type Err = UnknownBase;

    fn from_str(name: &str) -> Result<Self, UnknownBase> {
        let mut all = Self::ALL.into_iter();
        all.find(|base| base.name() == name)
            .ok_or_else(|| UnknownBase(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_the_annotation_is_openshift_and_an_unknown_name_is_an_error() {
        for base in ClusterBase::ALL {
            let all = BTreeMap::from([(annotations::BASE.to_owned(), base.to_string())]);
            assert_eq!(ClusterBase::of_annotations(Some(&all)), Ok(base));
        }
        assert_eq!(ClusterBase::of_annotations(None), Ok(ClusterBase::OpenShift));
        let other = BTreeMap::from([(annotations::BASE.to_owned(), "Kubeadm".to_owned())]);
        assert_eq!(
            ClusterBase::of_annotations(Some(&other)),
            Err(UnknownBase("Kubeadm".to_owned()))
        );
    }
}
