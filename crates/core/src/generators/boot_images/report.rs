//! What is reported about boot image updates: two conditions of the MachineConfiguration, and the version that all
//! managed machine templates have at least.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::machine_configuration::{AutomaticBootImageVersion, BootImageSkewEnforcementStatus};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status as truth};

use super::{AUTOMATIC, BootImageVersion};

/// The reason of conditions before the first update.
const NO_REASON: &str = "NA";

/// The machine templates of one kind that are enrolled, by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootImageCounts {
    pub total: usize,
    /// Processed without an error, those left out included.
    pub processed: usize,
    pub skipped: usize,
    /// Of those left out, the ones whose image may be the release's.
    pub not_examined: usize,
    /// Of the templates that failed.
    pub errors: Vec<String>,
}

impl BootImageCounts {
    fn is_finished(&self) -> bool {
        self.processed + self.errors.len() == self.total
    }

    fn progress(&self, kind: &str) -> String {
        let done = self.processed - self.skipped.min(self.processed);
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!(" ({skipped} skipped)"),
        };
        format!("Reconciled {done} of {} {kind}{skipped}", self.total)
    }
}

/// The result of a reconcile of all templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootImageReport {
    pub machine_sets: BootImageCounts,
    pub control_plane: BootImageCounts,
    /// An error that no template has caused.
    pub error: Option<String>,
}

impl BootImageReport {
    fn errors(&self) -> Vec<&str> {
        let own = self.error.iter();
        let all = own
            .chain(&self.control_plane.errors)
            .chain(&self.machine_sets.errors);
        all.map(String::as_str).collect()
    }
}

/// Returns the conditions after a reconcile. Those of other writers are kept, as are the times of unchanged ones.
pub fn conditions(
    before: &[Condition],
    report: &BootImageReport,
    reason: &str,
    now: &Time,
) -> Vec<Condition> {
    // Templates of the Cluster API are not updated.
    let others = BootImageCounts::default();
    let counts = [
        (&report.machine_sets, "MAPI MachineSets"),
        (&report.control_plane, "ControlPlaneMachineSets"),
        (&others, "CAPI MachineSets"),
        (&others, "CAPI MachineDeployments"),
    ];
    let progress: Vec<String> = counts
        .iter()
        .map(|(counts, kind)| counts.progress(kind))
        .collect();
    let degraded: Vec<String> = counts
        .iter()
        .map(|(counts, kind)| format!("{} Degraded {kind}", counts.errors.len()))
        .collect();
    let is_finished = counts.iter().all(|(counts, _)| counts.is_finished());
    let errors = report.errors();
    let mut degraded = degraded.join(" | ");
    if !errors.is_empty() {
        degraded = format!("{degraded} | Error(s): {}", errors.join("; "));
    }
    let as_status = |holds| if holds { truth::TRUE } else { truth::FALSE };
    let mut after = before.to_vec();
    for (type_, status, message) in [
        (
            condition::BOOT_IMAGE_UPDATE_PROGRESSING,
            as_status(!is_finished),
            progress.join(" | "),
        ),
        (
            condition::BOOT_IMAGE_UPDATE_DEGRADED,
            as_status(!errors.is_empty()),
            degraded,
        ),
    ] {
        let new = Condition {
            last_transition_time: now.clone(),
            message,
            observed_generation: None,
            reason: if reason.is_empty() { NO_REASON } else { reason }.to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        };
        match after.iter_mut().find(|one| one.type_ == type_) {
            // Another trigger with the same outcome is no change.
            Some(old) if (&old.status, &old.message) == (&new.status, &new.message) => {}
            Some(old) => {
                let since = (old.status == new.status).then(|| old.last_transition_time.clone());
                *old = new;
                if let Some(since) = since {
                    old.last_transition_time = since;
                }
            }
            None => after.push(new),
        }
    }
    after
}

/// Returns the record of the oldest boot image after a reconcile of all enrolled MachineSets; `None` if it stays.
/// `release` is the release of the boot images, `installed` that of the installation.
pub fn skew_record(
    enforced: Option<&BootImageSkewEnforcementStatus>,
    counts: &BootImageCounts,
    release: &str,
    installed: &str,
) -> Option<AutomaticBootImageVersion> {
    let enforced = enforced.filter(|enforced| enforced.mode == AUTOMATIC)?;
    if !counts.errors.is_empty() || counts.not_examined > 0 {
        return None;
    }
    // A template that was left out may still have the image of the installation.
    let version = if counts.skipped > 0 { installed } else { release };
    let record = AutomaticBootImageVersion {
        ocp_version: BootImageVersion::parse(version)?.to_string(),
        ..AutomaticBootImageVersion::default()
    };
    (enforced.automatic.as_ref() != Some(&record)).then_some(record)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        serde_json::from_value(json!(format!("2026-01-01T00:00:{second:02}Z"))).unwrap()
    }

    fn counts(total: usize, processed: usize, skipped: usize, errors: &[&str]) -> BootImageCounts {
        BootImageCounts {
            total,
            processed,
            skipped,
            not_examined: 0,
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
        }
    }

    fn message<'c>(conditions: &'c [Condition], type_: &str) -> (&'c str, &'c str) {
        let found = conditions.iter().find(|one| one.type_ == type_).unwrap();
        (found.status.as_str(), found.message.as_str())
    }

    #[test]
    fn progress_and_errors_are_reported_as_the_reference_does() {
        let running = BootImageReport {
            machine_sets: counts(3, 2, 1, &[]),
            ..BootImageReport::default()
        };
        let first = conditions(&[], &running, "MAPIMachineSetAdded", &at(1));
        assert_eq!(
            message(&first, "BootImageUpdateProgressing"),
            (
                "True",
                "Reconciled 1 of 3 MAPI MachineSets (1 skipped) | Reconciled 0 of 0 ControlPlaneMachineSets | Reconciled \
                 0 of 0 CAPI MachineSets | Reconciled 0 of 0 CAPI MachineDeployments"
            )
        );
        assert_eq!(message(&first, "BootImageUpdateDegraded").0, "False");
        let failed = BootImageReport {
            machine_sets: counts(3, 2, 0, &["a: no"]),
            control_plane: counts(1, 1, 0, &[]),
            error: None,
        };
        let second = conditions(&first, &failed, "BootImageConfigMapUpdated", &at(2));
        assert_eq!(message(&second, "BootImageUpdateProgressing").0, "False");
        assert_eq!(
            message(&second, "BootImageUpdateDegraded"),
            (
                "True",
                "1 Degraded MAPI MachineSets | 0 Degraded ControlPlaneMachineSets | 0 Degraded CAPI MachineSets | 0 Degraded \
                 CAPI MachineDeployments | Error(s): a: no"
            )
        );
        let third = conditions(&second, &failed, "ClusterVersionStable", &at(3));
        assert_eq!(third, second, "the same outcome is not written again");
    }

    #[test]
    fn the_record_advances_only_if_every_template_was_updated() {
        let automatic = |version: &str| -> BootImageSkewEnforcementStatus {
            serde_json::from_value(json!({"mode": "Automatic", "automatic": {"ocpVersion": version}}))
                .unwrap()
        };
        let manual = serde_json::from_value(
            json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.14.0"}}),
        );
        let manual: BootImageSkewEnforcementStatus = manual.unwrap();
        let not_examined = BootImageCounts {
            not_examined: 1,
            ..counts(2, 2, 1, &[])
        };
        for (name, enforced, counts, expected) in [
            (
                "all updated",
                automatic("4.12.0"),
                counts(2, 2, 0, &[]),
                Some("4.21.3"),
            ),
            (
                "recorded already",
                automatic("4.21.3"),
                counts(2, 2, 0, &[]),
                None,
            ),
            (
                "one left out",
                automatic("4.21.3"),
                counts(2, 2, 1, &[]),
                Some("4.12.0"),
            ),
            ("one failed", automatic("4.12.0"), counts(2, 1, 0, &["no"]), None),
            ("one not examined", automatic("4.12.0"), not_examined, None),
            ("not automatic", manual, counts(2, 2, 0, &[]), None),
        ] {
            let record = skew_record(Some(&enforced), &counts, "4.21.3-rc.1", "4.12.0");
            assert_eq!(
                record.map(|record| record.ocp_version).as_deref(),
                expected,
                "{name}"
            );
        }
    }
}
