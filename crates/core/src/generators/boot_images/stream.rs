//! The metadata of a release's boot images, in the format of CoreOS streams.

use serde_json::Value;

/// The images of one architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamArchitecture<'a>(&'a Value);

impl<'a> StreamArchitecture<'a> {
    pub fn of(stream: &'a Value, architecture: &str) -> Option<Self> {
        stream.get("architectures")?.get(architecture).map(Self)
    }

    /// Returns the path of the image on GCP.
    pub fn gcp(self) -> Option<String> {
        let text = |member: &str| self.0.pointer(&format!("/images/gcp/{member}"))?.as_str();
        Some(format!(
            "projects/{}/global/images/{}",
            text("project")?,
            text("name")?
        ))
    }

    /// Returns the AMI of a region.
    pub fn aws(self, region: &str) -> Option<&'a str> {
        let regions = self.0.pointer("/images/aws/regions")?;
        regions.get(region)?.get("image")?.as_str()
    }

    /// Returns the images in the marketplace of Azure, by plan.
    pub fn azure(self) -> Option<&'a Value> {
        self.0.pointer("/rhel-coreos-extensions/marketplace/azure")
    }
}
