//! Ownership of generated MachineConfigs: which generator owns one, and whether it was modified since.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations;
use serde_json::{Map, Value, json};

/// The generators, each of which owns its MachineConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generator {
    Templates,
    Kubelet,
    ContainerRuntime,
    Registries,
    CredentialProvider,
}

impl Generator {
    /// All generators, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Templates,
        Self::Registries,
        Self::ContainerRuntime,
        Self::Kubelet,
        Self::CredentialProvider,
    ];
}

/// Returns the generator that owns a MachineConfig and deletes it when it is no longer needed. Only a config with a
/// generated-by-controller-version annotation is generated, regardless of its name; the base config of a role is
/// never deleted, because its role may be added again.
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
    // A pool name may contain any of the keywords, so the name is parsed from its end.
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

/// Whether a MachineConfig is unmodified since it was generated. Labels, annotations and owners that others added are
/// ignored, and so is the form of an owner reference.
pub fn is_intact(actual: &MachineConfig, generated: &MachineConfig) -> bool {
    restoration(actual, generated).is_none()
}

/// The write that restores a generated MachineConfig.
#[derive(Debug, Clone, PartialEq)]
pub enum Restoration {
    /// A merge patch of the metadata. The spec is equivalent and keeps its serialization: other implementations write
    /// `null`, or omit the field, for an empty list.
    Metadata(Value),
    /// The whole object, including the metadata that others added.
    Whole(Box<MachineConfig>),
}

/// Returns the write that restores a MachineConfig to its generated state; `None` if it is unmodified.
pub fn restoration(actual: &MachineConfig, generated: &MachineConfig) -> Option<Restoration> {
    let restored = restored(actual, generated);
    let (has, wants) = (&actual.metadata, &restored.metadata);
    if actual.spec != restored.spec {
        return Some(Restoration::Whole(Box::new(restored)));
    }
    let mut patch = Map::new();
    for (field, has, wants) in [
        ("labels", &has.labels, &wants.labels),
        ("annotations", &has.annotations, &wants.annotations),
    ] {
        let changed = changed(has.as_ref(), wants.as_ref());
        if !changed.is_empty() {
            patch.insert(field.to_owned(), json!(changed));
        }
    }
    if has.owner_references != wants.owner_references {
        patch.insert("ownerReferences".to_owned(), json!(wants.owner_references));
    }
    if patch.is_empty() {
        return None;
    }
    patch.insert("resourceVersion".to_owned(), json!(has.resource_version));
    Some(Restoration::Metadata(json!({ "metadata": patch })))
}

fn changed<'a>(
    has: Option<&BTreeMap<String, String>>,
    wants: Option<&'a BTreeMap<String, String>>,
) -> BTreeMap<&'a str, &'a str> {
    let wants = wants.into_iter().flatten();
    wants
        .filter(|(key, value)| has.and_then(|has| has.get(*key)) != Some(value))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// Returns the generated object, including the metadata that others added.
fn restored(actual: &MachineConfig, generated: &MachineConfig) -> MachineConfig {
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
    let owners = wants.owner_references.iter().flatten();
    for owner in owners {
        let kept = metadata.owner_references.get_or_insert_default();
        let is_named = |found: &OwnerReference| {
            found.uid == owner.uid && found.name == owner.name && found.kind == owner.kind
        };
        if kept.iter().any(is_named) {
            continue;
        }
        // An object has at most one controller; ours replaces any other.
        kept.retain(|found| found.controller != Some(true) && found.uid != owner.uid);
        kept.push(owner.clone());
    }
    restored
}

#[cfg(test)]
mod tests {
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
            let whole = matches!(restoration(&edited, &generated), Some(Restoration::Whole(_)));
            assert_eq!(whole, edit.get("spec").is_some(), "{edit}");
        }
    }

    #[test]
    fn the_owner_and_the_empty_lists_of_another_implementation_were_rewritten_with_the_version() {
        let config = |value| -> MachineConfig { serde_json::from_value(value).unwrap() };
        let name = "99-worker-generated-registries";
        let owner = |more: Value| {
            let mut owner = json!({"apiVersion": "config.openshift.io/v1", "kind": "Image", "name": "cluster", "uid": "1"});
            json_merge(&mut owner, &more);
            owner
        };
        let ours = config(json!({
            "metadata": {"name": name, "annotations": {"version": "ours"},
                "ownerReferences": [owner(json!({"controller": true, "blockOwnerDeletion": true}))]},
            "spec": {"kernelArguments": []},
        }));
        let theirs = |annotation: &str, uid: &str| {
            config(json!({
                "metadata": {"name": name, "resourceVersion": "7", "annotations": {"version": annotation},
                    "ownerReferences": [owner(json!({"uid": uid}))]},
                "spec": {"kernelArguments": null},
            }))
        };
        assert_eq!(
            restoration(&theirs("theirs", "1"), &ours),
            Some(Restoration::Metadata(json!({"metadata": {
                "annotations": {"version": "ours"}, "resourceVersion": "7"}})))
        );
        assert_eq!(restoration(&theirs("ours", "1"), &ours), None);
        let Some(Restoration::Metadata(patch)) = restoration(&theirs("ours", "2"), &ours) else {
            panic!("another owner is not the owner");
        };
        assert_eq!(
            patch["metadata"]["ownerReferences"].as_array().map(Vec::len),
            Some(2)
        );
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
