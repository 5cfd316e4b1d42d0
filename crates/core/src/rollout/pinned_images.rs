//! Assignment of PinnedImageSets to pools, and their validation.
//!
//! A set belongs to every pool whose MachineConfig selector matches the set's labels. The daemons pull and pin the
//! images.

use std::collections::HashSet;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::machine_config_pool::PinnedImageSetReference;
use mco_api::{MachineConfigPool, PinnedImageSet};
use regex::Regex;
use thiserror::Error;

use crate::config::pools::{self, SelectError};
use crate::config::problem::Problem;

/// Maximum number of sets of a pool, as in the CRD.
pub const MOST_SETS: usize = 100;
const MOST_IMAGES: usize = 500;
const LONGEST_NAME: usize = 447;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PinError {
    #[error(transparent)]
    Selector(SelectError),
    #[error(
        "{found} PinnedImageSets match spec.machineConfigSelector, but a pool can have no more than {MOST_SETS}"
    )]
    TooMany { found: usize },
}

/// The value of a pool's `spec.pinnedImageSets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinnedImages {
    /// These sets, by name.
    Sets(Vec<PinnedImageSetReference>),
    /// Keep the existing value: a selector that matches everything is a mistake, which the render reports.
    LeftAlone,
}

/// Returns the sets that belong to a pool. A set that is being deleted belongs to none.
pub fn of_pool<'s>(
    pool: &MachineConfigPool,
    sets: impl IntoIterator<Item = &'s ObjectMeta>,
) -> Result<PinnedImages, PinError> {
    let selector = match pools::config_selector(pool) {
        Ok(selector) => selector,
        Err(SelectError::SelectsNothing { .. }) => return Ok(PinnedImages::Sets(Vec::new())),
        Err(SelectError::SelectsEverything { .. }) => return Ok(PinnedImages::LeftAlone),
        Err(problem) => return Err(PinError::Selector(problem)),
    };
    let mut names: Vec<String> = sets
        .into_iter()
        .filter(|set| set.deletion_timestamp.is_none() && selector.matches(set.labels.as_ref()))
        .filter_map(|set| set.name.clone())
        .collect();
    if names.len() > MOST_SETS {
        return Err(PinError::TooMany { found: names.len() });
    }
    names.sort_unstable();
    let references = names.into_iter().map(|name| PinnedImageSetReference { name });
    Ok(PinnedImages::Sets(references.collect()))
}

/// Returns all problems of a set, with the wording of its CRD.
pub fn validate(set: &PinnedImageSet) -> Vec<Problem> {
    let images = &set.spec.pinned_images;
    let mut problems = Vec::new();
    if images.is_empty() {
        problems.push(Problem::new(
            "spec.pinnedImages",
            "at least one image is required",
        ));
    }
    if images.len() > MOST_IMAGES {
        let message = format!(
            "{} images are too many; a set can have {MOST_IMAGES}",
            images.len()
        );
        let hint = "spread them over several sets";
        problems.push(Problem::new("spec.pinnedImages", message).with_hint(hint));
    }
    let mut seen = HashSet::new();
    for (index, image) in images.iter().enumerate() {
        let path = format!("spec.pinnedImages[{index}].name");
        let wrong = |message: &str| Problem::new(path.as_str(), message).about(image.name.as_str());
        problems.extend(complaint(&image.name).map(wrong));
        if !seen.insert(image.name.as_str()) {
            problems.push(wrong("the image is named twice"));
        }
    }
    problems
}

fn complaint(image: &str) -> Option<&'static str> {
    if image.len() > LONGEST_NAME {
        return Some("the name may not be longer than 447 characters");
    }
    let by_digest = image.split_once('@').filter(|(_, digest)| is_digest(digest));
    let Some((name, _)) = by_digest else {
        return Some(
            "the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long",
        );
    };
    let is_name = NAME.as_ref().is_some_and(|pattern| pattern.is_match(name));
    (!is_name).then_some(
        "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme",
    )
}

fn is_digest(digest: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let hexadecimal = digest.strip_prefix("sha256:");
    hexadecimal.is_some_and(|text| text.len() == 64 && text.bytes().all(is_digit))
}

/// The pattern in the CRD. `None` only if the regex does not compile, which a test rules out.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9_-]{0,61}/)?[a-zA-Z0-9_.-]*$").ok()
});

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(selector: &Value) -> MachineConfigPool {
        let spec = json!({"machineConfigSelector": selector});
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn set(name: &str, role: &str) -> ObjectMeta {
        let labels = json!({"machineconfiguration.openshift.io/role": role});
        serde_json::from_value(json!({"name": name, "labels": labels})).unwrap()
    }

    #[test]
    fn sets_belong_to_the_pools_whose_selector_matches_their_labels() {
        const ROLE: &str = "machineconfiguration.openshift.io/role";
        let mut going = set("going", "worker");
        going.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let sets = [
            set("z", "worker"),
            set("m", "master"),
            set("a", "worker"),
            set("i", "infra"),
            going,
            ObjectMeta::default(),
        ];
        let worker = json!({"matchLabels": {ROLE: "worker"}});
        let infra =
            json!({"matchExpressions": [{"key": ROLE, "operator": "In", "values": ["worker", "infra"]}]});
        let gpu = json!({"matchLabels": {ROLE: "gpu"}});
        let cases: [(&str, Value, Option<&[&str]>); 6] = [
            (
                "by name, and none that is being deleted",
                worker,
                Some(&["a", "z"]),
            ),
            (
                "a custom pool gets the workers' sets too",
                infra,
                Some(&["a", "i", "z"]),
            ),
            ("nothing matches", gpu, Some(&[])),
            ("no selector", Value::Null, Some(&[])),
            ("an empty selector", json!({}), None),
            ("an empty list", json!({"matchLabels": {}}), None),
        ];
        for (name, selector, expected) in cases {
            let named = |name: &&str| PinnedImageSetReference {
                name: (*name).to_owned(),
            };
            let expected = match expected {
                Some(names) => PinnedImages::Sets(names.iter().map(named).collect()),
                None => PinnedImages::LeftAlone,
            };
            assert_eq!(of_pool(&pool(&selector), &sets), Ok(expected), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_decided_is_an_error() {
        let unreadable = pool(&json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}));
        assert!(matches!(of_pool(&unreadable, []), Err(PinError::Selector(_))));
        let everything = pool(
            &json!({"matchExpressions": [{"key": "machineconfiguration.openshift.io/role", "operator": "Exists"}]}),
        );
        let sets: Vec<ObjectMeta> = (0..=MOST_SETS)
            .map(|index| set(&index.to_string(), "x"))
            .collect();
        assert_eq!(
            of_pool(&everything, &sets).unwrap_err().to_string(),
            "101 PinnedImageSets match spec.machineConfigSelector, but a pool can have no more than 100"
        );
        assert!(
            matches!(of_pool(&everything, &sets[1..]), Ok(PinnedImages::Sets(all)) if all.len() == MOST_SETS)
        );
    }

    #[test]
    fn images_are_named_by_digest() {
        let digest = format!("@sha256:{}", "0a".repeat(32));
        let long = "x".repeat(LONGEST_NAME);
        let cases = [
            ("host and name", format!("quay.io/x{digest}"), None),
            (
                "with port and namespace",
                format!("quay.example.com:5000/team/x_y.z{digest}"),
                None,
            ),
            (
                "a tag",
                "quay.io/x:latest".to_owned(),
                Some("'@sha256:<digest>' suffix"),
            ),
            (
                "a short digest",
                "quay.io/x@sha256:0a0a".to_owned(),
                Some("'@sha256:<digest>' suffix"),
            ),
            (
                "an upper case digest",
                format!("quay.io/x{}", digest.to_uppercase()),
                Some("'@sha256:<digest>' suffix"),
            ),
            (
                "two digests",
                format!("quay.io/x{digest}{digest}"),
                Some("'@sha256:<digest>' suffix"),
            ),
            (
                "no host",
                format!("x{digest}"),
                Some("host[:port][/namespace]/name format"),
            ),
            (
                "a scheme",
                format!("https://quay.io/x{digest}"),
                Some("host[:port][/namespace]/name format"),
            ),
            (
                "too long",
                format!("quay.io/{long}{digest}"),
                Some("longer than 447"),
            ),
            ("nothing", String::new(), Some("'@sha256:<digest>' suffix")),
        ];
        for (name, image, expected) in cases {
            let set = PinnedImageSet::new(
                "s",
                serde_json::from_value(json!({"pinnedImages": [{"name": image}]})).unwrap(),
            );
            let found = validate(&set);
            match expected {
                None => assert_eq!(found, [], "{name}"),
                Some(text) => {
                    assert_eq!(found.len(), 1, "{name}: {found:?}");
                    assert!(found[0].message.contains(text), "{name}: {found:?}");
                    assert_eq!(found[0].path, "spec.pinnedImages[0].name", "{name}");
                }
            }
        }
    }

    #[test]
    fn a_set_has_some_images_each_once() {
        let image = |index: usize| json!({"name": format!("quay.io/x@sha256:{index:064x}")});
        let problems = |images: Vec<Value>| {
            let spec = serde_json::from_value(json!({ "pinnedImages": images })).unwrap();
            let found = validate(&PinnedImageSet::new("s", spec));
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(problems((0..MOST_IMAGES).map(image).collect()), [""; 0]);
        for (images, expected) in [
            (vec![], "at least one image is required"),
            ((0..=MOST_IMAGES).map(image).collect(), "501 images are too many"),
            (vec![image(1), image(1)], "the image is named twice"),
        ] {
            let found = problems(images);
            assert!(
                matches!(found.as_slice(), [one] if one.contains(expected)),
                "{found:?}"
            );
        }
    }
}
