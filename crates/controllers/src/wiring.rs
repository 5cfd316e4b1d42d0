//! Which change wakes whom. The only place that knows what each reconciler reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Resource;
use kube::api::PartialObjectMeta;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::foreign::scheduler::Scheduler;
use mco_api::machine_config_pool::MachineConfigPoolSpec;
use mco_api::machine_configuration::MACHINE_CONFIGURATION_NAME;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::conditions::{machine_config_node as condition, pool as pool_condition};
use mco_api::vocabulary::events;
use mco_api::vocabulary::labels::node as label;
use mco_api::vocabulary::names;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet,
};
use mco_core::config::rendered_configs;
use mco_core::generators::boot_images;
use mco_core::generators::kubelet::profile;
use mco_core::rollout::{ContestedNode, Event, changes};
use tracing::warn;

use crate::cluster::{Cluster, WHOLE};
use crate::events::Reporter;
use crate::foundation::Foundation;
use crate::members::Ignored;
use crate::mirror::Change;

pub(crate) fn pool(cluster: &Cluster, change: &Change<'_, MachineConfigPool>) {
    let Some(name) = change.latest().and_then(|pool| pool.metadata.name.clone()) else {
        return;
    };
    let differs = |part: fn(&MachineConfigPool) -> bool| {
        change.new.is_some_and(|pool| part(pool)) != change.old.is_some_and(|pool| part(pool))
    };
    let selector_changed = match (change.old, change.new) {
        (Some(old), Some(new)) => old.spec.node_selector != new.spec.node_selector,
        _ => true,
    };
    if selector_changed {
        let moves = cluster
            .members
            .rebuild(|| cluster.pools.all(), || cluster.nodes.all());
        for pool in moves.pools {
            cluster.queues.rollout.wake(pool);
        }
        for contested in &moves.contested {
            tell_of_dispute(cluster, contested);
        }
        for (node, ignored) in &moves.ignored {
            alert(cluster, node, *ignored);
        }
        for node in cluster.nodes.all() {
            cluster
                .queues
                .node_objects
                .wake(node.metadata.name.clone().unwrap_or_default());
        }
    }
    let metadata_changed = match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.metadata.labels != new.metadata.labels || old.metadata.annotations != new.metadata.annotations
        }
        _ => true,
    };
    if metadata_changed {
        for queue in cluster.queues.generators() {
            queue.wake(WHOLE);
        }
    }
    if asks_for_render(cluster, change) {
        cluster.queues.render.wake(name.as_str());
        if name == names::pool::WORKER {
            // Custom pools follow the worker pool's stream of images.
            wake_custom_renders(cluster);
        }
    }
    if asks_for_pins(change) {
        cluster.queues.pinned_images.wake(name.as_str());
    }
    if change.new.is_none() {
        cluster.renders.forget(&name);
        cluster.pinned.forget(&name);
        cluster.options.metrics.forget_pool(&name);
    }
    let completed = |pool: &MachineConfigPool| {
        let status = pool.status.as_ref();
        status.is_some_and(|status| pool_condition::holds(&status.conditions, pool_condition::UPDATED))
    };
    if differs(completed) {
        cluster.queues.collector.wake(WHOLE);
    }
    cluster.queues.rollout.wake(name.as_str());
    if matches!(name.as_str(), names::pool::MASTER | names::pool::ARBITER) {
        cluster.queues.rollout.wake(names::pool::MASTER);
        cluster.queues.rollout.wake(names::pool::ARBITER);
    }
}

/// What a render wrote itself asks for no render.
fn asks_for_render(cluster: &Cluster, change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return change.new.is_some();
    };
    let inputs =
        |spec: &MachineConfigPoolSpec| (spec.machine_config_selector.clone(), spec.os_image_stream.clone());
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let configuration = &new.spec.configuration;
    inputs(&old.spec) != inputs(&new.spec)
        || (old.spec.configuration != *configuration && !cluster.renders.is_own(name, configuration))
}

/// Which images a pool's machines keep depends on its selector alone; the list itself is ours.
fn asks_for_pins(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return change.new.is_some();
    };
    old.spec.machine_config_selector != new.spec.machine_config_selector
        || old.spec.pinned_image_sets != new.spec.pinned_image_sets
}

fn wake_custom_renders(cluster: &Cluster) {
    for pool in cluster.pools.all() {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        if names::pool::is_custom(name) {
            cluster.queues.render.wake(name);
        }
    }
}

pub(crate) fn node(cluster: &Cluster, change: &Change<'_, Node>) {
    let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else {
        return;
    };
    let (old_home, new_home) = cluster.members.place(&name, || cluster.nodes.get(&name));
    if let Some(ignored) = new_home.ignored_since(&old_home) {
        alert(cluster, &name, ignored);
    }
    if let Some(contested) = new_home.dispute_since(&old_home, &name) {
        tell_of_dispute(cluster, &contested);
    }
    let matters = match (change.old, change.new) {
        (Some(old), Some(new)) => changes::matter(old, new),
        _ => true,
    };
    let moved = old_home.pool != new_home.pool;
    if matters || moved {
        for pool in [&old_home.pool, &new_home.pool].into_iter().flatten() {
            cluster.queues.rollout.wake(pool.as_str());
            // Control plane and arbiter look at each other.
            match pool.as_str() {
                names::pool::MASTER => cluster.queues.rollout.wake(names::pool::ARBITER),
                names::pool::ARBITER => cluster.queues.rollout.wake(names::pool::MASTER),
                _ => {}
            }
        }
    }
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
        cluster.queues.drain.wake(name.as_str());
    }
    if change.old.is_none()
        || change.new.is_none()
        || moved
        || annotation_changed(&[annotation::DESIRED_CONFIG])
    {
        cluster.queues.node_objects.wake(name.as_str());
    }
    if annotation_changed(&[annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG]) {
        cluster.queues.collector.wake(WHOLE);
    }
    let is_master = |node: &Arc<Node>| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(label::ROLE_MASTER))
    };
    if matters && change.new.is_some_and(is_master) {
        cluster.queues.control_plane.wake(name.as_str());
    }
    if let (Some(old), Some(new)) = (change.old, change.new)
        && new_home.pool.as_deref() == Some(names::pool::MASTER)
        && let Some(pool) = cluster.pools.get(names::pool::MASTER)
    {
        for event in changes::annotation_events(old, new) {
            cluster.events.tell(Reporter::Rollout, pool.as_ref(), event);
        }
    }
}

fn alert(cluster: &Cluster, node: &str, ignored: Ignored) {
    let metrics = &cluster.options.metrics;
    metrics.pool_alert(node, ignored == Ignored::Wanted);
}

/// No pool counts a contested node, so whoever misses it finds the reason on the node and on each pool that wants it.
fn tell_of_dispute(cluster: &Cluster, contested: &ContestedNode) {
    let message = format!("{contested}: {}", contested.pools.join(", "));
    warn!(node = contested.node, "{message}");
    let event = Event::warning(events::rollout::CONTESTED_NODE, message);
    if let Some(node) = cluster.nodes.get(&contested.node) {
        cluster
            .events
            .tell(Reporter::Rollout, node.as_ref(), event.clone());
    }
    for pool in contested.pools.iter().filter_map(|name| cluster.pools.get(name)) {
        cluster
            .events
            .tell(Reporter::Rollout, pool.as_ref(), event.clone());
    }
}

pub(crate) fn config(cluster: &Cluster, change: &Change<'_, PartialObjectMeta<MachineConfig>>) {
    let Some(metadata) = change.latest().map(|config| &config.metadata) else {
        return;
    };
    let name = metadata.name.as_deref().unwrap_or_default();
    match rendered_configs::pool_of(metadata) {
        Some(pool) => {
            cluster.queues.collector.wake(WHOLE);
            let generation = |config: Option<&Arc<PartialObjectMeta<MachineConfig>>>| {
                config.map(|config| config.metadata.generation)
            };
            let gone_or_edited = change.old.is_some() && generation(change.old) != generation(change.new);
            if gone_or_edited {
                cluster.queues.render.wake(pool);
            }
        }
        None => cluster.queues.contents.wake(name),
    }
}

pub(crate) fn machine_config_node(cluster: &Cluster, change: &Change<'_, MachineConfigNode>) {
    let Some(name) = change.latest().and_then(|node| node.metadata.name.clone()) else {
        return;
    };
    let spec = |node: Option<&Arc<MachineConfigNode>>| node.map(|node| node.spec.clone());
    if spec(change.old) != spec(change.new) {
        cluster.queues.node_objects.wake(name.as_str());
    }
    let shown = |node: Option<&Arc<MachineConfigNode>>| {
        let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
        let failures = status
            .conditions
            .into_iter()
            .filter(|entry| entry.type_ == condition::NODE_DEGRADED);
        let failures = failures
            .map(|entry| (entry.status, entry.message))
            .collect::<Vec<_>>();
        (failures, status.pinned_image_sets)
    };
    if shown(change.old) != shown(change.new)
        && let Some(pool) = cluster.members.home(&name).pool
    {
        cluster.queues.rollout.wake(pool);
    }
}

pub(crate) fn controller_config(cluster: &Cluster, change: &Change<'_, ControllerConfig>) {
    let old = change.old.map(|config| Foundation::inputs(config));
    let new = change.new.map(|config| Foundation::inputs(config));
    if old != new {
        // Renders follow when all that is made from it has been made.
        cluster.queues.templates.wake(WHOLE);
        tell_about_boot_images(cluster);
    }
    let certificates = |config: Option<&Arc<ControllerConfig>>| {
        config.and_then(|config| Some(config.status.as_ref()?.controller_certificates.clone()))
    };
    if certificates(change.old) != certificates(change.new) || change.old.is_none() {
        cluster.wake_all_rollouts();
    }
}

pub(crate) fn kubelet_config(cluster: &Cluster, change: &Change<'_, KubeletConfig>) {
    if is_worth_a_look(change) {
        cluster.queues.kubelet.wake(WHOLE);
    }
}

pub(crate) fn runtime_config(cluster: &Cluster, change: &Change<'_, ContainerRuntimeConfig>) {
    if is_worth_a_look(change) {
        cluster.queues.runtime.wake(WHOLE);
    }
}

/// Anything but a new status.
fn is_worth_a_look<K: Resource>(change: &Change<'_, K>) -> bool {
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

pub(crate) fn machine_configuration(cluster: &Cluster, change: &Change<'_, MachineConfiguration>) {
    let overrides = |settings: Option<&Arc<MachineConfiguration>>| {
        settings.and_then(|settings| settings.spec.irreconcilable_validation_overrides.clone())
    };
    if overrides(change.old) != overrides(change.new) {
        // What no machine could follow may be rendered now.
        cluster.wake_all_renders();
    }
    cluster.queues.policies.wake(WHOLE);
    tell_about_boot_images(cluster);
}

/// The operator says what is enforced; whether somebody should be told depends on the platform as well.
fn tell_about_boot_images(cluster: &Cluster) {
    let settings = cluster.machine_configurations.get(MACHINE_CONFIGURATION_NAME);
    let enforced = settings.as_ref().and_then(|settings| {
        settings
            .status
            .as_ref()?
            .boot_image_skew_enforcement_status
            .as_ref()
    });
    let config = cluster.controller_config();
    let infrastructure = config.as_ref().and_then(|config| config.spec.infra.as_ref());
    let unwatched = boot_images::is_unwatched(enforced, infrastructure);
    cluster.options.metrics.boot_images_unwatched(unwatched);
}

pub(crate) fn os_config(cluster: &Cluster, change: &Change<'_, MachineOSConfig>) {
    if let Some(config) = change.latest() {
        cluster
            .queues
            .rollout
            .wake(config.spec.machine_config_pool.name.as_str());
    }
}

pub(crate) fn os_build(cluster: &Cluster, change: &Change<'_, MachineOSBuild>) {
    let Some(build) = change.latest() else { return };
    let config = cluster.os_configs.get(&build.spec.machine_os_config.name);
    match config {
        Some(config) => cluster
            .queues
            .rollout
            .wake(config.spec.machine_config_pool.name.as_str()),
        None => cluster.wake_all_rollouts(),
    }
}

/// A release decides about registries, and whether what is known of its streams is up to date.
pub(crate) fn release(cluster: &Cluster, _: &Change<'_, ClusterVersion>) {
    cluster.queues.registries.wake(WHOLE);
    cluster.queues.os_streams.wake(WHOLE);
}

pub(crate) fn os_images(cluster: &Cluster, _: &Change<'_, ConfigMap>) {
    cluster.queues.os_streams.wake(WHOLE);
}

pub(crate) fn os_stream(cluster: &Cluster, _: &Change<'_, OSImageStream>) {
    cluster.queues.os_streams.wake(WHOLE);
    cluster.wake_all_renders();
    cluster.wake_all_rollouts();
}

pub(crate) fn pinned_image_set(cluster: &Cluster, change: &Change<'_, PartialObjectMeta<PinnedImageSet>>) {
    let belonging = |set: &Arc<PartialObjectMeta<PinnedImageSet>>| {
        let meta = &set.metadata;
        (meta.labels.clone(), meta.deletion_timestamp.is_some())
    };
    if change.old.map(belonging) == change.new.map(belonging) {
        return;
    }
    for pool in cluster.pools.all() {
        let name = pool.metadata.name.clone().unwrap_or_default();
        cluster.queues.pinned_images.wake(name);
    }
}

/// Whatever decides about registries.
pub(crate) fn registries<K>(cluster: &Cluster, _: &Change<'_, K>) {
    cluster.queues.registries.wake(WHOLE);
}

pub(crate) fn credential_provider(cluster: &Cluster, change: &Change<'_, CRIOCredentialProviderConfig>) {
    if is_worth_a_look(change) {
        cluster.queues.credential_providers.wake(WHOLE);
    }
}

/// Whatever the base of all roles is made from.
pub(crate) fn foundations<K>(cluster: &Cluster, _: &Change<'_, K>) {
    cluster.queues.templates.wake(WHOLE);
}

pub(crate) fn node_settings(cluster: &Cluster, change: &Change<'_, NodeSettings>) {
    let name = |settings: &Arc<NodeSettings>| settings.metadata.name.clone().unwrap_or_default();
    if change.latest().map(name).as_deref() == Some(names::SINGLETON) {
        cluster.queues.kubelet.wake(WHOLE);
        return;
    }
    let spec = |settings: &Arc<NodeSettings>| settings.spec.clone();
    if change.old.map(spec) != change.new.map(spec)
        && let Some(misnamed) = change.new
    {
        let message = profile::misnamed(&name(misnamed));
        let event = Event::normal(events::render::ACTION_PROHIBITED, message);
        cluster.events.tell(Reporter::Kubelet, misnamed.as_ref(), event);
    }
}

pub(crate) fn scheduler(cluster: &Cluster, change: &Change<'_, Scheduler>) {
    cluster
        .scheduler_is_gone
        .store(change.new.is_none(), Ordering::Relaxed);
    for node in cluster.nodes.all() {
        cluster
            .queues
            .control_plane
            .wake(node.metadata.name.clone().unwrap_or_default());
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

    fn cluster() -> Arc<Cluster> {
        let nobody = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let (events, _) = crate::events::channel();
        Cluster::new(Client::new(nobody, "default"), Options::new("v", "v"), events)
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
    async fn whoever_tells_of_an_older_state_last_does_not_move_the_node_back() {
        let cluster = cluster();
        let pools = ["worker", "infra"].map(pool_of_role).to_vec();
        cluster.pools.follow(listed(pools)).await;
        cluster.nodes.follow(listed(vec![in_role(2, "infra")])).await;
        let home = || cluster.members.home("a").pool;
        assert_eq!(home().as_deref(), Some("infra"));
        let late = Arc::new(in_role(1, "worker"));
        let (came, went) = (
            Change {
                old: None,
                new: Some(&late),
            },
            Change {
                old: Some(&late),
                new: None,
            },
        );
        for change in [came, went] {
            node(&cluster, &change);
            assert_eq!(home().as_deref(), Some("infra"));
        }
        assert_eq!(cluster.members.of("worker"), [""; 0]);
        cluster.nodes.follow(listed(Vec::new())).await;
        assert_eq!(home(), None);
    }

    #[tokio::test]
    async fn a_control_plane_node_that_another_pool_wants_is_an_alarm_whoever_comes_last() {
        let node = || -> Node {
            let roles =
                ["master", "infra"].map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")));
            let labels: serde_json::Map<String, serde_json::Value> = roles.into_iter().collect();
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).unwrap()
        };
        let alarm = |cluster: &Cluster| {
            let text = cluster.options.metrics.encode().unwrap();
            text.contains("mcc_pool_alert{node=\"a\"} 1")
        };
        let pools = || ["master", "infra"].map(pool_of_role).to_vec();
        let nodes_last = cluster();
        nodes_last.pools.follow(listed(pools())).await;
        nodes_last.nodes.follow(listed(vec![node()])).await;
        assert!(alarm(&nodes_last));
        let pools_last = cluster();
        pools_last.nodes.follow(listed(vec![node()])).await;
        assert!(!alarm(&pools_last));
        pools_last.pools.follow(listed(pools())).await;
        assert!(alarm(&pools_last));
        pools_last
            .pools
            .follow(listed(vec![pool_of_role("master")]))
            .await;
        assert!(!alarm(&pools_last), "the other pool is gone");
    }
}
