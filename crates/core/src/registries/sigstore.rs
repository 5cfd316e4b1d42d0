//! Image policies: whose signatures count for which scopes, and where those signatures are looked for.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use serde_json::{Map, Value, json};

use super::conf::RegistriesConf;
use super::policy::{self, Requirements};
use super::{RegistryProblem, scope};
use crate::goyaml;

/// A namespaced policy some of whose scopes a cluster-wide policy already decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConflict {
    pub namespace: String,
    pub name: String,
    pub scopes: Vec<String>,
}

impl PolicyConflict {
    /// The message of the policy's `Pending` condition.
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

    /// Signatures can only be asked for where images are allowed at all.
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

    /// The file that tells where signatures are attached: at every place an image of a scope may come from.
    pub fn registries_d(&self, conf: &RegistriesConf) -> String {
        let namespaced = self.namespaces.values().flat_map(BTreeMap::keys);
        let mut places = BTreeSet::new();
        for scope in self.cluster.keys().chain(namespaced) {
            places.insert(scope.clone());
            if let Some(entry) = conf.closest(scope, |entry| !entry.mirrors.is_empty()) {
                let rest = scope::remainder(scope, entry.scope());
                places.extend(
                    entry
                        .mirrors
                        .iter()
                        .map(|mirror| format!("{}{rest}", mirror.location)),
                );
            }
            let inner = conf
                .registries
                .iter()
                .filter(|entry| entry.scope() != scope.as_str() && scope::is_within(entry.scope(), scope));
            for entry in inner {
                if !scope::is_wildcard(entry.scope()) {
                    places.insert(entry.scope().to_owned());
                }
                places.extend(entry.mirrors.iter().map(|mirror| mirror.location.clone()));
            }
        }
        let docker: Map<String, Value> = places
            .into_iter()
            .map(|place| (place, json!({"use-sigstore-attachments": true})))
            .collect();
        goyaml::to_string(&json!({ "docker": docker }))
    }
}
