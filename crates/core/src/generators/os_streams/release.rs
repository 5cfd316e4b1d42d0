//! The images of a release: the ImageStream in its file `release-manifests/image-references`.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

/// The path of a release's list of images within its image.
pub const FILE: &str = "release-manifests/image-references";

/// An image that identifies a release's ImageStream: every release has it, and no other ImageStream should.
const TELLTALE: &str = "machine-config-operator";

/// The images of a release, by tag name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseImages {
    /// The release's version, which is the name of its ImageStream.
    pub version: String,
    pub tags: Vec<Tag>,
}

/// One image of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    /// The image's pullspec.
    pub image: String,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReleaseError {
    #[error(
        "not a list of a release's images: expected an ImageStream of image.openshift.io/v1, found {found}"
    )]
    NotAnImageStream { found: String },
    #[error("the ImageStream has no spec.tags")]
    NoTags,
    #[error("the release has no image {tag:?}")]
    Missing { tag: String },
}

impl ReleaseImages {
    /// Parses an ImageStream. Tags that do not name an image, such as references to other tags, are skipped.
    pub fn read(document: &Value) -> Result<Self, ReleaseError> {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        let kind = text("/kind").unwrap_or("nothing with a kind");
        let group = text("/apiVersion").unwrap_or_default();
        if kind != "ImageStream" || !(group.is_empty() || group.starts_with("image.openshift.io/")) {
            return Err(ReleaseError::NotAnImageStream {
                found: format!("{kind} {group}").trim_end().to_owned(),
            });
        }
        let tags = document.pointer("/spec/tags").and_then(Value::as_array);
        let tags = tags.ok_or(ReleaseError::NoTags)?;
        Ok(Self {
            version: text("/metadata/name").unwrap_or_default().to_owned(),
            tags: tags.iter().filter_map(tag).collect(),
        })
    }

    /// Whether this is a release's ImageStream.
    pub fn is_release(&self) -> bool {
        self.find(TELLTALE).is_some()
    }

    pub fn find(&self, name: &str) -> Option<&Tag> {
        self.tags.iter().find(|tag| tag.name == name)
    }

    /// Returns the image of a tag that every release has.
    pub fn image(&self, name: &str) -> Result<&str, ReleaseError> {
        let found = self.find(name).map(|tag| tag.image.as_str());
        found.ok_or_else(|| ReleaseError::Missing { tag: name.to_owned() })
    }
}

fn tag(value: &Value) -> Option<Tag> {
    if value.pointer("/from/kind").and_then(Value::as_str) != Some("DockerImage") {
        return None;
    }
    let annotations = value.get("annotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    Some(Tag {
        name: value.get("name")?.as_str()?.to_owned(),
        image: value.pointer("/from/name")?.as_str()?.to_owned(),
        annotations: annotations
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_found_by_the_names_the_release_gives_them() {
        let release = ReleaseImages::read(&json!({
            "kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "4.21.3"},
            "spec": {"tags": [
                {"name": "machine-config-operator", "from": {"kind": "DockerImage", "name": "mco"}},
                {"name": "alias", "from": {"kind": "ImageStreamTag", "name": "machine-config-operator"}},
                {"name": "nowhere"},
            ]},
        }))
        .unwrap();
        assert_eq!((release.version.as_str(), release.tags.len()), ("4.21.3", 1));
        assert!(release.is_release());
        assert_eq!(release.image("machine-config-operator"), Ok("mco"));
        assert_eq!(
            release.image("pod").unwrap_err().to_string(),
            "the release has no image \"pod\""
        );
    }

    #[test]
    fn other_documents_are_distinguished() {
        for (document, expected) in [
            (json!([]), "found nothing with a kind"),
            (
                json!({"kind": "ConfigMap", "apiVersion": "v1"}),
                "found ConfigMap v1",
            ),
            (
                json!({"kind": "ImageStream", "apiVersion": "image.openshift.io/v1"}),
                "no spec.tags",
            ),
        ] {
            let problem = ReleaseImages::read(&document).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
