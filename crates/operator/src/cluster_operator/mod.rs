//! Computes the status of the ClusterOperator `machine-config`. Pure: the outcomes of the steps and the pools come in,
//! a status goes out.

pub mod evaluations;
mod pools;
mod related;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::MachineConfigPool;
use mco_api::foreign::cluster_operator::{ClusterOperatorCondition, ClusterOperatorStatus, OperandVersion};
use mco_api::vocabulary::conditions::{cluster_operator as condition, status as truth};
use mco_api::vocabulary::reasons::{self, cluster_operator as reason};
use serde_json::{Map, Value};

use crate::progress::{SyncOutcome, SyncProgress, SyncStep};

pub use pools::{
    PoolOrigin, ReleaseVersions, Reported, is_required, reported_configs, required, status_line,
    within_deadline,
};
pub use related::related_objects;

const OPERATOR: &str = "operator";
const OPERATOR_IMAGE: &str = "operator-image";
const LAST_SYNC_ERROR: &str = "lastSyncError";
const DEGRADED_POOLS: &str = "One or more machine config pools are degraded, please see `oc get mcp` for further details and resolve before upgrading";
const INTERRUPTED_BUILDS: &str = "One or more machine config pools' builds have been interrupted, please see `oc get mcp` for further details and resolve before upgrading";

/// The inputs of a status.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOperatorInputs<'a> {
    /// The release of this operator.
    pub release: &'a str,
    pub image: &'a str,
    /// Whether the cluster had no objects of ours when this operator started.
    pub bringup: bool,
    pub progress: &'a SyncProgress,
    pub pools: &'a [MachineConfigPool],
    /// See [`evaluations::reason`].
    pub evaluation: Option<&'a str>,
    /// Why boot images block an upgrade; see [`mco_core::generators::boot_images::obstacle`].
    pub boot_images: Option<&'a str>,
}

/// Returns the status before the operator has done anything.
pub fn initial(now: &Time) -> ClusterOperatorStatus {
    let unset = [condition::AVAILABLE, condition::PROGRESSING, condition::DEGRADED];
    let mut conditions: Vec<_> = unset.map(|type_| new(type_, truth::FALSE, "", "", now)).into();
    conditions.push(new(
        condition::UPGRADEABLE,
        truth::UNKNOWN,
        reason::NO_DATA,
        "",
        now,
    ));
    ClusterOperatorStatus {
        conditions,
        related_objects: related_objects(),
        ..ClusterOperatorStatus::default()
    }
}

/// Returns the status after a sync.
pub fn report(
    before: &ClusterOperatorStatus,
    situation: &ClusterOperatorInputs<'_>,
    now: &Time,
) -> ClusterOperatorStatus {
    let mut after = before.clone();
    if situation.progress.is_complete() {
        after.versions = versions(before, situation);
    }
    let conditions = [
        available(before, &after.versions, situation, now),
        progressing(before, situation, now),
        degraded(before, situation, now),
        upgradeable(situation, now),
        evaluated(situation, now),
    ];
    for condition in conditions {
        set(&mut after.conditions, condition);
    }
    after.extension = Some(extension(situation));
    after.related_objects = related_objects();
    after
}

/// Returns reason and message of the Degraded condition, if it is true.
pub fn degradation(status: &ClusterOperatorStatus) -> Option<(&str, &str)> {
    let mut conditions = status.conditions.iter();
    conditions
        .find(|one| one.type_ == condition::DEGRADED && one.status == truth::TRUE)
        .map(|one| (one.reason.as_str(), one.message.as_str()))
}

/// Returns the deployed release in the status.
pub fn deployed(status: &ClusterOperatorStatus) -> Option<&str> {
    let mut versions = status.versions.iter();
    versions
        .find(|version| version.name == OPERATOR)
        .map(|version| version.version.as_str())
}

/// Returns the versions. An operator that does not run from an image leaves the reported image unchanged.
fn versions(before: &ClusterOperatorStatus, situation: &ClusterOperatorInputs<'_>) -> Vec<OperandVersion> {
    let version = |name: &str, version: &str| OperandVersion {
        name: name.to_owned(),
        version: version.to_owned(),
        ..OperandVersion::default()
    };
    let mut versions = vec![version(OPERATOR, situation.release)];
    if situation.image.is_empty() {
        let known = before.versions.iter();
        versions.extend(known.filter(|version| version.name == OPERATOR_IMAGE).cloned());
    } else {
        versions.push(version(OPERATOR_IMAGE, situation.image));
    }
    versions
}

/// Available as long as machines get their configuration: a failure of one pool is reported by Degraded.
fn available(
    before: &ClusterOperatorStatus,
    versions: &[OperandVersion],
    situation: &ClusterOperatorInputs<'_>,
    now: &Time,
) -> ClusterOperatorCondition {
    let not = |reason: &str, message: &str| new(condition::AVAILABLE, truth::FALSE, reason, message, now);
    let essential = |(step, _): &(SyncStep, &str)| step.is_essential();
    if let Some((step, why)) = situation.progress.failures().find(essential) {
        return not(&reason::failed(step.name()), why);
    }
    let was_available = holds(before, condition::AVAILABLE);
    for (step, what) in situation.progress.waiting() {
        let is_down = matches!(situation.progress.of(step), Some(SyncOutcome::NotRunning(_)));
        if is_down || (step.is_essential() && !was_available) {
            return not(&format!("{}NotReady", step.name()), what);
        }
    }
    let named = versions
        .iter()
        .map(|version| format!("{{{} {}}}", version.name, version.version));
    let message = format!("Cluster has deployed [{}]", named.collect::<Vec<_>>().join(" "));
    new(
        condition::AVAILABLE,
        truth::TRUE,
        reasons::AS_EXPECTED,
        &message,
        now,
    )
}

fn progressing(
    before: &ClusterOperatorStatus,
    situation: &ClusterOperatorInputs<'_>,
    now: &Time,
) -> ClusterOperatorCondition {
    let release = situation.release;
    let is_moving = situation.bringup || deployed(before) != Some(release);
    let arrives = is_moving && situation.progress.is_complete();
    let (holds, reason, message) = match (is_moving && !arrives, situation.progress.has_failed()) {
        (true, true) => (truth::TRUE, "", format!("Unable to apply {release}")),
        (true, false) if situation.bringup => {
            (truth::TRUE, "", format!("Cluster is bootstrapping {release}"))
        }
        (true, false) => (truth::TRUE, "", format!("Working towards {release}")),
        (false, true) => (truth::FALSE, "", format!("Error while reconciling {release}")),
        (false, false) => (
            truth::FALSE,
            reasons::AS_EXPECTED,
            format!("Cluster version is {release}"),
        ),
    };
    new(condition::PROGRESSING, holds, reason, &message, now)
}

fn degraded(
    before: &ClusterOperatorStatus,
    situation: &ClusterOperatorInputs<'_>,
    now: &Time,
) -> ClusterOperatorCondition {
    let failures: Vec<(SyncStep, &str)> = situation.progress.failures().collect();
    let Some((first, _)) = failures.first() else {
        return new(condition::DEGRADED, truth::FALSE, reasons::AS_EXPECTED, "", now);
    };
    let release = situation.release;
    let all: Vec<&str> = failures.iter().map(|(_, why)| *why).collect();
    let all = all.join("; ");
    let message = if deployed(before) == Some(release) {
        format!("Failed to resync {release} because: {all}")
    } else {
        format!("Unable to apply {release}: {all}")
    };
    new(
        condition::DEGRADED,
        truth::TRUE,
        &reason::failed(first.name()),
        &message,
        now,
    )
}

/// Reports the most severe cause: degraded machines, then an interrupted build, then outdated boot images.
fn upgradeable(situation: &ClusterOperatorInputs<'_>, now: &Time) -> ClusterOperatorCondition {
    let pools = situation.pools;
    let (holds, reason, message) = if pools.iter().any(pools::is_degraded) {
        (truth::FALSE, reason::DEGRADED_POOL, DEGRADED_POOLS)
    } else if pools.iter().any(pools::has_interrupted_build) {
        (truth::FALSE, reason::INTERRUPTED_BUILD, INTERRUPTED_BUILDS)
    } else if let Some(why) = situation.boot_images {
        (truth::FALSE, reason::CLUSTER_BOOT_IMAGE_SKEW_ERROR, why)
    } else {
        (truth::TRUE, reasons::AS_EXPECTED, "")
    };
    new(condition::UPGRADEABLE, holds, reason, message, now)
}

/// The finding is in the reason and not in the message, because fleet-wide searches look there.
fn evaluated(situation: &ClusterOperatorInputs<'_>, now: &Time) -> ClusterOperatorCondition {
    let (holds, reason) = match situation.evaluation {
        Some(found) => (truth::TRUE, found),
        None => (truth::FALSE, reasons::AS_EXPECTED),
    };
    new(condition::EVALUATION_CONDITIONS_DETECTED, holds, reason, "", now)
}

/// Returns one line per pool, and what the required pools still lack.
fn extension(situation: &ClusterOperatorInputs<'_>) -> Value {
    let mut lines: Map<String, Value> = situation
        .pools
        .iter()
        .map(|pool| {
            let name = pool.metadata.name.clone().unwrap_or_default();
            (name, Value::String(status_line(pool)))
        })
        .collect();
    if let Some(SyncOutcome::Waiting(what) | SyncOutcome::Failed(what)) =
        situation.progress.of(SyncStep::RequiredPools)
    {
        lines.insert(LAST_SYNC_ERROR.to_owned(), Value::String(what.clone()));
    }
    Value::Object(lines)
}

fn new(type_: &str, holds: &str, reason: &str, message: &str, now: &Time) -> ClusterOperatorCondition {
    ClusterOperatorCondition {
        last_transition_time: Some(now.clone()),
        message: message.to_owned(),
        reason: reason.to_owned(),
        status: holds.to_owned(),
        type_: type_.to_owned(),
        ..ClusterOperatorCondition::default()
    }
}

fn holds(status: &ClusterOperatorStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == type_ && one.status == truth::TRUE)
}

/// Replaces the condition of the same type. The transition time is kept while the status is the same.
fn set(conditions: &mut Vec<ClusterOperatorCondition>, mut new: ClusterOperatorCondition) {
    match conditions.iter_mut().find(|one| one.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests;
