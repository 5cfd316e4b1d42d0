//! Selection of the PinnedImageSets of a node.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::{MachineConfigPool, PinnedImageSet};

use crate::config::pools::{Membership, NodePools, WORKER, is_built_in};

/// One PinnedImageSet, reduced to what a node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSet {
    pub name: String,
    pub generation: i32,
    pub images: BTreeSet<String>,
}

impl From<&PinnedImageSet> for ImageSet {
    fn from(set: &PinnedImageSet) -> Self {
        let generation = set.metadata.generation.unwrap_or(1);
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            // The status has 32-bit generations; larger ones are capped.
            generation: i32::try_from(generation).unwrap_or(i32::MAX),
            images: set
                .spec
                .pinned_images
                .iter()
                .map(|image| image.name.clone())
                .collect(),
        }
    }
}

/// Returns the sets of all pools that a node is in, by name. `None` if its pool is ambiguous: the node's pinned
/// images are then left unchanged.
///
/// A set that a pool names but that does not exist is being deleted, and the pool will be updated soon.
pub fn wanted<'p>(
    labels: &BTreeMap<String, String>,
    pools: impl IntoIterator<Item = &'p MachineConfigPool> + Clone,
    sets: &BTreeMap<String, ImageSet>,
) -> Option<Vec<ImageSet>> {
    let mine = pools_of(labels, pools.clone())?;
    let in_mine = |pool: &&MachineConfigPool| {
        let name = pool.metadata.name.as_deref();
        name.is_some_and(|name| mine.contains(name))
    };
    let named: BTreeSet<&str> = pools
        .into_iter()
        .filter(in_mine)
        .flat_map(|pool| &pool.spec.pinned_image_sets)
        .map(|set| set.name.as_str())
        .collect();
    Some(
        named
            .into_iter()
            .filter_map(|name| sets.get(name))
            .cloned()
            .collect(),
    )
}

/// Returns the pool that a node's config comes from and, for a node of a custom pool, also the worker pool.
fn pools_of<'p>(
    labels: &BTreeMap<String, String>,
    pools: impl IntoIterator<Item = &'p MachineConfigPool> + Clone,
) -> Option<BTreeSet<String>> {
    let all = NodePools::new(pools.clone());
    let pool = match all.of_node(Some(labels)) {
        Membership::Member { pool, .. } => pool.to_owned(),
        Membership::Unmanaged => return Some(BTreeSet::new()),
        Membership::Contested { .. } => return None,
    };
    let mut mine = BTreeSet::from([pool.clone()]);
    if !is_built_in(&pool) {
        let workers = pools
            .into_iter()
            .filter(|pool| pool.metadata.name.as_deref() == Some(WORKER));
        if let Membership::Member { pool, .. } = NodePools::new(workers).of_node(Some(labels)) {
            mine.insert(pool.to_owned());
        }
    }
    Some(mine)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, sets: &[&str]) -> MachineConfigPool {
        let sets: Vec<_> = sets.iter().map(|set| json!({"name": set})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
                "pinnedImageSets": sets,
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_node_keeps_the_sets_of_its_pools_and_of_no_others() {
        let pools = [
            pool("master", &["m"]),
            pool("worker", &["w", "gone"]),
            pool("infra", &["i", "w"]),
            pool("storage", &["s"]),
        ];
        let set = |name: &str| {
            let set = json!({"metadata": {"name": name, "generation": 3}, "spec": {"pinnedImages": [{"name": "a"}]}});
            let set: PinnedImageSet = serde_json::from_value(set).unwrap();
            (name.to_owned(), ImageSet::from(&set))
        };
        let sets: BTreeMap<String, ImageSet> = ["m", "w", "i", "s"].map(set).into();
        for (name, roles, expected) in [
            ("a worker", vec!["worker"], Some(vec!["w"])),
            (
                "a node of a custom pool keeps the workers' too",
                vec!["worker", "infra"],
                Some(vec!["i", "w"]),
            ),
            ("a custom pool alone", vec!["infra"], Some(vec!["i", "w"])),
            (
                "a control plane node that works as well",
                vec!["master", "worker"],
                Some(vec!["m"]),
            ),
            ("a node without a pool", vec![], Some(vec![])),
            ("a contested node is left alone", vec!["infra", "storage"], None),
        ] {
            let labels: BTreeMap<String, String> = roles
                .iter()
                .map(|role| (format!("node-role.kubernetes.io/{role}"), String::new()))
                .collect();
            let found = wanted(&labels, &pools, &sets);
            let names = found.map(|sets| sets.into_iter().map(|set| set.name).collect::<Vec<_>>());
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names, expected, "{name}");
        }
        assert_eq!(sets["m"].generation, 3);
    }
}
