//! The generators of kubelet configuration for every pool: from the cluster's node settings (97), its feature gates
//! (98) and the users' KubeletConfigs (99).

use std::collections::{BTreeMap, BTreeSet};

use mco_api::MachineConfigPool;
use mco_api::foreign::node::Node;
use mco_api::vocabulary::{labels, names};

use super::generate::name_of;
use super::{ExistingConfigs, GenerationResult, GeneratorInputs, user_configs};
use crate::config::pools;
use crate::generators::generated::Generated;
use crate::generators::kubelet::profile::{self, SettledProfile};
use crate::generators::kubelet::{self, KubeletBase, KubeletError};

const FEATURE_GATE: &str = "FeatureGate \"cluster\"";
const NODE: &str = "Node \"cluster\" (config.openshift.io)";

/// The effective node settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSettings<'a>(Option<&'a Node>);

pub(super) fn run(
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) {
    let SettledProfile { settings, prohibited } = settle(inputs, existing);
    result.prohibited_profile = prohibited;
    let settings = NodeSettings(settings.as_ref());
    let pools = &inputs.objects.pools;
    if !inputs.base.base.has_templates() {
        let objects = &inputs.objects.kubelet_configs;
        user_configs::run(objects, settings, inputs, existing, result);
        return;
    }
    for pool in pools {
        let name = names::generated_feature_kubelet(name_of(&pool.metadata));
        let generated = base_of(pool, settings, inputs).and_then(kubelet::for_feature_gates);
        take(FEATURE_GATE, &name, generated, existing, result);
    }
    for pool in pools {
        let name = names::generated_node_kubelet(name_of(&pool.metadata));
        let generated = for_node(pool, settings, inputs, existing, &name);
        take(NODE, &name, generated, existing, result);
    }
    user_configs::run(
        &inputs.objects.kubelet_configs,
        settings,
        inputs,
        existing,
        result,
    );
    warn_about_inheritance(pools, result);
}

/// Resolves the node settings; the config that was generated last decides which latency profile is prohibited.
fn settle(inputs: &GeneratorInputs<'_>, existing: &impl ExistingConfigs) -> SettledProfile {
    let worker = names::pool::WORKER;
    let present = [
        names::generated_node_kubelet(worker),
        names::generated_feature_kubelet(worker),
    ];
    let present = present.iter().find_map(|name| existing.in_force(name));
    profile::settle(inputs.objects.node.as_ref(), present.as_deref())
}

fn for_node(
    pool: &MachineConfigPool,
    settings: NodeSettings<'_>,
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
    name: &str,
) -> Result<Generated, KubeletError> {
    let mut arguments = kubelet::kernel_arguments(settings.0, &[])?;
    let is_custom = names::pool::is_custom(name_of(&pool.metadata));
    // The reference only sets them for a custom pool at its installation. Any other pool of its clusters only has the
    // worker's, and must keep it that way: one more argument is a reboot.
    if let Some(before) = existing.in_force(name).filter(|_| is_custom) {
        arguments.clone_from(&before.spec.kernel_arguments);
    }
    kubelet::for_node(base_of(pool, settings, inputs)?, arguments)
}

pub(super) fn base_of<'a>(
    pool: &'a MachineConfigPool,
    NodeSettings(node): NodeSettings<'a>,
    inputs: &GeneratorInputs<'a>,
) -> Result<KubeletBase<'a>, KubeletError> {
    let base = inputs.base;
    KubeletBase::of_pool(pool, &base.templates, &base.feature_gates, node, inputs.version)
}

fn take(
    object: &str,
    name: &str,
    generated: Result<Generated, KubeletError>,
    existing: &impl ExistingConfigs,
    result: &mut GenerationResult,
) {
    match generated {
        Ok(generated) => result.push(generated),
        Err(error) => {
            result.fail(object, error);
            result.keep(existing.in_force(name));
        }
    }
}

/// Warns the author of a KubeletConfig for workers: a custom pool has the worker's MachineConfigs, but the
/// kubelet.conf of its own feature gates (98) overrides the worker's.
fn warn_about_inheritance(pools: &[MachineConfigPool], result: &mut GenerationResult) {
    let selecting = |pool: &str| {
        let mut reports = result.reports.iter();
        reports.find(|report| report.assigned.configs.iter().any(|(other, _)| other == pool))
    };
    let Some(object) = selecting(names::pool::WORKER).map(|report| report.name.clone()) else {
        return;
    };
    let worker_label = BTreeMap::from([(labels::ROLE.to_owned(), names::pool::WORKER.to_owned())]);
    let left_out: BTreeSet<String> = pools
        .iter()
        .filter(|pool| {
            let name = name_of(&pool.metadata);
            let inherits = pools::config_selector(pool).is_ok_and(|s| s.matches(Some(&worker_label)));
            names::pool::is_custom(name) && inherits && selecting(name).is_none()
        })
        .map(|pool| name_of(&pool.metadata).to_owned())
        .collect();
    for pool in left_out {
        result.warn(format!(
            "KubeletConfig {object:?} selects pool worker but not pool {pool}, whose kubelet.conf therefore stays \
             without it\n  hint: select {pool} as well, or annotate the pool with {}: \"true\"",
            kubelet::INHERIT_FROM_WORKER
        ));
    }
}
