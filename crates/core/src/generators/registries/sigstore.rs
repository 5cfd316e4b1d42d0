//! Image policies: which signatures are required for which scopes, and where signatures are looked up.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use serde_json::{Map, Value, json};

use super::conf::{RegistriesConf, RegistryConf};
use super::lookup::Lookup;
use super::policy::{self, Requirements};
use super::reference::RegistryReference;
use super::{RegistryProblem, scope};
use crate::config::goyaml;

/// Parts of the sample image that represents all images of a scope.
const SAMPLE_HOST: &str = "matched";
const SAMPLE_PATH: &str = "/a";
const SAMPLE_TAG: &str = ":aaa";
const SAMPLE_DIGEST: &str = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A namespaced policy with scopes that a cluster-wide policy already covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConflict {
    pub namespace: String,
    pub name: String,
    pub scopes: Vec<String>,
}

impl PolicyConflict {
    /// Returns the message of the policy's `Pending` condition.
    pub fn message(&self) -> String {
        let scopes: Vec<String> = self.scopes.iter().map(|scope| format!("{scope:?}")).collect();
        format!(
            "has conflicting scope(s) [{}] that equal to or nest inside existing clusterimagepolicy, only policy from \
             clusterimagepolicy scope(s) will be applied",
            scopes.join(" ")
        )
    }
}

/// All signature requirements of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Signatures {
    pub cluster: Requirements,
    pub namespaces: BTreeMap<String, Requirements>,
    pub conflicts: Vec<PolicyConflict>,
    pub problems: Vec<RegistryProblem>,
}

impl Signatures {
    pub fn gather(cluster: &[ClusterImagePolicy], namespaced: &[ImagePolicy]) -> Self {
        let mut gathered = Self::default();
        for object in cluster {
            let name = format!(
                "ClusterImagePolicy {:?}",
                object.metadata.name.as_deref().unwrap_or_default()
            );
            match policy::requirement(&name, &object.spec.policy) {
                Ok(requirement) => {
                    for scope in &object.spec.scopes {
                        gathered
                            .cluster
                            .entry(scope.clone())
                            .or_default()
                            .push(requirement.clone());
                    }
                }
                Err(problem) => gathered.problems.push(problem),
            }
        }
        for object in namespaced {
            gathered.add_namespaced(object);
        }
        gathered
    }

    fn add_namespaced(&mut self, object: &ImagePolicy) {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = object.metadata.name.clone().unwrap_or_default();
        let described = format!("ImagePolicy \"{namespace}/{name}\"");
        let requirement = match policy::requirement(&described, &object.spec.policy) {
            Ok(requirement) => requirement,
            Err(problem) => return self.problems.push(problem),
        };
        let decided = |scope: &String| self.cluster.keys().any(|outer| scope::is_within(scope, outer));
        let (conflicting, free): (Vec<String>, Vec<String>) =
            object.spec.scopes.iter().cloned().partition(decided);
        for scope in free {
            let requirements = self.namespaces.entry(namespace.clone()).or_default();
            requirements.entry(scope).or_default().push(requirement.clone());
        }
        if !conflicting.is_empty() {
            self.conflicts.push(PolicyConflict {
                namespace,
                name,
                scopes: conflicting,
            });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.namespaces.is_empty()
    }

    /// Checks that signatures are only required for scopes whose images are allowed.
    pub fn check(&self, allowed: &[String], blocked: &[String]) -> Vec<RegistryProblem> {
        let cluster = self.cluster.keys().map(|scope| ("clusterimagePolicy", scope));
        let namespaced = self.namespaces.values().flat_map(BTreeMap::keys);
        let all = cluster.chain(namespaced.map(|scope| ("imagePolicy", scope)));
        let inside = |scope: &str, list: &[String]| list.iter().any(|outer| scope::is_within(scope, outer));
        let mut problems = Vec::new();
        for (kind, scope) in all {
            let scope = scope.clone();
            if !allowed.is_empty() && !inside(&scope, allowed) {
                problems.push(RegistryProblem::ScopeNotAllowed { kind, scope });
            } else if inside(&scope, blocked) {
                problems.push(RegistryProblem::ScopeBlocked { kind, scope });
            }
        }
        problems
    }

    /// Returns the file with the locations of attached signatures: every location an image of a scope may be pulled
    /// from. Without a registries.conf of the cluster, that is the scope itself.
    pub fn registries_d(&self, conf: Option<&RegistriesConf>) -> Result<String, RegistryProblem> {
        let namespaced = self.namespaces.values().flat_map(BTreeMap::keys);
        let scopes: BTreeSet<&String> = self.cluster.keys().chain(namespaced).collect();
        let mut places: BTreeSet<String> = scopes.iter().copied().cloned().collect();
        if let Some(conf) = conf {
            for scope in scopes {
                let found = places_of(scope, conf).map_err(|message| RegistryProblem::ScopeMirrors {
                    scope: scope.clone(),
                    message,
                })?;
                places.extend(found);
            }
        }
        let docker: Map<String, Value> = places
            .into_iter()
            .map(|place| (place, json!({"use-sigstore-attachments": true})))
            .collect();
        Ok(goyaml::to_string(&json!({ "docker": docker })))
    }
}

/// Returns the locations of the images of a scope: through the entry that applies to it, and through entries within
/// it.
fn places_of(policy_scope: &str, conf: &RegistriesConf) -> Result<BTreeSet<String>, String> {
    let lookup = Lookup::of(conf)?;
    let inner = conf.registries.iter().map(RegistryConf::scope);
    let inner = inner.filter(|scope| *scope != policy_scope && scope::is_within(scope, policy_scope));
    let mut places = BTreeSet::new();
    for scope in inner.chain([policy_scope]) {
        if let Some(entry) = lookup.find(scope) {
            places.extend(places_by(entry, scope)?);
        }
    }
    Ok(places)
}

/// Returns the locations of the images of a scope by one entry. The tools only resolve whole images, so a sample
/// image of the scope is resolved, and its sample parts are removed from the result.
fn places_by(entry: &RegistryConf, scope: &str) -> Result<BTreeSet<String>, String> {
    let mut sample = match scope.strip_prefix('*') {
        Some(domain) if scope::is_wildcard(scope) => format!("{SAMPLE_HOST}{domain}"),
        _ => scope.to_owned(),
    };
    let is_whole_host = !sample.contains('/');
    if is_whole_host {
        sample.push_str(SAMPLE_PATH);
    }
    let repository = RegistryReference::parse(&sample)
        .ok_or_else(|| format!("{scope:?} is not a registry or repository"))?
        .name;
    let mut places = BTreeSet::new();
    for suffix in [SAMPLE_DIGEST, SAMPLE_TAG] {
        let image = format!("{repository}{suffix}");
        let Some(image) = RegistryReference::parse(&image) else {
            return Err(format!("{scope:?} is not a registry or repository"));
        };
        for source in entry.pull_sources(image)?.into_iter().filter(|s| !s.is_own_place) {
            let place = source.name.strip_suffix(SAMPLE_PATH).filter(|_| is_whole_host);
            places.insert(place.unwrap_or(&source.name).to_owned());
        }
    }
    Ok(places)
}
