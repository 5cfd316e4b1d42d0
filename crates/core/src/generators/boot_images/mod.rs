//! Boot images: updates of machine templates, and the enforcement policy of a cluster for outdated images.
//!
//! A node that boots from an image that is too old can no longer be updated to the cluster's release. [`managed`]
//! decides which templates are updated, [`machine_sets`] what is changed in them, and [`report`] what is recorded. This
//! module decides whether outdated images block an upgrade.

mod azure;
pub mod machine_sets;
pub mod managed;
pub mod report;
mod stream;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::foreign::cluster_version::ClusterVersion;
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
    /// The release that the cluster was installed with; see [`installed_version`].
    pub installed: &'a str,
    /// A bare-metal cluster downloads the OS of new machines from a fixed address.
    pub downloads_os: bool,
}

/// The installed version of a cluster that does not record it. It is older than every other, so that the skew is
/// reported.
const UNKNOWN_VERSION: BootImageVersion = BootImageVersion(0, 0, 0);
const COMPLETED: &str = "Completed";

/// Returns the release that the cluster was installed with, as `x.y.z`: the oldest update that completed.
pub fn installed_version(version: Option<&ClusterVersion>) -> String {
    let history = version.and_then(|version| version.status.as_ref());
    let history = history
        .map(|status| status.history.as_slice())
        .unwrap_or_default();
    let completed = history.iter().rev().find(|entry| entry.state == COMPLETED);
    let found = completed.or(history.last()).map(|entry| entry.version.as_str());
    let found = found.and_then(BootImageVersion::parse).unwrap_or(UNKNOWN_VERSION);
    found.to_string()
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
    let is_fixed = |infrastructure: &Infrastructure| {
        is_single_node(infrastructure) || (is_bare_metal(infrastructure) && !surroundings.downloads_os)
    };
    if surroundings.infrastructure.is_some_and(is_fixed) {
        return Some(BootImageSkewEnforcementStatus {
            mode: NONE.to_owned(),
            ..BootImageSkewEnforcementStatus::default()
        });
    }
    let installed = BootImageVersion::parse(surroundings.installed).unwrap_or(UNKNOWN_VERSION);
    let is_supported = surroundings.infrastructure.and_then(managed::support).is_some();
    let status = settings.status.as_ref();
    if is_supported && status.is_some_and(|status| updates_all(status.managed_boot_images_status.as_ref())) {
        let recorded = status.and_then(|status| status.boot_image_skew_enforcement_status.as_ref());
        let recorded = recorded.and_then(|recorded| recorded.automatic.clone());
        let automatic = recorded.unwrap_or_else(|| AutomaticBootImageVersion {
            ocp_version: installed.to_string(),
            ..AutomaticBootImageVersion::default()
        });
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
            ocp_version: installed.to_string(),
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
    is_single_node(infrastructure) || is_bare_metal(infrastructure)
}

fn is_single_node(infrastructure: &Infrastructure) -> bool {
    let status = infrastructure.status.as_ref();
    status.is_some_and(|status| status.control_plane_topology == topology::SINGLE_REPLICA)
}

fn is_bare_metal(infrastructure: &Infrastructure) -> bool {
    let status = infrastructure.status.as_ref();
    let platform = status.and_then(|status| status.platform_status.as_ref());
    platform.is_some_and(|platform| platform.type_ == BARE_METAL)
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
            installed: "4.12.7",
            downloads_os: false,
        };
        let off = BootImageContext {
            gate: BootImageGate::Off,
            ..on
        };
        let plain = BootImageContext {
            gate: BootImageGate::Absent,
            installed: "0.0.0",
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
                    installed: "4.20.0-rc.1",
                    ..on
                },
                Some(by_release("4.20.0")),
            ),
            (
                "not recorded, which must not be nothing to report",
                json!({}),
                &nothing,
                BootImageContext {
                    installed: "stream",
                    ..on
                },
                Some(by_release("0.0.0")),
            ),
            (
                "bare metal that downloads its OS",
                json!({}),
                &all,
                BootImageContext {
                    downloads_os: true,
                    ..at(&metal)
                },
                Some(by_release("4.12.7")),
            ),
        ];
        for (name, spec, status, surroundings, expected) in cases {
            let found = enforcement(&settings(&spec, status), &surroundings);
            let expected = expected.map(|expected| serde_json::from_value(expected).unwrap());
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn the_installed_version_is_the_oldest_that_completed() {
        let version = |history: Value| -> ClusterVersion {
            serde_json::from_value(json!({"metadata": {"name": "version"}, "status": {"history": history}}))
                .unwrap()
        };
        let entry = |state: &str, version: &str| json!({"state": state, "version": version});
        for (name, history, expected) in [
            (
                "the oldest",
                json!([
                    entry("Partial", "4.22.0"),
                    entry("Completed", "4.21.3"),
                    entry("Completed", "4.12.7")
                ]),
                "4.12.7",
            ),
            (
                "the first one never completed",
                json!([entry("Completed", "4.13.0"), entry("Partial", "4.12.7")]),
                "4.13.0",
            ),
            (
                "still installing",
                json!([entry("Partial", "4.20.0-rc.1")]),
                "4.20.0",
            ),
            ("no history", json!([]), "0.0.0"),
            ("not a version", json!([entry("Completed", "nightly")]), "0.0.0"),
        ] {
            assert_eq!(installed_version(Some(&version(history))), expected, "{name}");
        }
        assert_eq!(installed_version(None), "0.0.0");
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
