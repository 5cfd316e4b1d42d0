//! Garbage collection of rendered configs: unused ones are pruned, except for the most recent ones, which users may
//! compare with or roll back to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::finalizers::RENDERED_CONFIG_IN_USE;

use crate::config::rendered_configs::pool_of;

/// The action for one rendered config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionStep {
    /// In use: add the finalizer that blocks its deletion.
    Protect,
    /// Being deleted and not in use: remove the finalizer.
    Release,
    /// Not in use, and enough newer ones exist: delete it.
    Delete,
}

/// Returns the action for each rendered config that needs one. The `kept` newest configs of each pool are retained,
/// in use or not.
pub fn steps<'a>(
    configs: impl IntoIterator<Item = &'a ObjectMeta>,
    used: &BTreeSet<&str>,
    kept: usize,
) -> Vec<(&'a str, RetentionStep)> {
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
                // The API server rejects new finalizers on an object that is being deleted.
                (true, false) if !protected => RetentionStep::Protect,
                (false, true) if protected => RetentionStep::Release,
                (false, false) if place >= kept => RetentionStep::Delete,
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
    use crate::config::rendered_configs::OWNER_KIND;

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
                ("rendered-worker-old", RetentionStep::Delete),
                ("rendered-worker-used", RetentionStep::Protect),
                ("rendered-worker-oldest", RetentionStep::Delete),
                ("rendered-worker-leaving", RetentionStep::Release),
            ]
        );
    }
}
