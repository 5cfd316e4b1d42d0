//! The decisions of an administrator about a rollout, in an annotation of the policy.

use std::collections::BTreeMap;

use mco_api::rollout_policy::RolloutPolicy;
use mco_api::vocabulary::annotations::ROLLOUT_CONTROL;
use serde::{Deserialize, Serialize};

use super::super::target::RolloutTarget;

/// The annotation's value: by pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutControl(pub BTreeMap<String, PoolControl>);

/// What was decided about the rollout of one pool to one config. It has no effect on another config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolControl {
    /// The rendered config.
    pub target: String,
    /// Waves up to this number, from 1, are not waited for any more, nor is their soak time.
    #[serde(skip_serializing_if = "is_zero")]
    pub promoted: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Nodes whose failure does not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acknowledged: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl RolloutControl {
    /// Reads the annotation; an invalid one decides nothing.
    pub fn of(policy: &RolloutPolicy) -> Self {
        let annotations = policy.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(ROLLOUT_CONTROL));
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Returns what was decided about this pool and config.
    pub(super) fn of_pool(mut self, pool: &str, target: &RolloutTarget) -> PoolControl {
        let control = self.0.remove(pool);
        control
            .filter(|control| control.target == target.config)
            .unwrap_or_default()
    }

    /// Returns the decisions about this pool and config, to change them. Those about an older config are dropped.
    pub fn entry(&mut self, pool: &str, target: &str) -> &mut PoolControl {
        let entry = self.0.entry(pool.to_owned()).or_default();
        if entry.target != target {
            *entry = PoolControl {
                target: target.to_owned(),
                ..PoolControl::default()
            };
        }
        entry
    }
}
