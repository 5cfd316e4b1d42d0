//! Watch handlers: which change enqueues which reconciler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::PartialObjectMeta;
use kube::core::object::HasSpec;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::foreign::scheduler::Scheduler;
use mco_api::machine_config_pool::MachineConfigPoolSpec;
use mco_api::machine_configuration::MachineConfigurationSpec;
use mco_api::vocabulary::annotations::{self, node as annotation};
use mco_api::vocabulary::conditions::{machine_config_node as condition, pool as pool_condition};
use mco_api::vocabulary::events;
use mco_api::vocabulary::labels::node as label;
use mco_api::vocabulary::names;
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig,
    OSImageStream, PinnedImageSet, RolloutPolicy,
};
use mco_core::config::node_versions::NodeVersions;
use mco_core::config::rendered_configs;
use mco_core::generators::boot_images;
use mco_core::generators::generated::Generator;
use mco_core::generators::kubelet::profile;
use mco_core::pipeline::BaseConfigs;
use mco_core::rollout::control_plane::is_control_plane_node;
use mco_core::rollout::image_mode_status::ImageModeStatus;
use mco_core::rollout::policy::selects;
use mco_core::rollout::{ContestedNode, PlannedEvent, changes};
use mco_runtime::{ObjectChange, object_name};
use tracing::warn;

use crate::boot_image_events;
use crate::context::Context;
use crate::events::Reporter;
use crate::feature_gates;
use crate::membership::IgnoredClaim;
use crate::policies;
use crate::rollout;

pub(crate) fn pool(ctx: &Context, change: &ObjectChange<'_, MachineConfigPool>) {
    let Some(name) = change.latest().and_then(|pool| pool.metadata.name.clone()) else {
        return;
    };
    let steered = |pool: &MachineConfigPool| {
        let target = pool.target_name().to_owned();
        (pool.metadata.labels.clone(), target, pool.spec.paused)
    };
    if change.old.map(|pool| steered(pool)) != change.new.map(|pool| steered(pool)) {
        policies::enqueue_all(ctx);
    }
    let differs = |part: fn(&MachineConfigPool) -> bool| {
        change.new.is_some_and(|pool| part(pool)) != change.old.is_some_and(|pool| part(pool))
    };
    let selector_changed = match (change.old, change.new) {
        (Some(old), Some(new)) => old.spec.node_selector != new.spec.node_selector,
        _ => true,
    };
    if selector_changed {
        let changes = ctx
            .membership
            .rebuild(|| ctx.stores.pools.all(), || ctx.stores.nodes.all());
        for pool in changes.pools {
            ctx.queues.rollout.enqueue(pool);
        }
        for contested in &changes.contested {
            report_contested(ctx, contested);
        }
        for (node, claim) in &changes.claims {
            set_pool_alert(ctx, node, *claim);
        }
        for node in ctx.stores.nodes.all() {
            ctx.queues
                .machine_config_nodes
                .enqueue(object_name(&node.metadata));
        }
    }
    let metadata_changed = match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.metadata.labels != new.metadata.labels || old.metadata.annotations != new.metadata.annotations
        }
        _ => true,
    };
    if metadata_changed {
        ctx.enqueue_generators();
    }
    if requires_render(ctx, change) {
        ctx.queues.render.enqueue(name.as_str());
        if name == names::pool::WORKER {
            // Custom pools inherit the worker pool's OS image stream.
            enqueue_custom_renders(ctx);
        }
    }
    if requires_pinned_images(change) {
        ctx.queues.pinned_images.enqueue(name.as_str());
    }
    if change.new.is_none() {
        ctx.renders.remove(&name);
        ctx.pinned_images.remove(&name);
        ctx.options.metrics.remove_pool(&name);
    }
    let completed = |pool: &MachineConfigPool| {
        let status = pool.status.as_ref();
        status.is_some_and(|status| pool_condition::holds(&status.conditions, pool_condition::UPDATED))
    };
    if differs(completed) {
        ctx.queues.rendered_config_gc.enqueue(());
    }
    ctx.queues.rollout.enqueue(name.as_str());
    if matches!(name.as_str(), names::pool::MASTER | names::pool::ARBITER) {
        ctx.queues.rollout.enqueue(names::pool::MASTER);
        ctx.queues.rollout.enqueue(names::pool::ARBITER);
    }
}

/// Returns true if the render's inputs or a target that is not our own have changed.
fn requires_render(ctx: &Context, change: &ObjectChange<'_, MachineConfigPool>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return change.new.is_some();
    };
    let inputs =
        |spec: &MachineConfigPoolSpec| (spec.machine_config_selector.clone(), spec.os_image_stream.clone());
    let ssh_user = |pool: &MachineConfigPool| {
        let all = pool.metadata.annotations.as_ref();
        all.and_then(|all| all.get(annotations::SSH_USER)).cloned()
    };
    let name = object_name(&new.metadata);
    let configuration = &new.spec.configuration;
    inputs(&old.spec) != inputs(&new.spec)
        || ssh_user(old) != ssh_user(new)
        || (old.spec.configuration != *configuration && !ctx.renders.is_own_target(name, configuration))
}

/// Returns true if the selector has changed, or another client has changed the list that this controller writes.
fn requires_pinned_images(change: &ObjectChange<'_, MachineConfigPool>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return change.new.is_some();
    };
    old.spec.machine_config_selector != new.spec.machine_config_selector
        || old.spec.pinned_image_sets != new.spec.pinned_image_sets
}

fn enqueue_custom_renders(ctx: &Context) {
    for pool in ctx.stores.pools.all() {
        let name = object_name(&pool.metadata);
        if names::pool::is_custom(name) {
            ctx.queues.render.enqueue(name);
        }
    }
}

/// Generates again when the versions of a node change, or its pool, on a base whose configs depend on them.
fn enqueue_for_versions(ctx: &Context, change: &ObjectChange<'_, Node>) {
    let versions = |node: Option<&Arc<Node>>| node.map(|node| NodeVersions::of(node));
    if ctx.base().is_some_and(|base| base.base.is_additive()) && versions(change.old) != versions(change.new)
    {
        for generator in [
            Generator::Kubelet,
            Generator::ContainerRuntime,
            Generator::Registries,
        ] {
            ctx.queues.generators.enqueue(generator);
        }
    }
}

/// A change of a policy, or of what is recorded about it, changes the plans of its pools.
pub(crate) fn rollout_policy(ctx: &Context, change: &ObjectChange<'_, RolloutPolicy>) {
    let (old, new) = (change.old, change.new);
    let written = |policy: &RolloutPolicy| (policy.spec.clone(), policy.metadata.annotations.clone());
    if old.map(|policy| written(policy)) != new.map(|policy| written(policy)) {
        policies::enqueue_all(ctx);
    }
    for pool in ctx.stores.pools.all() {
        let is_selected = [old, new]
            .into_iter()
            .flatten()
            .any(|policy| selects(policy, &pool));
        if is_selected {
            ctx.queues.rollout.enqueue(object_name(&pool.metadata));
        }
    }
}

/// Of all control-plane nodes one is updated at a time, so the plans of their pools depend on each other.
fn enqueue_control_plane_pools(ctx: &Context, change: &ObjectChange<'_, Node>) {
    let mut states = [change.old, change.new].into_iter().flatten();
    if states.any(|node| is_control_plane_node(node)) {
        for pool in rollout::control_plane_pools(ctx) {
            ctx.queues.rollout.enqueue(pool.as_str());
        }
    }
}

pub(crate) fn node(ctx: &Context, change: &ObjectChange<'_, Node>) {
    let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else {
        return;
    };
    let (before, after) = ctx.membership.update_node(&name, || ctx.stores.nodes.get(&name));
    if let Some(claim) = after.claim_change(&before) {
        set_pool_alert(ctx, &name, claim);
    }
    if let Some(contested) = after.new_contest(&before, &name) {
        report_contested(ctx, &contested);
    }
    let matters = match (change.old, change.new) {
        (Some(old), Some(new)) => changes::matter(old, new),
        _ => true,
    };
    let moved = before.pool != after.pool;
    if matters || moved {
        for pool in [&before.pool, &after.pool].into_iter().flatten() {
            ctx.queues.rollout.enqueue(pool.as_str());
            policies::enqueue_of_pool(ctx, pool);
            // The plans of control plane and arbiter depend on each other.
            match pool.as_str() {
                names::pool::MASTER => ctx.queues.rollout.enqueue(names::pool::ARBITER),
                names::pool::ARBITER => ctx.queues.rollout.enqueue(names::pool::MASTER),
                _ => {}
            }
        }
        enqueue_control_plane_pools(ctx, change);
    }
    if let Some(node) = change.new.filter(|_| after.pool.is_none())
        && let Some((_, owner)) = rollout::first_pivot(ctx, node)
        && change
            .old
            .is_none_or(|old| rollout::first_pivot(ctx, old).is_none())
    {
        ctx.queues.rollout.enqueue(owner.as_str());
    }
    enqueue_for_versions(ctx, change);
    let annotation_changed = |keys: &[&str]| {
        let of = |node: Option<&Arc<Node>>, key: &str| {
            node.and_then(|node| node.metadata.annotations.as_ref()?.get(key).cloned())
        };
        keys.iter().any(|key| of(change.old, key) != of(change.new, key))
    };
    let unschedulable = |node: Option<&Arc<Node>>| {
        node.and_then(|node| node.spec.as_ref()?.unschedulable)
            .unwrap_or_default()
    };
    if annotation_changed(&[
        annotation::DESIRED_DRAIN,
        annotation::LAST_APPLIED_DRAIN,
        annotation::DRAIN_RECORD,
    ]) || unschedulable(change.old) != unschedulable(change.new)
    {
        ctx.queues.drain.enqueue(name.as_str());
    }
    if change.old.is_none()
        || change.new.is_none()
        || moved
        || annotation_changed(&[annotation::DESIRED_CONFIG])
    {
        ctx.queues.machine_config_nodes.enqueue(name.as_str());
    }
    if annotation_changed(&[annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG]) {
        ctx.queues.rendered_config_gc.enqueue(());
    }
    let is_master = |node: &Arc<Node>| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(label::ROLE_MASTER))
    };
    if matters && change.new.is_some_and(is_master) {
        ctx.queues.control_plane.enqueue(name.as_str());
    }
    if let (Some(old), Some(new)) = (change.old, change.new)
        && after.pool.as_deref() == Some(names::pool::MASTER)
        && let Some(pool) = ctx.stores.pools.get(names::pool::MASTER)
    {
        for event in changes::annotation_events(old, new) {
            ctx.events.record(Reporter::Rollout, pool.as_ref(), event);
        }
    }
}

fn set_pool_alert(ctx: &Context, node: &str, claim: IgnoredClaim) {
    let metrics = &ctx.options.metrics;
    metrics.pool_alert(node, claim == IgnoredClaim::Present);
}

/// No pool counts a contested node, so the reason is reported on the node and on each pool that selects it.
fn report_contested(ctx: &Context, contested: &ContestedNode) {
    let message = format!(
        "{contested}: {}. Remove a label from the node, or exclude it in one nodeSelector with DoesNotExist",
        contested.pools.join(", ")
    );
    warn!(node = contested.node, "{message}");
    let event = PlannedEvent::warning(events::rollout::CONTESTED_NODE, message);
    if let Some(node) = ctx.stores.nodes.get(&contested.node) {
        ctx.events.record(Reporter::Rollout, node.as_ref(), event.clone());
    }
    for pool in contested
        .pools
        .iter()
        .filter_map(|name| ctx.stores.pools.get(name))
    {
        ctx.events.record(Reporter::Rollout, pool.as_ref(), event.clone());
    }
}

pub(crate) fn config(ctx: &Context, change: &ObjectChange<'_, PartialObjectMeta<MachineConfig>>) {
    let Some(metadata) = change.latest().map(|config| &config.metadata) else {
        return;
    };
    let name = object_name(metadata);
    match rendered_configs::pool_of(metadata) {
        Some(pool) => {
            ctx.queues.rendered_config_gc.enqueue(());
            let generation = |config: Option<&Arc<PartialObjectMeta<MachineConfig>>>| {
                config.map(|config| config.metadata.generation)
            };
            let gone_or_edited = change.old.is_some() && generation(change.old) != generation(change.new);
            if gone_or_edited {
                ctx.queues.render.enqueue(pool);
            }
        }
        None => ctx.queues.sources.enqueue(name),
    }
}

pub(crate) fn machine_config_node(ctx: &Context, change: &ObjectChange<'_, MachineConfigNode>) {
    let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else {
        return;
    };
    let spec = |node: Option<&Arc<MachineConfigNode>>| node.map(|node| node.spec.clone());
    if spec(change.old) != spec(change.new) {
        ctx.queues.machine_config_nodes.enqueue(name.as_str());
    }
    let is_counted = feature_gates::image_mode_status(ctx) == ImageModeStatus::On;
    let reported = |node: Option<&Arc<MachineConfigNode>>| {
        let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
        let updated = status
            .conditions
            .iter()
            .any(|entry| entry.type_ == condition::UPDATED && entry.status == "True");
        let reached = is_counted.then_some((updated, status.config_version, status.config_image));
        let failures = status
            .conditions
            .into_iter()
            .filter(|entry| entry.type_ == condition::NODE_DEGRADED);
        let failures = failures
            .map(|entry| (entry.status, entry.message))
            .collect::<Vec<_>>();
        (failures, status.pinned_image_sets, reached)
    };
    if reported(change.old) != reported(change.new)
        && let Some(pool) = ctx.membership.of_node(&name).pool
    {
        ctx.queues.rollout.enqueue(pool);
    }
}

/// The gates decide which steps MachineConfigNodes have and how pools count their nodes.
pub(crate) fn feature_gate(ctx: &Context, _: &ObjectChange<'_, FeatureGate>) {
    ctx.queues.generators.enqueue(Generator::Templates);
    boot_image_events::configuration(ctx);
    for node in ctx.stores.nodes.all() {
        ctx.queues
            .machine_config_nodes
            .enqueue(object_name(&node.metadata));
    }
    ctx.enqueue_all_rollouts();
}

pub(crate) fn controller_config(ctx: &Context, change: &ObjectChange<'_, ControllerConfig>) {
    let old = change.old.map(|config| BaseConfigs::inputs(config));
    let new = change.new.map(|config| BaseConfigs::inputs(config));
    if old != new {
        // Renders are enqueued when every generator has run.
        ctx.queues.generators.enqueue(Generator::Templates);
        ctx.queues.disruption_policy.enqueue(());
        boot_image_events::configuration(ctx);
        update_boot_image_metric(ctx);
    }
    let certificates = |config: Option<&Arc<ControllerConfig>>| {
        config.and_then(|config| Some(config.status.as_ref()?.controller_certificates.clone()))
    };
    if certificates(change.old) != certificates(change.new) || change.old.is_none() {
        ctx.enqueue_all_rollouts();
    }
}

/// Returns true unless only the status has changed.
pub(crate) fn spec_or_metadata_changed<K: Resource>(change: &ObjectChange<'_, K>) -> bool {
    let shape = |object: &Arc<K>| {
        let meta = object.meta();
        (
            meta.generation,
            meta.deletion_timestamp.is_some(),
            meta.finalizers.clone(),
            meta.annotations.clone(),
        )
    };
    change.old.map(shape) != change.new.map(shape)
}

pub(crate) fn machine_configuration<K>(ctx: &Context, change: &ObjectChange<'_, K>)
where
    K: HasSpec<Spec = MachineConfigurationSpec>,
{
    let overrides = |settings: Option<&Arc<K>>| {
        settings.and_then(|settings| settings.spec().irreconcilable_validation_overrides.clone())
    };
    if overrides(change.old) != overrides(change.new) {
        // A change that was irreconcilable may be rendered now.
        ctx.enqueue_all_renders();
    }
    ctx.queues.disruption_policy.enqueue(());
    update_boot_image_metric(ctx);
}

/// The operator reports what is enforced; whether that needs an alert depends on the platform as well.
fn update_boot_image_metric(ctx: &Context) {
    let settings = ctx.stores.machine_configuration();
    let enforced = settings.as_ref().and_then(|settings| {
        settings
            .status
            .as_ref()?
            .boot_image_skew_enforcement_status
            .as_ref()
    });
    let config = ctx.controller_config();
    let infrastructure = config.as_ref().and_then(|config| config.spec.infra.as_ref());
    let unwatched = boot_images::is_unwatched(enforced, infrastructure);
    ctx.options.metrics.boot_images_unwatched(unwatched);
}

pub(crate) fn os_config(ctx: &Context, change: &ObjectChange<'_, MachineOSConfig>) {
    if let Some(config) = change.latest() {
        ctx.queues
            .rollout
            .enqueue(config.spec.machine_config_pool.name.as_str());
    }
}

pub(crate) fn os_build(ctx: &Context, change: &ObjectChange<'_, MachineOSBuild>) {
    let Some(build) = change.latest() else { return };
    let config = ctx.stores.os_configs.get(&build.spec.machine_os_config.name);
    match config {
        Some(config) => ctx
            .queues
            .rollout
            .enqueue(config.spec.machine_config_pool.name.as_str()),
        None => ctx.enqueue_all_rollouts(),
    }
}

/// The release image is part of the registry configuration, and its version decides whether the streams are up to date.
pub(crate) fn cluster_version(ctx: &Context, change: &ObjectChange<'_, ClusterVersion>) {
    boot_image_events::cluster_version(ctx, change);
    ctx.queues.generators.enqueue(Generator::Registries);
    ctx.queues.os_streams.enqueue(());
}

pub(crate) fn os_stream(ctx: &Context, _: &ObjectChange<'_, OSImageStream>) {
    ctx.queues.os_streams.enqueue(());
    ctx.enqueue_all_renders();
    ctx.enqueue_all_rollouts();
}

pub(crate) fn pinned_image_set(ctx: &Context, change: &ObjectChange<'_, PartialObjectMeta<PinnedImageSet>>) {
    let selection = |set: &Arc<PartialObjectMeta<PinnedImageSet>>| {
        let meta = &set.metadata;
        (meta.labels.clone(), meta.deletion_timestamp.is_some())
    };
    if change.old.map(selection) == change.new.map(selection) {
        return;
    }
    for pool in ctx.stores.pools.all() {
        let name = object_name(&pool.metadata);
        ctx.queues.pinned_images.enqueue(name);
    }
}

pub(crate) fn node_settings(ctx: &Context, change: &ObjectChange<'_, NodeSettings>) {
    let name = change.latest().map(|settings| object_name(&settings.metadata));
    if name == Some(names::SINGLETON) {
        ctx.queues.generators.enqueue(Generator::Kubelet);
        return;
    }
    let spec = |settings: &Arc<NodeSettings>| settings.spec.clone();
    if change.old.map(spec) != change.new.map(spec)
        && let Some(misnamed) = change.new
    {
        let message = profile::misnamed(object_name(&misnamed.metadata));
        let event = PlannedEvent::normal(events::render::ACTION_PROHIBITED, message);
        ctx.events.record(Reporter::Kubelet, misnamed.as_ref(), event);
    }
}

pub(crate) fn scheduler(ctx: &Context, change: &ObjectChange<'_, Scheduler>) {
    ctx.scheduler_was_deleted
        .store(change.new.is_none(), Ordering::Relaxed);
    for node in ctx.stores.nodes.all() {
        ctx.queues.control_plane.enqueue(object_name(&node.metadata));
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;
    use crate::options::Options;

    fn context() -> Arc<Context> {
        let unused = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let (events, _) = crate::events::channel();
        Context::new(Client::new(unused, "default"), Options::new("v", "v"), events)
    }

    fn listed<K>(objects: Vec<K>) -> impl futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>> {
        let mut events = vec![Ok(watcher::Event::Init)];
        events.extend(
            objects
                .into_iter()
                .map(|object| Ok(watcher::Event::InitApply(object))),
        );
        events.push(Ok(watcher::Event::InitDone));
        stream::iter(events)
    }

    fn in_role(version: u32, role: &str) -> Node {
        serde_json::from_value(json!({"metadata": {
            "name": "a", "resourceVersion": version.to_string(),
            "labels": {format!("node-role.kubernetes.io/{role}"): ""},
        }}))
        .unwrap()
    }

    fn pool_of_role(role: &str) -> MachineConfigPool {
        serde_json::from_value(
            json!({"metadata": {"name": role}, "spec": {"nodeSelector": {"matchLabels":
            {format!("node-role.kubernetes.io/{role}"): ""}}}}),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_late_notification_of_an_older_state_does_not_move_the_node_back() {
        let ctx = context();
        let pools = ["worker", "infra"].map(pool_of_role).to_vec();
        ctx.stores.pools.follow(listed(pools)).await;
        ctx.stores.nodes.follow(listed(vec![in_role(2, "infra")])).await;
        let pool = || ctx.membership.of_node("a").pool;
        assert_eq!(pool().as_deref(), Some("infra"));
        let late = Arc::new(in_role(1, "worker"));
        let (created, deleted) = (
            ObjectChange {
                old: None,
                new: Some(&late),
            },
            ObjectChange {
                old: Some(&late),
                new: None,
            },
        );
        for change in [created, deleted] {
            node(&ctx, &change);
            assert_eq!(pool().as_deref(), Some("infra"));
        }
        assert_eq!(ctx.membership.nodes_of("worker"), [""; 0]);
        ctx.stores.nodes.follow(listed(Vec::<Node>::new())).await;
        assert_eq!(pool(), None);
    }

    #[tokio::test]
    async fn a_control_plane_node_that_another_pool_selects_raises_an_alert_in_any_order_of_events() {
        let node = || -> Node {
            let roles =
                ["master", "infra"].map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")));
            let labels: serde_json::Map<String, serde_json::Value> = roles.into_iter().collect();
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).unwrap()
        };
        let alert = |ctx: &Context| {
            let text = ctx.options.metrics.encode().unwrap();
            text.contains("mcc_pool_alert{node=\"a\"} 1")
        };
        let pools = || ["master", "infra"].map(pool_of_role).to_vec();
        let nodes_last = context();
        nodes_last.stores.pools.follow(listed(pools())).await;
        nodes_last.stores.nodes.follow(listed(vec![node()])).await;
        assert!(alert(&nodes_last));
        let pools_last = context();
        pools_last.stores.nodes.follow(listed(vec![node()])).await;
        assert!(!alert(&pools_last));
        pools_last.stores.pools.follow(listed(pools())).await;
        assert!(alert(&pools_last));
        pools_last
            .stores
            .pools
            .follow(listed(vec![pool_of_role("master")]))
            .await;
        assert!(!alert(&pools_last), "the other pool was deleted");
    }
}
