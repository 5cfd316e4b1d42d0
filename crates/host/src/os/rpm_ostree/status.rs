//! `rpm-ostree status --json` and `rpm-ostree --version`.

use serde::Deserialize;

use crate::os::{OsDeployment, image};

#[derive(Debug, Deserialize)]
pub(super) struct RpmOstreeStatus {
    /// In boot order: the default one first.
    deployments: Vec<RpmOstreeDeployment>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct RpmOstreeDeployment {
    booted: bool,
    checksum: String,
    container_image_reference: Option<String>,
    container_image_reference_digest: Option<String>,
    custom_origin: Option<Vec<String>>,
    pub requested_packages: Vec<String>,
    pub requested_base_removals: Vec<String>,
    requested_local_packages: Vec<String>,
    requested_local_fileoverride_packages: Vec<String>,
    requested_base_local_replacements: Vec<String>,
}

impl RpmOstreeStatus {
    pub fn booted(&self) -> Option<&RpmOstreeDeployment> {
        self.deployments.iter().find(|deployment| deployment.booted)
    }

    /// Returns the deployment of the next boot, if it is not the booted one.
    pub fn pending(&self) -> Option<&RpmOstreeDeployment> {
        self.deployments.first().filter(|first| !first.booted)
    }

    /// Returns the deployment before the booted one.
    pub fn rollback(&self) -> Option<&RpmOstreeDeployment> {
        let booted = self.deployments.iter().position(|deployment| deployment.booted)?;
        self.deployments.get(booted + 1)
    }
}

impl RpmOstreeDeployment {
    pub fn image(&self) -> Option<String> {
        let reference = self
            .container_image_reference
            .as_deref()
            .and_then(image::reference_url);
        let origin = || self.custom_origin.as_ref()?.first()?.strip_prefix("pivot://");
        reference.or_else(origin).map(str::to_owned)
    }

    pub fn digest(&self) -> Option<String> {
        let own = self.container_image_reference_digest.clone();
        own.filter(|digest| !digest.is_empty())
            .or_else(|| image::digest(&self.image()?).map(str::to_owned))
    }

    /// Returns all packages that an administrator or a config has added, replaced or removed.
    pub fn local_changes(&self) -> Vec<String> {
        let lists = [
            &self.requested_packages,
            &self.requested_local_packages,
            &self.requested_local_fileoverride_packages,
            &self.requested_base_removals,
            &self.requested_base_local_replacements,
        ];
        lists.into_iter().flatten().cloned().collect()
    }

    pub fn described(&self) -> OsDeployment {
        OsDeployment {
            image: self.image(),
            digest: self.digest(),
            checksum: self.checksum.clone(),
            packages: self.requested_packages.clone(),
        }
    }
}

/// Returns whether the output of `rpm-ostree --version` lists a feature.
pub(super) fn has_feature(version: &str, feature: &str) -> bool {
    let mut lines = version.lines().skip_while(|line| line.trim() != "Features:");
    lines.any(|line| line.trim().strip_prefix("- ") == Some(feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_version() {
        let version = "rpm-ostree:\n Version: '2022.1'\n Git: 1\n Features:\n  - rust\n  - container\n";
        assert!(has_feature(version, "container"));
        assert!(!has_feature(
            "rpm-ostree:\n Version: '2019.4'\n Features:\n  - rust\n",
            "container"
        ));
        assert!(!has_feature("container\n", "container"));
    }

    #[test]
    fn deployments_are_identified_by_their_order() {
        let status = |list: &str| -> RpmOstreeStatus { serde_json::from_str(list).unwrap() };
        let one =
            |checksum: &str, booted: bool| format!("{{\"checksum\": \"{checksum}\", \"booted\": {booted}}}");
        let list = |entries: &[String]| format!("{{\"deployments\": [{}]}}", entries.join(", "));
        let all = status(&list(&[one("new", false), one("now", true), one("old", false)]));
        let checksum =
            |it: Option<&RpmOstreeDeployment>| it.map(|it| it.checksum.clone()).unwrap_or_default();
        assert_eq!(
            (
                checksum(all.pending()),
                checksum(all.booted()),
                checksum(all.rollback())
            ),
            ("new".to_owned(), "now".to_owned(), "old".to_owned())
        );
        let settled = status(&list(&[one("now", true)]));
        assert!(settled.pending().is_none() && settled.rollback().is_none());
    }
}
