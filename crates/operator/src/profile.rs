//! What is installed on a cluster: its base, whose kinds, and which of the optional components.

use std::collections::BTreeMap;
use std::str::FromStr;

use kube::Client;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::crd::CompanionKinds;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::vocabulary::{annotations, names};
use mco_api::{ClusterBase, ControllerConfig};
use thiserror::Error;

use crate::cluster::{ClusterError, OperatorClient};

/// The administrator's choices about a cluster other than OpenShift.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileOptions {
    /// The base; `None` to detect it.
    pub base: Option<ClusterBase>,
    /// Install the kinds of OpenShift's groups, by which other operators may conclude that they run on OpenShift.
    pub openshift_kinds: bool,
    /// Run the config servers.
    pub server: bool,
    /// Apply network policies, and the admission policies that guard them.
    pub network_policies: bool,
    pub placement: Placement,
}

/// Where the operator and the controller run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub node_selector: BTreeMap<String, String>,
    /// In addition to those of the control plane.
    pub tolerations: Vec<PodToleration>,
}

/// A toleration as `kubectl taint` writes a taint: `key[=value][:effect]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodToleration {
    pub key: String,
    pub value: Option<String>,
    pub effect: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid toleration {0:?}\n  hint: key=value:NoSchedule, key:NoExecute, or key alone")]
pub struct InvalidToleration(pub String);

impl FromStr for PodToleration {
    type Err = InvalidToleration;

    fn from_str(text: &str) -> Result<Self, InvalidToleration> {
        let invalid = || InvalidToleration(text.to_owned());
        let (taint, effect) = match text.rsplit_once(':') {
            Some((taint, effect)) => (taint, Some(effect)),
            None => (text, None),
        };
        if effect.is_some_and(|effect| !matches!(effect, "NoSchedule" | "NoExecute" | "PreferNoSchedule")) {
            return Err(invalid());
        }
        let (key, value) = match taint.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (taint, None),
        };
        if key.is_empty() {
            return Err(invalid());
        }
        Ok(Self {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.map(str::to_owned),
        })
    }
}

impl std::fmt::Display for PodToleration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(formatter, "={value}")?;
        }
        match &self.effect {
            Some(effect) => write!(formatter, ":{effect}"),
            None => Ok(()),
        }
    }
}

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterProfile {
    pub base: ClusterBase,
    pub kinds: CompanionKinds,
    /// Whether config servers run, with their certificates, tokens and the user data of new machines.
    pub server: bool,
    pub network_policies: bool,
    /// Whether SecurityContextConstraints assign users to pods, as OpenShift's do.
    pub assigns_users: bool,
    pub placement: Placement,
}

impl Default for ClusterProfile {
    fn default() -> Self {
        Self::new(ClusterBase::OpenShift, &ProfileOptions::default())
    }
}

impl ClusterProfile {
    /// Returns the profile of a base. OpenShift's has everything; on others, each is a choice.
    pub fn new(base: ClusterBase, options: &ProfileOptions) -> Self {
        let everything = base.is_openshift();
        Self {
            base,
            kinds: if everything || options.openshift_kinds {
                CompanionKinds::OpenShift
            } else {
                CompanionKinds::Plain
            },
            server: everything || options.server,
            network_policies: everything || options.network_policies,
            assigns_users: everything,
            placement: options.placement.clone(),
        }
    }
}

/// What decides about the base of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseEvidence {
    /// Whether an OpenShift release manages the cluster.
    pub is_openshift: bool,
    /// The existing ControllerConfig's base annotation; `Some(None)` for a ControllerConfig without it.
    pub stored: Option<Option<String>>,
}

#[derive(Debug, Error)]
pub enum ProfileError {
    #[error(transparent)]
    Unknown(#[from] mco_api::cluster_base::UnknownBase),
    #[error(
        "an OpenShift release manages this cluster, so its base cannot be {0}: its nodes would lose their \
         configuration\n  hint: remove --base from the operator's arguments"
    )]
    OpenShift(ClusterBase),
}

/// Decides what is installed. A cluster that was installed before it had a base keeps what it has.
pub fn decide(evidence: &BaseEvidence, options: &ProfileOptions) -> Result<ClusterProfile, ProfileError> {
    let base = match (options.base, &evidence.stored) {
        (Some(base), _) if evidence.is_openshift && !base.is_openshift() => {
            return Err(ProfileError::OpenShift(base));
        }
        (Some(base), _) => base,
        (None, _) if evidence.is_openshift => ClusterBase::OpenShift,
        (None, Some(Some(stored))) => stored.parse()?,
        (None, Some(None)) => ClusterBase::OpenShift,
        (None, None) => ClusterBase::None,
    };
    Ok(ClusterProfile::new(base, options))
}

/// Reads what decides about the base.
pub async fn evidence(client: Client) -> Result<BaseEvidence, ClusterError> {
    let cluster = OperatorClient::new(client);
    let version = cluster.find::<ClusterVersion>(names::CLUSTER_VERSION).await?;
    let infrastructure = cluster.find::<Infrastructure>(names::SINGLETON).await?;
    let config = cluster.find::<ControllerConfig>(CONTROLLER_CONFIG_NAME).await?;
    Ok(BaseEvidence {
        is_openshift: version.is_some() || infrastructure.is_some(),
        stored: config.map(|config| config.metadata.annotations?.get(annotations::BASE).cloned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::option_option, reason = "as the field of the evidence")]
    fn base(
        is_openshift: bool,
        stored: Option<Option<&str>>,
        asked: Option<ClusterBase>,
    ) -> Result<String, String> {
        let evidence = BaseEvidence {
            is_openshift,
            stored: stored.map(|stored| stored.map(str::to_owned)),
        };
        let options = ProfileOptions {
            base: asked,
            ..ProfileOptions::default()
        };
        let decided = decide(&evidence, &options).map_err(|error| error.to_string())?;
        let kinds = match decided.kinds {
            CompanionKinds::OpenShift => "openshift kinds",
            CompanionKinds::Plain => "plain kinds",
        };
        let server = if decided.server { "server" } else { "no server" };
        Ok(format!("{}, {kinds}, {server}", decided.base))
    }

    #[test]
    fn the_base_is_detected_stored_and_chosen() {
        use ClusterBase::{Kubeadm, None as NoBase, OpenShift};
        for (name, given, expected) in [
            (
                "a new cluster",
                (false, None, None),
                "none, plain kinds, no server",
            ),
            (
                "OpenShift",
                (true, Some(None), None),
                "openshift, openshift kinds, server",
            ),
            (
                "a choice that was stored",
                (false, Some(Some("k3s")), None),
                "k3s, plain kinds, no server",
            ),
            (
                "an installation from before bases were stored",
                (false, Some(None), None),
                "openshift, openshift kinds, server",
            ),
            (
                "another choice",
                (false, Some(Some("k3s")), Some(Kubeadm)),
                "kubeadm, plain kinds, no server",
            ),
            (
                "OpenShift's tree elsewhere",
                (false, None, Some(OpenShift)),
                "openshift, openshift kinds, server",
            ),
        ] {
            let (is_openshift, stored, asked) = given;
            assert_eq!(
                base(is_openshift, stored, asked).as_deref(),
                Ok(expected),
                "{name}"
            );
        }
        let refused = base(true, Some(None), Some(NoBase)).unwrap_err();
        assert!(refused.contains("its base cannot be none"), "{refused}");
        let unknown = base(false, Some(Some("talos")), None).unwrap_err();
        assert!(unknown.starts_with("unknown base \"talos\""), "{unknown}");
    }

    #[test]
    fn tolerations_are_written_as_taints_are() {
        for text in ["dedicated=infra:NoSchedule", "dedicated:NoExecute", "dedicated"] {
            assert_eq!(text.parse::<PodToleration>().unwrap().to_string(), text);
        }
        for text in ["", "=x", "a:Never"] {
            assert!(text.parse::<PodToleration>().is_err(), "{text}");
        }
    }
}
