//! Admission of mirror and signature objects. An object that is invalid on its own is rejected; one that only
//! conflicts with another object gets a warning, because it works while that object does not exist.

use mco_api::foreign::image_policy::{ImagePolicySpec, SignaturePolicy};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};

use super::mirrors::{MirrorRule, MirrorRules, digest_rules, tag_rules};
use super::reference::RegistryReference;
use super::{RegistryProblem, policy, scope};
use crate::config::problem::Problem;

/// Warnings, or all problems.
type RegistryVerdict = Result<Vec<Problem>, Vec<Problem>>;

/// Validates an ImageDigestMirrorSet.
pub fn admit_digest_mirrors(set: &ImageDigestMirrorSet) -> RegistryVerdict {
    mirrors(
        "spec.imageDigestMirrors",
        digest_rules(std::slice::from_ref(set), &[]),
    )
}

/// Validates an ImageTagMirrorSet.
pub fn admit_tag_mirrors(set: &ImageTagMirrorSet) -> RegistryVerdict {
    mirrors("spec.imageTagMirrors", tag_rules(std::slice::from_ref(set)))
}

/// Validates an ImageContentSourcePolicy.
pub fn admit_content_policy(set: &ImageContentSourcePolicy) -> RegistryVerdict {
    mirrors(
        "spec.repositoryDigestMirrors",
        digest_rules(&[], std::slice::from_ref(set)),
    )
}

/// Validates a ClusterImagePolicy or an ImagePolicy.
pub fn admit_policy(spec: &ImagePolicySpec) -> RegistryVerdict {
    if let Some(message) = fault(&spec.policy) {
        return Err(vec![Problem::new("spec.policy", message)]);
    }
    let scopes = spec.scopes.iter().enumerate();
    let unreadable = scopes.filter(|(_, scope)| {
        let host = scope.strip_prefix("*.").unwrap_or(scope);
        let whole = if host.contains('/') {
            host.to_owned()
        } else {
            format!("{host}/a")
        };
        RegistryReference::parse(&whole).is_none()
    });
    let warn = |(index, scope): (usize, &String)| {
        Problem::new(
            format!("spec.scopes[{index}]"),
            "it is not a registry or repository, and is rejected once a mirror or a registry setting applies to it",
        )
        .about(scope.clone())
    };
    Ok(unreadable.map(warn).collect())
}

fn fault(given: &SignaturePolicy) -> Option<String> {
    match policy::requirement("", given) {
        Err(RegistryProblem::SignaturePolicy { message, .. }) => Some(message),
        Err(other) => Some(other.to_string()),
        Ok(_) => None,
    }
}

fn mirrors(path: &str, rules: Vec<MirrorRule>) -> RegistryVerdict {
    let rules = MirrorRules {
        digest: rules,
        tag: Vec::new(),
    };
    let problem = |problem: RegistryProblem| {
        let text = problem.to_string();
        // The admission response already names the object.
        let message = text
            .split_once(": ")
            .map_or(text.as_str(), |(_, message)| message);
        Problem::new(path, message)
    };
    let problems: Vec<Problem> = rules.check().into_iter().map(problem).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let rules = rules.digest.iter().enumerate();
    Ok(rules
        .flat_map(|(index, rule)| warnings(&format!("{path}[{index}]"), rule))
        .collect())
}

fn warnings(path: &str, rule: &MirrorRule) -> Vec<Problem> {
    if scope::is_wildcard(&rule.source) {
        let problem = Problem::new(
            format!("{path}.source"),
            "a registry inside this wildcard cannot be blocked or marked as insecure any more: its mirrors could not be \
             rendered",
        );
        return vec![problem.about(rule.source.clone())];
    }
    // A sample image of the source, referenced by tag.
    let rest = if rule.source.contains('/') { ":a" } else { "/a/a:a" };
    let mirrors = rule.mirrors.iter().enumerate();
    let unusable =
        mirrors.filter(|(_, mirror)| RegistryReference::qualified(&format!("{mirror}{rest}")).is_none());
    let warn = |(index, mirror): (usize, &String)| {
        Problem::new(
            format!("{path}.mirrors[{index}]"),
            format!(
                "images named {} cannot be pulled through it, and a signature policy for them is rejected",
                rule.source
            ),
        )
        .about(mirror.clone())
        .with_hint("name a registry by its full host name, and a repository for the mirror of a repository")
    };
    unusable.map(warn).collect()
}
