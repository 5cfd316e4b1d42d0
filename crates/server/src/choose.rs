//! The choice of the rendered config and of the OS image for new machines of a pool.

use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};

/// Returns the name of the rendered config for new machines; `None` while the pool has none.
///
/// New machines start with the target config once one machine runs it; until then the target is unproven, and they
/// start with the config of the other machines. `paused` and conditions are ignored.
pub fn config_name(pool: &MachineConfigPool) -> Option<&str> {
    let status = pool.status.as_ref()?;
    let configuration = if has_updated_machine(pool) {
        &pool.spec.configuration
    } else {
        &status.configuration
    };
    named(configuration.reference.name.as_deref())
}

/// Returns the name of the config for the first machines of a cluster, whose pools have no machine counts yet.
pub fn bootstrap_config_name(pool: &MachineConfigPool) -> Option<&str> {
    named(pool.status.as_ref()?.configuration.reference.name.as_deref())
}

fn named(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.is_empty())
}

fn has_updated_machine(pool: &MachineConfigPool) -> bool {
    pool.status
        .as_ref()
        .is_some_and(|status| status.updated_machine_count > 0)
}

/// The inputs of the image choice.
#[derive(Clone, Copy, Debug)]
pub struct ImageSources<'a> {
    pub os_configs: &'a [MachineOSConfig],
    pub builds: &'a [MachineOSBuild],
    /// Hosts of the internal registry, with ports if any. A machine cannot pull from it at its first boot.
    pub internal_registries: &'a [String],
}

/// Returns the layered image with which a new machine can start, which saves a reboot; `None` if there is none or if it
/// may not be usable.
pub fn layered_image<'a>(
    pool: &MachineConfigPool,
    config_name: &str,
    sources: ImageSources<'a>,
) -> Option<&'a str> {
    if !has_updated_machine(pool) {
        return None;
    }
    let pool_name = pool.metadata.name.as_deref()?;
    let os_config = sources
        .os_configs
        .iter()
        .find(|one| one.spec.machine_config_pool.name == pool_name)?;
    let image = os_config.status.as_ref()?.current_image_pull_spec.as_str();
    let os_config_name = os_config.metadata.name.as_deref()?;
    let build = sources.builds.iter().find(|build| {
        build.spec.machine_os_config.name == os_config_name && build.spec.machine_config.name == config_name
    })?;
    let built = build.status.as_ref()?;
    let succeeded = built
        .conditions
        .iter()
        .any(|condition| condition.type_ == "Succeeded" && condition.status == "True");
    let same_image = built.digested_image_push_spec.is_empty() || built.digested_image_push_spec == image;
    let is_internal = sources
        .internal_registries
        .iter()
        .any(|host| image.starts_with(host.as_str()));
    (!image.is_empty() && succeeded && same_image && !is_internal).then_some(image)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(status: &Value) -> MachineConfigPool {
        serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {"configuration": {"name": "new"}, "paused": true},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn new_machines_start_where_the_pool_is_proven() {
        for (name, status, expected) in [
            (
                "one machine runs the target",
                json!({"configuration": {"name": "old"}, "updatedMachineCount": 1}),
                Some("new"),
            ),
            (
                "no machine runs the target yet",
                json!({"configuration": {"name": "old"}, "machineCount": 3, "updatedMachineCount": 0}),
                Some("old"),
            ),
            (
                "no machine at all",
                json!({"configuration": {"name": "old"}, "machineCount": 0}),
                Some("old"),
            ),
            ("a brand-new pool", json!({}), None),
            ("no status", json!(null), None),
        ] {
            assert_eq!(config_name(&pool(&status)), expected, "{name}");
        }
        let mid_rollout = pool(&json!({"configuration": {"name": "old"}, "updatedMachineCount": 1}));
        assert_eq!(bootstrap_config_name(&mid_rollout), Some("old"));
    }

    #[test]
    fn a_layered_image_is_used_only_when_it_is_certain() {
        let image = "registry.example.com/os@sha256:1";
        let internal = "image-registry.openshift-image-registry.svc:5000/os@sha256:1";
        let build = |status: &str, pushed: &str| {
            json!({"metadata": {"name": "b"},
                "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": "new"}},
                "status": {"conditions": [{"type": "Succeeded", "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}], "digestedImagePushSpec": pushed}})
        };
        let os_config = |image: &str| {
            json!({"metadata": {"name": "layered"}, "spec": {"machineConfigPool": {"name": "worker"}},
                "status": {"currentImagePullSpec": image}})
        };
        for (name, updated, os_config, build, expected) in [
            (
                "all is well",
                1,
                os_config(image),
                build("True", image),
                Some(image),
            ),
            (
                "no machine runs it",
                0,
                os_config(image),
                build("True", image),
                None,
            ),
            (
                "the registry is in the cluster",
                1,
                os_config(internal),
                build("True", internal),
                None,
            ),
            (
                "the build failed",
                1,
                os_config(image),
                build("False", image),
                None,
            ),
            (
                "the build made another image",
                1,
                os_config(image),
                build("True", "other@sha256:2"),
                None,
            ),
            ("no image yet", 1, os_config(""), build("True", ""), None),
        ] {
            let pool = pool(&json!({"configuration": {"name": "old"}, "updatedMachineCount": updated}));
            let sources = ImageSources {
                os_configs: &[serde_json::from_value(os_config).unwrap()],
                builds: &[serde_json::from_value(build).unwrap()],
                internal_registries: &["image-registry.openshift-image-registry.svc:5000".to_owned()],
            };
            assert_eq!(layered_image(&pool, "new", sources), expected, "{name}");
            let nothing = ImageSources {
                builds: &[],
                ..sources
            };
            assert_eq!(
                layered_image(&pool, "new", nothing),
                None,
                "{name}, without a build"
            );
            let nothing = ImageSources {
                os_configs: &[],
                ..sources
            };
            assert_eq!(
                layered_image(&pool, "new", nothing),
                None,
                "{name}, without a request for images"
            );
        }
    }
}
