//! What an operating system runs, and what it will run after the next boot.

use serde::{Deserialize, Serialize};

use super::image;

/// The running state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OsState {
    /// The booted image as it was requested; `None` if the system is not image-based.
    pub image: Option<String>,
    /// The digest of the booted image, which identifies what runs; a tag may have moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub kernel_arguments: Vec<String>,
    /// Packages added to the image on request.
    pub packages: Vec<String>,
    /// Packages of the image that were removed on request.
    pub removed_packages: Vec<String>,
    /// All local changes of the booted image: layered, replaced and removed packages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub local_changes: Vec<String>,
    /// The deployment for the next boot, where the backend has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<OsDeployment>,
    /// The previous deployment, while it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<OsDeployment>,
}

impl OsState {
    /// Returns whether the booted image is the wanted one: the same digest from any registry, or the same tag. Whether
    /// the tag has moved since is not a property of the machine.
    pub fn runs(&self, wanted: &str) -> bool {
        image::is_deployed(self.image.as_deref(), self.digest.as_deref(), wanted)
    }
}

/// A deployment that is not booted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OsDeployment {
    pub image: Option<String>,
    pub digest: Option<String>,
    pub checksum: String,
    pub packages: Vec<String>,
}

/// Identifies a staged deployment: after the boot it must be the booted one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StagedDeployment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl StagedDeployment {
    /// Returns the digest that should have booted, unless it has.
    pub fn lost_digest(&self, state: &OsState) -> Option<&str> {
        let (staged, booted) = (self.digest.as_deref()?, state.digest.as_deref()?);
        (staged != booted).then_some(staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_recognised_by_its_digest_and_a_tag_by_its_name() {
        let state = |image: &str, digest: &str| OsState {
            image: Some(image.to_owned()),
            digest: Some(digest.to_owned()).filter(|digest| !digest.is_empty()),
            ..OsState::default()
        };
        for (booted, digest, wanted, runs) in [
            ("a.example/os:1", "sha256:1", "a.example/os@sha256:1", true),
            ("a.example/os:1", "sha256:1", "mirror.example/os@sha256:1", true),
            ("a.example/os:1", "sha256:1", "a.example/os@sha256:2", false),
            ("a.example/os:1", "sha256:1", "a.example/os:1", true),
            ("a.example/os:1", "sha256:1", "a.example/os:2", false),
            ("a.example/os@sha256:1", "", "b.example/os@sha256:1", true),
        ] {
            assert_eq!(state(booted, digest).runs(wanted), runs, "{booted} {wanted}");
        }
        assert!(!OsState::default().runs("a.example/os:1"));
    }

    #[test]
    fn a_deployment_that_did_not_boot_is_lost() {
        let staged = |digest: &str| StagedDeployment {
            digest: Some(digest.to_owned()),
            checksum: None,
        };
        let state = OsState {
            digest: Some("sha256:1".to_owned()),
            ..OsState::default()
        };
        assert_eq!(staged("sha256:2").lost_digest(&state), Some("sha256:2"));
        assert_eq!(staged("sha256:1").lost_digest(&state), None);
        assert_eq!(staged("sha256:2").lost_digest(&OsState::default()), None);
    }
}
