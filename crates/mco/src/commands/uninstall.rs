//! `mco uninstall`: removes an installation in steps that do not depend on any kubelet.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::core::PartialObjectMeta;
use mco_api::vocabulary::names::{self, component};
use mco_api::vocabulary::{labels, node_state};
use mco_api::{ContainerRuntimeConfig, KubeletConfig, MachineConfigNode};
use mco_client::switch::{self, UnsettledNode};
use mco_client::uninstall;
use mco_core::rollout::NodeView;
use mco_operator::manifests;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::switch::back::{any_settings, is_ours};
use super::switch::cluster::SwitchCluster;
use super::switch::steps::{self, GONE_WITHIN, SwitchStep};
use crate::cli::UninstallArguments;
use crate::input;
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// A step that only an uninstall has.
#[derive(Debug, Clone, PartialEq)]
pub enum UninstallStep {
    /// Waits until no Ready node is in the middle of an update.
    WaitForReadyNodes,
    /// Deletes objects without waiting for their dependents.
    Delete(Vec<Value>),
    /// Waits until the pods of a component, or of all, are gone; deletes those of nodes that are not Ready.
    WaitForPods(Option<&'static str>),
    /// Removes finalizers that name generated configs.
    ReleaseSettings(usize),
    /// Removes our annotations, taint and cordon from nodes.
    CleanNodes(usize),
    /// Deletes the namespace and waits until it is gone.
    DeleteNamespace(Value),
}

impl fmt::Display for UninstallStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitForReadyNodes => f.write_str("wait until no Ready node is being updated or drained"),
            Self::Delete(objects) => write!(f, "delete {}", steps::listed(objects)),
            Self::WaitForPods(Some(component)) => write!(
                f,
                "wait for the pods of {component} to end; delete those of nodes that are not Ready"
            ),
            Self::WaitForPods(None) => {
                f.write_str("wait for all pods to end; delete those of nodes that are not Ready")
            }
            Self::ReleaseSettings(count) => write!(
                f,
                "remove our finalizers from {} (KubeletConfigs and ContainerRuntimeConfigs)",
                input::count(*count, "object")
            ),
            Self::CleanNodes(count) => write!(
                f,
                "remove our annotations, taint and cordon from {}",
                input::count(*count, "node")
            ),
            Self::DeleteNamespace(namespace) => write!(f, "delete {}", steps::described(namespace)),
        }
    }
}

pub fn run(arguments: &UninstallArguments) -> anyhow::Result<CommandOutcome> {
    runtime::block_on(Box::pin(async {
        let cluster = SwitchCluster::new(arguments.connection.client().await?);
        let steps = plan(&cluster, arguments).await?;
        check_adopted(&cluster, arguments).await?;
        steps::carry_out(&cluster, &steps, &arguments.steps).await
    }))
}

/// Refuses to leave adopted nodes behind without an explicit request, because only their daemons can restore them.
async fn check_adopted(cluster: &SwitchCluster, arguments: &UninstallArguments) -> anyhow::Result<()> {
    let adopted = uninstall::adopted(&cluster.nodes().await?, &cluster.adoptions().await?);
    if adopted.is_empty() || arguments.leave_adopted {
        return Ok(());
    }
    let names = adopted.join(" ");
    let text = format!(
        "{} adopted and not released: {names}. Their daemons alone restore what was there before, so release them first: \
         mco release {names}. To leave them as they are: mco uninstall --leave-adopted",
        match adopted.len() {
            1 => "1 node is".to_owned(),
            count => format!("{count} nodes are"),
        }
    );
    if arguments.steps.dry_run {
        output::warning(text);
        return Ok(());
    }
    bail!(text)
}

/// The existing objects of an installation, in deletion order.
#[derive(Debug, Default)]
struct Installed {
    operator: Vec<Value>,
    guards: Vec<Value>,
    workloads: Vec<Value>,
    /// Cluster-scoped objects and those in other namespaces.
    others: Vec<Value>,
    namespace: Option<Value>,
}

async fn plan(cluster: &SwitchCluster, arguments: &UninstallArguments) -> anyhow::Result<Vec<SwitchStep>> {
    if arguments.crds && cluster.find(&steps::cluster_version()).await?.is_some() {
        bail!("--crds: this is an OpenShift cluster, whose CustomResourceDefinitions belong to its releases");
    }
    let installed = installed(cluster).await?;
    let runs = !installed.operator.is_empty() || !installed.workloads.is_empty();
    if !runs && let Some(leader) = cluster.leader().await? {
        bail!(
            "the controller {leader} runs outside of the installation and would restore what is removed; stop it first"
        );
    }
    let pools = match cluster.pools().await {
        Ok(pools) => pools,
        Err(_) if !has_definitions(cluster).await? => Vec::new(),
        Err(error) => return Err(error),
    };
    let name = |pool: &mco_api::MachineConfigPool| pool.metadata.name.clone();
    let mut plan = Vec::new();
    let paused = pools.iter().filter(|pool| switch::resume(pool).is_some());
    let mut resume: Vec<String> = paused.filter_map(name).collect();
    if runs && !arguments.steps.no_wait {
        let running = pools.iter().filter(|pool| switch::pause(pool).is_some());
        let running: Vec<String> = running.filter_map(name).collect();
        plan.extend(running.iter().cloned().map(SwitchStep::Pause));
        resume.extend(running);
        plan.push(SwitchStep::Uninstall(UninstallStep::WaitForReadyNodes));
    }
    let mut push = |step| plan.push(SwitchStep::Uninstall(step));
    if !installed.operator.is_empty() {
        push(UninstallStep::Delete(installed.operator));
        push(UninstallStep::WaitForPods(Some(component::OPERATOR)));
    }
    if !installed.guards.is_empty() {
        push(UninstallStep::Delete(installed.guards));
    }
    if !installed.workloads.is_empty() {
        push(UninstallStep::Delete(installed.workloads));
    }
    if runs {
        push(UninstallStep::WaitForPods(None));
    }
    // A component on a node that is partitioned from the cluster loses its permissions before the next steps.
    let mut others = installed.others;
    others.extend(derived(cluster).await?);
    if !others.is_empty() {
        push(UninstallStep::Delete(others));
    }
    plan.extend(restored(cluster).await?);
    plan.extend(
        installed
            .namespace
            .map(|namespace| SwitchStep::Uninstall(UninstallStep::DeleteNamespace(namespace))),
    );
    if arguments.crds {
        let definitions = definitions(cluster).await?;
        if !definitions.is_empty() {
            plan.push(SwitchStep::Uninstall(UninstallStep::Delete(definitions)));
        }
    } else {
        resume.sort_unstable();
        plan.extend(resume.into_iter().map(SwitchStep::Resume));
    }
    Ok(plan)
}

/// Returns the steps that restore objects which stay.
async fn restored(cluster: &SwitchCluster) -> anyhow::Result<Vec<SwitchStep>> {
    let mut plan = Vec::new();
    match steps::held_configs(cluster).await?.len() {
        0 => {}
        held => plan.push(SwitchStep::ReleaseConfigs(held)),
    }
    let settings = held_settings::<KubeletConfig>(cluster).await?.len()
        + held_settings::<ContainerRuntimeConfig>(cluster).await?.len();
    if settings > 0 {
        plan.push(SwitchStep::Uninstall(UninstallStep::ReleaseSettings(settings)));
    }
    let nodes = cluster.nodes().await?;
    let marked = nodes.iter().filter(|node| uninstall::clean_node(node).is_some());
    match marked.count() {
        0 => {}
        count => plan.push(SwitchStep::Uninstall(UninstallStep::CleanNodes(count))),
    }
    Ok(plan)
}

/// Returns the objects of our installation that exist. Those of another implementation, which has the same names, are an
/// error.
async fn installed(cluster: &SwitchCluster) -> anyhow::Result<Installed> {
    let mut all = manifests::removal(&any_settings());
    all.extend(manifests::alerts());
    all.extend(manifests::dashboards());
    let mut installed = Installed::default();
    for object in all {
        let is_inside = object["metadata"]["namespace"] == names::NAMESPACE;
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let is_workload = matches!(kind.as_str(), "Deployment" | "DaemonSet");
        if is_inside && !is_workload {
            // Deleted with the namespace.
            continue;
        }
        let Some(found) = cluster.find(&object).await? else {
            continue;
        };
        if is_of_release(&found) && !is_workload {
            // The release of the cluster delivers an object of this name, and would recreate it.
            continue;
        }
        if is_workload && !is_ours(&found, &object) {
            bail!(
                "{} is not ours: this cluster runs another implementation; see docs/switch.md",
                steps::described(&object)
            );
        }
        match kind.as_str() {
            _ if is_workload && object["metadata"]["name"] == component::OPERATOR => {
                installed.operator.push(object);
            }
            _ if is_workload => installed.workloads.push(object),
            _ if kind.starts_with("Validating") => installed.guards.push(object),
            "Namespace" => installed.namespace = Some(object),
            _ => installed.others.push(object),
        }
    }
    Ok(installed)
}

/// Returns whether the cluster version operator reconciles an object.
fn is_of_release(found: &Value) -> bool {
    let annotations = found["metadata"]["annotations"].as_object();
    let mut keys = annotations.into_iter().flat_map(serde_json::Map::keys);
    keys.any(|key| key.starts_with("include.release.openshift.io/"))
}

/// Returns the existing objects that our components derive from others.
async fn derived(cluster: &SwitchCluster) -> anyhow::Result<Vec<Value>> {
    let group = "machineconfiguration.openshift.io/v1";
    let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    let mut derived = Vec::new();
    for one in [
        object(
            "config.openshift.io/v1",
            "ClusterOperator",
            names::CLUSTER_OPERATOR,
        ),
        object(group, "ControllerConfig", component::CONTROLLER),
    ] {
        if cluster.find(&one).await?.is_some() {
            derived.push(one);
        }
    }
    let nodes = cluster
        .metadata_of::<MachineConfigNode>("MachineConfigNodes")
        .await?;
    let nodes = nodes.into_iter().filter_map(|node| node.metadata.name);
    derived.extend(nodes.map(|name| object(group, "MachineConfigNode", &name)));
    Ok(derived)
}

/// Returns references to our CRDs that exist.
async fn definitions(cluster: &SwitchCluster) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    let all = mco_api::crds().into_iter().chain(mco_api::crd::plain_crds());
    let names: BTreeSet<String> = all.filter_map(|definition| definition.metadata.name).collect();
    for name in names {
        let reference = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}});
        if cluster.find(&reference).await?.is_some() {
            found.push(reference);
        }
    }
    Ok(found)
}

async fn has_definitions(cluster: &SwitchCluster) -> anyhow::Result<bool> {
    let pools = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "machineconfigpools.machineconfiguration.openshift.io"}});
    Ok(cluster.find(&pools).await?.is_some())
}

/// Carries out one step.
pub async fn perform(
    cluster: &SwitchCluster,
    step: &UninstallStep,
    patience: Duration,
) -> anyhow::Result<()> {
    match step {
        UninstallStep::WaitForReadyNodes => steps::wait_for_nodes_that(cluster, patience, updating).await,
        UninstallStep::Delete(objects) => {
            for object in objects {
                cluster.delete_in_background(object).await?;
            }
            for object in objects {
                let what = format!("{} is still there", steps::described(object));
                steps::wait_until(GONE_WITHIN, &what, async || {
                    Ok(cluster.find(object).await?.is_none())
                })
                .await?;
            }
            Ok(())
        }
        UninstallStep::WaitForPods(component) => {
            let what = "pods of Ready nodes do not end; see kubectl get pods";
            steps::wait_until(GONE_WITHIN, what, async || {
                Ok(remaining_pods(cluster, *component).await? == 0)
            })
            .await
        }
        UninstallStep::ReleaseSettings(_) => {
            release_settings::<KubeletConfig>(cluster).await?;
            release_settings::<ContainerRuntimeConfig>(cluster).await
        }
        UninstallStep::CleanNodes(_) => {
            for node in cluster.nodes().await? {
                cluster.change_node(node, uninstall::clean_node).await?;
            }
            Ok(())
        }
        UninstallStep::DeleteNamespace(namespace) => {
            cluster.delete_in_background(namespace).await?;
            let what = format!(
                "{} is still there; its conditions name what remains (kubectl get namespace -o yaml)",
                steps::described(namespace)
            );
            steps::wait_until(GONE_WITHIN, &what, async || {
                remaining_pods(cluster, None).await?;
                Ok(cluster.find(namespace).await?.is_none())
            })
            .await
        }
    }
}

/// Returns the Ready nodes that are in the middle of an update. A node that reports a failure may never leave it, and one
/// that is not Ready may never come back.
fn updating(nodes: &[Node]) -> Vec<UnsettledNode> {
    let waits =
        |node: &&Node| uninstall::is_ready(node) && !node_state::is_failure(NodeView::new(node).state);
    switch::unsettled(nodes.iter().filter(waits))
}

/// Deletes the pods of nodes that are not Ready and returns the number of the others.
async fn remaining_pods(cluster: &SwitchCluster, component: Option<&str>) -> anyhow::Result<usize> {
    let mut pods = cluster.pods().await?;
    pods.retain(|pod| {
        let app = pod.metadata.labels.as_ref().and_then(|all| all.get(labels::APP));
        component.is_none() || app.map(String::as_str) == component
    });
    if pods.is_empty() {
        return Ok(0);
    }
    let ready = uninstall::ready_nodes(&cluster.nodes().await?);
    let mut remaining = 0;
    for pod in pods {
        if uninstall::has_kubelet(&pod, &ready) {
            remaining += 1;
        } else {
            cluster
                .delete_pod_at_once(pod.metadata.name.as_deref().unwrap_or_default())
                .await?;
        }
    }
    Ok(remaining)
}

async fn held_settings<K>(cluster: &SwitchCluster) -> anyhow::Result<Vec<PartialObjectMeta<K>>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    let mut settings = cluster.metadata_of::<K>(&format!("{}s", K::kind(&()))).await?;
    settings.retain(|object| uninstall::release_settings(&object.metadata).is_some());
    Ok(settings)
}

async fn release_settings<K>(cluster: &SwitchCluster) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    for object in held_settings::<K>(cluster).await? {
        cluster
            .patch_metadata(object, |object| uninstall::release_settings(&object.metadata))
            .await?;
    }
    Ok(())
}
