//! Assigns the names of the MachineConfigs of all KubeletConfigs, or of all ContainerRuntimeConfigs, together, so
//! that two objects created at once get different numbers and no existing config is overwritten.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::annotations;

use super::suffix::{self, Family, SuffixError};

/// An object and the pools that it selects.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    pub object: &'a ObjectMeta,
    pub pools: Vec<&'a str>,
}

/// The MachineConfigs an object writes, and how the assignment is recorded on the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// By pool.
    pub configs: Vec<(String, Result<String, SuffixError>)>,
    /// The new value of the suffix annotation, if it changes.
    pub suffix: Option<String>,
    /// All finalizers of the object, if they change.
    pub finalizers: Option<Vec<String>>,
}

/// Assigns all names. Objects are in creation order, and so is the result. `exists` returns whether a MachineConfig
/// of a name exists, and `is_generated` whether a name belongs to this family.
pub fn assign(
    family: Family,
    claims: &[Claim<'_>],
    exists: impl Fn(&str) -> bool,
    is_generated: impl Fn(&str) -> bool,
) -> Vec<Assigned> {
    let mut objects: Vec<ObjectMeta> = claims.iter().map(|claim| claim.object.clone()).collect();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut result = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let mut configs = Vec::new();
        for pool in &claim.pools {
            let selecting: Vec<&ObjectMeta> = claims
                .iter()
                .zip(&objects)
                .filter(|(claim, _)| claim.pools.contains(pool))
                .map(|(_, object)| object)
                .collect();
            let name = suffix::config_name(family, pool, &objects[index], &selecting, |name| {
                exists(name) || taken.contains(name)
            });
            if let Ok(name) = &name {
                taken.insert(name.clone());
                record_name(&mut objects[index], name);
            }
            configs.push(((*pool).to_owned(), name));
        }
        let names: BTreeSet<&String> = configs
            .iter()
            .filter_map(|(_, name)| name.as_ref().ok())
            .collect();
        let failed = configs.iter().any(|(_, name)| name.is_err());
        let before = claim.object.finalizers.clone().unwrap_or_default();
        // A name that is missing only because the assignment failed may still be in use.
        let kept = before
            .iter()
            .filter(|finalizer| failed || names.contains(finalizer) || !is_generated(finalizer));
        let mut finalizers: Vec<String> = kept.cloned().collect();
        for name in &names {
            if !finalizers.contains(name) {
                finalizers.push((*name).clone());
            }
        }
        let unannotated = suffix_of(claim.object).is_none();
        result.push(Assigned {
            suffix: suffix_of(&objects[index]).filter(|_| unannotated),
            finalizers: (finalizers != before).then_some(finalizers),
            configs,
        });
    }
    result
}

/// Records the assigned name on the in-memory object, as the later write will.
fn record_name(object: &mut ObjectMeta, name: &str) {
    let finalizers = object.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == name) {
        finalizers.push(name.to_owned());
    }
    object
        .annotations
        .get_or_insert_default()
        .entry(annotations::MC_NAME_SUFFIX.to_owned())
        .or_insert_with(|| suffix::annotation_for(name));
}

fn suffix_of(object: &ObjectMeta) -> Option<String> {
    object
        .annotations
        .as_ref()?
        .get(annotations::MC_NAME_SUFFIX)
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, suffix: Option<&str>, finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            annotations: suffix.map(|s| [(annotations::MC_NAME_SUFFIX.to_owned(), s.to_owned())].into()),
            finalizers: Some(finalizers.iter().map(|f| (*f).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    fn names(objects: &[(ObjectMeta, &[&str])]) -> Vec<Assigned> {
        let claims: Vec<Claim<'_>> = objects
            .iter()
            .map(|(object, pools)| Claim {
                object,
                pools: pools.to_vec(),
            })
            .collect();
        assign(
            Family::Kubelet,
            &claims,
            |_| true,
            |name| name.contains("-generated-kubelet"),
        )
    }

    #[test]
    fn two_at_once_get_two_names_and_remember_them() {
        let all = names(&[
            (object("a", None, &["theirs"]), &["worker"]),
            (object("b", None, &[]), &["worker"]),
        ]);
        let configs: Vec<&str> = all
            .iter()
            .flat_map(|assigned| &assigned.configs)
            .map(|(_, name)| name.as_deref().unwrap())
            .collect();
        assert_eq!(
            configs,
            ["99-worker-generated-kubelet-1", "99-worker-generated-kubelet-2"]
        );
        assert_eq!(all[0].suffix.as_deref(), Some("1"));
        assert_eq!(
            all[0].finalizers.as_deref().unwrap(),
            ["theirs", "99-worker-generated-kubelet-1"]
        );
    }

    #[test]
    fn what_is_written_down_already_is_not_written_again() {
        let base = "99-worker-generated-kubelet";
        let all = names(&[(object("a", Some(""), &[base]), &["worker"])]);
        assert_eq!(all[0].configs, [("worker".to_owned(), Ok(base.to_owned()))]);
        assert_eq!((&all[0].suffix, &all[0].finalizers), (&None, &None));
    }

    #[test]
    fn a_pool_that_is_no_longer_selected_is_forgotten_and_other_finalizers_stay() {
        let all = names(&[(
            object(
                "a",
                Some(""),
                &[
                    "99-worker-generated-kubelet",
                    "99-infra-generated-kubelet",
                    "theirs",
                ],
            ),
            &["worker"],
        )]);
        assert_eq!(
            all[0].finalizers.as_deref().unwrap(),
            ["99-worker-generated-kubelet", "theirs"]
        );
    }

    #[test]
    fn a_name_that_cannot_be_decided_takes_nothing_away() {
        let all = names(&[
            (
                object("j", Some("9"), &["99-worker-generated-kubelet-9"]),
                &["worker"],
            ),
            (object("k", None, &["99-infra-generated-kubelet"]), &["worker"]),
        ]);
        assert!(all[1].configs[0].1.is_err());
        assert_eq!(all[1].finalizers, None);
    }
}
