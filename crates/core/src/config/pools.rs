//! Pool membership of nodes, and the MachineConfigs that a pool selects.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::MachineConfigPool;
use thiserror::Error;

use crate::config::selector::{Selector, SelectorError};

pub const MASTER: &str = "master";
pub const WORKER: &str = "worker";
pub const ARBITER: &str = "arbiter";

const OS_LABEL: &str = "kubernetes.io/os";

/// Whether the pool is one that every cluster has, as opposed to a custom pool.
pub fn is_built_in(pool: &str) -> bool {
    matches!(pool, MASTER | WORKER | ARBITER)
}

/// Whether the name is a valid Kubernetes object name for a pool.
pub fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        label.bytes().all(|byte| inner(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().next_back().is_some_and(inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The pool membership of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership<'a> {
    /// No pool selects the node, or it runs Windows. It is not managed, which is not an error.
    Unmanaged,
    Member {
        /// The pool that determines the node's config.
        pool: &'a str,
        /// A custom pool that also selects the node but is ignored, because it is a control-plane node.
        ignored: Option<&'a str>,
    },
    /// Several custom pools select the node, so its config is ambiguous.
    Contested { pools: Vec<&'a str> },
}

/// The node selectors of all pools, parsed once. A pool with an invalid selector selects no node and does not affect
/// the other pools; [`NodePools::unreadable`] lists such pools.
#[derive(Debug, Clone)]
pub struct NodePools {
    readable: Vec<(String, Selector)>,
    /// The pools of `readable` that require this label. An index, because a node has few labels and a cluster may
    /// have many pools: only pools that the node's labels lead to are evaluated.
    by_label: HashMap<String, Vec<usize>>,
    /// The pools of `readable` that do not require any particular label.
    without_label: Vec<usize>,
    unreadable: Vec<(String, SelectorError)>,
}

impl NodePools {
    pub fn new<'p>(pools: impl IntoIterator<Item = &'p MachineConfigPool>) -> Self {
        let mut readable = Vec::new();
        let mut unreadable = Vec::new();
        for pool in pools {
            let name = pool.metadata.name.clone().unwrap_or_default();
            match pool.spec.node_selector.as_ref().map(Selector::parse) {
                // In Kubernetes an empty selector matches every node; here it matches none.
                None => {}
                Some(Ok(selector)) if selector.is_empty() => {}
                Some(Ok(selector)) => readable.push((name, selector)),
                Some(Err(error)) => unreadable.push((name, error)),
            }
        }
        let mut by_label: HashMap<String, Vec<usize>> = HashMap::new();
        let mut without_label = Vec::new();
        for (index, (_, selector)) in readable.iter().enumerate() {
            match selector.needed_label() {
                Some(label) => by_label.entry(label.to_owned()).or_default().push(index),
                None => without_label.push(index),
            }
        }
        Self {
            readable,
            by_label,
            without_label,
            unreadable,
        }
    }

    pub fn unreadable(&self) -> &[(String, SelectorError)] {
        &self.unreadable
    }

    pub fn of_node(&self, labels: Option<&BTreeMap<String, String>>) -> Membership<'_> {
        if labels
            .and_then(|labels| labels.get(OS_LABEL))
            .is_some_and(|os| os == "windows")
        {
            return Membership::Unmanaged;
        }
        let wanting = self.wanting(labels);
        let custom: Vec<&str> = wanting
            .iter()
            .copied()
            .filter(|name| !matches!(*name, MASTER | WORKER))
            .collect();
        let wants = |pool| wanting.iter().copied().find(|name| *name == pool);
        match (custom.as_slice(), wants(MASTER), wants(WORKER)) {
            ([_, _, ..], _, _) => Membership::Contested { pools: custom },
            (_, Some(master), _) => Membership::Member {
                pool: master,
                ignored: custom.first().copied(),
            },
            ([pool], None, _) => Membership::Member { pool, ignored: None },
            ([], None, Some(worker)) => Membership::Member {
                pool: worker,
                ignored: None,
            },
            ([], None, None) => Membership::Unmanaged,
        }
    }

    /// Returns whether a node belongs to this pool.
    pub fn is_member(&self, labels: Option<&BTreeMap<String, String>>, pool: &str) -> bool {
        matches!(self.of_node(labels), Membership::Member { pool: own, .. } if own == pool)
    }

    /// Returns the pools that select a node with these labels, in input order.
    fn wanting(&self, labels: Option<&BTreeMap<String, String>>) -> Vec<&str> {
        let named = labels.into_iter().flat_map(BTreeMap::keys);
        let mut candidates: Vec<usize> = named
            .filter_map(|label| self.by_label.get(label))
            .chain([&self.without_label])
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates
            .into_iter()
            .filter_map(|index| self.readable.get(index))
            .filter(|(_, selector)| selector.matches(labels))
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectError {
    #[error("MachineConfigPool {pool:?}: spec.machineConfigSelector: {source}")]
    Unreadable { pool: String, source: SelectorError },
    #[error("MachineConfigPool {pool:?} is selecting all machineconfigs. A non-empty selector is required.")]
    SelectsEverything { pool: String },
    #[error(
        "MachineConfigPool {pool:?}: couldn't find any MachineConfigs: none matches spec.machineConfigSelector"
    )]
    SelectsNothing { pool: String },
}

/// Returns the pools whose labels match a selector. A missing or empty selector matches none.
pub fn selected<'p>(
    pools: impl IntoIterator<Item = &'p MachineConfigPool>,
    selector: Option<&LabelSelector>,
) -> Result<Vec<&'p MachineConfigPool>, SelectorError> {
    let selector = selector.map(Selector::parse).transpose()?;
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return Ok(Vec::new());
    };
    let matching = pools
        .into_iter()
        .filter(|pool| selector.matches(pool.metadata.labels.as_ref()));
    Ok(matching.collect())
}

/// Returns the selector of the MachineConfigs that a pool is rendered from.
pub fn config_selector(pool: &MachineConfigPool) -> Result<Selector, SelectError> {
    let name = || pool.metadata.name.clone().unwrap_or_default();
    let Some(selector) = &pool.spec.machine_config_selector else {
        return Err(SelectError::SelectsNothing { pool: name() });
    };
    let selector =
        Selector::parse(selector).map_err(|source| SelectError::Unreadable { pool: name(), source })?;
    if selector.is_empty() {
        return Err(SelectError::SelectsEverything { pool: name() });
    }
    Ok(selector)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str) -> MachineConfigPool {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name},
            "spec": {"nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_in_one_pool_or_in_dispute() {
        let pools: Vec<_> = ["master", "worker", "infra", "gpu", "arbiter"].map(pool).into();
        let pools = NodePools::new(&pools);
        let member = |pool| Membership::Member { pool, ignored: None };
        let cases: Vec<(&str, &[&str], Membership<'_>)> = vec![
            ("no role", &[], Membership::Unmanaged),
            ("a role that no pool selects", &["storage"], Membership::Unmanaged),
            ("worker only", &["worker"], member("worker")),
            (
                "a custom pool beats worker",
                &["worker", "infra"],
                member("infra"),
            ),
            ("a custom pool alone", &["infra"], member("infra")),
            ("master beats worker", &["master", "worker"], member("master")),
            (
                "master beats a custom pool",
                &["master", "infra"],
                Membership::Member {
                    pool: "master",
                    ignored: Some("infra"),
                },
            ),
            (
                "two custom pools",
                &["infra", "gpu"],
                Membership::Contested {
                    pools: vec!["infra", "gpu"],
                },
            ),
            (
                "two custom pools and master",
                &["master", "infra", "gpu"],
                Membership::Contested {
                    pools: vec!["infra", "gpu"],
                },
            ),
            (
                "arbiter counts as custom",
                &["arbiter", "infra"],
                Membership::Contested {
                    pools: vec!["infra", "arbiter"],
                },
            ),
            (
                "Windows is never ours",
                &["worker", "windows"],
                Membership::Unmanaged,
            ),
        ];
        for (name, roles, expected) in cases {
            let labels: BTreeMap<String, String> = roles
                .iter()
                .map(|role| match *role {
                    "windows" => (OS_LABEL.to_owned(), "windows".to_owned()),
                    role => (format!("node-role.kubernetes.io/{role}"), String::new()),
                })
                .collect();
            assert_eq!(pools.of_node(Some(&labels)), expected, "{name}");
        }
    }

    #[test]
    fn an_unreadable_selector_hurts_only_its_own_pool() {
        let mut broken = pool("gpu");
        broken.spec.node_selector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "a", "operator": "Is"}]})).unwrap();
        let everything = MachineConfigPool {
            spec: serde_json::from_value(json!({"nodeSelector": {}})).unwrap(),
            ..pool("all")
        };
        let pools = [pool("worker"), broken, everything];
        let pools = NodePools::new(&pools);
        let labels = BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]);
        assert_eq!(
            pools.of_node(Some(&labels)),
            Membership::Member {
                pool: "worker",
                ignored: None
            }
        );
        assert_eq!(pools.unreadable().len(), 1);
    }

    #[test]
    fn every_kind_of_selector_finds_its_pools() {
        let selectors = [
            json!({"matchLabels": {"a": "1"}}),
            json!({"matchLabels": {"a": "1", "b": "2"}}),
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
            json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}, {"key": "b", "operator": "Exists"}]}),
            json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
        ];
        let pools: Vec<MachineConfigPool> = selectors
            .iter()
            .enumerate()
            .map(|(index, selector)| MachineConfigPool {
                spec: serde_json::from_value(json!({"nodeSelector": selector})).unwrap(),
                ..pool(&format!("pool-{index}"))
            })
            .collect();
        let index = NodePools::new(&pools);
        let values = [None, Some("1"), Some("2")];
        for (a, b) in values.iter().flat_map(|a| values.map(|b| (*a, b))) {
            let labels = [("a", a), ("b", b)]
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            let labels: BTreeMap<String, String> = labels.collect();
            let each_asked: Vec<String> = pools
                .iter()
                .filter(|pool| {
                    let selector = pool.spec.node_selector.as_ref().unwrap();
                    Selector::parse(selector).unwrap().matches(Some(&labels))
                })
                .map(|pool| pool.metadata.name.clone().unwrap())
                .collect();
            assert_eq!(index.wanting(Some(&labels)), each_asked, "{labels:?}");
        }
    }
}
