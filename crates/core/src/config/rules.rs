//! The administrator's policies in the cluster's MachineConfiguration: the disruption that a change causes, and the
//! irreconcilable changes that running nodes may skip.

use mco_api::{ClusterBase, MachineConfiguration};

use crate::config::disruption::DisruptionPolicy;
use crate::config::feature_gates::FeatureGates;
use crate::config::irreconcilable::FEATURE_GATE;
use crate::config::reconcilable::Overrides;

#[derive(Debug, Clone, Default)]
pub struct AdministratorRules {
    pub policy: DisruptionPolicy,
    pub overrides: Overrides,
}

impl AdministratorRules {
    /// Returns the built-in policies of a base, for a cluster without a MachineConfiguration.
    pub fn of_base(base: ClusterBase) -> Self {
        Self {
            policy: DisruptionPolicy::of_base(base),
            overrides: Overrides::default(),
        }
    }

    /// Returns the policies of the spec, which the operator copies to the status later.
    pub fn written(settings: &MachineConfiguration, base: ClusterBase) -> Self {
        let own = settings.spec.node_disruption_policy.as_ref();
        let built_in = DisruptionPolicy::of_base(base);
        Self {
            policy: match own {
                Some(own) => built_in.with_cluster_policies(own),
                None => built_in,
            },
            overrides: Overrides::of(settings),
        }
    }

    /// Returns the policies of the status, as resolved by the operator.
    pub fn in_force(settings: &MachineConfiguration, base: ClusterBase) -> Self {
        let status = settings.status.as_ref();
        let policies = status.and_then(|status| status.node_disruption_policy_status.as_ref());
        let built_in = DisruptionPolicy::of_base(base);
        Self {
            policy: match policies {
                Some(policies) => built_in.with_cluster_policies(&policies.cluster_policies),
                None => built_in,
            },
            overrides: Overrides::of(settings),
        }
    }

    /// Restricts the policies to those that the feature gates enable.
    #[must_use]
    pub fn under(self, gates: &FeatureGates) -> Self {
        Self {
            overrides: self.overrides.under(gates),
            ..self
        }
    }
}

impl Overrides {
    pub fn of(settings: &MachineConfiguration) -> Self {
        let written = settings.spec.irreconcilable_validation_overrides.as_ref();
        written.map(Self::from).unwrap_or_default()
    }

    /// Disables the overrides where the release's feature gates disable them. Without feature gates all are enabled.
    #[must_use]
    pub fn under(self, gates: &FeatureGates) -> Self {
        if gates.is_disabled(FEATURE_GATE) {
            Self::default()
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_lifted_counts_unless_the_release_has_it_switched_off() {
        let settings: MachineConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "cluster"},
            "spec": {"irreconcilableValidationOverrides": {"storage": ["Disks", "Raid", "Unheard"]}},
        }))
        .unwrap();
        let lifted = Overrides {
            disks: true,
            filesystems: false,
            raid: true,
        };
        let gates = |on: bool| FeatureGates::from_iter([(FEATURE_GATE, on)]);
        for (gates, expected) in [
            (FeatureGates::default(), lifted),
            (gates(true), lifted),
            (gates(false), Overrides::default()),
        ] {
            assert_eq!(
                AdministratorRules::written(&settings, ClusterBase::OpenShift)
                    .under(&gates)
                    .overrides,
                expected,
                "{gates:?}"
            );
            assert_eq!(
                AdministratorRules::in_force(&settings, ClusterBase::OpenShift)
                    .under(&gates)
                    .overrides,
                expected,
                "{gates:?}"
            );
        }
    }
}
