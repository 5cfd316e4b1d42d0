//! Boot image skew: the enforcement policy of a cluster for outdated boot images, and whether it blocks an upgrade.
//!
//! A node that boots from an image that is too old can no longer be updated to the cluster's release. This module
//! does not replace boot images; the component that does records it in the MachineConfiguration's status.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::machine_configuration::{
    AutomaticBootImageVersion, BootImageSkewEnforcement, BootImageSkewEnforcementStatus,
    MachineConfiguration, ManagedBootImages, ManualBootImageVersion,
};
use mco_api::vocabulary::conditions::{machine_configuration as condition, status as truth};
use mco_api::vocabulary::topology;

/// The feature gate that enables enforcement in a release.
pub const FEATURE_GATE: &str = "BootImageSkewEnforcement";

/// The oldest release whose boot images can still be updated to a current release.
const OLDEST_RELEASE: BootImageVersion = BootImageVersion(4, 13, 0);
const OLDEST_OS: BootImageVersion = BootImageVersion(9, 2, 0);

const AUTOMATIC: &str = "Automatic";
const MANUAL: &str = "Manual";
const NONE: &str = "None";
const BY_RELEASE: &str = "OCPVersion";
const BARE_METAL: &str = "BareMetal";

/// Whether the release enforces boot image skew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BootImageGate {
    /// The cluster has no feature gates: the user's setting is enforced.
    #[default]
    Absent,
    Off,
    On,
}

/// The cluster state that decides the enforcement.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootImageContext<'a> {
    pub gate: BootImageGate,
    pub infrastructure: Option<&'a Infrastructure>,
    /// The release that the cluster was installed with.
    pub installed: Option<&'a str>,
}

/// Returns the enforcement in force, in the format of the MachineConfiguration's status.
pub fn enforcement(
    settings: &MachineConfiguration,
    surroundings: &BootImageContext<'_>,
) -> Option<BootImageSkewEnforcementStatus> {
    match (surroundings.gate, &settings.spec.boot_image_skew_enforcement) {
        (BootImageGate::Off, _) | (BootImageGate::Absent, None) => return None,
        (BootImageGate::On | BootImageGate::Absent, Some(asked)) => return Some(as_asked(asked)),
        (BootImageGate::On, None) => {}
    }
    if surroundings.infrastructure.is_some_and(keeps_its_machines) {
        return Some(BootImageSkewEnforcementStatus {
            mode: NONE.to_owned(),
            ..BootImageSkewEnforcementStatus::default()
        });
    }
    let installed = surroundings.installed.and_then(BootImageVersion::parse);
    let status = settings.status.as_ref();
    if status.is_some_and(|status| updates_all(status.managed_boot_images_status.as_ref())) {
        let recorded = status.and_then(|status| status.boot_image_skew_enforcement_status.as_ref());
        let recorded = recorded.and_then(|recorded| recorded.automatic.clone());
        let automatic = recorded.or_else(|| {
            installed.map(|version| AutomaticBootImageVersion {
                ocp_version: version.to_string(),
                ..AutomaticBootImageVersion::default()
            })
        })?;
        return Some(BootImageSkewEnforcementStatus {
            mode: AUTOMATIC.to_owned(),
            automatic: Some(automatic),
            ..BootImageSkewEnforcementStatus::default()
        });
    }
    Some(BootImageSkewEnforcementStatus {
        mode: MANUAL.to_owned(),
        manual: Some(ManualBootImageVersion {
            mode: BY_RELEASE.to_owned(),
            ocp_version: installed?.to_string(),
            ..ManualBootImageVersion::default()
        }),
        ..BootImageSkewEnforcementStatus::default()
    })
}

/// Returns why the cluster should not be upgraded; `None` if its boot images do not block the upgrade.
pub fn obstacle(
    enforced: Option<&BootImageSkewEnforcementStatus>,
    conditions: &[Condition],
) -> Option<String> {
    let enforced = enforced?;
    let why = match enforced.mode.as_str() {
        AUTOMATIC => updates_failing(conditions).or_else(|| {
            let found = enforced.automatic.as_ref()?;
            too_old(&found.ocp_version, &found.rhcos_version)
        }),
        MANUAL => {
            let given = enforced.manual.as_ref()?;
            too_old(&given.ocp_version, &given.rhcos_version)
        }
        _ => None,
    }?;
    Some(format!(
        "Upgrades have been disabled because {why}. To enable upgrades, please update your boot images, or disable boot \
         image skew enforcement by setting spec.bootImageSkewEnforcement.mode of MachineConfiguration cluster to None"
    ))
}

/// Whether outdated boot images are replaced automatically.
pub fn are_kept_current(enforced: Option<&BootImageSkewEnforcementStatus>) -> bool {
    enforced.is_some_and(|enforced| enforced.mode == AUTOMATIC)
}

/// Whether to warn that boot images are not monitored: nothing is enforced, although new nodes may be created.
pub fn is_unwatched(
    enforced: Option<&BootImageSkewEnforcementStatus>,
    infrastructure: Option<&Infrastructure>,
) -> bool {
    enforced.is_some_and(|enforced| enforced.mode == NONE) && !infrastructure.is_some_and(keeps_its_machines)
}

fn as_asked(asked: &BootImageSkewEnforcement) -> BootImageSkewEnforcementStatus {
    BootImageSkewEnforcementStatus {
        mode: asked.mode.clone(),
        manual: asked.manual.clone(),
        automatic: None,
    }
}

/// Whether the cluster never creates nodes from boot images: it has a single node, or runs on bare metal, whose
/// images are built for it.
fn keeps_its_machines(infrastructure: &Infrastructure) -> bool {
    infrastructure.status.as_ref().is_some_and(|status| {
        let platform = status
            .platform_status
            .as_ref()
            .map(|platform| platform.type_.as_str());
        status.control_plane_topology == topology::SINGLE_REPLICA || platform == Some(BARE_METAL)
    })
}

fn updates_all(managed: Option<&ManagedBootImages>) -> bool {
    let managers = managed.and_then(|managed| managed.machine_managers.as_ref());
    managers.into_iter().flatten().any(|manager| {
        manager.resource == "machinesets"
            && manager.api_group == "machine.openshift.io"
            && manager.selection.mode == "All"
    })
}

fn updates_failing(conditions: &[Condition]) -> Option<String> {
    let mut all = conditions.iter();
    let failing =
        all.find(|one| one.type_ == condition::BOOT_IMAGE_UPDATE_DEGRADED && one.status == truth::TRUE)?;
    Some(format!("the boot images cannot be updated: {}", failing.message))
}

/// Returns why an image is too old. The release version takes precedence over the OS version; an unparsable version
/// is no reason.
fn too_old(release: &str, os: &str) -> Option<String> {
    if !release.is_empty() {
        let version = BootImageVersion::parse(release)?;
        return (version < OLDEST_RELEASE).then(|| {
            format!(
                "the cluster is using OCP boot image version {release}, which is below the minimum required version {OLDEST_RELEASE}"
            )
        });
    }
    let (major, minor) = base_of(os)?;
    let is_old = BootImageVersion(major, minor, 0) < OLDEST_OS;
    let BootImageVersion(oldest_major, oldest_minor, _) = OLDEST_OS;
    is_old.then(|| {
        format!(
            "the cluster is using RHCOS boot image version {os}(RHEL version: {major}.{minor}), which is below the minimum required RHEL version {oldest_major}.{oldest_minor}"
        )
    })
}

/// Returns the RHEL version that an image is based on: the first two numbers of `9.6.20251023-0`, the second number
/// of the older `48.84.202208021106-0`.
fn base_of(os: &str) -> Option<(u32, u32)> {
    let mut parts = os.splitn(3, '.');
    let (first, second, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let built = rest.split('-').next().unwrap_or_default();
    match built.len() {
        8 => Some((first.parse().ok()?, second.parse().ok()?)),
        12 => {
            let (major, minor) = second.split_at_checked(1)?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BootImageVersion(u32, u32, u32);

impl BootImageVersion {
    /// Parses the first three numbers of a version; a prerelease suffix is ignored.
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
        let version = Self(numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for BootImageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
#[expect(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(spec: &Value, status: &Value) -> MachineConfiguration {
        let object = json!({"metadata": {"name": "cluster"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn infrastructure(topology: &str, platform: &str) -> Infrastructure {
        serde_json::from_value(json!({"metadata": {"name": "cluster"}, "status": {
            "controlPlaneTopology": topology, "platformStatus": {"type": platform},
        }}))
        .unwrap()
    }

    fn by_release(version: &str) -> Value {
        json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": version}})
    }

    #[test]
    fn what_is_enforced_depends_on_the_user_then_on_the_cluster() {
        let cloud = infrastructure("HighlyAvailable", "AWS");
        let single = infrastructure("SingleReplica", "AWS");
        let metal = infrastructure("HighlyAvailable", "BareMetal");
        let all = json!({"managedBootImagesStatus": {"machineManagers": [
            {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}},
        ]}});
        let some = json!({"managedBootImagesStatus": {"machineManagers": [
            {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "None"}},
            {"resource": "controlplanemachinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}},
        ]}});
        let mut recorded = all.clone();
        recorded["bootImageSkewEnforcementStatus"] =
            json!({"mode": "Automatic", "automatic": {"ocpVersion": "4.21.3"}});
        let asks = |asked: Value| json!({"bootImageSkewEnforcement": asked});
        let on = BootImageContext {
            gate: BootImageGate::On,
            infrastructure: Some(&cloud),
            installed: Some("4.12.7"),
        };
        let off = BootImageContext {
            gate: BootImageGate::Off,
            ..on
        };
        let plain = BootImageContext {
            gate: BootImageGate::Absent,
            installed: None,
            ..on
        };
        let at = |infrastructure| BootImageContext {
            infrastructure: Some(infrastructure),
            ..on
        };
        let (nothing, automatic) = (
            json!({}),
            |version: &str| json!({"mode": "Automatic", "automatic": {"ocpVersion": version}}),
        );
        let cases: Vec<(&str, Value, &Value, BootImageContext<'_>, Option<Value>)> = vec![
            ("the gate is off", asks(by_release("4.1.0")), &nothing, off, None),
            (
                "the user asks",
                asks(by_release("4.1.0")),
                &all,
                on,
                Some(by_release("4.1.0")),
            ),
            (
                "the user wants nothing",
                asks(json!({"mode": "None"})),
                &all,
                on,
                Some(json!({"mode": "None"})),
            ),
            ("a cluster without gates", json!({}), &all, plain, None),
            (
                "a user of such a cluster",
                asks(by_release("4.1.0")),
                &nothing,
                plain,
                Some(by_release("4.1.0")),
            ),
            (
                "a single node",
                json!({}),
                &all,
                at(&single),
                Some(json!({"mode": "None"})),
            ),
            (
                "bare metal",
                json!({}),
                &all,
                at(&metal),
                Some(json!({"mode": "None"})),
            ),
            (
                "images are kept current",
                json!({}),
                &recorded,
                on,
                Some(automatic("4.21.3")),
            ),
            (
                "images will be kept current",
                json!({}),
                &all,
                on,
                Some(automatic("4.12.7")),
            ),
            (
                "not the images of workers",
                json!({}),
                &some,
                on,
                Some(by_release("4.12.7")),
            ),
            (
                "images are left alone",
                json!({}),
                &nothing,
                on,
                Some(by_release("4.12.7")),
            ),
            (
                "installed with a candidate",
                json!({}),
                &nothing,
                BootImageContext {
                    installed: Some("4.20.0-rc.1"),
                    ..on
                },
                Some(by_release("4.20.0")),
            ),
            (
                "not recorded",
                json!({}),
                &nothing,
                BootImageContext {
                    installed: None,
                    ..on
                },
                None,
            ),
            (
                "not parsable",
                json!({}),
                &nothing,
                BootImageContext {
                    installed: Some("stream"),
                    ..on
                },
                None,
            ),
        ];
        for (name, spec, status, surroundings, expected) in cases {
            let found = enforcement(&settings(&spec, status), &surroundings);
            let expected = expected.map(|expected| serde_json::from_value(expected).unwrap());
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn boot_images_that_are_too_old_keep_a_cluster_from_upgrading() {
        let by_os = |version: &str| json!({"mode": "Manual", "manual": {"mode": "RHCOSVersion", "rhcosVersion": version}});
        let automatic = json!({"mode": "Automatic", "automatic": {"ocpVersion": "4.20.0"}});
        let failing = "BootImageUpdateDegraded";
        let release = |version: &str| {
            format!(
                "the cluster is using OCP boot image version {version}, which is below the minimum required version 4.13.0"
            )
        };
        let cases: Vec<(&str, Value, &str, Option<String>)> = vec![
            ("nothing is enforced", json!({"mode": "None"}), failing, None),
            ("a mode of the future", json!({"mode": "Other"}), failing, None),
            ("the oldest release", by_release("4.13.0"), "", None),
            ("a newer one", by_release("5.0.0"), "", None),
            ("an older one", by_release("4.12.99"), "", Some(release("4.12.99"))),
            ("numbers, not letters", by_release("4.9.0"), "", Some(release("4.9.0"))),
            ("no version", by_release("new"), "", None),
            ("what the user says counts", by_release("4.13.0"), failing, None),
            ("the oldest base", by_os("9.2.20230101-0"), "", None),
            ("a newer base", by_os("10.0.20260101-0"), "", None),
            (
                "an older base",
                by_os("9.0.20220101-0"),
                "",
                Some("the cluster is using RHCOS boot image version 9.0.20220101-0(RHEL version: 9.0), which is below the minimum required RHEL version 9.2".to_owned()),
            ),
            (
                "a base in the old way",
                by_os("48.84.202208021106-0"),
                "",
                Some("the cluster is using RHCOS boot image version 48.84.202208021106-0(RHEL version: 8.4), which is below the minimum required RHEL version 9.2".to_owned()),
            ),
            ("a newer base in the old way", by_os("414.92.202308032115-0"), "", None),
            ("no date", by_os("9.0.1-0"), "", None),
            ("images are kept current", automatic.clone(), "", None),
            ("and may be on their way", automatic.clone(), "BootImageUpdateProgressing", None),
            ("but fail", automatic, failing, Some("the boot images cannot be updated: no such image".to_owned())),
            (
                "the release decides",
                json!({"mode": "Automatic", "automatic": {"ocpVersion": "4.13.0", "rhcosVersion": "48.84.202208021106-0"}}),
                "",
                None,
            ),
        ];
        for (name, enforced, condition, expected) in cases {
            let enforced = serde_json::from_value(enforced).unwrap();
            let condition: Condition = serde_json::from_value(json!({
                "type": condition, "status": "True", "reason": "R", "message": "no such image",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap();
            let found = obstacle(Some(&enforced), &[condition]);
            let expected = expected.map(|why| {
                format!("Upgrades have been disabled because {why}. To enable upgrades, please update your boot images, or disable boot image skew enforcement by setting spec.bootImageSkewEnforcement.mode of MachineConfiguration cluster to None")
            });
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(obstacle(None, &[]), None, "nothing was decided yet");
    }

    #[test]
    fn boot_images_are_unmonitored_without_enforcement_where_nodes_are_created() {
        let cloud = infrastructure("HighlyAvailable", "AWS");
        let single = infrastructure("SingleReplica", "AWS");
        let metal = infrastructure("HighlyAvailable", "BareMetal");
        let none: BootImageSkewEnforcementStatus = serde_json::from_value(json!({"mode": "None"})).unwrap();
        let manual = serde_json::from_value(by_release("4.1.0")).unwrap();
        for (name, enforced, infrastructure, expected) in [
            ("a cloud", Some(&none), Some(&cloud), true),
            ("a cluster that says nothing", Some(&none), None, true),
            ("a single node", Some(&none), Some(&single), false),
            ("bare metal", Some(&none), Some(&metal), false),
            ("something is enforced", Some(&manual), Some(&cloud), false),
            ("nothing was decided", None, Some(&cloud), false),
        ] {
            assert_eq!(is_unwatched(enforced, infrastructure), expected, "{name}");
        }
    }
}
