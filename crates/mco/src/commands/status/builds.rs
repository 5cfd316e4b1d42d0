//! The OS image builds of pools as text.

use std::fmt::Write as _;

use mco_client::build_status::BuildOverview;
use mco_client::overview::PoolOverview;
use mco_client::text::lasting;

use crate::output::escape_control_chars;
use crate::table::Table;

/// Describes the newest build of each pool, with the last lines of its log while it runs and after it failed, or with the
/// reason why it does not start. Empty without builds.
pub fn describe(pools: &[PoolOverview]) -> String {
    let builds: Vec<&BuildOverview> = pools.iter().filter_map(|pool| pool.build.as_ref()).collect();
    if builds.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["POOL", "IMAGE BUILD", "DURATION", "BUILD"]);
    for build in &builds {
        table.row([
            build.pool.clone(),
            build.state.to_owned(),
            build.duration_seconds.map_or_else(String::new, lasting),
            build.name.clone(),
        ]);
    }
    let mut text = format!("\n{table}");
    for build in builds
        .into_iter()
        .filter(|build| build.is_running || build.has_failed || build.cannot_start)
    {
        let failure = build.failure.as_deref().unwrap_or_default();
        let lines = failure.lines().chain(build.log.iter().map(String::as_str));
        for (index, line) in lines.enumerate() {
            if index == 0 {
                let _ = writeln!(text, "\n{}:", escape_control_chars(&build.pool));
            }
            let _ = writeln!(text, "  {}", escape_control_chars(line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use mco_api::{MachineConfigPool, MachineOSBuild};
    use mco_client::build_status;
    use mco_client::overview::overview;
    use mco_core::rollout::RolloutView;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_that_cannot_start_says_why() {
        let build: MachineOSBuild = serde_json::from_value(json!({"metadata": {
            "name": "worker-1",
            "labels": {"machineconfiguration.openshift.io/target-machine-config-pool": "worker"},
            "annotations": {"mco.dev/build-failure": "secret push from worker is not found"},
        }}))
        .unwrap();
        let pool: MachineConfigPool =
            serde_json::from_value(json!({"metadata": {"name": "worker"}})).unwrap();
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        let mut pools = overview(&RolloutView::new(&[pool], []), [], now);
        build_status::attach(&mut pools, &build_status::overviews([&build], now));
        let text = describe(&pools);
        assert!(text.contains("pending"), "{text}");
        assert!(
            text.ends_with("\nworker:\n  secret push from worker is not found\n"),
            "{text}"
        );
    }

    #[test]
    fn the_newest_build_of_each_pool_is_shown_with_its_log() {
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
        let pool = |name: &str| -> MachineConfigPool {
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
        };
        let pools = [pool("infra"), pool("master"), pool("worker")];
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        let mut pools = overview(&RolloutView::new(&pools, []), [], now);
        assert_eq!(describe(&pools), "");
        build_status::attach(&mut pools, &build_status::overviews(&builds, now));
        let text = describe(&pools);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[1].starts_with("POOL"), "{text}");
        assert!(
            lines[2].contains("building") && lines[2].contains("1m") && lines[2].ends_with("infra-2"),
            "{text}"
        );
        assert!(lines[3].contains("succeeded"), "{text}");
        assert_eq!(lines[4..], ["", "infra:", "  STEP 1", "  STEP 2"], "{text}");
    }
}
