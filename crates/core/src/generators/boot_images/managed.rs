//! Which kinds of machine templates get newer boot images: the administrator's choice, else the platform's default.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::machine_configuration::{
    MachineConfiguration, MachineManager, MachineManagerSelection, ManagedBootImages,
};

use super::machine_sets::MachineSetKind;
use crate::config::selector::{Selector, SelectorError};

/// The feature gate for templates of the control plane.
pub const CONTROL_PLANE_GATE: &str = "ManagedBootImagesCPMS";

const MACHINE_API: &str = "machine.openshift.io";
const ALL: &str = "All";
const PARTIAL: &str = "Partial";
const NONE: &str = "None";
/// The cloud of Azure's platform without a marketplace.
const AZURE_STACK: &str = "AzureStackCloud";

/// What a platform supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlatformSupport {
    pub control_plane: bool,
}

/// Returns what the platform supports; `None` if boot images are not updated on it.
pub fn support(infrastructure: &Infrastructure) -> Option<PlatformSupport> {
    let platform = infrastructure.status.as_ref()?.platform_status.as_ref()?;
    let azure = platform
        .azure
        .as_ref()
        .and_then(|azure| azure.extra.get("cloudName"));
    match platform.type_.as_str() {
        "Azure" if azure.and_then(|name| name.as_str()) == Some(AZURE_STACK) => None,
        "AWS" | "GCP" | "Azure" => Some(PlatformSupport { control_plane: true }),
        "VSphere" => Some(PlatformSupport { control_plane: false }),
        _ => None,
    }
}

/// The choice that is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedStatus {
    pub managed: ManagedBootImages,
    /// The platform's default has turned the updates on.
    pub is_opt_in: bool,
}

/// Returns the choice that is in force; `None` where boot images are not updated.
pub fn status(
    settings: &MachineConfiguration,
    infrastructure: Option<&Infrastructure>,
    control_plane_gate: bool,
) -> Option<ManagedStatus> {
    let support = support(infrastructure?)?;
    let chosen = settings.spec.managed_boot_images.as_ref();
    let chosen = chosen.and_then(|chosen| chosen.machine_managers.as_deref());
    if chosen == Some(&[]) {
        return Some(ManagedStatus {
            managed: ManagedBootImages {
                machine_managers: Some(Vec::new()),
            },
            is_opt_in: false,
        });
    }
    let before = settings.status.as_ref();
    let before = before.and_then(|status| status.managed_boot_images_status.as_ref());
    let before = before.and_then(|managed| managed.machine_managers.clone());
    let by_user = |kind| chosen.and_then(|chosen| manager(chosen, kind));
    let workers = by_user(MachineSetKind::MachineSet);
    let was_off = before.as_deref().is_none_or(|before| {
        manager(before, MachineSetKind::MachineSet).is_some_and(|one| one.selection.mode == NONE)
    });
    let is_opt_in = workers.is_none() && was_off;
    let mut managers = before.unwrap_or_default();
    merge(
        &mut managers,
        workers
            .cloned()
            .unwrap_or_else(|| of_mode(MachineSetKind::MachineSet, ALL)),
    );
    if control_plane_gate && support.control_plane {
        let kind = MachineSetKind::ControlPlaneMachineSet;
        merge(
            &mut managers,
            by_user(kind).cloned().unwrap_or_else(|| of_mode(kind, NONE)),
        );
    }
    Some(ManagedStatus {
        managed: ManagedBootImages {
            machine_managers: Some(managers),
        },
        is_opt_in,
    })
}

/// Returns the selector of the enrolled templates of a kind; `None` if none is enrolled.
pub fn enrolled(
    managed: Option<&ManagedBootImages>,
    kind: MachineSetKind,
) -> Result<Option<Selector>, SelectorError> {
    let managers = managed.and_then(|managed| managed.machine_managers.as_deref());
    let Some(found) = manager(managers.unwrap_or_default(), kind) else {
        return Ok(None);
    };
    match (found.selection.mode.as_str(), &found.selection.partial) {
        (ALL, _) => Selector::parse(&LabelSelector::default()).map(Some),
        (PARTIAL, Some(partial)) => Selector::parse(&partial.machine_resource_selector).map(Some),
        _ => Ok(None),
    }
}

fn manager(managers: &[MachineManager], kind: MachineSetKind) -> Option<&MachineManager> {
    let mut managers = managers.iter();
    managers.find(|one| one.api_group == MACHINE_API && one.resource == kind.resource())
}

fn of_mode(kind: MachineSetKind, mode: &str) -> MachineManager {
    MachineManager {
        api_group: MACHINE_API.to_owned(),
        resource: kind.resource().to_owned(),
        selection: MachineManagerSelection {
            mode: mode.to_owned(),
            partial: None,
        },
    }
}

/// Replaces the entry of the same resource; others are kept.
fn merge(managers: &mut Vec<MachineManager>, new: MachineManager) {
    let same = managers
        .iter_mut()
        .find(|one| (&one.resource, &one.api_group) == (&new.resource, &new.api_group));
    match same {
        Some(same) => *same = new,
        None => managers.push(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn infrastructure(platform: &Value) -> Infrastructure {
        serde_json::from_value(
            json!({"metadata": {"name": "cluster"}, "status": {"platformStatus": platform}}),
        )
        .unwrap()
    }

    fn one(resource: &str, mode: &str) -> Value {
        json!({"resource": resource, "apiGroup": "machine.openshift.io", "selection": {"mode": mode}})
    }

    fn settings(spec: &Value, status: &Value) -> MachineConfiguration {
        let managed = |managers: &Value| match managers {
            Value::Null => Value::Null,
            managers => json!({"machineManagers": managers}),
        };
        serde_json::from_value(json!({
            "metadata": {"name": "cluster"},
            "spec": {"managedBootImages": managed(spec)},
            "status": {"managedBootImagesStatus": managed(status)},
        }))
        .unwrap()
    }

    /// Resource and mode of every manager.
    fn shown(managed: &ManagedBootImages) -> String {
        let managers = managed.machine_managers.iter().flatten();
        let all: Vec<String> = managers
            .map(|one| format!("{}={}", one.resource, one.selection.mode))
            .collect();
        all.join(" ")
    }

    #[test]
    fn a_platform_turns_updates_on_unless_the_administrator_decides() {
        let (workers, masters) = ("machinesets", "controlplanemachinesets");
        let none = Value::Null;
        for (name, spec, before, gate, expected, is_opt_in) in [
            (
                "a new cluster",
                none.clone(),
                none.clone(),
                false,
                "machinesets=All",
                true,
            ),
            (
                "an upgrade turns them on",
                none.clone(),
                json!([one(workers, "None")]),
                false,
                "machinesets=All",
                true,
            ),
            (
                "on already",
                none.clone(),
                json!([one(workers, "All")]),
                false,
                "machinesets=All",
                false,
            ),
            (
                "off",
                json!([one(workers, "None")]),
                none.clone(),
                false,
                "machinesets=None",
                false,
            ),
            (
                "all of them off",
                json!([]),
                json!([one(workers, "All")]),
                true,
                "",
                false,
            ),
            (
                "with the control plane",
                json!([one(masters, "All")]),
                none.clone(),
                true,
                "machinesets=All controlplanemachinesets=All",
                true,
            ),
            (
                "the control plane is off by default",
                none.clone(),
                json!([one(workers, "All")]),
                true,
                "machinesets=All controlplanemachinesets=None",
                false,
            ),
            (
                "the gate of the control plane is off",
                json!([one(masters, "All")]),
                none.clone(),
                false,
                "machinesets=All",
                true,
            ),
        ] {
            let aws = infrastructure(&json!({"type": "AWS"}));
            let found = status(&settings(&spec, &before), Some(&aws), gate).unwrap();
            assert_eq!(shown(&found.managed), expected, "{name}");
            assert_eq!(found.is_opt_in, is_opt_in, "{name}");
        }
    }

    #[test]
    fn only_some_platforms_are_supported() {
        for (platform, expected) in [
            (json!({"type": "AWS"}), Some(true)),
            (json!({"type": "GCP"}), Some(true)),
            (
                json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}),
                Some(true),
            ),
            (
                json!({"type": "Azure", "azure": {"cloudName": "AzureStackCloud"}}),
                None,
            ),
            (json!({"type": "VSphere"}), Some(false)),
            (json!({"type": "BareMetal"}), None),
        ] {
            let found = support(&infrastructure(&platform)).map(|support| support.control_plane);
            assert_eq!(found, expected, "{platform}");
        }
        let plain = settings(&Value::Null, &Value::Null);
        assert_eq!(
            status(&plain, None, true),
            None,
            "a cluster without an Infrastructure"
        );
    }

    #[test]
    fn templates_are_enrolled_by_their_labels() {
        let partial = json!([{"resource": "machinesets", "apiGroup": "machine.openshift.io",
            "selection": {"mode": "Partial", "partial": {"machineResourceSelector": {"matchLabels": {"update": "yes"}}}}}]);
        let labels = [("update".to_owned(), "yes".to_owned())].into();
        for (name, managers, labelled, other) in [
            ("all", json!([one("machinesets", "All")]), true, true),
            ("some", partial, true, false),
            ("none", json!([one("machinesets", "None")]), false, false),
            (
                "another kind",
                json!([one("controlplanemachinesets", "All")]),
                false,
                false,
            ),
            ("off", json!([]), false, false),
        ] {
            let managed = settings(&Value::Null, &managers)
                .status
                .unwrap()
                .managed_boot_images_status;
            let selector = enrolled(managed.as_ref(), MachineSetKind::MachineSet).unwrap();
            let is_enrolled = |labels| selector.as_ref().is_some_and(|selector| selector.matches(labels));
            assert_eq!(is_enrolled(Some(&labels)), labelled, "{name}");
            assert_eq!(is_enrolled(None), other, "{name}");
        }
    }
}
