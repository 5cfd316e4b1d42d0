//! Image labels, parsed from the output of common tools.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

pub type Labels = BTreeMap<String, String>;

/// JSON paths of an image's labels in the output of skopeo and podman, docker, `oc image info`, and in an Image
/// object.
const LABELS: [&str; 4] = [
    "/Labels",
    "/Config/Labels",
    "/config/config/Labels",
    "/dockerImageMetadata/Config/Labels",
];
/// JSON paths of its digest, alone or at the end of a pullspec.
const DIGESTS: [&str; 6] = [
    "/Digest",
    "/digest",
    "/listDigest",
    "/name",
    "/metadata/name",
    "/dockerImageReference",
];
const DIGEST: &str = "sha256:";

/// The labels of images, by digest: a mirrored copy of an image has the same labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageLabels {
    by_digest: BTreeMap<String, Labels>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "not a description of an image: {missing} is missing; expected what skopeo inspect, podman image inspect or \
     oc image info -o json print"
)]
pub struct LabelsError {
    missing: &'static str,
}

impl ImageLabels {
    /// Adds the labels of a description of one image, or of a list of them.
    pub fn read(&mut self, document: &Value) -> Result<(), LabelsError> {
        let list = document
            .as_array()
            .or_else(|| document.get("items").and_then(Value::as_array));
        if let Some(list) = list {
            return list.iter().try_for_each(|one| self.read(one));
        }
        let labels = LABELS.iter().find_map(|place| document.pointer(place));
        let labels = labels.ok_or(LabelsError { missing: "Labels" })?;
        let labels: Labels = labels
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let digests = digests_in(document);
        if digests.is_empty() {
            return Err(LabelsError { missing: "Digest" });
        }
        for digest in digests {
            self.by_digest.insert(digest, labels.clone());
        }
        Ok(())
    }

    /// Returns the labels of an image; `None` if they were not recorded.
    pub fn of(&self, image: &str) -> Option<&Labels> {
        self.by_digest.get(digest_of(image)?)
    }
}

fn digests_in(document: &Value) -> Vec<String> {
    let named = DIGESTS.iter().filter_map(|place| document.pointer(place));
    let repositories = document.get("RepoDigests").and_then(Value::as_array);
    named
        .chain(repositories.into_iter().flatten())
        .filter_map(Value::as_str)
        .filter_map(digest_of)
        .map(str::to_owned)
        .collect()
}

/// Returns the digest at the end of a pullspec, or the digest itself.
fn digest_of(image: &str) -> Option<&str> {
    let digest = image.rsplit_once('@').map_or(image, |(_, digest)| digest);
    digest.starts_with(DIGEST).then_some(digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_tools_description_is_understood() {
        let labels = json!({"io.openshift.os.streamclass": "rhel-9"});
        for (tool, document) in [
            (
                "skopeo inspect",
                json!({"Name": "r.example.com/os", "Digest": "sha256:aa", "Labels": labels}),
            ),
            (
                "podman image inspect",
                json!([{"Id": "1", "RepoDigests": ["r.example.com/os@sha256:aa"], "Labels": labels}]),
            ),
            (
                "docker image inspect",
                json!([{"RepoDigests": ["r.example.com/os@sha256:aa"], "Config": {"Labels": labels}}]),
            ),
            (
                "oc image info",
                json!({"name": "r.example.com/os@sha256:aa", "digest": "sha256:bb", "config": {"config": {"Labels": labels}}}),
            ),
            (
                "oc get images",
                json!({"kind": "List", "items": [{
                    "metadata": {"name": "sha256:aa"},
                    "dockerImageMetadata": {"Config": {"Labels": labels}},
                }]}),
            ),
        ] {
            let mut known = ImageLabels::default();
            known.read(&document).unwrap();
            let found = known.of("mirror.example.com/elsewhere/os@sha256:aa").unwrap();
            assert_eq!(found["io.openshift.os.streamclass"], "rhel-9", "{tool}");
            assert_eq!(known.of("r.example.com/os:latest"), None, "{tool}");
        }
    }

    #[test]
    fn a_document_that_describes_no_image_is_refused() {
        for (document, expected) in [
            (json!({"Digest": "sha256:aa"}), "Labels is missing"),
            (
                json!({"Labels": {}, "Name": "r.example.com/os"}),
                "Digest is missing",
            ),
        ] {
            let refusal = ImageLabels::default().read(&document).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }
}
