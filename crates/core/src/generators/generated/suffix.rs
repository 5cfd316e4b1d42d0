//! The name of the MachineConfig that a KubeletConfig or ContainerRuntimeConfig writes for a pool, when several of
//! them select it.
//!
//! The first has the plain name, later ones `-1` to `-9`; a later one wins, because its name sorts last. The number
//! is recorded on the object: in an annotation and, per pool, in its finalizers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::{annotations, names};
use thiserror::Error;

/// The format of the names only allows one digit.
const HIGHEST_SUFFIX: u32 = 9;

/// The kind of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Kubelet,
    ContainerRuntime,
}

impl Family {
    pub(crate) fn name(self, pool: &str, suffix: Option<u32>) -> String {
        match self {
            Self::Kubelet => names::generated_kubelet(pool, suffix),
            Self::ContainerRuntime => names::generated_container_runtime(pool, suffix),
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet config",
            Self::ContainerRuntime => "ctrcfgs",
        }
    }

    fn plural_again(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet configs",
            Self::ContainerRuntime => "ctrcfgs",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SuffixError {
    #[error(
        "error converting {value} to int (annotation {} of {object:?})",
        annotations::MC_NAME_SUFFIX
    )]
    NotANumber { object: String, value: String },
    #[error(
        "max number of supported {} (10) has been reached. Please delete old {} before retrying",
        .0.plural(), .0.plural_again()
    )]
    Exhausted(Family),
}

/// Returns the name of the MachineConfig that `object` writes for `pool`. `selecting` are all objects of the kind
/// that select the pool, including `object`; `exists` returns whether a MachineConfig of a name exists.
pub fn config_name(
    family: Family,
    pool: &str,
    object: &ObjectMeta,
    selecting: &[&ObjectMeta],
    exists: impl Fn(&str) -> bool,
) -> Result<String, SuffixError> {
    // Finalizers are recorded per pool, so they take precedence over the annotation, which covers all pools.
    if let Some(recorded) = recorded(family, pool, object, exists) {
        return Ok(recorded);
    }
    let others = || selecting.iter().filter(|other| other.name != object.name);
    if let Some(value) = annotation(object) {
        let name = if value.is_empty() {
            family.name(pool, None)
        } else {
            format!("{}-{value}", family.name(pool, None))
        };
        // The annotation may stem from another pool; a config that another object writes must not be overwritten.
        if !others().any(|other| finalizers(other).any(|finalizer| *finalizer == name)) {
            return Ok(name);
        }
    } else if others().next().is_none() {
        return Ok(family.name(pool, None));
    }
    let mut highest = 0;
    for other in selecting {
        highest = highest.max(number(other)?);
    }
    let next = highest + 1;
    if next > HIGHEST_SUFFIX {
        return Err(SuffixError::Exhausted(family));
    }
    Ok(family.name(pool, Some(next)))
}

/// Whether an object has recorded that it wrote a MachineConfig for a pool.
pub fn has_written_for(family: Family, pool: &str, object: &ObjectMeta) -> bool {
    recorded(family, pool, object, |_| true).is_some()
}

/// Returns the annotation value that records a name: the number at its end, or empty.
pub fn annotation_for(name: &str) -> String {
    let last = name.rsplit('-').next().unwrap_or_default();
    if last.parse::<u32>().is_ok() {
        last.to_owned()
    } else {
        String::new()
    }
}

fn recorded(
    family: Family,
    pool: &str,
    object: &ObjectMeta,
    exists: impl Fn(&str) -> bool,
) -> Option<String> {
    let base = family.name(pool, None);
    let suffix = |name: &str| match name.strip_prefix(&base)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse::<u32>().ok(),
    };
    finalizers(object)
        .filter(|name| exists(name))
        .filter_map(|name| Some((suffix(name)?, name)))
        .max_by_key(|(suffix, _)| *suffix)
        .map(|(_, name)| name.clone())
}

fn finalizers(object: &ObjectMeta) -> impl Iterator<Item = &String> {
    object.finalizers.iter().flatten()
}

fn annotation(object: &ObjectMeta) -> Option<&String> {
    object.annotations.as_ref()?.get(annotations::MC_NAME_SUFFIX)
}

fn number(object: &ObjectMeta) -> Result<u32, SuffixError> {
    match annotation(object).map(String::as_str) {
        None | Some("") => Ok(0),
        Some(value) => value.parse().map_err(|_| SuffixError::NotANumber {
            object: object.name.clone().unwrap_or_default(),
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Case<'a> = (&'a str, ObjectMeta, Vec<ObjectMeta>, Result<&'a str, &'a str>);

    fn object(name: &str, suffix: Option<&str>, finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            annotations: suffix
                .map(|s| BTreeMap::from([(annotations::MC_NAME_SUFFIX.to_owned(), s.to_owned())])),
            finalizers: Some(finalizers.iter().map(|f| (*f).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn every_object_keeps_its_name_and_new_ones_get_the_next() {
        let base = "99-worker-generated-kubelet";
        let one = "99-worker-generated-kubelet-1";
        let cases: Vec<Case<'_>> = vec![
            ("alone on the pool", object("a", None, &[]), vec![], Ok(base)),
            (
                "the second on the pool",
                object("b", None, &[]),
                vec![object("a", Some(""), &[base])],
                Ok(one),
            ),
            (
                "its annotation decides",
                object("b", Some("1"), &[]),
                vec![object("a", Some(""), &[base])],
                Ok(one),
            ),
            (
                "alone again, it keeps its number",
                object("e", Some("3"), &[]),
                vec![],
                Ok("99-worker-generated-kubelet-3"),
            ),
            (
                "an old object without annotation keeps what its finalizer names",
                object("a", None, &[base]),
                vec![object("b", Some("1"), &[one])],
                Ok(base),
            ),
            (
                "holes are not reused",
                object("d", None, &[]),
                vec![object("a", Some(""), &[base]), object("c", Some("2"), &[])],
                Ok("99-worker-generated-kubelet-3"),
            ),
            (
                "two at once: the first of them",
                object("a", None, &[]),
                vec![object("b", None, &[])],
                Ok(one),
            ),
            (
                "the ninth is the last",
                object("k", None, &[]),
                vec![object("j", Some("9"), &[])],
                Err(
                    "max number of supported kubelet config (10) has been reached. Please delete old kubelet configs before retrying",
                ),
            ),
            (
                "an annotation that is no number",
                object("b", None, &[]),
                vec![object("a", Some("x"), &[])],
                Err("error converting x to int"),
            ),
            (
                "an annotation from another pool does not overwrite another object's config",
                object("a", Some(""), &["99-infra-generated-kubelet"]),
                vec![object("b", Some(""), &[base])],
                Ok(one),
            ),
        ];
        for (name, object, others, expected) in cases {
            let selecting: Vec<&ObjectMeta> = others.iter().chain([&object]).collect();
            let result = config_name(Family::Kubelet, "worker", &object, &selecting, |_| true);
            match (result, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{name}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{name}: {error}");
                }
                (result, expected) => panic!("{name}: {result:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn thirty_objects_on_thirty_pools_need_no_suffix() {
        for pool in 0..30 {
            let object = object("x", None, &[]);
            let name = config_name(
                Family::ContainerRuntime,
                &format!("p{pool}"),
                &object,
                &[&object],
                |_| false,
            );
            assert_eq!(name.unwrap(), format!("99-p{pool}-generated-containerruntime"));
        }
    }

    #[test]
    fn the_annotation_records_the_number() {
        assert_eq!(annotation_for("99-worker-generated-kubelet"), "");
        assert_eq!(annotation_for("99-worker-generated-kubelet-7"), "7");
    }

    #[test]
    fn finalizers_record_what_an_object_has_written() {
        let finalizers = [
            "99-worker-generated-kubelet-2",
            "99-infra-generated-kubelet",
            "99-gpu-generated-containerruntime",
            "theirs",
        ];
        let object = object("a", Some("2"), &finalizers);
        for (pool, expected) in [
            ("worker", true),
            ("infra", true),
            ("gpu", false),
            ("work", false),
            ("theirs", false),
        ] {
            assert_eq!(
                has_written_for(Family::Kubelet, pool, &object),
                expected,
                "{pool}"
            );
        }
        assert!(has_written_for(Family::ContainerRuntime, "gpu", &object));
    }
}
