//! The state of the pools in the messages of the ClusterOperator.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use mco_api::MachineConfigPool;
use mco_api::machine_config_pool::{MachineConfigPoolCondition, MachineConfigPoolStatus};
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::vocabulary::reasons::pool as reasons;
use mco_api::vocabulary::{annotations, labels};

use crate::progress::SyncResult;

/// The target release of an upgrade.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseVersions<'a> {
    /// The version of the controllers that render.
    pub controller: &'a str,
    pub version: &'a str,
    /// The operating system image by pool, where it is known.
    pub images: &'a BTreeMap<String, String>,
    /// Why the published streams, and so these images, are those of another release.
    pub stale_streams: Option<&'a str>,
}

/// The origin of a config that a pool reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolOrigin {
    pub annotations: BTreeMap<String, String>,
    /// Set for rendered configs only.
    pub os_image: String,
}

/// The existing configs that pools report, by name.
pub type Reported = BTreeMap<String, PoolOrigin>;

/// Returns the rendered configs in the status of the required pools.
pub fn reported_configs(pools: &[MachineConfigPool]) -> Vec<String> {
    let required = pools.iter().filter(|pool| is_required(pool));
    required
        .filter_map(|pool| pool.status.as_ref())
        .map(|status| status.configuration.name().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns whether an upgrade depends on the pool.
pub fn is_required(pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(labels::REQUIRED_FOR_UPGRADE))
}

fn sources(status: &MachineConfigPoolStatus) -> impl Iterator<Item = &str> {
    let sources = status.configuration.source.iter();
    sources.filter_map(|source| source.name.as_deref())
}

/// Checks whether the pools allow an upgrade: none is degraded, and the required ones have a config of this release.
pub fn required(
    pools: &[MachineConfigPool],
    reported: &Reported,
    release: ReleaseVersions<'_>,
) -> Result<SyncResult, String> {
    let mut failing: Vec<String> = pools
        .iter()
        .filter(|pool| is_degraded(pool))
        .map(broken)
        .collect();
    let mut missing = Vec::new();
    let required = pools
        .iter()
        .filter(|pool| is_required(pool) && !is_degraded(pool));
    for pool in required {
        let name = name(pool);
        let behind = behind(pool, reported, release);
        if has_arrived(pool) && behind.is_none() {
            continue;
        }
        let updated = condition::holds(&status(pool).conditions, condition::UPDATED);
        if let Some(behind) = behind.filter(|_| !pool.spec.paused) {
            missing.push(format!(
                "MachineConfigPool {name} has not progressed to latest configuration: {behind}, retrying"
            ));
        } else if pool.spec.paused && updated {
            failing.push(format!(
                "the required MachineConfigPool {name} was paused with no pending updates; no further syncing will occur until it is unpaused"
            ));
        } else if pool.spec.paused {
            failing.push(format!(
                "required MachineConfigPool {name} is paused and cannot sync until it is unpaused"
            ));
        } else {
            missing.push(under_way(pool));
        }
    }
    let observed = |all: &[String]| {
        let all: Vec<String> = all.iter().map(|one| format!("error {one}")).collect();
        format!(
            "error during syncRequiredMachineConfigPools: [{}]",
            all.join(", ")
        )
    };
    if !failing.is_empty() {
        return Err(observed(&failing));
    }
    Ok(if missing.is_empty() {
        SyncResult::Yes
    } else {
        SyncResult::NotYet(observed(&missing))
    })
}

/// The time that a rollout to one node of a required pool may take.
const TIMEOUT_PER_NODE: SignedDuration = SignedDuration::from_mins(10);

/// Fails a wait for required pools that takes longer than ten minutes for each of their nodes. The start of the wait is
/// the pool's own, so that a restart of the operator does not extend it. A pool whose nodes are kept back by a policy or
/// a hold is not late.
pub fn within_deadline(
    pools: &[MachineConfigPool],
    outcome: SyncResult,
    now: Timestamp,
) -> Result<SyncResult, String> {
    let SyncResult::NotYet(what) = outcome else {
        return Ok(outcome);
    };
    let required = || pools.iter().filter(|pool| is_required(pool));
    let nodes: i32 = required().map(|pool| status(pool).machine_count).sum();
    let limit = TIMEOUT_PER_NODE * nodes.max(1);
    let is_overdue = required().any(|pool| {
        let conditions = status(pool).conditions;
        let updating = condition::find(&conditions, condition::UPDATING)
            .filter(|one| one.status == "True" && one.reason != reasons::ROLLOUT_HELD);
        let since = updating.and_then(|one| one.last_transition_time.as_ref());
        since.is_some_and(|since| now.duration_since(since.0) > limit)
    });
    if is_overdue {
        Err(what.replacen(": [", ": [context deadline exceeded, ", 1))
    } else {
        Ok(SyncResult::NotYet(what))
    }
}

/// Returns whether the pool needs an administrator.
pub fn is_degraded(pool: &MachineConfigPool) -> bool {
    degradation(&status(pool)).is_some()
}

/// Returns whether the pool waits for an image whose build was interrupted.
pub fn has_interrupted_build(pool: &MachineConfigPool) -> bool {
    condition::holds(&status(pool).conditions, condition::BUILD_INTERRUPTED)
}

/// Returns one line about a pool.
pub fn status_line(pool: &MachineConfigPool) -> String {
    let status = status(pool);
    let conditions = &status.conditions;
    let target = pool.target_name();
    let holding = |type_: &str| condition::find(conditions, type_).filter(|one| one.status == "True");
    if let Some(render) = holding(condition::RENDER_DEGRADED) {
        return format!(
            "pool is degraded because rendering fails with {:?}: {:?}",
            render.reason, render.message
        );
    }
    if let Some(nodes) = holding(condition::NODE_DEGRADED) {
        return format!(
            "pool is degraded because nodes fail with {:?}: {:?}",
            nodes.reason, nodes.message
        );
    }
    if let Some(images) = holding(condition::PINNED_IMAGE_SETS_DEGRADED) {
        return format!(
            "pool is degraded because pinned image sets failed with {:?}: {:?}",
            images.reason, images.message
        );
    }
    if holding(condition::UPDATED).is_some() {
        return format!(
            "all {} nodes are at latest configuration {target}",
            status.machine_count
        );
    }
    if holding(condition::UPDATING).is_some() {
        return format!(
            "{} (ready {}) out of {} nodes are updating to latest configuration {target}",
            status.updated_machine_count, status.ready_machine_count, status.machine_count
        );
    }
    "<unknown>".to_owned()
}

fn name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn status(pool: &MachineConfigPool) -> MachineConfigPoolStatus {
    pool.status.clone().unwrap_or_default()
}

/// Returns why the reported config is not of this release. The order of the checks is that of the reference.
fn behind(pool: &MachineConfigPool, reported: &Reported, release: ReleaseVersions<'_>) -> Option<String> {
    let pool_name = name(pool);
    let status = status(pool);
    let rendered = status.configuration.name();
    let line = status_line(pool);
    if pool.target_name().is_empty() {
        return Some(format!(
            "configuration spec for pool {pool_name} is empty: {line}"
        ));
    }
    if rendered.is_empty() {
        return Some(format!(
            "configuration status for pool {pool_name} is empty: {line}"
        ));
    }
    if status.configuration.source.is_empty() {
        return Some(format!(
            "list of MachineConfigs that were used to generate configuration for pool {pool_name} is empty: {line}"
        ));
    }
    for config in std::iter::once(rendered).chain(sources(&status)) {
        let Some(origin) = reported.get(config) else {
            return Some(format!(
                "MachineConfig {config}, which pool {pool_name} reports, does not exist"
            ));
        };
        let expected = release.controller;
        match origin
            .annotations
            .get(annotations::GENERATED_BY_CONTROLLER_VERSION)
        {
            Some(found) if found != expected => {
                return Some(format!(
                    "controller version mismatch for {config} expected {expected} has {found}: {line}"
                ));
            }
            None if config == rendered => {
                return Some(format!(
                    "{config} must be created by controller version {expected}: {line}"
                ));
            }
            // A config that a user wrote has no version.
            Some(_) | None => {}
        }
    }
    reported
        .get(rendered)
        .and_then(|origin| foreign(pool_name, rendered, origin, release))
}

/// Returns why a rendered config is of another release, although it has the same controller version.
fn foreign(pool: &str, config: &str, origin: &PoolOrigin, release: ReleaseVersions<'_>) -> Option<String> {
    let overridden = origin
        .annotations
        .contains_key(annotations::OS_IMAGE_URL_OVERRIDDEN);
    if let Some(why) = release.stale_streams.filter(|_| !overridden) {
        return Some(why.to_owned());
    }
    let image = release.images.get(pool).filter(|_| !overridden);
    if let Some(expected) = image.filter(|expected| **expected != origin.os_image) {
        return Some(format!(
            "osImageURL mismatch for {pool} in {config} expected: {expected} got: {}",
            origin.os_image
        ));
    }
    let expected = release.version;
    match origin.annotations.get(annotations::RELEASE_IMAGE_VERSION) {
        Some(found) if found == expected => None,
        Some(found) => Some(format!(
            "release image version mismatch for {pool} in {config} expected: {expected} got: {found}"
        )),
        None => Some(format!(
            "Unable to access annotation {} for {config} expected: {expected}",
            annotations::RELEASE_IMAGE_VERSION
        )),
    }
}

fn has_arrived(pool: &MachineConfigPool) -> bool {
    let status = status(pool);
    pool.metadata.generation.unwrap_or_default() <= status.observed_generation
        && condition::holds(&status.conditions, condition::UPDATED)
}

/// Returns the most specific degraded condition: the cause if there is one, else the summary.
fn degradation(status: &MachineConfigPoolStatus) -> Option<&MachineConfigPoolCondition> {
    let causes = [
        condition::NODE_DEGRADED,
        condition::RENDER_DEGRADED,
        condition::IMAGE_BUILD_DEGRADED,
        condition::DEGRADED,
    ];
    let mut holding = causes
        .iter()
        .filter(|type_| condition::holds(&status.conditions, type_))
        .filter_map(|type_| condition::find(&status.conditions, type_));
    holding.next()
}

fn broken(pool: &MachineConfigPool) -> String {
    let status = status(pool);
    let reason = degradation(&status).map(|condition| condition.message.clone());
    format!(
        "MachineConfigPool {} is not ready, retrying. Status: (pool degraded: true total: {}, ready {}, updated: {}, unavailable: {}, reason: {})",
        name(pool),
        status.machine_count,
        status.ready_machine_count,
        status.updated_machine_count,
        status.unavailable_machine_count,
        reason.unwrap_or_default()
    )
}

fn under_way(pool: &MachineConfigPool) -> String {
    let status = status(pool);
    format!(
        "required MachineConfigPool {} is not ready, retrying. Status: (total: {}, ready {}, updated: {}, unavailable: {}, degraded: {})",
        name(pool),
        status.machine_count,
        status.ready_machine_count,
        status.updated_machine_count,
        status.unavailable_machine_count,
        status.degraded_machine_count
    )
}
