//! Which rendered configs can go: those that nobody uses, beyond the last few that people may want to compare with or
//! return to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::finalizers::RENDERED_CONFIG_IN_USE;
use mco_api::vocabulary::names::RENDERED_PREFIX;
use mco_api::{MachineConfigPool, MachineOSBuild};

const OWNER_KIND: &str = "MachineConfigPool";

/// What to do with one rendered config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Somebody uses it: it must not vanish.
    Protect,
    /// Somebody deletes it and nobody uses it.
    Release,
    /// Nobody uses it and there are newer ones enough.
    Delete,
}

/// Whether a MachineConfig is the rendered one of a pool, and of which.
pub fn pool_of(metadata: &ObjectMeta) -> Option<&str> {
    let name = metadata.name.as_deref()?;
    let owner = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == OWNER_KIND)?;
    name.starts_with(RENDERED_PREFIX).then_some(owner.name.as_str())
}

/// The rendered configs that somebody uses: a node has one or goes to one, a pool had one everywhere or goes to one, or
/// an image is made from one.
pub fn in_use<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    pools: impl IntoIterator<Item = &'a MachineConfigPool>,
    builds: impl IntoIterator<Item = &'a MachineOSBuild>,
) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    for node in nodes {
        let annotations = node.metadata.annotations.as_ref();
        for key in [annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG] {
            used.extend(annotations.and_then(|all| all.get(key)).map(String::as_str));
        }
    }
    for pool in pools {
        used.extend(pool.spec.configuration.reference.name.as_deref());
        let status = pool.status.as_ref();
        used.extend(status.and_then(|status| status.configuration.reference.name.as_deref()));
    }
    used.extend(
        builds
            .into_iter()
            .map(|build| build.spec.machine_config.name.as_str()),
    );
    used.remove("");
    used
}

/// What to do with each rendered config; those that can stay as they are do not appear. Of every pool the `kept` newest
/// stay, used or not.
pub fn steps<'a>(
    configs: impl IntoIterator<Item = &'a ObjectMeta>,
    used: &BTreeSet<&str>,
    kept: usize,
) -> Vec<(&'a str, Step)> {
    let mut by_pool: BTreeMap<&str, Vec<&ObjectMeta>> = BTreeMap::new();
    for config in configs {
        if let Some(pool) = pool_of(config) {
            by_pool.entry(pool).or_default().push(config);
        }
    }
    let mut steps = Vec::new();
    for configs in by_pool.values_mut() {
        configs.sort_by(|a, b| {
            let age = |config: &ObjectMeta| config.creation_timestamp.as_ref().map(|time| time.0);
            age(b).cmp(&age(a)).then_with(|| a.name.cmp(&b.name))
        });
        for (place, config) in configs.iter().enumerate() {
            let name = config.name.as_deref().unwrap_or_default();
            let protected = config
                .finalizers
                .iter()
                .flatten()
                .any(|finalizer| finalizer == RENDERED_CONFIG_IN_USE);
            let leaving = config.deletion_timestamp.is_some();
            let step = match (used.contains(name), leaving) {
                // A finalizer cannot be added to what is being deleted.
                (true, false) if !protected => Step::Protect,
                (false, true) if protected => Step::Release,
                (false, false) if place >= kept => Step::Delete,
                _ => continue,
            };
            steps.push((name, step));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(name: &str, age: u32, protected: bool, leaving: bool) -> ObjectMeta {
        let pool = name.split('-').nth(1).unwrap();
        let mut metadata = json!({
            "name": name,
            "creationTimestamp": format!("2026-01-01T00:{:02}:00Z", 59 - age),
            "ownerReferences": [{"apiVersion": "v1", "kind": OWNER_KIND, "name": pool, "uid": "u", "controller": true}],
        });
        if protected {
            metadata["finalizers"] = json!([RENDERED_CONFIG_IN_USE]);
        }
        if leaving {
            metadata["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        }
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn the_newest_and_the_used_stay_and_the_others_go() {
        let configs = [
            config("rendered-worker-new", 1, true, false),
            config("rendered-worker-mid", 2, true, false),
            config("rendered-worker-old", 3, true, false),
            config("rendered-worker-used", 4, false, false),
            config("rendered-worker-oldest", 5, false, false),
            config("rendered-worker-leaving", 6, true, true),
            config("rendered-worker-wanted", 7, true, true),
            config("rendered-infra-only", 9, true, false),
        ];
        let mut stranger = config("rendered-worker-user", 50, false, false);
        stranger.owner_references = None;
        let used = ["rendered-worker-used", "rendered-worker-wanted"].into();
        let found = steps(configs.iter().chain([&stranger]), &used, 2);
        assert_eq!(
            found,
            [
                ("rendered-worker-old", Step::Delete),
                ("rendered-worker-used", Step::Protect),
                ("rendered-worker-oldest", Step::Delete),
                ("rendered-worker-leaving", Step::Release),
            ]
        );
    }

    #[test]
    fn nodes_pools_and_builds_use_configs() {
        let node: Node = serde_json::from_value(json!({"metadata": {"annotations": {
            annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "b"}}}))
        .unwrap();
        let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "p"},
            "spec": {"configuration": {"name": "c"}}, "status": {"configuration": {"name": "d"}}}))
        .unwrap();
        let build: MachineOSBuild =
            serde_json::from_value(json!({"spec": {"machineConfig": {"name": "e"}}})).unwrap();
        let empty = MachineConfigPool::default();
        assert_eq!(
            in_use([&node], [&pool, &empty], [&build]),
            ["a", "b", "c", "d", "e"].into()
        );
    }
}
