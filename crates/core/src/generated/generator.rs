//! Which MachineConfigs are ours to keep as they were generated, and whether one still is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations;

/// The generators, each of which keeps its own MachineConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generator {
    Templates,
    Kubelet,
    ContainerRuntime,
    Registries,
    CredentialProvider,
}

impl Generator {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Templates,
        Self::Registries,
        Self::ContainerRuntime,
        Self::Kubelet,
        Self::CredentialProvider,
    ];
}

/// Returns the generator that owns a MachineConfig and deletes it when nothing asks for it any more. Only a config that
/// carries a controller's version is a generator's, whatever its name; the base of a role is never deleted, because its
/// role may come back.
pub fn generator_of(metadata: &ObjectMeta) -> Option<Generator> {
    let version = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::GENERATED_BY_CONTROLLER_VERSION));
    if version.is_none_or(String::is_empty) {
        return None;
    }
    generator_of_name(metadata.name.as_deref()?)
}

/// Returns the generator whose MachineConfigs have names like this one.
pub fn generator_of_name(name: &str) -> Option<Generator> {
    let (prefix, rest) = name.split_once('-')?;
    // A pool may be called anything, so what follows its name decides, from the end.
    let unnumbered = match rest.rsplit_once('-') {
        Some((name, number)) if number.len() == 1 && number.parse::<u8>().is_ok() => name,
        _ => rest,
    };
    let ends = |name: &str, end: &str| name.strip_suffix(end).is_some_and(|pool| !pool.is_empty());
    match prefix {
        "97" | "98" if ends(rest, "-generated-kubelet") => Some(Generator::Kubelet),
        "99" if ends(unnumbered, "-generated-kubelet") => Some(Generator::Kubelet),
        "99" if ends(unnumbered, "-generated-containerruntime") => Some(Generator::ContainerRuntime),
        "99" if ends(rest, "-generated-registries") => Some(Generator::Registries),
        "97" if ends(rest, "-generated-credentialproviderconfig") => Some(Generator::CredentialProvider),
        _ => None,
    }
}

/// Whether a MachineConfig is as it was generated. Labels, annotations and owners that others have added do not count.
pub fn is_intact(actual: &MachineConfig, generated: &MachineConfig) -> bool {
    let contains = |has: &Option<std::collections::BTreeMap<String, String>>,
                    wants: &Option<std::collections::BTreeMap<String, String>>| {
        wants.iter().flatten().all(|(key, value)| {
            has.as_ref()
                .and_then(|has| has.get(key))
                .is_some_and(|found| found == value)
        })
    };
    let (has, wants) = (&actual.metadata, &generated.metadata);
    actual.spec == generated.spec
        && contains(&has.labels, &wants.labels)
        && contains(&has.annotations, &wants.annotations)
        && wants.owner_references.iter().flatten().all(|owner| {
            has.owner_references
                .iter()
                .flatten()
                .any(|found| found.uid == owner.uid && found.name == owner.name && found.kind == owner.kind)
        })
}

/// The MachineConfig to write in place of one that is not intact: what was generated, with what others have added.
pub fn restored(actual: &MachineConfig, generated: &MachineConfig) -> MachineConfig {
    let mut restored = actual.clone();
    restored.spec = generated.spec.clone();
    let wants = &generated.metadata;
    let metadata = &mut restored.metadata;
    if let Some(labels) = &wants.labels {
        metadata.labels.get_or_insert_default().extend(labels.clone());
    }
    if let Some(annotations) = &wants.annotations {
        metadata
            .annotations
            .get_or_insert_default()
            .extend(annotations.clone());
    }
    if let Some(owners) = &wants.owner_references {
        let kept = metadata.owner_references.take().unwrap_or_default();
        // An object has one controller; ours takes the place of whatever claims to be it.
        let kept = kept
            .into_iter()
            .filter(|owner| owner.controller != Some(true) && owners.iter().all(|own| own.uid != owner.uid));
        metadata.owner_references = Some(kept.chain(owners.iter().cloned()).collect());
    }
    restored
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_configs_have_one_generator_and_all_others_have_none() {
        let cases = [
            ("97-worker-generated-kubelet", Some(Generator::Kubelet)),
            ("98-my-pool-generated-kubelet", Some(Generator::Kubelet)),
            ("99-worker-generated-kubelet", Some(Generator::Kubelet)),
            ("99-worker-generated-kubelet-9", Some(Generator::Kubelet)),
            ("99-worker-generated-kubelet-10", None),
            ("98-worker-generated-kubelet-1", None),
            (
                "99-w-1-generated-containerruntime-2",
                Some(Generator::ContainerRuntime),
            ),
            ("99-worker-generated-registries", Some(Generator::Registries)),
            ("99-worker-generated-registries-1", None),
            (
                "97-worker-generated-credentialproviderconfig",
                Some(Generator::CredentialProvider),
            ),
            ("99-worker-generated-credentialproviderconfig", None),
            ("99-generated-kubelet", None),
            ("00-worker", None),
            ("rendered-worker-0123", None),
            ("99-worker-ssh", None),
        ];
        for (name, expected) in cases {
            let mut metadata = ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            };
            assert_eq!(generator_of(&metadata), None, "{name} of a user");
            let version = (
                annotations::GENERATED_BY_CONTROLLER_VERSION.to_owned(),
                "v".to_owned(),
            );
            metadata.annotations = Some([version].into());
            assert_eq!(generator_of(&metadata), expected, "{name}");
        }
    }

    #[test]
    fn an_edit_is_noticed_and_undone_and_additions_stay() {
        let config = |value| -> MachineConfig { serde_json::from_value(value).unwrap() };
        let generated = config(json!({
            "metadata": {"name": "00-worker", "labels": {"role": "worker"}, "annotations": {"version": "1"}},
            "spec": {"kernelArguments": ["a"]},
        }));
        let grown = config(json!({
            "metadata": {"name": "00-worker", "resourceVersion": "7", "labels": {"role": "worker", "mine": "x"},
                "annotations": {"version": "1", "note": "y"}},
            "spec": {"kernelArguments": ["a"]},
        }));
        assert!(is_intact(&grown, &generated));
        let edits = [
            json!({"spec": {"kernelArguments": ["b"]}}),
            json!({"metadata": {"labels": {"role": "other"}}}),
            json!({"metadata": {"annotations": {"version": "0"}}}),
        ];
        for edit in edits {
            let mut edited = serde_json::to_value(&grown).unwrap();
            json_merge(&mut edited, &edit);
            let edited = config(edited);
            assert!(!is_intact(&edited, &generated), "{edit}");
            assert_eq!(restored(&edited, &generated), grown, "{edit}");
        }
    }

    fn json_merge(into: &mut serde_json::Value, patch: &serde_json::Value) {
        match patch.as_object() {
            Some(members) => {
                for (key, value) in members {
                    json_merge(&mut into[key], value);
                }
            }
            None => *into = patch.clone(),
        }
    }
}
