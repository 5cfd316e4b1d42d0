//! Adoption of existing nodes: which node a pool adopts by itself, and what a user has requested.

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations::ADOPT;

/// The value of the `mco.dev/adopt` annotation of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdoptionPolicy {
    /// Only on request.
    Never,
    /// A node that already is as its pool's config says, so that its adoption changes and disrupts nothing.
    #[default]
    WhenEqual,
    /// Every node that the pool selects.
    Always,
}

impl AdoptionPolicy {
    /// Returns the policy of a pool with these annotations. An unknown value must not make a node change itself.
    pub fn of_pool(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let value = annotations.and_then(|all| all.get(ADOPT)).map(String::as_str);
        match value {
            None | Some("when-equal") => Self::WhenEqual,
            Some("always") => Self::Always,
            Some(_) => Self::Never,
        }
    }

    /// Whether the nodes of a pool with these annotations are existing ones that have to be adopted first.
    pub fn is_set(annotations: Option<&BTreeMap<String, String>>) -> bool {
        annotations.is_some_and(|all| all.contains_key(ADOPT))
    }
}

/// A user's request: the first word of the `mco.dev/adoption-request` annotation of a Node. Further words identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptionRequest {
    /// Compare the node with its pool's config, and change nothing.
    Compare,
    Adopt,
    /// Restore what was there before, and manage the node no more.
    Release,
}

impl AdoptionRequest {
    pub fn parse(value: &str) -> Option<Self> {
        match value.split_whitespace().next()? {
            "compare" => Some(Self::Compare),
            "adopt" => Some(Self::Adopt),
            "release" => Some(Self::Release),
            _ => None,
        }
    }
}

/// What a comparison of a node with its pool's config has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdoptionFindings {
    /// Paths that would be created, replaced or removed; at least 1 if the config has any other effect on the node.
    pub changes: usize,
    /// The config names nothing at all, as that of a pool whose MachineConfigs are still to be created.
    pub is_empty: bool,
    /// Why the config cannot be applied at all.
    pub obstacle: Option<String>,
}

/// Whether a node is adopted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptionDecision {
    Adopt,
    /// The node stays as it is, for this reason.
    Stay(String),
}

/// Decides whether an existing node is adopted. `released` is set on a node that was released before.
pub fn decide(
    policy: AdoptionPolicy,
    request: Option<AdoptionRequest>,
    released: bool,
    findings: &AdoptionFindings,
) -> AdoptionDecision {
    let stay = |why: &str| AdoptionDecision::Stay(why.to_owned());
    if let Some(obstacle) = &findings.obstacle {
        return AdoptionDecision::Stay(obstacle.clone());
    }
    match (request, policy) {
        (Some(AdoptionRequest::Compare), _) => stay("compared; nothing was changed"),
        (Some(AdoptionRequest::Release), _) => stay("the node is not managed"),
        (None, _) if released => stay("the node was released; mco adopt --yes adopts it again"),
        (None, AdoptionPolicy::Never) => stay("the pool adopts no node by itself"),
        // Every machine is equal to an empty config, and would get all that is added to the pool later without a preview.
        (None, AdoptionPolicy::WhenEqual) if findings.is_empty => {
            stay("not adopted by itself, because the config of the pool names nothing yet")
        }
        (None, AdoptionPolicy::WhenEqual) if findings.changes > 0 => AdoptionDecision::Stay(format!(
            "not adopted by itself, because {} changes are needed on it; mco adopt shows them",
            findings.changes
        )),
        (Some(AdoptionRequest::Adopt), _) | (None, AdoptionPolicy::Always | AdoptionPolicy::WhenEqual) => {
            AdoptionDecision::Adopt
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_adopted_by_policy_or_on_request_and_never_against_an_obstacle() {
        use AdoptionPolicy::{Always, Never, WhenEqual};
        let adopt = Some(AdoptionRequest::Adopt);
        let compare = Some(AdoptionRequest::Compare);
        for (policy, request, released, changes, adopted) in [
            (WhenEqual, None, false, 0, true),
            (WhenEqual, None, false, 1, false),
            (WhenEqual, None, true, 0, false),
            (WhenEqual, adopt, true, 1, true),
            (Always, None, false, 5, true),
            (Always, None, true, 0, false),
            (Always, compare, false, 0, false),
            (Never, None, false, 0, false),
            (Never, adopt, false, 9, true),
        ] {
            let mut findings = AdoptionFindings {
                changes,
                ..AdoptionFindings::default()
            };
            let decision = decide(policy, request, released, &findings);
            assert_eq!(
                decision == AdoptionDecision::Adopt,
                adopted,
                "{policy:?} {request:?} {released} {changes}: {decision:?}"
            );
            findings.obstacle = Some("guarded".to_owned());
            assert_eq!(
                decide(policy, request, released, &findings),
                AdoptionDecision::Stay("guarded".to_owned())
            );
        }
    }

    #[test]
    fn an_empty_config_adopted_every_node_of_its_pool() {
        use AdoptionPolicy::{Always, WhenEqual};
        let findings = AdoptionFindings {
            is_empty: true,
            ..AdoptionFindings::default()
        };
        let adopt = Some(AdoptionRequest::Adopt);
        for (policy, request, adopted) in [
            (WhenEqual, None, false),
            (WhenEqual, adopt, true),
            (Always, None, true),
        ] {
            let decision = decide(policy, request, false, &findings);
            assert_eq!(
                decision == AdoptionDecision::Adopt,
                adopted,
                "{policy:?} {request:?}"
            );
        }
    }

    #[test]
    fn unknown_values_change_nothing() {
        let of = |value: &str| {
            let all = BTreeMap::from([(ADOPT.to_owned(), value.to_owned())]);
            AdoptionPolicy::of_pool(Some(&all))
        };
        assert_eq!(AdoptionPolicy::of_pool(None), AdoptionPolicy::WhenEqual);
        assert_eq!(of("always"), AdoptionPolicy::Always);
        assert_eq!(of("Always"), AdoptionPolicy::Never);
        assert_eq!(AdoptionRequest::parse("adopt 17"), Some(AdoptionRequest::Adopt));
        assert_eq!(AdoptionRequest::parse("force"), None);
        assert_eq!(AdoptionRequest::parse(""), None);
    }
}
