//! The user's mirror objects, validated and merged into one order per source.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::foreign::mirrors::{
    ImageContentSourcePolicy, ImageDigestMirrorSet, ImageMirrors, ImageTagMirrorSet, MirrorSourcePolicy,
};

use super::edit::WildcardMirrors;
use super::scope;
use super::{RegistryInputs, RegistryProblem};

/// One list of mirrors of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MirrorRule {
    /// The object, such as `ImageDigestMirrorSet "mirrors"`.
    pub object: String,
    pub source: String,
    pub mirrors: Vec<String>,
    pub never_contact_source: bool,
}

/// All mirror rules of a cluster, by reference type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MirrorRules {
    /// From ImageDigestMirrorSets and ImageContentSourcePolicies.
    pub digest: Vec<MirrorRule>,
    /// From ImageTagMirrorSets.
    pub tag: Vec<MirrorRule>,
}

/// The mirrors of one source, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OrderedMirrors {
    pub source: String,
    pub mirrors: Vec<String>,
    pub never_contact_source: bool,
}

impl MirrorRules {
    pub fn gather(sources: &RegistryInputs<'_>) -> Self {
        Self {
            digest: digest_rules(sources.digest_mirrors, sources.content_policies),
            tag: tag_rules(sources.tag_mirrors),
        }
    }

    /// Adds the name of the object that an unusable source comes from.
    pub fn explain(&self, problem: WildcardMirrors) -> RegistryProblem {
        let mut rules = self.digest.iter().chain(&self.tag);
        let rule = rules.find(|rule| rule.source == problem.source_scope);
        RegistryProblem::WildcardMirrors {
            object: rule.map(|rule| rule.object.clone()).unwrap_or_default(),
            mirrored: problem.source_scope,
            inner: problem.inner,
        }
    }

    /// Returns all problems of the rules, individually and in combination.
    pub fn check(&self) -> Vec<RegistryProblem> {
        let mut problems = Vec::new();
        let mut policies: BTreeMap<&str, &MirrorRule> = BTreeMap::new();
        for rule in self.digest.iter().chain(&self.tag) {
            let object = || rule.object.clone();
            if !scope::is_valid_source(&rule.source) {
                let mirrored = rule.source.clone();
                problems.push(RegistryProblem::SourceFormat {
                    object: object(),
                    mirrored,
                });
            }
            for mirror in rule
                .mirrors
                .iter()
                .filter(|mirror| !scope::is_valid_mirror(mirror))
            {
                let mirror = mirror.clone();
                problems.push(RegistryProblem::MirrorFormat {
                    object: object(),
                    mirror,
                });
            }
            if rule.never_contact_source && rule.mirrors.contains(&rule.source) {
                let mirrored = rule.source.clone();
                problems.push(RegistryProblem::SourceIsMirror {
                    object: object(),
                    mirrored,
                });
            }
            let first = *policies.entry(&rule.source).or_insert(rule);
            if first.never_contact_source != rule.never_contact_source {
                problems.push(RegistryProblem::ConflictingPolicy {
                    objects: [first.object.clone(), object()],
                    mirrored: rule.source.clone(),
                });
            }
        }
        problems
    }
}

pub(super) fn digest_rules(
    digest: &[ImageDigestMirrorSet],
    policies: &[ImageContentSourcePolicy],
) -> Vec<MirrorRule> {
    let sets = digest.iter().flat_map(|set| {
        let object = describe("ImageDigestMirrorSet", set.metadata.name.as_deref());
        let mirrors = set.spec.image_digest_mirrors.iter();
        mirrors.map(move |mirrors| rule(object.clone(), mirrors))
    });
    let policies = policies.iter().flat_map(|policy| {
        let object = describe("ImageContentSourcePolicy", policy.metadata.name.as_deref());
        let mirrors = policy.spec.repository_digest_mirrors.iter();
        mirrors.map(move |mirrors| MirrorRule {
            object: object.clone(),
            source: mirrors.source.clone(),
            mirrors: mirrors.mirrors.clone(),
            never_contact_source: false,
        })
    });
    sets.chain(policies).collect()
}

pub(super) fn tag_rules(sets: &[ImageTagMirrorSet]) -> Vec<MirrorRule> {
    let rules = sets.iter().flat_map(|set| {
        let object = describe("ImageTagMirrorSet", set.metadata.name.as_deref());
        let mirrors = set.spec.image_tag_mirrors.iter();
        mirrors.map(move |mirrors| rule(object.clone(), mirrors))
    });
    rules.collect()
}

fn rule(object: String, mirrors: &ImageMirrors) -> MirrorRule {
    MirrorRule {
        object,
        source: mirrors.source.clone(),
        mirrors: mirrors.mirrors.clone(),
        never_contact_source: mirrors.mirror_source_policy == Some(MirrorSourcePolicy::NeverContactSource),
    }
}

fn describe(kind: &str, name: Option<&str>) -> String {
    format!("{kind} {:?}", name.unwrap_or_default())
}

/// Returns one order per source that satisfies every list, with sources sorted alphabetically.
pub(super) fn ordered(rules: &[MirrorRule]) -> Vec<OrderedMirrors> {
    let mut by_source: BTreeMap<&str, Vec<&MirrorRule>> = BTreeMap::new();
    for rule in rules {
        // A source mirrored only to itself has no effect.
        if rule.mirrors.iter().any(|mirror| *mirror != rule.source) {
            by_source.entry(&rule.source).or_default().push(rule);
        }
    }
    let ordered = by_source.into_iter().map(|(source, rules)| {
        let mut graph = Precedence::default();
        for rule in &rules {
            for pair in rule.mirrors.windows(2) {
                graph.before(&pair[0], &pair[1]);
            }
            if let Some(last) = rule
                .mirrors
                .last()
                .filter(|_| !rule.mirrors.iter().any(|m| m == source))
            {
                graph.before(last, source);
            }
        }
        let mut mirrors = graph.sorted();
        // The source itself is always contacted last.
        if mirrors.last().is_some_and(|last| *last == source) {
            mirrors.pop();
        }
        OrderedMirrors {
            source: source.to_owned(),
            mirrors: mirrors.into_iter().map(str::to_owned).collect(),
            never_contact_source: rules.iter().any(|rule| rule.never_contact_source),
        }
    });
    ordered.collect()
}

/// A precedence graph.
#[derive(Debug, Default)]
struct Precedence<'s> {
    followers: BTreeMap<&'s str, BTreeSet<&'s str>>,
    waiting_for: BTreeMap<&'s str, BTreeSet<&'s str>>,
}

impl<'s> Precedence<'s> {
    fn before(&mut self, first: &'s str, second: &'s str) {
        for node in [first, second] {
            self.followers.entry(node).or_default();
            self.waiting_for.entry(node).or_default();
        }
        if first != second {
            self.followers.entry(first).or_default().insert(second);
            self.waiting_for.entry(second).or_default().insert(first);
        }
    }

    /// Returns all nodes in topological order. Nodes that become ready together are sorted alphabetically, and a
    /// cycle is broken at its alphabetically first node.
    fn sorted(mut self) -> Vec<&'s str> {
        let mut sorted = Vec::with_capacity(self.followers.len());
        let mut ready: Vec<&str> = self
            .waiting_for
            .iter()
            .filter(|(_, waiting_for)| waiting_for.is_empty())
            .map(|(node, _)| *node)
            .collect();
        let mut next = 0;
        loop {
            let node = match ready.get(next) {
                Some(node) => *node,
                None => match self.waiting_for.keys().next() {
                    Some(node) => {
                        ready.push(node);
                        node
                    }
                    None => return sorted,
                },
            };
            next += 1;
            if self.waiting_for.remove(node).is_none() {
                continue;
            }
            sorted.push(node);
            for follower in self.followers.remove(node).unwrap_or_default() {
                if let Some(waiting_for) = self.waiting_for.get_mut(follower)
                    && waiting_for.remove(node)
                    && waiting_for.is_empty()
                {
                    ready.push(follower);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, lists, and the merged order.
    type Case<'a> = (&'a str, &'a [&'a [&'a str]], &'a [&'a str]);

    fn rule(source: &str, mirrors: &[&str]) -> MirrorRule {
        MirrorRule {
            object: String::new(),
            source: source.to_owned(),
            mirrors: mirrors.iter().map(|mirror| (*mirror).to_owned()).collect(),
            never_contact_source: false,
        }
    }

    #[test]
    fn lists_of_one_source_become_one_order() {
        let cases: [Case<'_>; 7] = [
            ("one list keeps its order", &[&["b", "a"]], &["b", "a"]),
            ("overlapping lists", &[&["B", "C"], &["A", "B"]], &["A", "B", "C"]),
            (
                "a cycle is broken alphabetically",
                &[&["a", "b"], &["b", "a"]],
                &["a", "b"],
            ),
            ("the source first is kept", &[&["s", "a"]], &["s", "a"]),
            ("the source last is dropped", &[&["a", "s"]], &["a"]),
            ("only the source is ignored", &[&["s"], &["a"]], &["a"]),
            ("a repeated mirror", &[&["a", "a", "b"]], &["a", "b"]),
        ];
        for (name, lists, expected) in cases {
            let rules: Vec<MirrorRule> = lists.iter().map(|list| rule("s", list)).collect();
            let ordered = ordered(&rules);
            assert_eq!(ordered.len(), 1, "{name}");
            assert_eq!(ordered[0].mirrors, expected, "{name}");
        }
    }
}
