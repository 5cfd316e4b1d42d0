//! The OS image builds of pools, for people.

use jiff::{SignedDuration, Timestamp};
use mco_api::MachineOSBuild;
use mco_api::vocabulary::annotations::build as annotation;
use mco_api::vocabulary::labels;
use mco_core::generators::os_builds::{BuildState, build_state};
use serde::Serialize;

use crate::overview::PoolOverview;

/// One build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildOverview {
    pub name: String,
    pub pool: String,
    /// `pending`, `prepared`, `building`, `succeeded`, `failed` or `interrupted`.
    pub state: &'static str,
    /// The rendered config that is part of the image.
    pub config: String,
    /// The image by digest; empty before the build has succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// From its start to its end, or until now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i64>,
    /// Why it has no Job: it failed, or cannot start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The last lines of its log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// Whether it runs or is about to.
    #[serde(skip)]
    pub is_running: bool,
    #[serde(skip)]
    pub has_failed: bool,
    /// Whether it waits for what [`Self::failure`] asks for.
    #[serde(skip)]
    pub cannot_start: bool,
}

impl BuildOverview {
    pub fn of(build: &MachineOSBuild, now: Timestamp) -> Self {
        let status = build.status.clone().unwrap_or_default();
        let annotation = |key: &str| build.metadata.annotations.as_ref()?.get(key).cloned();
        let label = |key: &str| build.metadata.labels.as_ref()?.get(key).cloned();
        let state = build_state(build);
        let started = status.build_start.map(|time| time.0);
        let ended = status.build_end.map(|time| time.0);
        let failure = annotation(annotation::FAILURE);
        let log = annotation(annotation::LOG_TAIL).unwrap_or_default();
        Self {
            name: build.metadata.name.clone().unwrap_or_default(),
            pool: label(labels::build::POOL).unwrap_or_default(),
            state: state.as_str(),
            config: build.spec.machine_config.name.clone(),
            image: status.digested_image_push_spec,
            created: build.metadata.creation_timestamp.as_ref().map(|time| time.0),
            started,
            ended,
            duration_seconds: started.map(|started| seconds(started, ended.unwrap_or(now))),
            cannot_start: state == BuildState::New && failure.is_some(),
            failure,
            log: log.lines().map(str::to_owned).collect(),
            is_running: state.is_running(),
            has_failed: matches!(state, BuildState::Failed | BuildState::Interrupted),
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).max(SignedDuration::ZERO).as_secs()
}

/// Returns all builds: by pool, the newest first.
pub fn overviews<'a>(
    builds: impl IntoIterator<Item = &'a MachineOSBuild>,
    now: Timestamp,
) -> Vec<BuildOverview> {
    let mut all: Vec<BuildOverview> = builds
        .into_iter()
        .map(|build| BuildOverview::of(build, now))
        .collect();
    all.sort_by(|a, b| (&a.pool, b.created, &a.name).cmp(&(&b.pool, a.created, &b.name)));
    all
}

/// Sets the newest build of each pool. `builds` are in the order of [`overviews`].
pub fn attach(pools: &mut [PoolOverview], builds: &[BuildOverview]) {
    for pool in pools {
        pool.build = builds.iter().find(|build| build.pool == pool.name).cloned();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_build_comes_first_with_its_duration_and_log() {
        let build = |name: &str, pool: &str, second: u32, type_: &str| -> MachineOSBuild {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name,
                    "labels": {"machineconfiguration.openshift.io/target-machine-config-pool": pool},
                    "annotations": {"mco.dev/build-log": "STEP 1\nSTEP 2", "mco.dev/build-failure": "why"},
                    "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                },
                "spec": {"machineConfig": {"name": "rendered-1"}},
                "status": {
                    "buildStart": "2026-01-01T00:00:00Z",
                    "conditions": [{
                        "type": type_, "status": "True", "reason": "r", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                },
            }))
            .unwrap()
        };
        let builds = [
            build("infra-1", "infra", 1, "Succeeded"),
            build("worker-1", "worker", 1, "Failed"),
            build("infra-2", "infra", 2, "Building"),
        ];
        let all = overviews(&builds, "2026-01-01T00:01:30Z".parse().unwrap());
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["infra-2", "infra-1", "worker-1"]);
        assert_eq!(
            serde_json::to_value(&all[0]).unwrap(),
            json!({
                "name": "infra-2", "pool": "infra", "state": "building", "config": "rendered-1",
                "created": "2026-01-01T00:00:02Z", "started": "2026-01-01T00:00:00Z", "durationSeconds": 90,
                "failure": "why", "log": ["STEP 1", "STEP 2"],
            })
        );
        assert!(all[0].is_running && !all[1].is_running && all[2].has_failed);
    }
}
