//! Retention of builds and their images: the newest ones are kept, so that going back to an earlier config needs no
//! build, and older ones are pruned with their images.

use std::collections::BTreeSet;

use mco_api::MachineOSBuild;

use super::status::{BuildState, build_state};

/// What must not be pruned.
#[derive(Debug, Clone, Default)]
pub struct RetainedBuilds<'a> {
    /// The current builds of MachineOSConfigs.
    pub names: BTreeSet<&'a str>,
    /// The images that nodes run or are about to run, and the current images of MachineOSConfigs.
    pub images: BTreeSet<&'a str>,
    /// How many succeeded builds are kept in addition.
    pub kept: usize,
}

/// Returns the builds of one MachineOSConfig to delete, oldest first. Only succeeded builds are pruned: others are
/// superseded by the next build.
pub fn prune<'a>(
    builds: impl IntoIterator<Item = &'a MachineOSBuild>,
    retained: &RetainedBuilds<'_>,
) -> Vec<&'a MachineOSBuild> {
    let is_unused = |build: &&MachineOSBuild| {
        let image = build
            .status
            .as_ref()
            .map_or("", |status| status.digested_image_push_spec.as_str());
        build_state(build) == BuildState::Succeeded
            && build.metadata.deletion_timestamp.is_none()
            && !retained
                .names
                .contains(build.metadata.name.as_deref().unwrap_or_default())
            && !retained.images.contains(image)
    };
    let mut unused: Vec<&MachineOSBuild> = builds.into_iter().filter(is_unused).collect();
    unused.sort_by(|a, b| {
        let created = |build: &MachineOSBuild| build.metadata.creation_timestamp.as_ref().map(|time| time.0);
        created(a)
            .cmp(&created(b))
            .then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
    let excess = unused.len().saturating_sub(retained.kept);
    unused.truncate(excess);
    unused
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_builds_and_those_in_use_are_kept() {
        let build = |name: &str, second: u32, type_: &str| -> MachineOSBuild {
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
                "status": {
                    "digestedImagePushSpec": format!("a.example/{name}@sha256:0"),
                    "conditions": [{
                        "type": type_, "status": "True", "reason": "r", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                },
            }))
            .unwrap()
        };
        let builds = [
            build("current", 1, "Succeeded"),
            build("on-a-node", 2, "Succeeded"),
            build("old", 3, "Succeeded"),
            build("older", 0, "Succeeded"),
            build("new", 5, "Succeeded"),
            build("failed", 0, "Failed"),
        ];
        let retained = |kept| RetainedBuilds {
            names: BTreeSet::from(["current"]),
            images: BTreeSet::from(["a.example/on-a-node@sha256:0"]),
            kept,
        };
        let names = |kept| -> Vec<String> {
            let pruned = prune(&builds, &retained(kept)).into_iter();
            pruned.map(|build| build.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(0), ["older", "old", "new"]);
        assert_eq!(names(1), ["older", "old"]);
        assert_eq!(names(3), Vec::<String>::new());
    }
}
