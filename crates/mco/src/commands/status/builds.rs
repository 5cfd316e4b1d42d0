//! The OS image builds of pools as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use mco_api::MachineOSBuild;
use mco_api::vocabulary::annotations::build as annotation;
use mco_api::vocabulary::labels;
use mco_client::text::ago;
use mco_core::generators::os_builds::{BuildState, build_state};

use crate::output::escape_control_chars;
use crate::table::Table;

/// Describes the latest build of each pool, with the last lines of its log while it runs and after it failed. Empty
/// without builds.
pub fn describe(builds: &[MachineOSBuild], now: Timestamp) -> String {
    let mut latest: Vec<&MachineOSBuild> = Vec::new();
    for build in builds {
        match latest.iter_mut().find(|other| pool_of(other) == pool_of(build)) {
            Some(other) if created(other) < created(build) => *other = build,
            Some(_) => {}
            None => latest.push(build),
        }
    }
    if latest.is_empty() {
        return String::new();
    }
    latest.sort_by(|a, b| pool_of(a).cmp(pool_of(b)));
    let mut table = Table::new(["POOL", "IMAGE BUILD", "DURATION", "BUILD"]);
    for build in &latest {
        table.row([
            pool_of(build).to_owned(),
            build_state(build).as_str().to_owned(),
            duration(build, now),
            build.metadata.name.clone().unwrap_or_default(),
        ]);
    }
    let mut text = format!("\n{table}");
    for build in latest {
        let shown = match build_state(build) {
            BuildState::Succeeded => continue,
            BuildState::Failed => [annotation::FAILURE, annotation::LOG_TAIL].as_slice(),
            _ => [annotation::LOG_TAIL].as_slice(),
        };
        let annotations = build.metadata.annotations.as_ref();
        let lines = shown
            .iter()
            .filter_map(|key| annotations?.get(*key))
            .flat_map(|value| value.lines());
        for (index, line) in lines.enumerate() {
            if index == 0 {
                let _ = writeln!(text, "\n{}:", pool_of(build));
            }
            let _ = writeln!(text, "  {}", escape_control_chars(line));
        }
    }
    text
}

fn pool_of(build: &MachineOSBuild) -> &str {
    let labels = build.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(labels::build::POOL))
        .map_or("", String::as_str)
}

fn created(build: &MachineOSBuild) -> Option<Timestamp> {
    build.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// From its start to its end, or until now.
fn duration(build: &MachineOSBuild, now: Timestamp) -> String {
    let status = build.status.as_ref();
    let start = status.and_then(|status| status.build_start.as_ref());
    let end = status.and_then(|status| status.build_end.as_ref());
    start.map_or_else(String::new, |start| ago(end.map_or(now, |end| end.0), start.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_build_of_each_pool_is_shown_with_its_log() {
        let build = |name: &str, pool: &str, second: u32, type_: &str| -> MachineOSBuild {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name,
                    "labels": {"machineconfiguration.openshift.io/target-machine-config-pool": pool},
                    "annotations": {"mco.dev/build-log": "STEP 1\nSTEP 2"},
                    "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                },
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
            build("infra-2", "infra", 2, "Building"),
            build("infra-1", "infra", 1, "Succeeded"),
            build("worker-1", "worker", 1, "Succeeded"),
        ];
        let text = describe(&builds, "2026-01-01T00:01:30Z".parse().unwrap());
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[1].starts_with("POOL"), "{text}");
        assert!(
            lines[2].contains("building") && lines[2].ends_with("infra-2"),
            "{text}"
        );
        assert!(lines[3].contains("succeeded"), "{text}");
        assert_eq!(lines[4..], ["", "infra:", "  STEP 1", "  STEP 2"], "{text}");
        assert_eq!(describe(&[], Timestamp::UNIX_EPOCH), "");
    }
}
