use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations;

use super::*;

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn pool(name: &str, counts: [i32; 4], conditions: &[(&str, &str, &str)]) -> MachineConfigPool {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, reason, message)| json!({"type": type_, "status": "True", "reason": reason, "message": message}))
        .collect();
    let [total, ready, updated, unavailable] = counts;
    let sources = ["00-master", "50-users"].map(|name| json!({"name": name}));
    let configuration = json!({"name": format!("rendered-{name}-1"), "source": sources});
    let mut pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": name, "generation": 2},
        "spec": {"configuration": configuration},
        "status": {
            "observedGeneration": 2, "conditions": conditions, "machineCount": total, "readyMachineCount": ready,
            "updatedMachineCount": updated, "unavailableMachineCount": unavailable,
            "configuration": configuration,
        },
    }))
    .unwrap();
    if name == "master" {
        pool.metadata.labels = mco_core::pipeline::offline::built_in_pool(name).metadata.labels;
    }
    pool
}

static NO_IMAGES: BTreeMap<String, String> = BTreeMap::new();
const RELEASE: ReleaseVersions<'_> = ReleaseVersions {
    controller: "v1",
    version: "4.14.0",
    images: &NO_IMAGES,
    stale_streams: None,
};

fn origin(annotations: &[(&str, &str)]) -> PoolOrigin {
    let annotations = annotations.iter();
    PoolOrigin {
        annotations: annotations
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        os_image: "image:1".to_owned(),
    }
}

/// Returns the configs of a release: a rendered config, a generated source of it, and a user's.
fn rendered_by(controller: &str, version: &str) -> Reported {
    let by = (annotations::GENERATED_BY_CONTROLLER_VERSION, controller);
    let all = [
        (
            "rendered-master-1",
            origin(&[by, (annotations::RELEASE_IMAGE_VERSION, version)]),
        ),
        ("00-master", origin(&[by])),
        ("50-users", origin(&[])),
    ];
    all.map(|(name, origin)| (name.to_owned(), origin)).into()
}

fn updated(name: &str) -> MachineConfigPool {
    pool(name, [3, 3, 3, 0], &[("Updated", "", "")])
}

fn degraded_worker() -> MachineConfigPool {
    let message = "Node worker-3 is reporting: \"content mismatch for file \\\"/etc/a\\\"\"";
    pool(
        "worker",
        [11, 0, 0, 11],
        &[
            ("Updating", "", ""),
            (
                "NodeDegraded",
                "1 nodes are reporting degraded status on sync",
                message,
            ),
            ("Degraded", "", message),
        ],
    )
}

fn progress(outcomes: &[(SyncStep, SyncOutcome)]) -> SyncProgress {
    let mut progress = SyncProgress::default();
    for step in [
        SyncStep::CustomResourceDefinitions,
        SyncStep::MachineConfigPools,
        SyncStep::MachineConfigController,
    ] {
        progress.set(step, SyncOutcome::Done);
    }
    for (step, outcome) in outcomes {
        progress.set(*step, outcome.clone());
    }
    progress
}

fn with_pools(pools: &[MachineConfigPool]) -> SyncProgress {
    let outcome = match required(pools, &rendered_by("v1", "4.14.0"), RELEASE) {
        Ok(SyncResult::NotYet(what)) => SyncOutcome::Waiting(what),
        Ok(_) => SyncOutcome::Done,
        Err(why) => SyncOutcome::Failed(why),
    };
    progress(&[(SyncStep::RequiredPools, outcome)])
}

use crate::progress::SyncResult;

fn observed(
    before: &ClusterOperatorStatus,
    situation: &ClusterOperatorInputs<'_>,
) -> (ClusterOperatorStatus, Vec<String>) {
    let after = report(before, situation, &at(100));
    let lines = after.conditions.iter().map(|one| {
        format!("{}={} {} {}", one.type_, one.status, one.reason, one.message)
            .trim_end()
            .to_owned()
    });
    let lines = lines.filter(|line| !line.starts_with("Evaluation")).collect();
    (after, lines)
}

fn running(release: &str) -> ClusterOperatorStatus {
    let mut status = initial(&at(1));
    status.versions = vec![OperandVersion {
        name: OPERATOR.to_owned(),
        version: release.to_owned(),
        ..OperandVersion::default()
    }];
    set(
        &mut status.conditions,
        new(condition::AVAILABLE, truth::TRUE, "AsExpected", "", &at(1)),
    );
    status
}

fn situation<'a>(progress: &'a SyncProgress, pools: &'a [MachineConfigPool]) -> ClusterOperatorInputs<'a> {
    ClusterOperatorInputs {
        release: "4.14.0",
        image: "registry.example.com/mco:1",
        bringup: false,
        progress,
        pools,
        evaluation: None,
        boot_images: None,
    }
}

const DEPLOYED: &str = "Available=True AsExpected Cluster has deployed [{operator 4.14.0} {operator-image registry.example.com/mco:1}]";
const BEFORE: &str = "Available=True AsExpected Cluster has deployed [{operator 4.14.0}]";
const UPGRADEABLE: &str = "Upgradeable=True AsExpected";

#[test]
fn a_healthy_cluster_says_so() {
    let pools = [updated("master"), updated("worker")];
    let progress = with_pools(&pools);
    let (status, lines) = observed(&running("4.14.0"), &situation(&progress, &pools));
    assert_eq!(
        lines,
        [
            DEPLOYED,
            "Progressing=False AsExpected Cluster version is 4.14.0",
            "Degraded=False AsExpected",
            UPGRADEABLE
        ]
    );
    assert_eq!(
        status.extension,
        Some(json!({
            "master": "all 3 nodes are at latest configuration rendered-master-1",
            "worker": "all 3 nodes are at latest configuration rendered-worker-1",
        }))
    );
    let again = report(&status, &situation(&progress, &pools), &at(200));
    assert_eq!(again, status, "nothing new is nothing to write");
}

#[test]
fn a_degraded_pool_is_named_with_its_node_and_reason() {
    let pools = [updated("master"), degraded_worker()];
    let progress = with_pools(&pools);
    let (status, lines) = observed(&running("4.14.0"), &situation(&progress, &pools));
    let cause = r#"error during syncRequiredMachineConfigPools: [error MachineConfigPool worker is not ready, retrying. Status: (pool degraded: true total: 11, ready 0, updated: 0, unavailable: 11, reason: Node worker-3 is reporting: "content mismatch for file \"/etc/a\"")]"#;
    assert_eq!(
        lines,
        [
            BEFORE,
            "Progressing=False  Error while reconciling 4.14.0",
            &format!("Degraded=True RequiredPoolsFailed Failed to resync 4.14.0 because: {cause}"),
            "Upgradeable=False DegradedPool One or more machine config pools are degraded, please see `oc get mcp` for further details and resolve before upgrading",
        ]
    );
    let extension = status.extension.as_ref().unwrap();
    assert_eq!(
        extension["worker"],
        r#"pool is degraded because nodes fail with "1 nodes are reporting degraded status on sync": "Node worker-3 is reporting: \"content mismatch for file \\\"/etc/a\\\"\"""#
    );
    assert_eq!(extension["lastSyncError"], cause);
    assert_eq!(
        degradation(&status).map(|(reason, _)| reason),
        Some("RequiredPoolsFailed")
    );

    let pools = [updated("master"), updated("worker")];
    let (recovered, _) = observed(&status, &situation(&with_pools(&pools), &pools));
    assert_eq!(
        degradation(&recovered),
        None,
        "it clears with the next good round"
    );
    assert_eq!(recovered.extension.unwrap().get("lastSyncError"), None);
}

#[test]
fn upgrade_blockers_are_reported_by_severity() {
    let interrupted = || {
        pool(
            "worker",
            [3, 0, 0, 0],
            &[("Updating", "", ""), ("BuildInterrupted", "", "")],
        )
    };
    let cases = [
        ("nothing", updated("worker"), None, "True AsExpected "),
        (
            "old boot images",
            updated("worker"),
            Some("too old"),
            "False ClusterBootImageSkewError too old",
        ),
        (
            "a build that was stopped",
            interrupted(),
            Some("too old"),
            "False InterruptedBuild One or more machine config pools' builds have been interrupted, please see `oc get mcp` for further details and resolve before upgrading",
        ),
        (
            "a broken machine",
            degraded_worker(),
            Some("too old"),
            "False DegradedPool One or more machine config pools are degraded, please see `oc get mcp` for further details and resolve before upgrading",
        ),
    ];
    for (name, worker, boot_images, expected) in cases {
        let pools = [interrupted(), worker];
        let pools = if name == "a broken machine" {
            &pools[..]
        } else {
            &pools[1..]
        };
        let progress = with_pools(pools);
        let situation = ClusterOperatorInputs {
            boot_images,
            ..situation(&progress, pools)
        };
        let status = report(&running("4.14.0"), &situation, &at(100));
        let observed = status
            .conditions
            .iter()
            .find(|one| one.type_ == "Upgradeable")
            .unwrap();
        assert_eq!(
            format!("{} {} {}", observed.status, observed.reason, observed.message),
            expected,
            "{name}"
        );
    }
}

#[test]
fn what_is_under_way_is_neither_degraded_nor_unavailable() {
    let pools = [
        pool("master", [3, 1, 1, 1], &[("Updating", "", "")]),
        updated("worker"),
    ];
    let progress = with_pools(&pools);
    let (status, lines) = observed(&running("4.14.0"), &situation(&progress, &pools));
    assert_eq!(
        lines,
        [
            BEFORE,
            "Progressing=False AsExpected Cluster version is 4.14.0",
            "Degraded=False AsExpected",
            UPGRADEABLE
        ]
    );
    let extension = status.extension.unwrap();
    assert_eq!(
        extension["master"],
        "1 (ready 1) out of 3 nodes are updating to latest configuration rendered-master-1"
    );
    assert_eq!(
        extension["lastSyncError"],
        "error during syncRequiredMachineConfigPools: [error required MachineConfigPool master is not ready, retrying. Status: (total: 3, ready 1, updated: 1, unavailable: 1, degraded: 0)]"
    );
}

#[test]
fn a_new_release_is_reported_when_the_required_pools_have_it() {
    let moving = [
        pool("master", [3, 1, 1, 1], &[("Updating", "", "")]),
        updated("worker"),
    ];
    let progress = with_pools(&moving);
    let (status, lines) = observed(&running("4.13.0"), &situation(&progress, &moving));
    assert_eq!(lines[1], "Progressing=True  Working towards 4.14.0");
    assert_eq!(deployed(&status), Some("4.13.0"));

    let broken = [updated("master"), degraded_worker()];
    let progress = with_pools(&broken);
    let (status, lines) = observed(&status, &situation(&progress, &broken));
    assert_eq!(lines[1], "Progressing=True  Unable to apply 4.14.0");
    assert!(lines[2].starts_with("Degraded=True RequiredPoolsFailed Unable to apply 4.14.0: error during"));
    assert_eq!(deployed(&status), Some("4.13.0"), "not while something fails");

    let done = [
        updated("master"),
        pool("worker", [3, 1, 1, 1], &[("Updating", "", "")]),
    ];
    let (status, lines) = observed(&status, &situation(&with_pools(&done), &done));
    assert_eq!(lines[1], "Progressing=False AsExpected Cluster version is 4.14.0");
    assert_eq!(deployed(&status), Some("4.14.0"), "workers may follow later");
}

#[test]
fn a_cluster_that_starts_is_bootstrapping_and_not_yet_available() {
    let waiting = progress(&[(
        SyncStep::MachineConfigController,
        SyncOutcome::Waiting("ControllerConfig has not completed".to_owned()),
    )]);
    let starting = ClusterOperatorInputs {
        bringup: true,
        ..situation(&waiting, &[])
    };
    let (_, lines) = observed(&initial(&at(1)), &starting);
    assert_eq!(
        lines[..2],
        [
            "Available=False MachineConfigControllerNotReady ControllerConfig has not completed",
            "Progressing=True  Cluster is bootstrapping 4.14.0",
        ]
    );
    let (_, lines) = observed(&running("4.14.0"), &situation(&waiting, &[]));
    assert!(
        lines[0].starts_with("Available=True"),
        "{}: a change under way is no outage",
        lines[0]
    );
}

#[test]
fn it_is_not_available_when_nothing_works() {
    for (name, outcome, expected) in [
        (
            "a step that machines depend on fails",
            (
                SyncStep::MachineConfigController,
                SyncOutcome::Failed("no platform".to_owned()),
            ),
            "Available=False MachineConfigControllerFailed no platform",
        ),
        (
            "the server is down",
            (
                SyncStep::MachineConfigServer,
                SyncOutcome::NotRunning("daemonset machine-config-server is not ready".to_owned()),
            ),
            "Available=False MachineConfigServerNotReady daemonset machine-config-server is not ready",
        ),
        (
            "something beside the machines fails",
            (
                SyncStep::NetworkPolicies,
                SyncOutcome::Failed("forbidden".to_owned()),
            ),
            BEFORE,
        ),
    ] {
        let progress = progress(&[outcome]);
        let (_, lines) = observed(&running("4.14.0"), &situation(&progress, &[]));
        assert_eq!(lines[0], expected, "{name}");
    }
}

#[test]
fn every_failure_is_reported_and_the_first_is_the_reason() {
    let progress = progress(&[
        (SyncStep::NetworkPolicies, SyncOutcome::Failed("first".to_owned())),
        (
            SyncStep::MachineConfigDaemon,
            SyncOutcome::Failed("second".to_owned()),
        ),
    ]);
    let (_, lines) = observed(&running("4.14.0"), &situation(&progress, &[]));
    assert_eq!(
        lines[2],
        "Degraded=True NetworkPoliciesFailed Failed to resync 4.14.0 because: first; second"
    );
}

#[test]
fn required_pools_hold_an_upgrade_and_others_do_not() {
    let paused = |conditions: &[(&str, &str, &str)], generation: i64| {
        let mut pool = pool("master", [3, 0, 0, 0], conditions);
        pool.spec.paused = true;
        pool.metadata.generation = Some(generation);
        pool
    };
    let observed = |text: &str| format!("error during syncRequiredMachineConfigPools: [error {text}]");
    let mut fresh = updated("master");
    fresh.status = None;
    fresh.spec.configuration.reference.name = None;
    for (name, pools, expected) in [
        ("no pools", vec![], Ok(SyncResult::Yes)),
        (
            "all updated",
            vec![updated("master"), updated("worker")],
            Ok(SyncResult::Yes),
        ),
        (
            "a worker pool lags",
            vec![
                updated("master"),
                pool("worker", [3, 0, 0, 0], &[("Updating", "", "")]),
            ],
            Ok(SyncResult::Yes),
        ),
        (
            "nothing was rendered yet",
            vec![fresh],
            Ok(SyncResult::NotYet(observed(
                "MachineConfigPool master has not progressed to latest configuration: configuration spec for pool master is empty: <unknown>, retrying",
            ))),
        ),
        (
            "paused with work left",
            vec![paused(&[("Updating", "", "")], 2)],
            Err(observed(
                "required MachineConfigPool master is paused and cannot sync until it is unpaused",
            )),
        ),
        (
            "paused without work",
            vec![paused(&[("Updated", "", "")], 3)],
            Err(observed(
                "the required MachineConfigPool master was paused with no pending updates; no further syncing will occur until it is unpaused",
            )),
        ),
        (
            "paused and known to be up to date",
            vec![paused(&[("Updated", "", "")], 2)],
            Ok(SyncResult::Yes),
        ),
        (
            "rendering fails",
            vec![pool(
                "worker",
                [1, 1, 1, 0],
                &[(
                    "RenderDegraded",
                    "",
                    "Failed to render configuration for pool worker: x",
                )],
            )],
            Err(observed(
                "MachineConfigPool worker is not ready, retrying. Status: (pool degraded: true total: 1, ready 1, updated: 1, unavailable: 0, reason: Failed to render configuration for pool worker: x)",
            )),
        ),
    ] {
        let reported = rendered_by("v1", "4.14.0");
        assert_eq!(required(&pools, &reported, RELEASE), expected, "{name}");
    }
}

const READY: &str = "all 3 nodes are at latest configuration rendered-master-1";

/// Returns the configs of this release, with one of them changed.
fn with(name: &str, annotations: &[(&str, &str)]) -> Reported {
    let mut reported = rendered_by("v1", "4.14.0");
    reported.insert(name.to_owned(), origin(annotations));
    reported
}

#[test]
fn a_required_pool_at_the_config_of_another_release_has_not_arrived() {
    let mut unreported = updated("master");
    let status = unreported.status.as_mut().unwrap();
    status.configuration.reference.name = None;
    let by = (annotations::GENERATED_BY_CONTROLLER_VERSION, "v1");
    for (name, pool, reported, expected) in [
        (
            "nothing is reported",
            unreported,
            rendered_by("v1", "4.14.0"),
            format!("configuration status for pool master is empty: {READY}"),
        ),
        (
            "gone",
            updated("master"),
            Reported::new(),
            "MachineConfig rendered-master-1, which pool master reports, does not exist".to_owned(),
        ),
        (
            "rendered by older controllers",
            updated("master"),
            rendered_by("v0", "4.13.0"),
            format!("controller version mismatch for rendered-master-1 expected v1 has v0: {READY}"),
        ),
        (
            "rendered by an unknown controller",
            updated("master"),
            with("rendered-master-1", &[]),
            format!("rendered-master-1 must be created by controller version v1: {READY}"),
        ),
        (
            "rendered for an older release",
            updated("master"),
            rendered_by("v1", "4.13.0"),
            "release image version mismatch for master in rendered-master-1 expected: 4.14.0 got: 4.13.0".to_owned(),
        ),
        (
            "rendered for an unknown release",
            updated("master"),
            with("rendered-master-1", &[by]),
            "Unable to access annotation machineconfiguration.openshift.io/release-image-version for rendered-master-1 expected: 4.14.0".to_owned(),
        ),
    ] {
        let found = required(&[pool], &reported, RELEASE);
        assert_eq!(found, Ok(SyncResult::NotYet(not_progressed(&expected))), "{name}");
    }
}

#[test]
fn a_required_pool_whose_config_was_made_from_anything_older_has_not_arrived() {
    let mut sourceless = updated("master");
    let status = sourceless.status.as_mut().unwrap();
    status.configuration.source.clear();
    let mut lacking = rendered_by("v1", "4.14.0");
    lacking.remove("50-users");
    for (name, pool, reported, expected) in [
        (
            "from unknown sources",
            sourceless,
            rendered_by("v0", "4.13.0"),
            format!(
                "list of MachineConfigs that were used to generate configuration for pool master is empty: {READY}"
            ),
        ),
        (
            "from what is gone",
            updated("master"),
            lacking,
            "MachineConfig 50-users, which pool master reports, does not exist".to_owned(),
        ),
        (
            "from what older controllers made",
            updated("master"),
            with(
                "00-master",
                &[(annotations::GENERATED_BY_CONTROLLER_VERSION, "v0")],
            ),
            format!("controller version mismatch for 00-master expected v1 has v0: {READY}"),
        ),
    ] {
        let found = required(&[pool], &reported, RELEASE);
        assert_eq!(found, Ok(SyncResult::NotYet(not_progressed(&expected))), "{name}");
    }
}

fn not_progressed(why: &str) -> String {
    format!(
        "error during syncRequiredMachineConfigPools: [error MachineConfigPool master has not progressed to latest configuration: {why}, retrying]"
    )
}

#[test]
fn a_required_pool_has_the_image_of_the_release_unless_it_is_overridden() {
    let images = BTreeMap::from([("master".to_owned(), "image:2".to_owned())]);
    let release = ReleaseVersions {
        images: &images,
        ..RELEASE
    };
    // Image and version are both older: the image is checked first.
    let found = required(&[updated("master")], &rendered_by("v1", "4.13.0"), release);
    let why = "osImageURL mismatch for master in rendered-master-1 expected: image:2 got: image:1";
    assert_eq!(found, Ok(SyncResult::NotYet(not_progressed(why))));
    let mut chosen = rendered_by("v1", "4.14.0");
    let rendered = chosen.get_mut("rendered-master-1").unwrap();
    let overridden = annotations::OS_IMAGE_URL_OVERRIDDEN.to_owned();
    rendered.annotations.insert(overridden, "true".to_owned());
    assert_eq!(
        required(&[updated("master")], &chosen, release),
        Ok(SyncResult::Yes)
    );
}

/// A release counted as complete while its pools had the operating system of the release before.
#[test]
fn an_upgrade_was_complete_on_the_operating_system_before_it() {
    let why = "the streams in OSImageStream \"cluster\" are those of old, and the cluster is updating to new";
    let release = ReleaseVersions {
        stale_streams: Some(why),
        ..RELEASE
    };
    let found = required(&[updated("master")], &rendered_by("v1", "4.14.0"), release);
    assert_eq!(found, Ok(SyncResult::NotYet(not_progressed(why))));
}

#[test]
fn who_may_do_what_is_among_the_related_objects() {
    let related = related_objects();
    let named = |resource: &str, name: &str| {
        let mut related = related.iter();
        related.any(|object| {
            (
                object.group.as_str(),
                object.resource.as_str(),
                object.name.as_str(),
            ) == ("rbac.authorization.k8s.io", resource, name)
        })
    };
    for name in [
        "machine-config-controller",
        "machine-config-daemon",
        "machine-config-server",
    ] {
        assert!(
            named("clusterroles", name) && named("clusterrolebindings", name),
            "{name}"
        );
    }
    for name in [
        "system-bootstrap-node-bootstrapper",
        "system-bootstrap-node-renewal",
    ] {
        assert!(named("clusterrolebindings", name), "{name}");
    }
}

#[test]
fn a_setting_that_will_be_forbidden_is_a_condition_and_no_degradation() {
    let pools = [updated("master"), updated("worker")];
    let progress = with_pools(&pools);
    let found = "runc: transition to default crun";
    let situation = ClusterOperatorInputs {
        evaluation: Some(found),
        ..situation(&progress, &pools)
    };
    let after = report(&running("4.14.0"), &situation, &at(100));
    let one = |type_: &str| {
        let found = after.conditions.iter().find(|one| one.type_ == type_).unwrap();
        (found.status.as_str(), found.reason.as_str())
    };
    assert_eq!(one(condition::EVALUATION_CONDITIONS_DETECTED), ("True", found));
    assert_eq!(one(condition::DEGRADED).0, "False");
    assert_eq!(one(condition::UPGRADEABLE).0, "True");
}

/// Returns the master pool, which updates since second 1000 with this reason.
fn updating_since_1000(reason: &str) -> MachineConfigPool {
    let mut master = pool("master", [3, 2, 1, 1], &[("Updating", reason, "")]);
    let labels = master.metadata.labels.get_or_insert_default();
    labels.insert(
        mco_api::vocabulary::labels::REQUIRED_FOR_UPGRADE.to_owned(),
        String::new(),
    );
    for condition in &mut master.status.as_mut().unwrap().conditions {
        condition.last_transition_time = Some(at(1000));
    }
    master
}

/// A window, a soak, a hold or an update agent keeps nodes back for as long as the administrator wants.
#[test]
fn a_rollout_that_is_held_back_degraded_the_operator() {
    let master = [updating_since_1000("RolloutHeld")];
    let waiting = required(&master, &rendered_by("v1", "4.14.0"), RELEASE).unwrap();
    let later = within_deadline(&master, waiting.clone(), at(1_000_000).0);
    assert_eq!(later, Ok(waiting));
}

#[test]
fn a_required_pool_that_is_stuck_never_degraded_the_operator() {
    let master = updating_since_1000("");
    let waiting = || {
        required(
            std::slice::from_ref(&master),
            &rendered_by("v1", "4.14.0"),
            RELEASE,
        )
        .unwrap()
    };
    let SyncResult::NotYet(what) = waiting() else {
        panic!("it does not wait")
    };
    let after =
        |seconds: i64| within_deadline(std::slice::from_ref(&master), waiting(), at(1000 + seconds).0);
    assert_eq!(
        after(1800),
        Ok(SyncResult::NotYet(what.clone())),
        "ten minutes for each of three nodes"
    );
    let expected = what.replacen("[error", "[context deadline exceeded, error", 1);
    assert_eq!(after(1801), Err(expected));
    let done = within_deadline(std::slice::from_ref(&master), SyncResult::Yes, at(1_000_000).0);
    assert_eq!(done, Ok(SyncResult::Yes));
}
